"""Cubes as the format tells them: one group of bits a level, one point or text at a time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

Path = list[list[int]]
"""For each level, for each dimension, whether the upper half is taken."""


def path_of_point(point: list[float], depth: int) -> Path:
    rest, path = list(point), []
    for _ in range(depth):
        rest = [value * 2 for value in rest]
        path.append([int(value >= 1) for value in rest])
        rest = [value - bit for value, bit in zip(rest, path[-1], strict=True)]
    return path


def text_of_path(path: Path) -> str:
    text = ""
    for level in path:
        for first in range(0, len(level), 6):
            text += ALPHABET[sum(bit << (5 - i) for i, bit in enumerate(level[first : first + 6]))]
    return text


def cells_of_path(path: Path, dimensions: int) -> list[int]:
    cells = [0] * dimensions
    for level in path:
        cells = [cell * 2 + bit for cell, bit in zip(cells, level, strict=True)]
    return cells


def points_to_cells(points: np.ndarray, depths: np.ndarray) -> np.ndarray:
    """Give the cell of each point, one row, at its depth."""
    cells = [
        cells_of_path(path_of_point(point, int(depth)), points.shape[1])
        for point, depth in zip(points.tolist(), depths, strict=True)
    ]
    return np.array(cells, np.uint64).reshape(points.shape)


def box_of_path(path: Path, dimensions: int) -> list[tuple[Fraction, Fraction]]:
    box = [(Fraction(0), Fraction(1))] * dimensions
    for level in path:
        for j, bit in enumerate(level):
            low, high = box[j]
            middle = (low + high) / 2
            box[j] = (middle, high) if bit else (low, middle)
    return box
