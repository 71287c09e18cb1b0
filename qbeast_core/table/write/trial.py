"""Simulate a table on a sample of its rows: its tree, files and pages, and the shares that filters open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from qbeast_core.query.filters.nodes import Atom, Node, column_of
from qbeast_core.query.plan.evaluate import evaluate
from qbeast_core.query.plan.intervals import coordinate_intervals
from qbeast_core.query.plan.statistics import Statistics
from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array, U32Array
from qbeast_core.space.cubes import cube_boxes
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.own_column import own_column
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import Transformation
from qbeast_core.tree.bands.arrange import has_bands
from qbeast_core.tree.layout.build import Assignment, assign_rows
from qbeast_core.tree.layout.cells import grid_columns
from qbeast_core.tree.layout.pack import PackedFiles, pack_files, page_rows_for, rows_by_file, rows_per_file
from qbeast_core.tree.space.columns import frame_weights
from qbeast_core.tree.space.evolve import IndexWish, default_cube_size, first_revision
from qbeast_core.tree.space.summary import summarise


@dataclass(frozen=True, eq=False)  # no slots, for cached properties
class Trial:
    """A sample of a table, indexed like the table; cubes, files and pages are smaller in proportion."""

    # A uniform sample of the table.
    rows: pl.DataFrame
    table_rows: int
    row_bytes: float
    # The filters, and the columns that they name.
    filters: tuple[Node, ...]
    filtered: tuple[str, ...]
    # All rows of the table, if they are in memory: they have the minimum and maximum of each column.
    whole: pl.DataFrame | None = None
    _axes: dict[ColumnSpec, tuple[Revision, U32Array]] = field(
        default_factory=dict[ColumnSpec, tuple[Revision, U32Array]], init=False, repr=False
    )

    def shares(self, specs: Sequence[ColumnSpec]) -> F64Array:
        """Return the share of the rows that each filter opens with these columns, shape (filters,)."""
        axes = [self._axis(spec) for spec in specs]
        weights = frame_weights(self.rows, [spec.name for spec in specs])
        placed = assign_rows([cells for _, cells in axes], weights, cube_size=self._cube_size)
        file_rows = max(round(rows_per_file(self.row_bytes) * self._scale), 1)
        packed = pack_files(placed.counts, file_rows=file_rows)
        rows_of_file = self.table_rows // (len(packed.file_starts) - 1)
        bands = has_bands(rows_of_file)
        # In files with bands, pages have half as many rows on average.
        page_rows = page_rows_for(rows_of_file, cube_size=default_cube_size(self.table_rows)) / (1 + bands)
        drawn = _Drawn(
            spaces={space.columns[0]: space.transformations[0] for space, _ in axes},
            placed=placed,
            packed=packed,
            statistics=self._statistics(placed, packed, weights),
            page_rows=page_rows * self._scale,
            has_bands=bands,
        )
        return np.array([drawn.share(node) for node in self.filters])

    @property
    def _scale(self) -> float:
        return self.rows.height / self.table_rows

    @property
    def _cube_size(self) -> int:
        return max(round(default_cube_size(self.table_rows) * self._scale), 1)

    def _axis(self, spec: ColumnSpec) -> tuple[Revision, U32Array]:
        """Return the space of one column, as a revision, and the cells of the rows in it."""
        if spec not in self._axes:
            wish = IndexWish((spec,), self._cube_size, "documented")
            space = first_revision(wish, summarise(self.rows, [spec.name]), table_id="", timestamp_ms=0)
            self._axes[spec] = space, grid_columns(self.rows, space)[0]
        return self._axes[spec]

    def _statistics(self, placed: Assignment, packed: PackedFiles, weights: I32Array) -> Statistics:
        sizes = np.diff(packed.file_starts)
        if len(sizes) == 1:
            return self._of_one_file
        return self._of_files(self._filtered[rows_by_file(placed, packed, weights)], sizes)

    @cached_property
    def _of_one_file(self) -> Statistics:
        return self._of_files(self._filtered, np.array([self.rows.height]))

    @cached_property
    def _filtered(self) -> pl.DataFrame:
        return self.rows[list(self.filtered)]

    def _of_files(self, rows: pl.DataFrame, sizes: I64Array) -> Statistics:
        """Return the statistics in the log; `rows` are in the order of their files."""
        names, by = rows.columns, own_column("file")
        number = pl.Series(by, np.repeat(np.arange(len(sizes)), sizes))
        grouped = rows.hstack([number]).group_by(by, maintain_order=True)
        fields = {**self._bounds, "null_count": [pl.col(names).null_count()] if names else []}
        structs = {name: grouped.agg(some).drop(by).to_struct(name) for name, some in fields.items() if some}
        nothing = pl.repeat(value=False, n=len(sizes), eager=True)
        files = pl.DataFrame({by: np.arange(len(sizes)), **structs})
        return Statistics(files, nothing.alias("foreign"), sizes, nothing)

    @cached_property
    def _bounds(self) -> dict[str, list[pl.Expr]]:
        """Bounds of the rows of a file. At the ends of the sample, the bounds of the table, null if not known."""
        bounds: dict[str, list[pl.Expr]] = {"min": [], "max": []}
        for name in self.filtered:
            column, dtype = self.rows[name], self.rows.schema[name]
            table = column.clear() if self.whole is None else self.whole[name]
            for end, bound, of_sample, of_table in (
                ("min", pl.col(name).min(), column.min(), table.min()),
                ("max", pl.col(name).max(), column.max(), table.max()),
            ):
                inside = pl.when(bound != pl.lit(of_sample, dtype)).then(bound)
                bounds[end].append(inside.otherwise(pl.lit(of_table, dtype)))
        return bounds


@dataclass(frozen=True, eq=False)  # no slots, for cached properties
class _Drawn:
    """A simulated table."""

    spaces: dict[str, Transformation]
    placed: Assignment
    packed: PackedFiles
    # Statistics in the log.
    statistics: Statistics
    page_rows: float
    has_bands: bool

    def share(self, node: Node) -> float:
        """Return the share of the rows that are in pages which a filter opens."""
        blocks = evaluate(node, len(self._file), self._may_match)
        first, last, sizes = self._shared_pages
        marks = np.bincount(first[blocks], minlength=len(sizes) + 1)
        marks -= np.bincount(last[blocks], minlength=len(sizes) + 1)
        opened = np.cumsum(marks)[:-1] > 0
        rows = self._rows_alone[blocks].sum() + sizes[opened].sum()
        return float(rows / self.packed.file_starts[-1])

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
        whole = rows // self.page_rows * self.page_rows
        return np.where(self.has_bands, whole, 0.0)

    @cached_property
    def _shared_pages(self) -> tuple[I64Array, I64Array, F64Array]:
        """Indexes of the first page of each block and the page after its last, over all files; rows of each page."""
        rows = np.diff(self.packed.block_starts) - self._rows_alone
        files = np.bincount(self._file, rows)
        counts = np.ceil(files / self.page_rows).astype(np.int64)
        ends = np.cumsum(counts)
        sizes = np.full(ends[-1], self.page_rows)
        used = counts > 0
        sizes[ends[used] - 1] = (files - (counts - 1) * self.page_rows)[used]
        stops = np.cumsum(rows) - (np.cumsum(files) - files)[self._file]
        begins, stops = (stops - rows) / self.page_rows, stops / self.page_rows
        base = (ends - counts)[self._file]
        last = np.minimum(np.ceil(stops).astype(np.int64), counts[self._file])
        return base + begins.astype(np.int64), base + last, sizes
