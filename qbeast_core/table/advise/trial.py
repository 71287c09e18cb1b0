"""Simulate a table on a sample of its rows: its tree, files and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.io.parquet.encode import encode_data_file
from qbeast_core.io.parquet.tail import PageCuts, parse_tail
from qbeast_core.query.filters.nodes import Node
from qbeast_core.query.plan.file_statistics import Statistics
from qbeast_core.space.arrays import F64Array, I32Array, I64Array, U32Array
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import TransformerKind
from qbeast_core.support.joins import own_column
from qbeast_core.table.advise.simulated import Opened, SimulatedTable
from qbeast_core.table.data.data_files import FileSettings
from qbeast_core.tree.layout.arrange import has_bands
from qbeast_core.tree.layout.cube_tree import Assignment, assign_rows
from qbeast_core.tree.layout.grid import grid_columns
from qbeast_core.tree.layout.pack import (
    PackedFiles,
    page_rows_for,
    rows_by_file,
    rows_per_file,
)
from qbeast_core.tree.layout.upper import pack_cubes
from qbeast_core.tree.space.evolve import IndexWish, default_cube_size, first_revision
from qbeast_core.tree.space.index_values import frame_weights
from qbeast_core.tree.space.summary import summarise

# Every fourth row of a sample is encoded again alone: this shows how the size depends on the number of rows.
_THINNED: Final = 4

# Columns to index together.
ColumnSet: TypeAlias = tuple[ColumnSpec, ...]


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The size of the rows of a table."""

    # Bytes of a row in files that are read whole, and in files that are read by pages.
    in_files: float
    in_pages: float
    # Bytes of page directory, footer and dictionaries of a file that is read by pages.
    tail: float

    def extrapolated(self, thin: RowSizes, *, steps: float) -> RowSizes:
        """Return the size of more rows, if it changes as much per step as it did from `thin`.

        Rows of more rows are more alike: rows of one key, and rows of one page.
        """
        in_files, in_pages = (
            max(value + steps * (value - before), value / 2)
            for value, before in ((self.in_files, thin.in_files), (self.in_pages, thin.in_pages))
        )
        return RowSizes(in_files, in_pages, self.tail)

    def bytes_of(self, opened: Opened, *, rows: int) -> F64Array:
        """Return the bytes that filters open of a table with a number of rows, shape (filters,)."""
        in_rows = opened.in_files * self.in_files + opened.in_pages * self.in_pages
        return in_rows * rows + opened.paged_files * self.tail


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes rows as the files of a table would be."""

    settings: FileSettings

    @staticmethod
    def of(rows: pl.DataFrame, configuration: Mapping[str, str], *, size_bytes: float) -> Encoder:
        """Choose the encodings for a table of such rows and this size in memory."""
        settings = FileSettings.of(rows, (), configuration, dialect="documented", size_bytes=int(size_bytes))
        return Encoder(settings)

    def encode(
        self,
        rows: pl.DataFrame,
        weights: I32Array,
        *,
        indexed: Sequence[str],
        page_rows: int,
        file_rows: float,
        row_groups: int,
    ) -> RowSizes:
        """Return the size of rows in their order, for a table with `file_rows` rows and some row groups per file.

        Rows of a cube are in no order but that of their weights. So a page of some of the rows is like a page of all
        rows, as long as the sample has about as many rows in a cube as a page has.
        """
        encoded = encode_data_file(
            rows,
            weights=weights,
            cuts=PageCuts((rows.height,), (page_rows,)),
            statistics=indexed,
            dictionary=self.settings.dictionary,
            levels=self.settings.levels,
        )
        in_files = encoded.size_bytes / rows.height
        if not encoded.tail_bytes:  # its pages cannot be read alone
            return RowSizes(in_files, in_files, 0.0)
        tail = parse_tail(encoded.data[-encoded.tail_bytes :])
        leaves = tail.footer.leaves
        is_read = [leaf != WEIGHT_COLUMN for leaf in leaves]
        chunks = tail.footer.groups[0].chunks
        dictionaries = sum(chunk.data_start - chunk.start for chunk in chunks)
        footer = int.from_bytes(encoded.data[-8:-4], "little")
        directory = (encoded.tail_bytes - footer) * file_rows / rows.height
        return RowSizes(
            in_files=in_files,
            in_pages=float(tail.page_sizes[is_read].sum()) / rows.height,
            tail=directory + footer * row_groups + dictionaries,
        )


@dataclass(frozen=True, slots=True)
class TrialIndex:
    """An index to simulate. Cube size None: the default of the table."""

    columns: ColumnSet
    cube_size: int | None = None


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
    # Rows with the minimum and maximum of each column of the table; columns without known ends are missing.
    ends: pl.DataFrame
    # Columns by whose weights `rows` were chosen: rows of an index on them have the lowest weights only.
    drawn_by: tuple[str, ...] = ()
    # Sampling key of the table, whatever its index.
    sample_by: tuple[str, ...] = ()
    # Share of the table in the partitions that each filter opens. All rows are simulated as one tree.
    partition_shares: F64Array | None = None
    _axes: dict[tuple[ColumnSpec, int], tuple[Revision, U32Array]] = field(
        default_factory=dict[tuple[ColumnSpec, int], tuple[Revision, U32Array]], init=False, repr=False
    )

    def opened(self, index: TrialIndex, *, quickly: bool = False) -> Opened:
        """Return what each filter opens of the table with an index; `quickly` with approximate pages."""
        return self._opened(self._table(index) if quickly else self._with_real_pages(index))

    def bytes_opened(self, index: TrialIndex, encoder: Encoder) -> F64Array:
        """Return the bytes that each filter opens of the table with an index, shape (filters,)."""
        table = self._with_real_pages(index)
        return self._stored(table, index, encoder).bytes_of(self._opened(table), rows=self.table_rows)

    def _opened(self, table: SimulatedTable) -> Opened:
        return Opened.join([table.opened(node) for node in self.filters]).within(self.partition_shares)

    def _stored(self, table: SimulatedTable, index: TrialIndex, encoder: Encoder) -> RowSizes:
        """Return the size of the rows in a table."""
        rows, weights = self.rows[pl.Series(table.order)], table.weights[table.order]
        pages = float((np.diff(table.packed.file_starts) / table.page_rows).sum())
        encode = partial(
            encoder.encode,
            indexed=[column.name for column in index.columns],
            page_rows=max(round(self.table_rows / pages), 1),
            file_rows=self.table_rows / table.file_count,
            row_groups=table.row_groups,
        )
        stored = encode(rows, weights)
        if self._scale > 1 - 1e-9:
            return stored
        thin = encode(rows.gather_every(_THINNED), weights[::_THINNED])
        return stored.extrapolated(thin, steps=min(-math.log(self._scale, _THINNED), 1.0))

    def kind_of(self, column: ColumnSpec) -> TransformerKind:
        """Return the kind of a column that a write would store."""
        size = self._scaled(self._real_cube_size(TrialIndex((column,))))
        return self._axis(column, size)[0].column_transformers[0].kind

    def weights(self, columns: ColumnSet) -> I32Array:
        """Return the weight of each row."""
        names = self.sample_by or tuple(column.name for column in columns)
        weights = frame_weights(self.rows, names)
        if names != self.drawn_by:
            return weights
        # A hash of the weights keeps equal ones equal, and spreads the lowest ones over all weights.
        return frame_weights(pl.DataFrame({"weight": weights}), ["weight"])

    def _with_real_pages(self, index: TrialIndex) -> SimulatedTable:
        return self._table(index).with_real_pages(scale=self._scale, cube_size=self._real_cube_size(index))

    def _table(self, index: TrialIndex) -> SimulatedTable:
        cube_size = self._real_cube_size(index)
        size = self._scaled(cube_size)
        axes = [self._axis(column, size) for column in index.columns]
        weights = self.weights(index.columns)
        placed = assign_rows([cells for _, cells in axes], weights, cube_size=size)
        file_rows = rows_per_file(self.row_bytes)
        packed = pack_cubes(placed.cubes, placed.counts, None, file_rows=file_rows, share=self._scale)
        rows_of_file = self.table_rows // (len(packed.file_starts) - 1)
        bands = has_bands(rows_of_file)
        # In files with bands, pages have half as many rows on average.
        page_rows = page_rows_for(rows_of_file, cube_size=cube_size) / (1 + bands)
        return SimulatedTable(
            spaces={space.columns[0]: space.transformations[0] for space, _ in axes},
            weights=weights,
            placed=placed,
            packed=packed,
            statistics=self._statistics(placed, packed, weights),
            page_rows=np.full(len(packed.file_starts) - 1, page_rows * self._scale),
            has_bands=bands,
        )

    @property
    def _scale(self) -> float:
        return self.rows.height / self.table_rows

    def _real_cube_size(self, index: TrialIndex) -> int:
        return index.cube_size or default_cube_size(self.table_rows)

    def _scaled(self, rows: int) -> int:
        return max(round(rows * self._scale), 1)

    def _axis(self, column: ColumnSpec, cube_size: int) -> tuple[Revision, U32Array]:
        """Return the space of one column, as a revision, and the cells of the rows in it."""
        key = column, cube_size
        if key not in self._axes:
            wish = IndexWish((column,), cube_size, "documented")
            space = first_revision(wish, summarise(self.rows, [column.name]), table_id="", timestamp_ms=0)
            self._axes[key] = space, grid_columns(self.rows, space)[0]
        return self._axes[key]

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
            table = self.ends[name] if name in self.ends.columns else column.clear()
            for end, bound, of_sample, of_table in (
                ("min", pl.col(name).min(), column.min(), table.min()),
                ("max", pl.col(name).max(), column.max(), table.max()),
            ):
                inside = pl.when(bound != pl.lit(of_sample, dtype)).then(bound)
                bounds[end].append(inside.otherwise(pl.lit(of_table, dtype)))
        return bounds
