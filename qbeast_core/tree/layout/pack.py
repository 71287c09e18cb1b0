"""Cubes into files: rows in order of depth, cube (see `file_order`) and weight, cut into files of about equal rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.tree.layout.parallel import CHUNK_ROWS, map_chunks

if TYPE_CHECKING:  # workers that write files draw no tree
    from qbeast_core.tree.layout.build import Assignment

_FILE_MEMORY_BYTES: Final = 64 << 20
_MAX_FILE_BYTES: Final = 256 << 20
_MIN_FILE_ROWS: Final = 1 << 16
_MAX_FILE_ROWS: Final = 3 << 17
_MIN_PAGE_ROWS: Final = 256
_MAX_PAGE_ROWS: Final = 2048
_PAGES_PER_CUBE: Final = 8
_PAGES_PER_FILE: Final = 64
_SNAP_SHARE: Final = 8
_UINT16_VALUES: Final = 1 << 16
_SIGN: Final = np.uint32(1 << 31)  # turned over, signed numbers sort as unsigned ones


# Numbers of input rows; 32 bits wherever they do.
RowNumbers: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.int64]


# Numbers of cubes; 16 bits wherever they do.
CubeNumbers: TypeAlias = npt.NDArray[np.uint16] | I32Array


@dataclass(frozen=True, slots=True, eq=False)
class PackedFiles:
    """Which rows and blocks each file holds, as runs of the ordered rows."""

    file_starts: I64Array
    block_starts: I64Array
    block_cube: I64Array
    file_first_block: I64Array


def rows_by_file(assignment: Assignment, packed: PackedFiles, weights: I32Array) -> RowNumbers:
    """Return the rows file by file, ascending in each, so that taking them reads the input in order."""
    files = len(packed.file_starts) - 1
    rows = len(assignment.row_cube)
    file_of_block = np.repeat(np.arange(files), np.diff(packed.file_first_block))
    first_block = np.searchsorted(packed.block_cube, np.arange(len(assignment.counts)))
    few = files <= _UINT16_VALUES  # 16-bit numbers are sorted by counting
    file_of_row: CubeNumbers = np.empty(rows, np.uint16) if few else np.empty(rows, np.int32)
    file_of_cube = file_of_block[first_block].astype(file_of_row.dtype)

    def name(start: int, stop: int) -> None:
        file_of_row[start:stop] = file_of_cube[assignment.row_cube[start:stop]]

    map_chunks(name, rows)
    shared = np.flatnonzero(np.bincount(packed.block_cube, minlength=len(first_block)) > 1)
    for cube in shared.tolist():
        mine = np.flatnonzero(assignment.row_cube == cube)
        blocks = np.flatnonzero(packed.block_cube == cube)
        sizes = np.diff(packed.block_starts[blocks[0] : blocks[-1] + 2])
        by_weight = mine[np.argsort(weights[mine], kind="stable")]
        file_of_row[by_weight] = np.repeat(file_of_block[blocks], sizes)
    return _grouped(file_of_row, files)


def _grouped(group: CubeNumbers, groups: int) -> RowNumbers:
    """Return the rows group by group, ascending in each: chunks are sorted by themselves, then all are put together."""
    rows = len(group)
    out: RowNumbers = np.empty(rows, np.uint32) if rows < 1 << 32 else np.empty(rows, np.int64)
    if not rows:
        return out
    chunk_rows = max(CHUNK_ROWS, groups << 4)  # the counts of all chunks are fewer than the rows

    def count(start: int, stop: int) -> I64Array:
        return np.bincount(group[start:stop], minlength=groups)

    counts = np.array(map_chunks(count, rows, chunk_rows=chunk_rows)).reshape(-1, groups)
    # By chunk and group, where its first row goes: after all rows of earlier groups, and those of earlier chunks.
    firsts = (np.cumsum(counts.T) - counts.T.ravel()).reshape(groups, -1).T

    def place(start: int, stop: int) -> None:
        number = start // chunk_rows
        own = counts[number]
        order = np.argsort(group[start:stop], kind="stable")
        positions = np.repeat(firsts[number] - (np.cumsum(own) - own), own)
        positions += np.arange(stop - start)
        out[positions] = order + start

    map_chunks(place, rows, chunk_rows=chunk_rows)
    return out


def order_in_file(cubes: CubeNumbers, weights: I32Array) -> RowNumbers:
    """Return the places of a file's rows by cube and weight; equals keep their order."""
    position_bits = len(cubes).bit_length()
    first = int(cubes.min()) if len(cubes) else 0
    span = int(cubes.max()) - first if len(cubes) else 0
    key = (cubes - cubes.dtype.type(first)).astype(np.uint64)
    key <<= np.uint64(32)
    key |= weights.view(np.uint32) ^ _SIGN
    if 32 + span.bit_length() + position_bits > 64:
        return np.argsort(key, kind="stable")
    # With the place in the low bits one plain sort of the numbers does, which is several times faster; by Polars, for
    # NumPy's takes three times as long on processors that are slow at what it is written for.
    key <<= np.uint64(position_bits)
    key |= np.arange(len(key), dtype=np.uint32)
    key = pl.Series(key).sort(multithreaded=False).to_numpy()
    return (key & np.uint64((1 << position_bits) - 1)).astype(np.uint32)


def rows_per_file(row_bytes: float) -> int:
    """Return how many rows a file aims at, given a row's bytes in memory; at least one.

    >>> rows_per_file(160.0), rows_per_file(8e6)
    (393216, 33)
    """
    row_bytes = max(row_bytes, 1.0)
    wanted = min(max(_FILE_MEMORY_BYTES / row_bytes, _MIN_FILE_ROWS), _MAX_FILE_ROWS)
    return int(max(min(wanted, _MAX_FILE_BYTES / row_bytes), 1))


def page_rows_for(file_rows: int, *, cube_size: int) -> int:
    """Return the rows of a data page: an eighth of a cube, less in small files; a power of two.

    >>> page_rows_for(400_000, cube_size=16_384), page_rows_for(28_000, cube_size=4_096)
    (2048, 256)
    """
    wanted = max(min(cube_size // _PAGES_PER_CUBE, file_rows // _PAGES_PER_FILE), 1)
    return min(max(1 << (wanted.bit_length() - 1), _MIN_PAGE_ROWS), _MAX_PAGE_ROWS)


def pack_files(counts: I64Array, *, file_rows: int) -> PackedFiles:
    """Cut the ordered rows into files of about `file_rows` rows, at the end of a cube where one is near.

    A cube larger than a file is spread over several, lower weights first.

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
