"""The text form of cubes, as the log stores it, and their order, which follows from it (format 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.arrays import I64Array, U8Array
from qbeast_core.space.cube_grid import MAX_DEPTH, Cubes

__all__ = ["by_depth_order", "decode_cubes", "depth_first_order", "encode_cubes"]

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_INVALID = 255
_DIGITS = np.full(256, _INVALID, np.uint8)
_DIGITS[_ALPHABET] = np.arange(64, dtype=np.uint8)


def decode_cubes(texts: Sequence[str], *, dimensions: int) -> Cubes:
    """Read cubes from their text form.

    Parameters
    ----------
    texts
        One text a cube; the empty text is the root.
    dimensions
        Number of indexed columns, at least 1.

    Returns
    -------
    Cubes
        In the order of `texts`. A cube deeper than `MAX_DEPTH` is given as its ancestor of that depth,
        which holds all its rows.

    Raises
    ------
    InvalidMetadataError
        A text (named in the message) is no cube of that many dimensions. It is a `ValueError`.

    Examples
    --------
    >>> cubes = decode_cubes(["", "wg"], dimensions=2)
    >>> cubes.depth.tolist(), cubes.cells.tolist()
    ([0, 2], [[0, 0], [3, 2]])
    """
    characters = -(-dimensions // 6)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    # A character outside ASCII becomes one "?", which is no digit.
    digits = _DIGITS[np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8)]
    _check(texts, lengths, digits, dimensions)
    levels = digits.reshape(-1, characters)
    counts = lengths // characters
    depth = np.minimum(counts, MAX_DEPTH)
    shifts = _levels_below(counts, depth)
    if len(shifts) and int(shifts.min()) < 0:
        levels, shifts = levels[shifts >= 0], shifts[shifts >= 0]
    cells = np.zeros((len(texts), dimensions), np.uint64)
    deep = np.flatnonzero(depth)  # the root has no level to add up
    first = (np.cumsum(depth) - depth)[deep]
    places = np.uint64(1) << shifts.astype(np.uint64)
    for dimension in range(dimensions if len(deep) else 0):
        upper = levels[:, dimension // 6] & np.uint8(1 << 5 - dimension % 6) != 0
        cells[deep, dimension] = np.add.reduceat(places * upper, first)
    return Cubes(depth.astype(np.uint8), cells)


def encode_cubes(cubes: Cubes) -> list[str]:
    """Write cubes in their text form.

    Examples
    --------
    >>> encode_cubes(Cubes(np.array([2, 0], np.uint8), np.array([[3, 2], [0, 0]], np.uint64)))
    ['wg', '']
    """
    codes = _digits_of(cubes)
    width = codes.shape[1]
    text = _ALPHABET[codes - np.uint8(1) & np.uint8(63)].tobytes().decode("ascii")
    lengths = cubes.depth.astype(np.int64) * -(-cubes.dimensions // 6)
    return [text[row * width : row * width + length] for row, length in enumerate(lengths.tolist())]


def depth_first_order(cubes: Cubes) -> I64Array:
    """Sort depth-first: an ancestor before its descendants, else by the first bit that differs.

    Returns
    -------
    I64Array
        Indices that sort the cubes; equal cubes keep their order.

    Examples
    --------
    >>> cubes = Cubes(np.array([1, 2, 0], np.uint8), np.array([[1], [1], [0]], np.uint64))
    >>> depth_first_order(cubes).tolist(), by_depth_order(cubes).tolist()
    ([2, 1, 0], [2, 0, 1])
    """
    return _argsort(cubes, by_depth=False)


def by_depth_order(cubes: Cubes) -> I64Array:
    """Sort by depth, cubes of one depth by the first bit that differs; equal cubes keep their order."""
    return _argsort(cubes, by_depth=True)


def _argsort(cubes: Cubes, *, by_depth: bool) -> I64Array:
    codes = _digits_of(cubes)
    words = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), np.uint8)
    words[:, : codes.shape[1]] = codes
    # Eight digits make a big-endian word; lexsort takes the most significant key last.
    keys = [*words.view(">u8").astype(np.uint64).T[::-1]]
    if by_depth or not keys:
        keys.append(cubes.depth.astype(np.uint64))
    return np.lexsort(keys)


def _digits_of(cubes: Cubes) -> U8Array:
    """Spell cubes in six-bit digits, first level first.

    Shape (n, deepest * ceil(d / 6)): the digit + 1, and 0 past a cube's own depth.
    """
    characters = -(-cubes.dimensions // 6)
    deepest = int(cubes.depth.max()) if len(cubes) else 0
    codes = np.zeros((len(cubes), deepest * characters), np.uint8)
    remaining = cubes.depth.astype(np.int64)
    for level in range(deepest):
        remaining -= 1
        inside = remaining >= 0
        shifts = np.maximum(remaining, 0).astype(np.uint64)
        first = level * characters
        codes[:, first : first + characters] = inside[:, np.newaxis]
        for dimension in range(cubes.dimensions):
            bits = (cubes.cells[:, dimension] >> shifts & np.uint64(1)).astype(np.uint8)
            bits &= inside
            codes[:, first + dimension // 6] += bits << np.uint8(5 - dimension % 6)
    return codes


def _levels_below(counts: I64Array, depth: I64Array) -> I64Array:
    """Give, for every level of every text, how many levels of its cube follow; negative past `MAX_DEPTH`."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(ends - counts + depth - 1, counts) - np.arange(total)


def _check(texts: Sequence[str], lengths: I64Array, digits: U8Array, dimensions: int) -> None:
    characters = -(-dimensions // 6)
    wrong = lengths % characters != 0
    invalid = digits == _INVALID
    if not wrong.any() and not invalid.any():
        spare = np.uint8((1 << 6 * characters - dimensions) - 1)
        invalid[characters - 1 :: characters] = digits[characters - 1 :: characters] & spare != 0
    if invalid.any():
        rows = np.searchsorted(np.cumsum(lengths), np.flatnonzero(invalid), side="right")
        wrong[rows] = True
    if wrong.any():
        text = texts[int(np.argmax(wrong))]
        message = (
            f"{text!r} names no cube of {dimensions} dimensions: expected {characters} of A-Z, a-z, 0-9, "
            "+ and / for each level, with no bit set past the last dimension"
        )
        raise InvalidMetadataError(message)
