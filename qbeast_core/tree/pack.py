"""Cubes into files: rows in order of depth, cube and weight, cut into files of about equal rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.tree.build import Assignment

__all__ = [
    "PackedFiles",
    "RowNumbers",
    "order_blocks",
    "pack_files",
    "page_rows_for",
    "rows_by_cube",
    "rows_per_file",
]

_FILE_MEMORY_BYTES: Final = 64 << 20
_MIN_FILE_ROWS: Final = 1 << 16
_MAX_FILE_ROWS: Final = 1 << 19
_MIN_PAGE_ROWS: Final = 256
_MAX_PAGE_ROWS: Final = 2048
_PAGES_PER_CUBE: Final = 8
_PAGES_PER_FILE: Final = 64
_SNAP_SHARE: Final = 8
_UINT16_VALUES: Final = 1 << 16


RowNumbers: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
"""Numbers of input rows; 32 bits wherever they do."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedFiles:
    """Which rows and blocks each file holds, as runs of the ordered rows.

    Parameters
    ----------
    file_starts : ndarray of int64, shape (files + 1,)
        File i holds the ordered rows ``[file_starts[i], file_starts[i + 1])``.
    block_starts : ndarray of int64, shape (blocks + 1,)
        The same for blocks, in file order; no block crosses a file's end.
    block_cube : ndarray of int64, shape (blocks,)
        Position of each block's cube in the assignment.
    file_first_block : ndarray of int64, shape (files + 1,)
        File i holds the blocks ``[file_first_block[i], file_first_block[i + 1])``.
    """

    file_starts: I64Array
    block_starts: I64Array
    block_cube: I64Array
    file_first_block: I64Array


def rows_by_cube(assignment: Assignment, packed: PackedFiles, weights: I32Array) -> RowNumbers:
    """Return the rows cube by cube; those of a cube that several files share also by weight.

    Parameters
    ----------
    assignment : Assignment
        Where each row goes.
    packed : PackedFiles
        Its files.
    weights : ndarray of int32, shape (rows,)
        The rows' weights.

    Returns
    -------
    ndarray of uint32 (int64 from 2**32 rows on), shape (rows,)
        Row numbers; `order_blocks` brings those of one file into their final order.
    """
    cubes = assignment.row_cube
    # A stable sort of 16-bit numbers counts instead of comparing.
    narrow = cubes.astype(np.uint16) if len(assignment.counts) <= _UINT16_VALUES else cubes
    found = np.argsort(narrow, kind="stable")
    rows: RowNumbers = found.astype(np.uint32) if len(found) < 1 << 32 else found
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(assignment.counts)])
    for cube in np.unique(packed.block_cube[1:][packed.block_cube[1:] == packed.block_cube[:-1]]):
        part = slice(ends[cube], ends[cube + 1])
        rows[part] = rows[part][np.argsort(weights[rows[part]], kind="stable")]
    return rows


def order_blocks(rows: RowNumbers, starts: I64Array, weights: I32Array) -> RowNumbers:
    """Return the rows of a file by block and weight.

    Parameters
    ----------
    rows : ndarray of integers, shape (n,)
        Row numbers, block by block.
    starts : ndarray of int64, shape (blocks + 1,)
        Where in `rows` each block begins, and the end.
    weights : ndarray of int32, shape (all rows,)
        Weights by row number.
    """
    key = np.repeat(np.arange(len(starts) - 1, dtype=np.uint64) << np.uint64(32), np.diff(starts))
    key |= (weights[rows].astype(np.int64) + (1 << 31)).astype(np.uint64)
    place_bits = len(rows).bit_length()
    if 32 + len(starts).bit_length() + place_bits > 64:
        return rows[np.argsort(key, kind="stable")]
    # With the place in the low bits one plain sort of the numbers does, which is several times faster.
    key = (key << np.uint64(place_bits)) | np.arange(len(rows), dtype=np.uint64)
    key.sort()
    return rows[(key & np.uint64((1 << place_bits) - 1)).astype(np.int64)]


def rows_per_file(row_bytes: float) -> int:
    """Return how many rows a file aims at, given a row's bytes in memory.

    Examples
    --------
    >>> rows_per_file(160.0)
    419430
    """
    return int(min(max(_FILE_MEMORY_BYTES / max(row_bytes, 1.0), _MIN_FILE_ROWS), _MAX_FILE_ROWS))


def page_rows_for(file_rows: int, *, cube_size: int) -> int:
    """Return the rows of a data page: an eighth of a cube, less in small files; a power of two.

    Examples
    --------
    >>> page_rows_for(400_000, cube_size=16_384), page_rows_for(28_000, cube_size=4_096)
    (2048, 256)
    """
    wanted = max(min(cube_size // _PAGES_PER_CUBE, file_rows // _PAGES_PER_FILE), 1)
    return min(max(1 << (wanted.bit_length() - 1), _MIN_PAGE_ROWS), _MAX_PAGE_ROWS)


def pack_files(counts: I64Array, *, file_rows: int) -> PackedFiles:
    """Cut the ordered rows into files of about `file_rows` rows, at the end of a cube where one is near.

    A cube larger than a file is spread over several, lower weights first.

    Parameters
    ----------
    counts : ndarray of int64, shape (cubes,)
        Rows of each cube, in file order, each at least one.
    file_rows : int
        Rows a file aims at.

    Returns
    -------
    PackedFiles
        No file for no rows.

    Examples
    --------
    >>> packed = pack_files(np.array([4, 3, 5]), file_rows=6)
    >>> packed.file_starts.tolist(), packed.block_cube.tolist()
    ([0, 7, 12], [0, 1, 2])
    """
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    rows = int(ends[-1])
    file_count = max(1, round(rows / file_rows)) if rows else 0
    cuts = np.array([rows * i // file_count for i in range(file_count + 1)] if file_count else [0], np.int64)
    slack = max(rows // max(file_count, 1) // _SNAP_SHARE, 1)
    after = np.minimum(np.searchsorted(ends, cuts), len(ends) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(ends[after] - cuts) <= np.abs(cuts - ends[before]), ends[after], ends[before])
    file_starts = np.unique(np.where(np.abs(nearest - cuts) <= slack, nearest, cuts))
    block_starts = np.union1d(ends, file_starts)
    return PackedFiles(
        file_starts=file_starts,
        block_starts=block_starts,
        block_cube=np.searchsorted(ends, block_starts[:-1], side="right") - 1,
        file_first_block=np.searchsorted(block_starts, file_starts),
    )
