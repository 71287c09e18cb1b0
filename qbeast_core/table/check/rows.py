"""Check data files end to end: rows against statistics, blocks, pages and tags, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError, StorageError
from qbeast_core.io.directory import PageDirectory, directory_of, parse_directory
from qbeast_core.io.footer import (
    MAGIC,
    FileFooter,
    PagesUnavailable,
    Unreadable,
    cuts_of,
    parse_footer,
    read_footer,
    read_footer_bytes,
    read_page_locations,
    stored_size,
)
from qbeast_core.io.store import Store
from qbeast_core.io.thrift import ThriftError
from qbeast_core.log.actions import Leaf, leaf_column, leaves_of
from qbeast_core.log.replay import TagCopy, parse_copy
from qbeast_core.plan.bounds import clock_slack, point_bounds, text_above, widened_bounds
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.space.values import (
    MAX_WEIGHT,
    BoolArray,
    F64Array,
    I32Array,
    U32Array,
    distinct,
    sample_values,
)
from qbeast_core.spec.blocks import WEIGHT_COLUMN, Block, Layout, dump_layout, parse_layout
from qbeast_core.spec.revision import Revision
from qbeast_core.support.frames import time_texts
from qbeast_core.support.sizing import sizing
from qbeast_core.table.check.faults import Fault
from qbeast_core.table.data.scan import SCAN_ERRORS, FileScan, TableFiles, scan_files
from qbeast_core.tree.build import blocks_of_rows
from qbeast_core.tree.fit import rows_outside
from qbeast_core.tree.grid import frame_weights, grid_columns, text_column
from qbeast_core.tree.keys import dump_keys, keys_of_file
from qbeast_core.tree.pages import FileShape, page_cells

_LOW_BITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Blocks of one file, and the space they lie in."""

    revision: Revision
    # `cube`, `min_weight`, `max_weight`, `rows`, in the order of the tag.
    blocks: pl.DataFrame
    # Whether the thresholds hold: those of old compactions do not (format 11).
    bounded: bool = True

    def boxes(self) -> tuple[F64Array, F64Array]:
        """Return the box of each block, the end 1.0 as infinity, shape (blocks, dimensions)."""
        cubes = decode_cubes(text_column(self.blocks["cube"]), dimensions=len(self.revision.columns))
        lower, upper = cube_boxes(cubes)
        upper[upper >= 1.0] = np.inf
        return lower, upper

    def points(self, frame: pl.DataFrame, *, foreign: bool) -> Iterator[tuple[F64Array, F64Array]]:
        """Yield bounds of the rows' coordinates, a pair a dimension."""
        spaces = zip(self.revision.columns, self.revision.transformations, strict=True)
        return (point_bounds(space, frame.get_column(name), foreign=foreign) for name, space in spaces)


class _Tally:
    """Counts wrong rows, and keeps the first one."""

    def __init__(self, code: str, message: str) -> None:
        self.count, self.first = 0, 0
        self._code, self._message = code, message

    def add(self, wrong: BoolArray, start: int) -> None:
        """Count the rows of a chunk that starts at row `start` of the file."""
        some = int(wrong.sum())
        if some and not self.count:
            self.first = start + int(np.argmax(wrong))
        self.count += some

    def faults(self) -> Iterator[Fault]:
        """Yield one fault if there are wrong rows."""
        if self.count:
            yield Fault(self._code, f"{self.count:,} row(s) {self._message}", self.first)


class EachRow:
    """A rule that each row meets or breaks by itself."""

    def __init__(
        self, code: str, message: str, broken: Callable[[pl.DataFrame, I32Array], BoolArray]
    ) -> None:
        self._tally, self._broken = _Tally(code, message), broken
        self.faults = self._tally.faults

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Look at some more rows, from number `start` of the file on."""
        self._tally.add(self._broken(frame, weights), start)


def _row_range(revision: Revision, *, foreign: bool) -> EachRow:
    """Return the check that values lie in the range of their revision."""
    message = "have values outside the range of their revision: a reader that relies on the range misses them"
    slack = clock_slack if foreign else None
    return EachRow("row-range", message, lambda frame, _: rows_outside(frame, revision, slack=slack))


def _hidden_weights() -> EachRow:
    """Return the check that the hidden column holds a lower bound of the high half of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        # A null becomes a number above the high half of any int32.
        stored = frame.get_column(WEIGHT_COLUMN).cast(pl.Int64).fill_null(1 << _LOW_BITS).to_numpy()
        return np.asarray(stored > weights >> _LOW_BITS, np.bool_)

    message = f"have a {WEIGHT_COLUMN} above the high half of their weight"
    return EachRow("hidden-weight", message, broken)


def _sample_column_values(name: str) -> EachRow:
    """Return the check that the sample column holds the fraction of each weight."""

    def broken(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
        stored = frame.get_column(name).to_numpy()  # a null becomes NaN, which equals nothing
        return np.asarray(stored != sample_values(weights), np.bool_)

    return EachRow(
        "sample-column", f"have a value of {name!r} that is not the fraction of their weight", broken
    )


class ForeignRows:
    """Rows of another writer's file, in any order, counted into its blocks from the top of the tree down.

    A row belongs to the first cube on its way down whose block takes its weight. Counts and smallest weights
    are compared only if the place of every row is certain (`point_bounds`).
    """

    def __init__(self, placement: Placement) -> None:
        # Several blocks of one cube take the same rows: which of them took which cannot be decided.
        blocks = placement.blocks.group_by("cube", maintain_order=True).agg(
            pl.col("min_weight").min(), pl.col("max_weight").max(), pl.col("rows").sum()
        )
        self._placement = Placement(placement.revision, blocks, placement.bounded)
        self._lower, self._upper = self._placement.boxes()
        self._depth = blocks["cube"].str.len_bytes().to_numpy()
        self._low, self._high = (blocks[name].to_numpy() for name in ("min_weight", "max_weight"))
        self._counts = np.zeros(blocks.height, np.int64)
        self._least = np.full(blocks.height, np.iinfo(np.int32).max, np.int32)
        self._certain = True
        self._nowhere = _Tally("row-cube", "lie in no cube of the file's blocks")
        self._astray = _Tally("row-weight", "have weights outside the bounds of the block they lie in")

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Place some more rows."""
        bounds = list(self._placement.points(frame, foreign=True))
        self._certain = self._certain and all((low == high).all() for low, high in bounds)
        remaining, in_cube = np.arange(len(weights)), np.zeros(len(weights), np.bool_)
        for depth in distinct(self._depth):  # rows that found their block are not looked at further down
            weight, free = weights[remaining], np.ones(len(remaining), np.bool_)
            ends = [(below[remaining], above[remaining]) for below, above in bounds]
            for block in np.flatnonzero(self._depth == depth):
                inside = np.ones(len(remaining), np.bool_)
                for j, (below, above) in enumerate(ends):
                    inside &= (above >= self._lower[block, j]) & (below < self._upper[block, j])
                in_cube[remaining[inside]] = True
                inside &= free & (weight >= self._low[block])
                if self._placement.bounded:
                    inside &= weight <= self._high[block]
                free &= ~inside
                self._counts[block] += inside.sum()
                self._least[block] = weight[inside].min(initial=self._least[block])
            remaining = remaining[free]
        lost = np.zeros(len(weights), np.bool_)
        lost[remaining] = True
        self._nowhere.add(lost & ~in_cube, start)
        self._astray.add(lost & in_cube, start)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults, once all rows are placed."""
        yield from self._nowhere.faults()
        yield from self._astray.faults()
        if not self._certain or self._nowhere.count or self._astray.count:
            return
        blocks = self._placement.blocks
        logged, cubes = blocks["rows"].to_numpy(), blocks["cube"]
        for bad in np.flatnonzero(self._counts != logged)[:1].tolist():
            message = f"the block holds {self._counts[bad]:,} rows, its tag says {logged[bad]:,}"
            yield Fault("block-rows", message, None, cubes[bad])
        wrong: BoolArray = (self._counts > 0) & (self._counts == logged) & (self._least != self._low)
        for bad in np.flatnonzero(wrong)[:1].tolist():
            least, low = int(self._least[bad]), int(self._low[bad])
            message = f"the smallest weight of the block is {least}, its tag says {low}"
            yield Fault("min-weight", message, None, cubes[bad])


class OurRows(ForeignRows):
    """Rows of a file of ours, whose cells are exact."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        texts, revision = text_column(self._placement.blocks["cube"]), placement.revision
        self._cubes = decode_cubes(texts, dimensions=len(revision.columns))
        self._top = np.full(len(self._cubes), MAX_WEIGHT, np.int32)

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Place some more rows."""
        cells = grid_columns(frame, self._placement.revision)
        highest = self._high.astype(np.int32) if self._placement.bounded else self._top
        block = blocks_of_rows(self._cubes, highest, cells, weights)
        nowhere, astray = block < 0, np.zeros(len(weights), np.bool_)
        if nowhere.any():
            lost = np.flatnonzero(nowhere)
            inside = (
                blocks_of_rows(self._cubes, self._top, [part[lost] for part in cells], weights[lost]) >= 0
            )
            nowhere[lost[inside]], astray[lost[inside]] = False, True
        found = np.flatnonzero(block >= 0)
        block = block[found]
        astray[found] = weights[found] < self._low[block]
        self._counts += np.bincount(block, minlength=len(self._counts))
        np.minimum.at(self._least, block, weights[found])
        self._nowhere.add(nowhere, start)
        self._astray.add(astray, start)


class PagedRows:
    """Rows of a file with pages: each in the range of weights of its band, and in the box of its page."""

    def __init__(self, revision: Revision, layout: Layout) -> None:
        self._revision, shape = revision, FileShape.of(layout)
        self._page_starts = shape.page_starts()
        self._band_starts = np.cumsum(shape.band_rows) - shape.band_rows
        self._first = shape.first_weights.astype(np.int64)
        self._least = np.full(len(self._first), MAX_WEIGHT, np.int64)
        self._bounds = page_cells(layout)
        self._early = _Tally("layout", "have a weight outside the range of their band")
        self._outside = _Tally("layout", "lie outside the box of their page")

    def add(self, start: int, frame: pl.DataFrame, weights: I32Array) -> None:
        """Look at some more rows."""
        rows = np.arange(start, start + frame.height)
        page, band = (
            np.searchsorted(starts, rows, side="right") - 1
            for starts in (self._page_starts, self._band_starts)
        )
        ends = np.append(self._first[1:], MAX_WEIGHT + 1)
        self._early.add((weights < self._first[band]) | (weights >= ends[band]), start)
        np.minimum.at(self._least, band, weights)
        wrong = np.zeros(frame.height, np.bool_)
        for column, (lower, upper) in zip(grid_columns(frame, self._revision), self._bounds, strict=True):
            wrong |= (column < lower[page]) | (column > upper[page])
        self._outside.add(wrong, start)

    def faults(self) -> Iterator[Fault]:
        """Yield the faults."""
        yield from self._early.faults()
        yield from self._outside.faults()
        for band in np.flatnonzero(self._least > self._first)[:1].tolist():
            message = f"band {band} begins at a weight of {self._least[band]}, its layout tag says {self._first[band]}"
            yield Fault("layout", message, int(self._band_starts[band]))


# A check of all rows of a file, some at a time.
RowCheck: TypeAlias = EachRow | ForeignRows | PagedRows


def read_layout(text: str | None) -> Layout | None:
    """Return a layout as far as it can be read; None where it cannot, or is of a version unknown here."""
    try:
        return None if text is None else parse_layout(text)
    except InvalidMetadataError:
        return None


def _check_pages(store: Store, path: str, size: int, layout: Layout) -> Iterator[Fault]:
    """Check that single pages of a file can be read where its layout tag says so."""
    shape = FileShape.of(layout)
    if not 0 < layout.directory_bytes <= layout.tail_bytes <= size:
        return  # read as a whole, or a fault of the log
    try:
        place = (size - layout.tail_bytes, layout.directory_bytes)
        directory = parse_directory(
            store.get_range(path, *place), tail_bytes=layout.tail_bytes, size_bytes=size
        )
        footer = _parsed_footer(store, path, size)
    except PagesUnavailable as error:
        yield Fault("pages", f"its pages cannot be read alone: {error.reason}")
        return
    if directory.cuts != cuts_of(shape.band_rows, shape.page_rows):
        message = (
            f"it is cut into {_shown_pages(directory.cuts.page_rows, directory.pages)}; its layout tag has "
            f"{_shown_pages(shape.page_rows.tolist(), shape.pages)}"
        )
        yield Fault("pages", message)
        return
    of_footer = directory_of(footer, directory.page_bytes, directory.cuts)
    if of_footer is None or not directory.same_as(of_footer):
        yield Fault("pages", "its page directory and its footer differ")
        return
    wrong = _unlike_page_index(store, path, footer, directory)
    if wrong is not None:
        yield Fault("pages", f"its page directory and the page index of column {wrong!r} differ")


def _parsed_footer(store: Store, path: str, size: int) -> FileFooter:
    return parse_footer(read_footer_bytes(store, path, size)[len(MAGIC) : -_END])


def _shown_pages(page_rows: Sequence[int], pages: int) -> str:
    return f"{pages} pages of {', '.join(map(str, page_rows))} rows"


def _unlike_page_index(store: Store, path: str, footer: FileFooter, directory: PageDirectory) -> str | None:
    """Return a leaf column whose OffsetIndex has other pages than the directory."""
    places = sorted(chunk.offset_index for chunk in footer.chunks if chunk.offset_index is not None)
    by_place = dict(zip(places, map(bytes, store.get_ranges(path, places)), strict=True))
    first_rows, page_starts = (
        directory.cuts.starts()[:-1],
        directory.page_starts(list(range(len(footer.leaves)))),
    )
    for number, group in enumerate(footer.groups):
        pages = np.flatnonzero(directory.page_groups == number)
        rows_in_group = first_rows[pages] - first_rows[pages[0]]
        for chunk, starts, sizes in zip(group, page_starts, directory.page_bytes, strict=True):
            if chunk.offset_index is None:
                return chunk.path
            try:
                located = read_page_locations(by_place[chunk.offset_index])
            except ThriftError:
                return chunk.path
            if not all(map(np.array_equal, located, (starts[pages], sizes[pages], rows_in_group))):
                return chunk.path
    return None


_EXACT_DIGITS: Final = 15
_SLACK: Final = 1e-12
_NOTHING: Final = pl.Struct([])


@dataclass(frozen=True, slots=True, eq=False)
class FileCheck:
    """A live file with its metadata in the log."""

    # All of its rows, also deleted ones.
    scan: FileScan
    # Its row of the snapshot's files.
    record: pl.DataFrame
    # The columns whose hash is the hidden weight in files without index; empty if these weights are not known.
    # Columns whose hash is the weight of a row. Empty: it is not known.
    hashed: tuple[str, ...]
    # Whether another writer added a column with the name of the hidden one: files of others may hold its values.
    reserved: bool
    # The table's sample column.
    sample_column: str | None
    schema: pl.Schema = field(repr=False)
    # Its blocks; None if they cannot be used or the file is staged.
    placement: Placement | None = None

    @property
    def path(self) -> str:
        """Its decoded path."""
        return self.scan.path

    def of_size(self, size_bytes: int) -> FileCheck:
        """Return the check of a file with another size than in the log."""
        return replace(self, scan=replace(self.scan, size_bytes=size_bytes))

    @property
    def revision(self) -> int | None:
        """The revision it is indexed with."""
        revision: int | None = self.record["revision"][0]
        return revision

    @property
    def num_records(self) -> int | None:
        """Rows by its statistics."""
        count: int | None = self.record["num_records"][0]
        return count

    @property
    def ours(self) -> bool:
        """Whether this library wrote it."""
        return bool(self.record["rules"][0] == "1")

    @property
    def layout(self) -> Layout | None:
        """Its pages; None if it has no layout tag that can be read."""
        return read_layout(self.record["layout"][0])

    @property
    def wants_hidden(self) -> bool:
        """Whether the file has to have the hidden column; files for JVMs do not have it."""
        return self.layout is not None and self.layout.has_hidden_weights


def check_file(files: TableFiles, job: FileCheck) -> list[Fault]:
    """Read a file and check it against its tags and statistics."""
    store = files.store
    size = stored_size(store, job.path)
    if size is None:
        return []
    job = job.of_size(size)
    try:
        footer = read_footer(store, job.path, size)
        groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        names = footer.schema.to_arrow_schema().names
        rows = sum(groups)
        faults = [*_statistics_of(files, job, rows)]
        faults += _places_of(files, job, rows, names)
        if (WEIGHT_COLUMN in names or job.wants_hidden) and job.ours and names[-1] != WEIGHT_COLUMN:
            faults.append(Fault("hidden-weight", f"{WEIGHT_COLUMN} is not its last column"))
        if job.ours and job.layout is not None:
            faults += _check_pages(store, job.path, size, job.layout)
    except StorageError:
        raise
    except (Unreadable, *SCAN_ERRORS, OSError) as error:
        groups, faults = [], [Fault("file-unreadable", f"it cannot be read: {error}")]
    ends = np.cumsum(groups)
    return [
        replace(
            fault,
            path=job.path,
            revision=job.revision,
            row_group=None if fault.row is None else int(np.searchsorted(ends, fault.row, side="right")),
        )
        for fault in faults
    ]


def _statistics_of(files: TableFiles, job: FileCheck, rows: int) -> Iterator[Fault]:
    if job.num_records is not None and job.num_records != rows:
        yield Fault("rows-count", f"it holds {rows:,} rows, its statistics count {job.num_records:,}")
    if rows:
        whole = scan_files(files, [job.scan], list(job.schema), job.schema)
        values = whole.select(_summaries_of(job.schema)).collect(engine="streaming")
        yield from _compare_statistics(values, job.record, job.schema, ours=job.ours)


def _places_of(files: TableFiles, job: FileCheck, rows: int, names: list[str]) -> Iterator[Fault]:
    """Check the blocks if they account for every row, and the hidden column in any case: Spark uses it."""
    placement, checks = job.placement, list[RowCheck]()
    in_blocks = None if placement is None else int(placement.blocks["rows"].sum())
    if in_blocks not in {None, rows} and job.num_records != rows:  # else it is a fault of the log
        yield Fault("block-rows", f"it holds {rows:,} rows, its blocks {in_blocks:,}")
    computed: list[str] = []
    hidden = WEIGHT_COLUMN in names and (job.ours or not job.reserved) and bool(job.hashed)
    if placement is not None and in_blocks == rows:
        checks.append(OurRows(placement) if job.ours else ForeignRows(placement))
        if job.ours and job.layout is not None and job.layout.fits(rows, len(placement.revision.columns)):
            checks.append(PagedRows(placement.revision, job.layout))
        checks.append(_row_range(placement.revision, foreign=not job.ours))
        if job.ours and job.sample_column is not None and not job.wants_hidden:
            checks.append(_sample_column_values(job.sample_column))
            computed = [job.sample_column]
        hidden |= job.ours and job.wants_hidden  # a missing column reads as nulls, and none of them is right
    if hidden:
        checks.append(_hidden_weights())
    if not checks:
        return
    schema = pl.Schema({**job.schema, WEIGHT_COLUMN: pl.Int32()})
    hashed = job.hashed if placement is None else placement.revision.hashed
    keys = hashed if placement is None else placement.revision.key_columns
    columns = [*keys, *computed, *([WEIGHT_COLUMN] if hidden else [])]
    scan = scan_files(files, [job.scan], columns, schema)
    step = sizing().checked_rows
    for start in range(0, rows, step):
        frame = scan.slice(start, step).collect()
        weights = frame_weights(frame, hashed)
        for check in checks:
            check.add(start, frame, weights)
    for check in checks:
        yield from check.faults()


def _summaries_of(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return the aggregates of a file: ``<i>.nulls`` of each leaf, and min, max and NaN of those with an order.

    Every column has one, so every page of the file is decoded.
    """
    summaries: list[pl.Expr] = [pl.len().cast(pl.Int64).alias("rows")]
    for i, (leaf, dtype) in enumerate(leaves_of(schema)):
        column = leaf_column(leaf)
        summaries.append(column.null_count().cast(pl.Int64).alias(f"{i}.nulls"))
        if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String:
            values = column.fill_nan(None) if dtype.is_float() else column
            summaries += [values.min().alias(f"{i}.min"), values.max().alias(f"{i}.max")]
        if dtype.is_float():
            summaries.append(column.is_nan().any().alias(f"{i}.nan"))
    return summaries


def _compare_statistics(
    values: pl.DataFrame, file: pl.DataFrame, schema: Mapping[str, pl.DataType], *, ours: bool
) -> Iterator[Fault]:
    """Compare the values with the statistics in the log."""
    hidden_rows = bool(file["has_deletion_vector"][0])  # their statistics need not be exact
    names = frozenset(values.columns)
    null_counts, lows, highs = (_fields(file.get_column(side)) for side in ("null_count", "min", "max"))
    for i, (leaf, _) in enumerate(leaves_of(schema)):
        shown = ".".join(leaf)
        logged, nulls = null_counts.get(leaf), values[f"{i}.nulls"][0]
        if not hidden_rows and logged is not None and logged[0] not in (None, nulls):
            yield Fault("stats-nulls", f"{shown!r} has {nulls:,} nulls, its statistics count {logged[0]:,}")
        if f"{i}.min" not in names:
            continue
        low, high = lows.get(leaf), highs.get(leaf)
        above_nan = ours and f"{i}.nan" in names and values[f"{i}.nan"][0] is True
        if above_nan and high is not None and high.is_not_nan().fill_null(value=False)[0]:
            message = f"{shown!r} holds NaN, which is above {high[0]}, its largest value by the statistics"
            yield Fault("stats-bounds", message)
        for bound, side in ((low, "min"), (high, "max")):
            if bound is not None and not _encloses(bound, values[f"{i}.{side}"], side, ours=ours):
                value = _shown(values[f"{i}.{side}"])
                where = "below" if side == "min" else "above"
                message = f"{shown!r} holds {value}, {where} the {side} of its statistics"
                yield Fault("stats-bounds", message)


def _shown(value: pl.Series) -> object:
    return (time_texts(value) if value.dtype.is_temporal() else value.cast(pl.String))[0]


def _fields(column: pl.Series, leaf: Leaf = ()) -> dict[Leaf, pl.Series]:
    """Return the leaves of a struct of statistics, taken out at once: a query for each takes long."""
    if not isinstance(column.dtype, pl.Struct):
        return {leaf: column}
    if column.dtype == _NOTHING:
        return {}
    leaves: dict[Leaf, pl.Series] = {}
    for part in column.struct.unnest().get_columns():
        leaves |= _fields(part, (*leaf, part.name))
    return leaves


def _encloses(bound: pl.Series, value: pl.Series, side: str, *, ours: bool) -> bool:
    """Return whether a bound encloses a value; an unknown bound encloses every value."""
    # Most bounds are of these types, and a query takes longer than to compare two values.
    if bound.dtype == value.dtype and (value.dtype.is_integer() or (ours and value.dtype == pl.Date)):
        ends = bound.to_physical()[0], value.to_physical()[0]  # Python has no date of the year 10000
        least, most = ends if side == "min" else ends[::-1]
        return least is None or most is None or bool(least <= most)
    frame = pl.DataFrame({"bound": bound, "value": value})
    logged, stored = pl.col("bound"), pl.col("value")
    dtype = value.dtype
    if isinstance(dtype, pl.Decimal):
        if (dtype.precision or 38) > _EXACT_DIGITS:  # went through float64
            slack = stored.abs() * (_SLACK if side == "min" else -_SLACK)
            frame = frame.cast(pl.Float64).with_columns(stored + slack)
        return _in_order(frame, side)
    if isinstance(dtype, (pl.Date, pl.Datetime)) and type(bound.dtype) is type(dtype):
        wide = widened_bounds(bound.dtype, logged, logged, foreign=pl.lit(not ours))
        frame = frame.with_columns(wide[side == "max"].alias("bound"))
    if isinstance(dtype, pl.Datetime) and isinstance(bound.dtype, pl.Datetime):
        # Others cut the fraction of a millisecond off, above as well.
        frame = frame.select(
            logged.dt.cast_time_unit("us").to_physical() + (999 if side == "max" and not ours else 0),
            stored.dt.cast_time_unit("us").to_physical(),
        )
    elif dtype == pl.String and bound.dtype == pl.String and side == "max":
        frame = frame.with_columns(text_above(logged, foreign=pl.lit(not ours)))
    elif dtype.is_float() and bound.dtype.is_float():
        frame = frame.with_columns(logged.fill_nan(None))
    return _in_order(frame, side)


def _in_order(frame: pl.DataFrame, side: str) -> bool:
    types = frame.dtypes
    if type(types[0]) is not type(types[1]) and not all(dtype.is_numeric() for dtype in types):
        return True  # of another kind: no bound of these values
    rule = pl.col("bound") <= pl.col("value") if side == "min" else pl.col("bound") >= pl.col("value")
    return bool(frame.select(rule.fill_null(value=True)).item())


_END: Final = 8  # length of the footer, and the magic bytes


@dataclass(frozen=True, slots=True)
class FileTags:
    """The tags of a file; see the tags of format 7."""

    revision: Revision = field(repr=False)
    blocks: tuple[Block, ...]
    # None: single pages of the file cannot be read.
    layout: str | None
    keys: str


def read_tags(files: TableFiles, job: FileCheck, *, revisions: Mapping[str, Revision]) -> FileTags | None:
    """Return the tags that a file claims to have; None if it has no copy, or one that does not fit the table or file.

    Only a check of all rows shows whether they are right. `revisions` can index the rows, by digest.
    """
    store, path = files.store, job.path
    size = stored_size(store, path)
    if size is None:
        return None
    try:
        footer = read_footer(store, path, size)
        copy = parse_copy(footer.metadata or {})
        revision = None if copy is None else revisions.get(copy.revision_digest)
        if copy is None or revision is None or not _fits(copy, footer.num_rows):
            return None
        weights, cells = _placed(files, job.of_size(size), revision, footer.num_rows)
        place, layout = _directory_place(store, path, size), None
        if place is not None:
            shape, hidden = FileShape.of(copy.layout), copy.layout.has_hidden_weights
            tail, length = place
            layout = dump_layout(
                shape.layout(cells, tail_bytes=tail, directory_bytes=length, hidden_weights=hidden)
            )
        keys = dump_keys(*keys_of_file(weights, is_scattered=bool(revision.sample_by)))
        return FileTags(revision, copy.blocks, layout, keys)
    except (Unreadable, *SCAN_ERRORS, OSError):
        return None  # the check of the file reports it


def _fits(copy: TagCopy, rows: int) -> bool:
    counts = sum(block.element_count for block in copy.blocks)
    return counts == rows == sum(band[0] for band in copy.layout.bands)


def _placed(
    files: TableFiles, file: FileCheck, revision: Revision, rows: int
) -> tuple[I32Array, list[U32Array]]:
    """Return the weight of each row, and its cell along each dimension."""
    scan = scan_files(files, [file.scan], revision.key_columns, file.schema)
    step = sizing().checked_rows
    starts = range(0, rows, step)
    parts = [scan.slice(start, step).collect() for start in starts]
    weights = np.concatenate([frame_weights(part, revision.hashed) for part in parts])
    cells = zip(*(grid_columns(part, revision) for part in parts), strict=True)
    return weights, [np.concatenate(column) for column in cells]


def _directory_place(store: Store, path: str, size: int) -> tuple[int, int] | None:
    """Return how far before the end of a file its page directory begins, and its length; None without one.

    It lies between the page indexes and the footer.
    """
    try:
        stored = read_footer_bytes(store, path, size)[len(MAGIC) :]
        footer = parse_footer(stored[:-_END])
        indexes = [
            index for chunk in footer.chunks for index in (chunk.offset_index, chunk.column_index) if index
        ]
        start = max(map(sum, indexes), default=0)
        length = size - len(stored) - start
        if length > 0:
            directory = store.get_range(path, start, length)
            parse_directory(directory, tail_bytes=size - start, size_bytes=size)
            return size - start, length
    except PagesUnavailable:
        pass
    return None
