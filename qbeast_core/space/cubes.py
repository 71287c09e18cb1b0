"""Cubes of the tree: the cells each covers, its box, and the text by which the log names it (format 5)."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.values import BoolArray, F64Array, I32Array, I64Array, StringColumn, U8Array, U64Array

# Levels below the root; two coordinates that part later share a cube.
MAX_DEPTH = 32

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_INVALID = 255
_DIGITS = np.full(256, _INVALID, np.uint8)
_DIGITS[_ALPHABET] = np.arange(64, dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Cubes:
    """Many cubes of one space.

    >>> cubes = Cubes(np.array([1, 2], np.uint8), np.array([[0, 1], [3, 0]], np.uint64))
    >>> cubes.dimensions, len(cubes)
    (2, 2)
    """

    depth: U8Array
    # Of shape (cubes, dimensions).
    cells: U64Array
    # Number of each cube's tree. Each partition of a table has its own tree. None: all cubes are in tree 0.
    trees: I64Array | None = None

    def __len__(self) -> int:
        return len(self.depth)

    @property
    def dimensions(self) -> int:
        """Number of indexed columns."""
        return int(self.cells.shape[1])

    def at(self, positions: I64Array | I32Array | slice) -> Cubes:
        """Return the cubes at some positions."""
        trees = None if self.trees is None else self.trees[positions]
        return Cubes(self.depth[positions], self.cells[positions], trees)


def cube_boxes(cubes: Cubes) -> tuple[F64Array, F64Array]:
    """Return the box of each cube: from `lower`, included, to `upper`, excluded unless it is 1.0.

    >>> cube_boxes(Cubes(np.array([2], np.uint8), np.array([[0, 3]], np.uint64)))
    (array([[0.  , 0.75]]), array([[0.25, 1.  ]]))
    """
    size = np.ldexp(1.0, -cubes.depth.astype(np.int32))[:, np.newaxis]
    lower = cubes.cells.astype(np.float64)
    return lower * size, (lower + 1.0) * size


def decode_cubes(texts: Sequence[str] | StringColumn, *, dimensions: int) -> Cubes:
    """Read cubes from their text form.

    >>> cubes = decode_cubes(["", "wg"], dimensions=2)
    >>> cubes.depth.tolist(), cubes.cells.tolist()
    ([0, 2], [[0, 0], [3, 2]])
    """
    characters = -(-dimensions // 6)
    column = texts if isinstance(texts, StringColumn) else _column(texts)
    starts = column.offsets[:-1] - column.offsets[0]
    digits = _DIGITS[column.data[column.offsets[0] : column.offsets[-1]]]
    wrong = _wrong(column, digits, dimensions)
    if wrong.any():
        raise _misnamed(texts, int(np.argmax(wrong)), dimensions)
    depth = np.diff(column.offsets) // characters
    # Sorted deepest first, the cubes that reach a level are a prefix.
    order = np.argsort(-depth, kind="stable")
    ends = np.searchsorted(-depth[order], -np.arange(1, MAX_DEPTH + 1), side="right")
    starts = starts[order]
    cells = np.zeros((dimensions, len(column)), np.uint64)
    for level, end in enumerate(ends[ends > 0].tolist()):
        for dimension in range(dimensions):
            digit = digits[starts[:end] + (level * characters + dimension // 6)]
            cells[dimension, :end] <<= np.uint64(1)
            cells[dimension, :end] |= (digit >> np.uint8(5 - dimension % 6)) & np.uint8(1)
    in_order = np.empty((len(column), dimensions), np.uint64)
    in_order[order] = cells.T
    return Cubes(depth.astype(np.uint8), in_order)


def encode_cubes(cubes: Cubes) -> list[str]:
    """Write cubes in their text form.

    >>> encode_cubes(Cubes(np.array([2, 0], np.uint8), np.array([[3, 2], [0, 0]], np.uint64)))
    ['wg', '']
    """
    characters = -(-cubes.dimensions // 6)
    depth = cubes.depth.astype(np.int64)
    width = int(depth.max(initial=0)) * characters
    codes = np.zeros((len(cubes), width), np.uint8)
    for level in range(width // characters):
        # The bit of this level; below its own depth a cube has none, and its text is cut there.
        shifts = np.maximum(depth - 1 - level, 0).astype(np.uint64)
        for dimension in range(cubes.dimensions):
            bits = (cubes.cells[:, dimension] >> shifts & np.uint64(1)).astype(np.uint8)
            codes[:, level * characters + dimension // 6] |= bits << np.uint8(5 - dimension % 6)
    text = _ALPHABET[codes].tobytes().decode("ascii")
    lengths = (depth * characters).tolist()
    return [text[row * width : row * width + length] for row, length in enumerate(lengths)]


def _column(texts: Sequence[str]) -> StringColumn:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    # A character outside ASCII becomes one "?", which is not a digit.
    return StringColumn(np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8), offsets)


def _wrong(column: StringColumn, digits: U8Array, dimensions: int) -> BoolArray:
    """Return which texts are not the name of a cube."""
    characters = -(-dimensions // 6)
    lengths = np.diff(column.offsets)
    wrong: BoolArray = (lengths % characters != 0) | (lengths > MAX_DEPTH * characters)
    invalid = digits == _INVALID
    if not wrong.any() and not invalid.any():
        spare = np.uint8((1 << 6 * characters - dimensions) - 1)
        invalid[characters - 1 :: characters] = digits[characters - 1 :: characters] & spare != 0
    if invalid.any():
        ends = column.offsets[1:] - column.offsets[0]
        wrong[np.searchsorted(ends, np.flatnonzero(invalid), side="right")] = True
    return wrong


def _misnamed(texts: Sequence[str] | StringColumn, number: int, dimensions: int) -> InvalidMetadataError:
    if isinstance(texts, StringColumn):
        start, end = texts.offsets[number : number + 2].tolist()
        text = texts.data[start:end].tobytes().decode(errors="replace")
    else:
        text = texts[number]
    characters = -(-dimensions // 6)
    return InvalidMetadataError(
        f"{reprlib.repr(text)} names no cube of {dimensions} dimensions: expected {characters} of A-Z, a-z, 0-9, "
        f"+ and / for each level, {MAX_DEPTH} levels at most, with no bit set past the last dimension"
    )
