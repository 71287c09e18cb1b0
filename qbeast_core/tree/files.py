"""Plan a write: pack cubes into files of about equal rows, in order of depth and weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.values import F64Array, I32Array, I64Array, U32Array, distinct
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.build import Assignment, ExistingTree, assign_rows
from qbeast_core.tree.grid import CubeNumbers, lowest_by_node, map_chunks

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
        file_of_row[start:stop] = file_of_cube.take(assignment.row_cube[start:stop])

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


# A file of upper levels has at most a third of the rows of other files, so each optimize can rewrite it.
_UPPER_SHARE: Final = 3
# A smaller write is not divided.
_WRITE_SHARE: Final = 4

# Minimum spread of the rows. Rows of one day stay together: a filter on the day skips the files of other days, but not
# a file with the upper cubes of all days.
_MIN_SPREAD: Final = 0.3


def pack_cubes(
    cubes: Cubes, counts: I64Array, tree: ExistingTree | None, *, file_rows: int, share: float = 1.0
) -> PackedFiles:
    """Pack the rows of cubes into files; see `file_starts`. A file has cubes of one tree.

    `cubes` are in file order, and `counts` are their rows, a share of all rows. `tree` has the rows of other files.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g", "w"], dimensions=2)
    >>> pack_cubes(cubes, np.array([10, 40, 40]), None, file_rows=50).file_starts.tolist()
    [0, 10, 50, 90]
    >>> two_trees = Cubes(cubes.depth, cubes.cells, np.array([0, 0, 7]))
    >>> pack_cubes(two_trees, np.array([10, 40, 40]), None, file_rows=200).file_starts.tolist()
    [0, 50, 90]
    """
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    trees = np.zeros(len(counts), np.int64) if cubes.trees is None else cubes.trees
    begins = np.flatnonzero(np.diff(trees, prepend=-1))
    rows_of_file = max(round(file_rows * share), 1)
    starts = [np.zeros(1, np.int64)]
    for first, last in pairwise([*begins.tolist(), len(counts)]):
        here = slice(first, last)
        upper = upper_cubes(
            cubes.at(here), counts[here] / share, tree, number=int(trees[first]), file_rows=file_rows
        )
        starts.append(file_starts(ends[first : last + 1], file_rows=rows_of_file, first_cubes=upper))
    return packed_at(distinct(np.concatenate(starts)), ends)


def upper_cubes(
    cubes: Cubes, counts: I64Array | F64Array, tree: ExistingTree | None, *, number: int = 0, file_rows: float
) -> int:
    """Return how many of the first cubes of a tree belong to a file of the upper levels, 0 for none.

    Optimize joins this file, which is small, with whatever it rewrites. So the upper cubes, which all filters and
    samples read, keep few blocks while the table grows. `cubes` are in file order, `number` is that of their tree.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> cubes = decode_cubes(["", "g", "w"], dimensions=2)
    >>> [upper_cubes(cubes, np.array([10, 40, 40]), None, file_rows=rows) for rows in (50, 100)]
    [1, 0]
    """
    rows = float(counts.sum())
    others = 0.0 if tree is None else tree.rows_of(number)
    if tree is not None and others and tree.spreads.get(number, 0.0) < _MIN_SPREAD:
        return 0
    rows_of_table = rows + others
    if rows_of_table <= file_rows or rows * _WRITE_SHARE <= file_rows:
        return 0
    level_ends = np.flatnonzero(np.diff(cubes.depth)) + 1
    fitting = level_ends[np.cumsum(counts)[level_ends - 1] * _UPPER_SHARE <= file_rows]
    return int(fitting[-1]) if len(fitting) else 0


_PAGES_OF_APPENDED_BLOCK: Final = 8


@dataclass(frozen=True, eq=False)
class IndexPlan:
    """The files of a write."""

    revision: Revision
    weights: I32Array
    assignment: Assignment
    packed: PackedFiles
    rows_by_file: RowNumbers
    # Cells of all rows, one array per dimension. Empty: they are not kept, and computed again for each file.
    cells: Sequence[U32Array] = ()

    @property
    def file_count(self) -> int:
        """Number of files to write; 0 without rows."""
        return len(self.packed.file_starts) - 1

    def rows_of(self, number: int) -> RowNumbers:
        """Return the rows of one file, ascending."""
        return self.rows_by_file[self.packed.file_starts[number] : self.packed.file_starts[number + 1]]

    def cells_of(self, number: int) -> list[U32Array]:
        """Return the cells of the rows of one file. Empty if they are not kept."""
        return [column.take(self.rows_of(number)) for column in self.cells]

    def file(self, number: int) -> tuple[RowNumbers, I32Array, tuple[Block, ...]]:
        """Return the rows of one file, 0 <= `number` < `file_count`, ascending, their weights, and its blocks."""
        packed, rows = self.packed, self.rows_of(number)
        weights = self.weights.take(rows)
        blocks = slice(*packed.file_first_block[number : number + 2].tolist())
        cubes, starts = packed.block_cube[blocks], packed.block_starts[blocks]
        counts = np.diff(starts, append=packed.file_starts[number + 1])
        place = np.zeros(len(self.assignment.counts), np.int32)
        place[cubes] = np.arange(len(cubes))
        lowest = lowest_by_node(weights, place.take(self.assignment.row_cube.take(rows)), len(cubes))
        columns = (column.tolist() for column in (cubes, lowest, self.assignment.thresholds[cubes], counts))
        return (
            rows,
            weights,
            tuple(
                Block(cube=self._texts[cube], min_weight=low, max_weight=high, element_count=count)
                for cube, low, high, count in zip(*columns, strict=True)
            ),
        )

    @cached_property
    def _texts(self) -> list[str]:
        return encode_cubes(self.assignment.cubes)


def plan_index(
    cells: list[U32Array],
    revision: Revision,
    weights: I32Array,
    *,
    existing: ExistingTree | None,
    file_rows: int,
    trees: I64Array | None = None,
    keeps_cells: bool = False,
) -> IndexPlan:
    """Plan the files for rows with these cells and weights. `trees` are the numbers of their trees, see `assign_rows`.

    `keeps_cells`: the plan keeps the cells until the files are written.
    """
    assignment = assign_rows(
        cells,
        weights,
        cube_size=revision.desired_cube_size,
        existing=existing,
        smallest_block_rows=smallest_block_rows(revision.desired_cube_size),
        trees=trees,
    )
    packed = pack_cubes(assignment.cubes, assignment.counts, existing, file_rows=file_rows)
    by_file = rows_by_file(assignment, packed, weights)
    return IndexPlan(revision, weights, assignment, packed, by_file, cells if keeps_cells else ())


def smallest_block_rows(cube_size: int) -> int:
    """Return the minimum rows that a block should have in a cube with other blocks: a few of the smallest pages.

    Smaller blocks cost each sample a page and do not help filters.
    """
    return min(_PAGES_OF_APPENDED_BLOCK * sizing().min_page_rows, cube_size)
