"""Which block of a file a row lies in, found again from its coordinates and its weight (format 8.1, 8.2)."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.space.cubes import cube_boxes, decode_cubes

__all__ = ["assert_above_its_ancestors", "assert_holds_its_rows"]


def assert_holds_its_rows(blocks: pl.DataFrame, points: np.ndarray, weights: np.ndarray) -> None:
    """Assert that the blocks of a file account for its rows, one for one.

    A row belongs to the first cube on its way down whose threshold its weight does not exceed. That each
    block then gets as many rows, and the smallest weight, that its tag tells leaves no row out of place.
    """
    first = _block_of_each_row(blocks, points, weights)
    assert (first >= 0).all(), f"{(first < 0).sum()} rows lie in no block of their file"
    counts = np.bincount(first, minlength=blocks.height)
    assert counts.tolist() == blocks["element_count"].to_list()
    least = np.full(blocks.height, np.iinfo(np.int64).max)
    np.minimum.at(least, first, weights.astype(np.int64))
    filled = counts > 0
    assert least[filled].tolist() == blocks["min_weight"].to_numpy()[filled].tolist()


def assert_above_its_ancestors(added: pl.DataFrame, live: pl.DataFrame, *, dimensions: int) -> None:
    """Assert format 8.3 for added blocks among all live ones of their revision, themselves included."""
    smallest = dict(live.group_by("cube").agg(pl.col("max_weight").min()).iter_rows())
    level = -(-dimensions // 6)
    for cube, least in added.select("cube", "min_weight").iter_rows():
        for end in range(0, len(cube), level):
            threshold = smallest.get(cube[:end])
            assert threshold is None or threshold < least, (cube[:end], threshold, cube, least)


def _block_of_each_row(blocks: pl.DataFrame, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    cubes = decode_cubes(blocks["cube"].to_list(), dimensions=points.shape[1])
    lower, upper = cube_boxes(cubes)
    upper[upper >= 1.0] = np.inf
    low, high = blocks["min_weight"].to_numpy(), blocks["max_weight"].to_numpy()
    first = np.full(len(points), -1)
    for block in np.argsort(cubes.depth, kind="stable"):
        inside = ((points >= lower[block]) & (points < upper[block])).all(axis=1)
        inside &= (weights >= low[block]) & (weights <= high[block]) & (first < 0)
        first[inside] = block
    return first
