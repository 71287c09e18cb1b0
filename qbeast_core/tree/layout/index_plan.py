"""Plan a write: the file of each row, and the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.cubes import encode_cubes
from qbeast_core.space.values import I32Array, I64Array
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.layout.cube_tree import Assignment, assign_rows
from qbeast_core.tree.layout.existing import ExistingTree
from qbeast_core.tree.layout.grid import grid_columns, lowest_by_node
from qbeast_core.tree.layout.pack import PackedFiles, RowNumbers, rows_by_file
from qbeast_core.tree.layout.upper import pack_cubes

_PAGES_OF_APPENDED_BLOCK: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class FilePlan:
    """One file to write."""

    # Ascending.
    rows: RowNumbers
    weights: I32Array
    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False)
class IndexPlan:
    """The files of a write; `file` returns the plan of one file."""

    revision: Revision
    weights: I32Array
    assignment: Assignment
    packed: PackedFiles
    rows_by_file: RowNumbers

    @property
    def file_count(self) -> int:
        """Number of files to write; 0 without rows."""
        return len(self.packed.file_starts) - 1

    def rows_of(self, number: int) -> RowNumbers:
        """Return the rows of one file, ascending."""
        return self.rows_by_file[self.packed.file_starts[number] : self.packed.file_starts[number + 1]]

    def file(self, number: int) -> FilePlan:
        """Return the plan of one file, 0 <= `number` < `file_count`."""
        packed, rows = self.packed, self.rows_of(number)
        weights = self.weights[rows]
        blocks = slice(*packed.file_first_block[number : number + 2].tolist())
        cubes, starts = packed.block_cube[blocks], packed.block_starts[blocks]
        counts = np.diff(starts, append=packed.file_starts[number + 1])
        place = np.zeros(len(self.assignment.counts), np.int32)
        place[cubes] = np.arange(len(cubes))
        lowest = lowest_by_node(weights, place[self.assignment.row_cube[rows]], len(cubes))
        columns = (column.tolist() for column in (cubes, lowest, self.assignment.thresholds[cubes], counts))
        return FilePlan(
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
    frame: pl.DataFrame,
    revision: Revision,
    weights: I32Array,
    *,
    existing: ExistingTree | None,
    file_rows: int,
    trees: I64Array | None = None,
) -> IndexPlan:
    """Plan the files for the rows of `frame`. `trees` are the numbers of the rows' trees, see `assign_rows`."""
    assignment = assign_rows(
        grid_columns(frame, revision),
        weights,
        cube_size=revision.desired_cube_size,
        existing=existing,
        smallest_block_rows=smallest_block_rows(revision.desired_cube_size),
        trees=trees,
    )
    packed = pack_cubes(assignment.cubes, assignment.counts, existing, file_rows=file_rows)
    by_file = rows_by_file(assignment, packed, weights)
    return IndexPlan(revision, weights, assignment, packed, by_file)


def smallest_block_rows(cube_size: int) -> int:
    """Return the minimum rows that a block should have in a cube with other blocks: a few of the smallest pages.

    Smaller blocks cost each sample a page and do not help filters.
    """
    return min(_PAGES_OF_APPENDED_BLOCK * sizing().min_page_rows, cube_size)
