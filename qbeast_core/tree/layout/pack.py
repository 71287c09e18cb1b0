"""Pack cubes into files of about equal rows, in order of depth, cube (see `file_order`) and weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.values import I32Array, I64Array, distinct
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.layout.grid import CubeNumbers
from qbeast_core.tree.space.index_values import map_chunks

if TYPE_CHECKING:  # workers that write files build no tree
    from qbeast_core.tree.layout.cube_tree import Assignment

_FILE_MEMORY_BYTES: Final = 64 << 20
_MAX_FILE_BYTES: Final = 256 << 20
# In a table with more files, files grow with the table up to this size in memory.
_FILES_OF_LARGE_TABLE: Final = 1_000
_LARGE_FILE_BYTES: Final = 128 << 20
_SNAP_SHARE: Final = 8


# Numbers of input rows; 32 bits if they fit.
RowNumbers: TypeAlias = npt.NDArray[np.uint32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PackedFiles:
    """The rows and blocks of each file, as runs of the ordered rows."""

    file_starts: I64Array
    block_starts: I64Array
    block_cube: I64Array
    file_first_block: I64Array


def rows_by_file(assignment: Assignment, packed: PackedFiles, weights: I32Array) -> RowNumbers:
    """Return the rows grouped by file, ascending in each file, so a gather reads the input in order."""
    files = len(packed.file_starts) - 1
    rows = len(assignment.row_cube)
    file_of_block = np.repeat(np.arange(files), np.diff(packed.file_first_block))
    first_block = np.searchsorted(packed.block_cube, np.arange(len(assignment.counts)))
    is_small = files <= sizing().max_counted_files  # 16-bit numbers are sorted by counting
    file_of_row: CubeNumbers = np.empty(rows, np.uint16) if is_small else np.empty(rows, np.int32)
    file_of_cube = file_of_block[first_block].astype(file_of_row.dtype)

    def assign(start: int, stop: int) -> None:
        file_of_row[start:stop] = file_of_cube[assignment.row_cube[start:stop]]

    map_chunks(assign, rows)
    shared = np.flatnonzero(np.bincount(packed.block_cube, minlength=len(first_block)) > 1)
    for cube in shared.tolist():
        cube_rows = np.flatnonzero(assignment.row_cube == cube)
        blocks = np.flatnonzero(packed.block_cube == cube)
        sizes = np.diff(packed.block_starts[blocks[0] : blocks[-1] + 2])
        by_weight = cube_rows[np.argsort(weights[cube_rows], kind="stable")]
        file_of_row[by_weight] = np.repeat(file_of_block[blocks], sizes)
    return _grouped(file_of_row, files)


def _grouped(group: CubeNumbers, groups: int) -> RowNumbers:
    """Return the rows by group, ascending in each group: sort chunks separately, then merge them."""
    rows = len(group)
    out: RowNumbers = np.empty(rows, np.uint32) if rows < 1 << 32 else np.empty(rows, np.int64)
    if not rows:
        return out
    chunk_rows = max(sizing().chunk_rows, groups << 4)  # the counts of all chunks are fewer than the rows

    def count(start: int, stop: int) -> I64Array:
        return np.bincount(group[start:stop], minlength=groups)

    counts = np.array(map_chunks(count, rows, chunk_rows=chunk_rows)).reshape(-1, groups)
    # First output position by chunk and group: after all earlier groups, and after earlier chunks of the group.
    firsts = (np.cumsum(counts.T) - counts.T.ravel()).reshape(groups, -1).T

    def place(start: int, stop: int) -> None:
        number = start // chunk_rows
        sizes = counts[number]
        order = np.argsort(group[start:stop], kind="stable")
        positions = np.repeat(firsts[number] - (np.cumsum(sizes) - sizes), sizes)
        positions += np.arange(stop - start)
        out[positions] = order + start

    map_chunks(place, rows, chunk_rows=chunk_rows)
    return out


def rows_per_file(row_bytes: float, table_rows: int = 0) -> int:
    """Return the target number of rows of a file, from the size of a row in memory; at least one.

    Files of tables with many rows are larger, so that plans and logs do not have too many files.

    >>> rows_per_file(160.0), rows_per_file(8e6), rows_per_file(40.0, 10**9)
    (393216, 33, 1000000)
    """
    row_bytes = max(row_bytes, 1.0)
    target = min(max(_FILE_MEMORY_BYTES / row_bytes, sizing().min_file_rows), sizing().max_file_rows)
    target = max(target, min(table_rows / _FILES_OF_LARGE_TABLE, _LARGE_FILE_BYTES / row_bytes))
    return int(max(min(target, _MAX_FILE_BYTES / row_bytes), 1))


def file_starts(ends: I64Array, *, file_rows: int, first_cubes: int = 0) -> I64Array:
    """Split ordered rows into files of about `file_rows` rows, at the end of a cube if one is near.

    `ends` has the first row, then the row after each cube. A cube that is larger than a file is split into several
    files, lower weights first. The first `first_cubes` cubes get a file of their own. Return the first row of each
    file, and the row after the last file.

    >>> file_starts(np.array([0, 4, 7, 12]), file_rows=6).tolist()
    [0, 7, 12]
    """
    first = int(ends[first_cubes])
    rows = int(ends[-1]) - first
    file_count = max(1, round(rows / file_rows)) if rows else 0
    cuts = np.array([first + rows * i // max(file_count, 1) for i in range(file_count + 1)], np.int64)
    slack = max(rows // max(file_count, 1) // _SNAP_SHARE, 1)
    after = np.minimum(np.searchsorted(ends, cuts), len(ends) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(ends[after] - cuts) <= np.abs(cuts - ends[before]), ends[after], ends[before])
    return distinct(np.append(ends[:1], np.where(np.abs(nearest - cuts) <= slack, nearest, cuts)))


def packed_at(starts: I64Array, ends: I64Array) -> PackedFiles:
    """Return the files and blocks of ordered rows; see `file_starts` for the arguments.

    >>> packed_at(np.array([0, 6, 12]), np.array([0, 4, 7, 12])).block_cube.tolist()
    [0, 1, 1, 2]
    """
    block_starts = distinct(np.concatenate([ends, starts]))
    return PackedFiles(
        file_starts=starts,
        block_starts=block_starts,
        block_cube=np.searchsorted(ends, block_starts[:-1], side="right") - 1,
        file_first_block=np.searchsorted(block_starts, starts),
    )
