"""Compute what filters open of a simulated table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from qbeast_core.query.filters.nodes import Atom, Node, column_of
from qbeast_core.query.plan.coordinate_intervals import coordinate_intervals
from qbeast_core.query.plan.file_statistics import Statistics, evaluate
from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import cube_boxes
from qbeast_core.spec.transformation import Transformation
from qbeast_core.tree.layout.arrange import arrange
from qbeast_core.tree.layout.cube_tree import Assignment
from qbeast_core.tree.layout.pack import PackedFiles, RowNumbers, order_in_file, page_rows_for
from qbeast_core.tree.layout.shape import FileShape


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What filters open, arrays of shape (filters,)."""

    # Share of the rows of the table in files that are read whole, and in pages of other files.
    in_files: F64Array
    in_pages: F64Array
    # Number of files that are read by pages.
    paged_files: F64Array

    @staticmethod
    def join(parts: Sequence[Opened]) -> Opened:
        """Return what several filters open."""
        return Opened(
            *(
                np.concatenate([np.zeros(0), *(getattr(part, name) for part in parts)])
                for name in Opened.__slots__
            )
        )

    def within(self, shares: F64Array | None) -> Opened:
        """Return what the filters open if each opens only a share of all partitions."""
        if shares is None:
            return self
        return Opened(*(getattr(self, name) * shares for name in Opened.__slots__))

    @property
    def shares(self) -> F64Array:
        """Share of the rows of the table."""
        return self.in_files + self.in_pages


@dataclass(frozen=True, eq=False)  # no slots, for cached properties
class SimulatedTable:
    """The blocks, files and pages of some rows."""

    spaces: dict[str, Transformation]
    weights: I32Array
    placed: Assignment
    packed: PackedFiles
    # Statistics in the log.
    statistics: Statistics
    # Mean rows per page of each file.
    page_rows: F64Array
    has_bands: bool
    # Row groups of a file.
    row_groups: int = 1

    def opened(self, node: Node) -> Opened:
        """Return what a filter opens."""
        blocks = evaluate(node, len(self._file), self._may_match)
        pages = self._shared_pages
        marks = np.bincount(pages.first[blocks], minlength=len(pages.rows) + 1)
        marks -= np.bincount(pages.last[blocks], minlength=len(pages.rows) + 1)
        opened = np.cumsum(marks)[:-1] > 0
        file_rows = np.diff(self.packed.file_starts)
        rows = np.bincount(self._file[blocks], self._rows_alone[blocks], len(file_rows))
        rows += np.bincount(pages.file[opened], pages.rows[opened], len(file_rows))
        is_whole = rows > file_rows - 0.5
        shares = rows / self.packed.file_starts[-1]
        return Opened(
            np.array([shares[is_whole].sum()]),
            np.array([shares[~is_whole].sum()]),
            np.array([(~is_whole & (rows > 0)).sum()], np.float64),
        )

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.packed.file_starts) - 1

    @cached_property
    def order(self) -> RowNumbers:
        """The rows in the order of the files."""
        return order_in_file(self.placed.row_cube, self.weights)

    def with_real_pages(self, *, scale: float, cube_size: int) -> SimulatedTable:
        """Return the table with the mean rows per page of files that are arranged like those of the real table.

        The first file has the upper levels of the tree, which have smaller pages; the last is like all others.
        """
        weights = self.weights[self.order]
        first, last = (
            self._arranged(number, weights, scale=scale, cube_size=cube_size)
            for number in (0, self.file_count - 1)
        )
        page_rows = np.full(self.file_count, _mean_page_rows(last))
        page_rows[0] = _mean_page_rows(first)
        return replace(self, page_rows=page_rows * scale, row_groups=len(last.bands.page_rows))

    def _arranged(self, file: int, weights: I32Array, *, scale: float, cube_size: int) -> FileShape:
        """Return the shape of one file of the real table, whose blocks have more rows in proportion."""
        blocks = slice(*self.packed.file_first_block[file : file + 2].tolist())
        firsts, stops = (self.packed.block_starts[blocks], self.packed.block_starts[1:][blocks])
        sizes = np.maximum(np.rint((stops - firsts) / scale), 1).astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        low, high = weights[firsts].astype(np.float64), weights[stops - 1].astype(np.float64)
        place = (np.arange(sizes.sum()) - np.repeat(starts, sizes)) * np.repeat((high - low) / sizes, sizes)
        spread = (np.repeat(low, sizes) + place).astype(np.int32)
        depths = self.placed.cubes.depth[self.packed.block_cube[blocks]].astype(np.int64)
        page_rows = page_rows_for(len(spread), cube_size=cube_size)
        return arrange(spread, starts, depths, page_rows=page_rows).shape

    def _may_match(self, atom: Atom) -> BoolArray:
        """Return the blocks that may hold a matching row, by the statistics of their files and by their cubes."""
        of_files = self.statistics.may_match(atom)[self._file]
        space = self.spaces.get(column_of(atom))
        intervals = None if space is None else coordinate_intervals(atom, space, foreign=False)
        if intervals is None:
            return of_files
        dimension = list(self.spaces).index(column_of(atom))
        lower, upper = self._boxes
        return of_files & intervals.meet(lower[:, dimension], upper[:, dimension])

    @cached_property
    def _file(self) -> I64Array:
        """File of each block."""
        return np.repeat(np.arange(len(self.packed.file_starts) - 1), np.diff(self.packed.file_first_block))

    @cached_property
    def _boxes(self) -> tuple[F64Array, F64Array]:
        """Ends of the box of each block."""
        lower, upper = cube_boxes(self.placed.cubes)
        upper[upper >= 1.0] = np.inf
        return lower[self.packed.block_cube], upper[self.packed.block_cube]

    @cached_property
    def _rows_alone(self) -> F64Array:
        """Rows of each block in pages without rows of other blocks: all but a part of a page in files with bands."""
        rows = np.diff(self.packed.block_starts)
        page_rows = self.page_rows[self._file]
        whole = rows // page_rows * page_rows
        return np.where(self.has_bands, whole, 0.0)

    @cached_property
    def _shared_pages(self) -> _SharedPages:
        rows = np.diff(self.packed.block_starts) - self._rows_alone
        files = np.bincount(self._file, rows)
        counts = np.ceil(files / self.page_rows).astype(np.int64)
        ends = np.cumsum(counts)
        sizes = np.repeat(self.page_rows, counts)
        used = counts > 0
        sizes[ends[used] - 1] = (files - (counts - 1) * self.page_rows)[used]
        stops = np.cumsum(rows) - (np.cumsum(files) - files)[self._file]
        page_rows = self.page_rows[self._file]
        begins, stops = (stops - rows) / page_rows, stops / page_rows
        base = (ends - counts)[self._file]
        last = np.minimum(np.ceil(stops).astype(np.int64), counts[self._file])
        file = np.repeat(np.arange(len(counts)), counts)
        return _SharedPages(base + begins.astype(np.int64), base + last, sizes, file)


def _mean_page_rows(shape: FileShape) -> float:
    return float(shape.runs.rows.sum()) / shape.pages


@dataclass(frozen=True, slots=True, eq=False)
class _SharedPages:
    """The pages of all files that hold rows of several blocks."""

    # Indexes of the first page of each block and of the page after its last.
    first: I64Array
    last: I64Array
    # Rows and file of each page.
    rows: F64Array
    file: I64Array
