"""Simulate a table on a sample of its rows: its tree, files and pages, and what filters open of them.

Pages of few rows of the sample are simulated together, and then divided in space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.io.encode import encode_data_file
from qbeast_core.io.footer import cuts_of
from qbeast_core.log.protocol import Codec
from qbeast_core.plan.bounds import Statistics, coordinate_intervals, evaluate
from qbeast_core.plan.nodes import Atom, Node, column_of
from qbeast_core.space.coordinates import fitted_steps, step_edges, widen
from qbeast_core.space.values import BoolArray, F64Array, I32Array, I64Array, U32Array
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.spec.revision import ColumnSpec, Revision, Transformation, TransformerKind
from qbeast_core.support.frames import own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.build import assign_rows
from qbeast_core.tree.files import pack_cubes, rows_by_file, rows_per_file
from qbeast_core.tree.fit import IndexWish, default_cube_size, first_revision
from qbeast_core.tree.grid import frame_weights, grid_columns
from qbeast_core.tree.keys import HEAVY_SHARE
from qbeast_core.tree.pages import Arrangement, Grain, arrange
from qbeast_core.tree.summary import summarise

# Rows of a simulated page: the box of fewer says little of that of all rows of a page. Each page takes time.
_LEAST_ROWS: Final = 32

_CELLS: Final = float(1 << 32)
# Share of the rows of a file from which on all its pages are opened.
_WHOLE: Final = 1 - 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What filters open, arrays of shape (filters,)."""

    # Share of the rows of the table in files that are read whole, and in pages of other files.
    in_files: F64Array
    in_pages: F64Array
    # Number of files that are read by pages.
    paged_files: F64Array

    def within(self, shares: F64Array | None) -> Opened:
        """Return what the filters open if each opens only a share of all partitions."""
        if shares is None:
            return self
        return Opened(*(getattr(self, name) * shares for name in Opened.__slots__))

    @property
    def shares(self) -> F64Array:
        """Share of the rows of the table."""
        return self.in_files + self.in_pages


@dataclass(frozen=True, slots=True, eq=False)
class IndexedSample:
    """A sample of the rows of a table with an index."""

    # Share of the rows of the table.
    scale: float
    # Space, importance and cells of each indexed column.
    spaces: dict[str, Transformation]
    importance: list[float]
    cells: list[U32Array]
    weights: I32Array
    is_scattered: bool

    def of(self, rows: I64Array | slice) -> IndexedSample:
        """Return some of the rows."""
        return replace(self, cells=[column[rows] for column in self.cells], weights=self.weights[rows])

    def arranged(self, grain: Grain) -> Arrangement:
        """Arrange the rows as a file."""
        # The heaviest key of a sample is too heavy by chance.
        most = int(np.unique(self.weights, return_counts=True)[1].max(initial=0))
        surely = most - 2 * math.sqrt(most * (1 - self.scale))
        is_scattered = self.is_scattered or surely * HEAVY_SHARE < len(self.weights)
        return arrange(self.weights, self.cells, grain, importance=self.importance, is_scattered=is_scattered)

    def boxes(self, placed: Arrangement, *, joined: int) -> F64Array:
        """Return the boxes that the layout tag of a file stores, in coordinates, shape (2, dimensions, pages).

        Each page in which the rows are `placed` stands for `joined` ones of the table.
        """
        starts = placed.shape.page_starts()
        rows = np.diff(starts, append=len(placed.order))
        # Of evenly spread values, n rows extend over (n - 1) / (n + 1) of the space between their neighbours.
        of_all = (rows - self.scale) / (rows + self.scale)
        wider = np.where(rows > 1, of_all * (rows + 1) / np.maximum(rows - 1, 1) - 1, 0.0) / 2
        boxes = np.empty((2, len(self.cells), len(starts)))
        values = [np.sort(column) for column in self.cells]
        for at, (column, ordered) in enumerate(zip(self.cells, values, strict=True)):
            lower, upper = (end.reduceat(column[placed.order], starts) for end in (np.minimum, np.maximum))
            first, last = np.searchsorted(ordered, lower), np.searchsorted(ordered, lower, side="right") - 1
            top = np.searchsorted(ordered, upper)
            missing = (top - first) * wider
            # The ranks of one value are a range, which a box leaves only if the value has few rows.
            boxes[:, at] = np.minimum(first, last - missing), top + missing
        for _ in range(joined.bit_length() - 1):
            boxes = _halved(boxes, self.importance)
        places = [np.interp(boxes[:, at], np.arange(len(some)), some) for at, some in enumerate(values)]
        return _stored(np.stack(places, axis=1))


def _halved(boxes: F64Array, importance: Sequence[float]) -> F64Array:
    """Return boxes of ranks that are divided where they are widest, the halves of each one after the other."""
    pages = np.arange(boxes.shape[2])
    widest = np.argmax((boxes[1] - boxes[0]) * np.array(importance)[:, None], axis=0)
    halves = np.repeat(boxes, 2, axis=2)
    middle = boxes[:, widest, pages].mean(axis=0)
    halves[1, widest, 2 * pages] = halves[0, widest, 2 * pages + 1] = middle
    return halves


def _stored(boxes: F64Array) -> F64Array:
    """Return boxes of cells as the layout tag of a file stores them, in coordinates."""
    cells = boxes.astype(np.int64)
    sides = [widen(step_edges(fitted_steps(*some)), *some) for some in cells.swapaxes(0, 1)]
    lower, upper = np.array(sides).swapaxes(0, 1) / _CELLS
    return np.array([lower, np.where(upper >= 1.0, np.inf, upper)])


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTable:
    """The files and pages of a sample, and what filters open of them."""

    sample: IndexedSample
    # The rows in the order of the files, and the rows of their bands.
    order: I64Array
    bands: list[I64Array]
    # First place in `order` and file of each page of these files.
    starts: I64Array
    file: I64Array
    # Share of each page that each filter opens, shape (filters, pages).
    matched: F64Array

    @staticmethod
    def of(
        sample: IndexedSample,
        files: Sequence[I64Array],
        grain: Grain,
        statistics: Statistics,
        nodes: Sequence[Node],
    ) -> SimulatedTable:
        """Simulate a table whose files and pages of some `grain` have these rows; `statistics` are in its log."""
        grain = grain.scaled(sample.scale)
        joined = 1 << max(math.ceil(math.log2(_LEAST_ROWS / grain.page_rows)), 0)
        grain = replace(grain, page_rows=grain.page_rows * joined, min_page_rows=grain.min_page_rows * joined)
        samples = [sample.of(file) for file in files]
        placed = [some.arranged(grain) for some in samples]
        boxes = [some.boxes(of, joined=joined) for some, of in zip(samples, placed, strict=True)]
        firsts = np.cumsum([0, *map(len, files[:-1])]).tolist()
        starts = [of.shape.page_starts() + first for of, first in zip(placed, firsts, strict=True)]
        file = np.repeat(np.arange(len(files)), list(map(len, starts)))
        # Each page stands for as many of the table.
        may_match = partial(
            _may_match, np.concatenate(boxes, axis=2), np.repeat(file, joined), statistics, sample.spaces
        )
        opened = np.array([evaluate(node, len(file) * joined, may_match) for node in nodes])
        return SimulatedTable(
            sample,
            order=np.concatenate([file[of.order] for file, of in zip(files, placed, strict=True)]),
            bands=[of.shape.band_rows for of in placed],
            starts=np.concatenate(starts),
            file=file,
            matched=opened.reshape(len(nodes), -1, joined).mean(axis=2),
        )

    def opened(self, row_sizes: F64Array) -> Opened:
        """Return what the filters open, if rows count by their sizes."""
        sizes = np.add.reduceat(row_sizes[self.order], self.starts) / row_sizes.sum()
        files = np.flatnonzero(np.diff(self.file, prepend=-1))
        sizes, in_files = (np.add.reduceat(some, files, axis=-1) for some in (sizes, self.matched * sizes))
        is_whole = in_files >= sizes * _WHOLE
        return Opened(
            np.where(is_whole, in_files, 0.0).sum(axis=1),
            np.where(is_whole, 0.0, in_files).sum(axis=1),
            (~is_whole & (in_files > 0)).sum(axis=1).astype(np.float64),
        )

    @property
    def row_groups(self) -> float:
        """Mean number of row groups of a file."""
        return float(np.mean(list(map(len, self.bands))))


def _may_match(
    boxes: F64Array, file: I64Array, statistics: Statistics, spaces: dict[str, Transformation], atom: Atom
) -> BoolArray:
    """Return the pages that may hold a matching row, by the statistics of their files and by their boxes.

    `boxes` are of pages of the table: some for each page of the files, shape (2, dimensions, pages of the table).
    """
    of_files, space = statistics.may_match(atom)[file], spaces.get(column_of(atom))
    intervals = None if space is None else coordinate_intervals(atom, space, foreign=False)
    if intervals is None:
        return of_files
    lower, upper = boxes[:, list(spaces).index(column_of(atom))]
    return of_files & intervals.meet(lower, upper)


def _log_density(bands: Sequence[I64Array]) -> float:
    """Return the mean logarithm of the rows of a band, if each filled the space of the table as densely as its file's.

    `bands` are the rows of the bands of each file. The denser a band is, the smaller are its pages in space.
    """
    rows = np.concatenate(bands)
    of_file = np.repeat([float(some.sum()) for some in bands], list(map(len, bands)))
    return float(np.average(np.log(rows.sum() * rows / of_file), weights=rows))


# Every fourth row of a sample is encoded again alone: this shows how the size depends on the number of rows.
_THINNED: Final = 4
_BAND_PAGES: Final = 16


@dataclass(frozen=True, slots=True)
class Dimension:
    """A column of an index, with its importance, see `kd_order`."""

    spec: ColumnSpec
    importance: float = 1.0

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.spec.name


# Columns to index together.
ColumnSet: TypeAlias = tuple[Dimension, ...]
# A sample with an index, the rows of its files, and their statistics in the log.
_Files: TypeAlias = tuple[IndexedSample, list[I64Array], Statistics]


def specs_of(index: ColumnSet) -> list[ColumnSpec]:
    """Return the columns of an index without their importance."""
    return [column.spec for column in index]


def importance_of(index: ColumnSet) -> dict[str, float]:
    """Return the importance of the columns that have another one than 1, as users pass it."""
    return {column.name: column.importance for column in index if column.importance != 1}


@dataclass(frozen=True, slots=True, eq=False)
class RowSizes:
    """The size of the rows of a table."""

    # Bytes of a row in files that are read whole, and in files that are read by pages.
    in_files: float
    in_pages: float
    # Bytes of page directory and dictionaries of a file that is read by pages.
    of_file: float
    # Bytes of each row in pages, shape (rows,).
    of_rows: F64Array
    # See `simulated.log_density`.
    log_density: float

    def extrapolated(self, thin: RowSizes, *, log_density: float) -> RowSizes:
        """Return the size of more rows, if it changes with their density as it did from `thin`.

        Rows of more rows are more alike: rows of one key, and rows of one page.
        """
        steps = (log_density - self.log_density) / max(self.log_density - thin.log_density, 0.5)
        less = min(steps * (thin.in_pages - self.in_pages), self.in_pages / 2)
        return replace(self, in_files=self.in_files - less, in_pages=self.in_pages - less)

    def bytes_of(self, opened: Opened, *, rows: int) -> F64Array:
        """Return the bytes that filters open of a table with a number of rows, shape (filters,)."""
        in_rows = opened.in_files * self.in_files + opened.in_pages * self.in_pages
        return in_rows * rows + opened.paged_files * self.of_file


@dataclass(frozen=True, slots=True, eq=False)
class TableFacts:
    """A table that some rows are a sample of."""

    rows: int
    # Size of a row in memory.
    row_bytes: float
    # Rows with the minimum and maximum of each column; columns without known ends are missing.
    ends: pl.DataFrame
    # Columns by whose weights the sample was chosen: rows of an index on them have the lowest weights only.
    drawn_by: tuple[str, ...] = ()
    # Sampling key, whatever the index.
    sample_by: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict[str, str])
    # Share of the table in the partitions that each filter opens. None: the table has no partitions.
    # All rows are simulated as one tree.
    partition_shares: F64Array | None = None


@dataclass(frozen=True, eq=False)  # no slots, for cached properties
class Trial:
    """A sample of a table, indexed like the table; cubes, files and pages are smaller in proportion."""

    # A uniform sample of the table.
    rows: pl.DataFrame
    table: TableFacts
    # The filters, and the columns that they name.
    filters: tuple[Node, ...]
    filtered: tuple[str, ...]
    # Of files: leaf columns with a dictionary, levels of zstd, and the codec.
    encodings: tuple[list[str], dict[str, int], Codec]
    _axes: dict[ColumnSpec, tuple[Revision, U32Array]] = field(
        default_factory=dict[ColumnSpec, tuple[Revision, U32Array]], init=False, repr=False
    )
    _tables: dict[ColumnSet, SimulatedTable] = field(
        default_factory=dict[ColumnSet, SimulatedTable], init=False, repr=False
    )
    _last_files: dict[tuple[ColumnSpec, ...], _Files] = field(
        default_factory=dict[tuple[ColumnSpec, ...], _Files], init=False, repr=False
    )

    def opened(self, columns: ColumnSet, row_sizes: F64Array | None = None) -> Opened:
        """Return what each filter opens of the table with an index, if rows count by their sizes, else all alike."""
        sizes = np.ones(self.rows.height) if row_sizes is None else row_sizes
        return self._simulated(columns).opened(sizes).within(self.table.partition_shares)

    def bytes_opened(self, columns: ColumnSet, sizes: RowSizes) -> F64Array:
        """Return the bytes that each filter opens of the table with an index, for rows of some size."""
        return sizes.bytes_of(self.opened(columns, sizes.of_rows), rows=self.table.rows)

    def shares(self, columns: ColumnSet, sizes: RowSizes) -> F64Array:
        """Return the share of the bytes that each filter opens of the table with an index, for rows of some size."""
        return self.bytes_opened(columns, sizes) / (sizes.in_files * self.table.rows)

    def sizes(self, columns: ColumnSet) -> RowSizes:
        """Return the size of the rows in the table with an index, from those of the sample as one file, and of a part.

        Such a file has larger pages in space than the table: sizes are extrapolated.
        """
        table, grain = self._simulated(columns), Grain.of(self.table.rows)

        def stored(times: int, grain: Grain) -> RowSizes:
            some = table.sample.of(slice(None, None, times))
            placed = some.arranged(grain)
            return self._encoded(self.rows.gather_every(times), placed, table)

        if self._scale > 1 - 1e-9:
            return stored(1, grain)
        # Bands of some pages, so that the part has as many, with whole pages.
        banded = replace(grain, min_band_rows=_BAND_PAGES * grain.page_rows, few_rows=0.0)
        thinned = replace(banded, min_band_rows=banded.min_band_rows / _THINNED)
        of_table = _log_density(table.bands) - math.log(self._scale)
        return stored(1, banded).extrapolated(stored(_THINNED, thinned), log_density=of_table)

    def _encoded(self, rows: pl.DataFrame, placed: Arrangement, table: SimulatedTable) -> RowSizes:
        """Return the size of some rows, stored as one file, for files of a table."""
        shape, file_rows = placed.shape, self.table.rows / len(table.bands)
        dictionary, levels, codec = self.encodings
        encoded = encode_data_file(
            rows[pl.Series(placed.order)],
            weights=shape.row_weights(),
            cuts=cuts_of(shape.band_rows, shape.page_rows),
            statistics=list(table.sample.spaces),
            dictionary=dictionary,
            levels=levels,
            codec=codec,
        )
        if not encoded.tail_bytes:  # its pages cannot be read alone
            in_files = len(encoded.data) / rows.height
            return RowSizes(in_files, in_files, 0.0, np.ones(rows.height), 0.0)
        directory = encoded.directory
        page_bytes = directory.page_bytes[[leaf != WEIGHT_COLUMN for leaf in directory.leaves]].sum(axis=0)
        page_rows = np.diff(shape.page_starts(), append=rows.height)
        of_rows = np.empty(rows.height)
        of_rows[placed.order] = np.repeat(page_bytes / page_rows, page_rows)
        more_groups, more_rows = table.row_groups / len(shape.band_rows), file_rows / rows.height
        dictionaries = int(directory.dictionary_bytes.sum())
        of_groups = int.from_bytes(encoded.data[-8:-4], "little") + dictionaries
        return RowSizes(
            in_files=(len(encoded.data) - of_groups) / rows.height + of_groups * more_groups / file_rows,
            in_pages=float(of_rows.mean()),
            of_file=encoded.directory_bytes * more_rows + dictionaries * more_groups,
            of_rows=of_rows,
            log_density=_log_density([shape.band_rows]),
        )

    def kind_of(self, spec: ColumnSpec) -> TransformerKind:
        """Return the kind of a column that a write would store."""
        return self._axis(spec)[0].column_transformers[0].kind

    def weights(self, specs: Sequence[ColumnSpec]) -> I32Array:
        """Return the weight of each row."""
        names = self.table.sample_by or tuple(spec.name for spec in specs)
        weights = frame_weights(self.rows, names)
        if names != self.table.drawn_by:
            return weights
        # A hash of the weights keeps equal ones equal, and spreads the lowest ones over all weights.
        return frame_weights(pl.DataFrame({"weight": weights}), ["weight"])

    def _simulated(self, columns: ColumnSet) -> SimulatedTable:
        """Return the simulated table of an index. The ones that were used last are kept."""
        table = self._tables.pop(columns, None) or self._new_table(columns)
        self._tables[columns] = table
        if len(self._tables) * self.rows.height > sizing().kept_trial_rows:
            del self._tables[next(iter(self._tables))]
        return table

    def _new_table(self, columns: ColumnSet) -> SimulatedTable:
        specs = tuple(specs_of(columns))
        if specs not in self._last_files:  # tables that differ only in importance are simulated in a row
            self._last_files.clear()
            self._last_files[specs] = self._files_of(specs)
        sample, files, statistics = self._last_files[specs]
        sample = replace(sample, importance=[column.importance for column in columns])
        return SimulatedTable.of(sample, files, Grain.of(self.table.rows), statistics, self.filters)

    def _files_of(self, specs: Sequence[ColumnSpec]) -> _Files:
        """Return the rows of the files, in no order, and the statistics in the log."""
        axes = {spec.name: self._axis(spec) for spec in specs}
        sample = IndexedSample(
            scale=self._scale,
            spaces={name: space.transformations[0] for name, (space, _) in axes.items()},
            importance=[1.0] * len(axes),
            cells=[cells for _, cells in axes.values()],
            weights=self.weights(specs),
            is_scattered=bool(self.table.sample_by),
        )
        placed = assign_rows(sample.cells, sample.weights, cube_size=self._cube_size)
        file_rows = rows_per_file(self.table.row_bytes, self.table.rows)
        packed = pack_cubes(placed.cubes, placed.counts, None, file_rows=file_rows, share=self._scale)
        rows = rows_by_file(placed, packed, sample.weights).astype(np.int64)
        sizes = np.diff(packed.file_starts)
        statistics = self._of_one_file if len(sizes) == 1 else self._of_files(self._filtered[rows], sizes)
        return sample, np.split(rows, packed.file_starts[1:-1]), statistics

    @property
    def _scale(self) -> float:
        return self.rows.height / self.table.rows

    @property
    def _cube_size(self) -> int:
        """Maximum rows of a cube, of the sample."""
        return max(round(default_cube_size(self.table.rows) * self._scale), 1)

    def _axis(self, spec: ColumnSpec) -> tuple[Revision, U32Array]:
        """Return the space of one column, as a revision, and the cells of the rows in it."""
        if spec not in self._axes:
            wish = IndexWish((spec,), self._cube_size, "documented")
            space = first_revision(wish, summarise(self.rows, [spec.name]), table_id="", timestamp_ms=0)
            self._axes[spec] = space, grid_columns(self.rows, space)[0]
        return self._axes[spec]

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
            table = self.table.ends[name] if name in self.table.ends.columns else column.clear()
            for end, bound, of_sample, of_table in (
                ("min", pl.col(name).min(), column.min(), table.min()),
                ("max", pl.col(name).max(), column.max(), table.max()),
            ):
                inside = pl.when(bound != pl.lit(of_sample, dtype)).then(bound)
                bounds[end].append(inside.otherwise(pl.lit(of_table, dtype)))
        return bounds
