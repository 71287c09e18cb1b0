"""One data file, checked from end to end in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.store import Store, open_store
from qbeast_core.query.intervals import point_bounds
from qbeast_core.query.units import clock_slack
from qbeast_core.space.arrays import BoolArray, F64Array, I32Array, I64Array
from qbeast_core.space.cubes import cube_boxes, decode_cubes
from qbeast_core.spec.layout import WEIGHT_COLUMN, PageLayout
from qbeast_core.spec.revision import Revision
from qbeast_core.table.check.faults import Fault
from qbeast_core.table.check.pages import check_pages
from qbeast_core.table.check.statistics import compare_statistics, summaries_of
from qbeast_core.table.data.footers import Unreadable, read_footer, stored_size
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.data.whole_batches import SCAN_ERRORS
from qbeast_core.tree.columns import frame_weights, text_column
from qbeast_core.tree.outside import Slack, rows_outside

_CHUNK_ROWS: Final = 1 << 18

# Rows of a file in order: the number of the first one, and the frame.
Chunks: TypeAlias = Iterator[tuple[int, pl.DataFrame]]

_LOW_BITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileCheck:
    """A live file, and all that the log says of it."""

    path: str
    revision: int | None
    # Its row of the snapshot's files.
    record: pl.DataFrame
    ours: bool
    # The table's indexed columns; none where rows have no weights any more.
    indexed: tuple[str, ...]
    # Whether another writer added a column of the hidden one's name: files of others may hold its values.
    reserved: bool = False
    # Its blocks, if they can be used; None: it is staged.
    placement: Placement | None = None
    # Its pages, if it tells of them.
    layout: PageLayout | None = None
    schema: pl.Schema = field(repr=False)

    @property
    def num_records(self) -> int | None:
        """Rows by its statistics."""
        found: Any = self.record["num_records"][0]
        return None if found is None else int(found)


def check_file(store: Store, job: FileCheck, storage_options: dict[str, str]) -> list[Fault]:
    """Read a file and check it against its tags and statistics."""
    size = stored_size(store, job.path)
    if size is None:
        return []
    try:
        footer = read_footer(store, job.path, size)
        groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        names = footer.schema.to_arrow_schema().names
        faults = [
            *_statistics_of(store, job, sum(groups), storage_options),
            *_places_of(store, job, sum(groups), storage_options, hidden=_holds_weights(job, names)),
        ]
        if (WEIGHT_COLUMN in names or _asks_hidden(job)) and job.ours and names[-1] != WEIGHT_COLUMN:
            faults.append(Fault("hidden-weight", f"{WEIGHT_COLUMN} is not its last column"))
        if job.ours and job.layout is not None:
            faults += check_pages(store, job.path, size, job.layout)
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


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Checks files wherever it is called; picklable."""

    uri: str
    storage_options: dict[str, str] = field(repr=False)
    # Whether files may be named by absolute paths.
    allow_absolute_paths: bool

    def __call__(self, job: FileCheck) -> list[Fault]:
        """Check a file; see `check_file`."""
        options = self.storage_options
        store = open_store(self.uri, options, allow_absolute_paths=self.allow_absolute_paths)
        return check_file(store, job, options)


def _asks_hidden(job: FileCheck) -> bool:
    """Tell whether a file of ours has to have the hidden column; those for JVMs do without."""
    return job.layout is not None and job.layout.has_hidden_weights


def _holds_weights(job: FileCheck, names: list[str]) -> bool:
    return WEIGHT_COLUMN in names and (job.ours or not job.reserved)


def _statistics_of(store: Store, job: FileCheck, rows: int, options: dict[str, str]) -> Iterator[Fault]:
    if job.num_records is not None and job.num_records != rows:
        yield Fault("rows-count", f"it holds {rows:,} rows, its statistics tell of {job.num_records:,}")
    if rows:
        whole = scan_files(store, [job.path], list(job.schema), job.schema, storage_options=options)
        found = whole.select(summaries_of(job.schema)).collect(engine="streaming")
        yield from compare_statistics(found, job.record, job.schema, ours=job.ours)


def _places_of(
    store: Store, job: FileCheck, rows: int, options: dict[str, str], *, hidden: bool
) -> Iterator[Fault]:
    """Check blocks where they account for every row, and the hidden column in any case: Spark goes by it."""
    placement = job.placement
    in_blocks = None if placement is None else int(placement.blocks["rows"].sum())
    if in_blocks not in {None, rows} and job.num_records != rows:  # else it is a fault of the log
        yield Fault("block-rows", f"it holds {rows:,} rows, its blocks {in_blocks:,}")
    if placement is not None and in_blocks == rows:
        beyond = _Tally()
        if job.ours:
            chunks = _chunks(store, job, rows, options, hidden=hidden or _asks_hidden(job))
            yield from _place_our_rows(_in_range(chunks, placement, beyond), placement, job.layout)
            yield from _range_faults(beyond)
            return
        chunks = _chunks(store, job, rows, options, hidden=False)
        yield from _place_foreign_rows(_in_range(chunks, placement, beyond, clock_slack), placement)
        yield from _range_faults(beyond)
    if hidden and job.indexed:
        yield from _check_hidden_weights(_chunks(store, job, rows, options, hidden=True), job.indexed)


def _chunks(
    store: Store, job: FileCheck, rows: int, options: dict[str, str], *, hidden: bool
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the indexed columns of all rows, some at a time."""
    schema = pl.Schema({**job.schema, WEIGHT_COLUMN: pl.Int32()})
    columns = [*job.indexed, WEIGHT_COLUMN] if hidden else list(job.indexed)
    scan = scan_files(store, [job.path], columns, schema, storage_options=options)
    for start in range(0, rows, _CHUNK_ROWS):
        yield start, scan.slice(start, _CHUNK_ROWS).collect()


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Blocks of one file, and the space they lie in."""

    revision: Revision
    # `cube`, `min_weight`, `max_weight`, `rows`, in the order of the tag.
    blocks: pl.DataFrame
    # Whether the thresholds promise anything: those of old compactions do not (format 11).
    bounded: bool = True

    def boxes(self) -> tuple[F64Array, F64Array]:
        """Give the box of each block, the end 1.0 as infinity, shape (blocks, dimensions)."""
        cubes = decode_cubes(text_column(self.blocks["cube"]), dimensions=len(self.revision.columns))
        lower, upper = cube_boxes(cubes)
        upper[upper >= 1.0] = np.inf
        return lower, upper

    def points(self, frame: pl.DataFrame, *, foreign: bool) -> Iterator[tuple[F64Array, F64Array]]:
        """Give bounds of the rows' coordinates, a pair a dimension."""
        spaces = zip(self.revision.columns, self.revision.transformations, strict=True)
        return (point_bounds(space, frame.get_column(name), foreign=foreign) for name, space in spaces)


def _in_range(chunks: Chunks, placement: Placement, beyond: _Tally, slack: Slack | None = None) -> Chunks:
    """Pass rows on, and count those beyond the range of their revision."""
    for start, frame in chunks:
        beyond.add(rows_outside(frame, placement.revision, slack=slack), start)
        yield start, frame


def _range_faults(beyond: _Tally) -> Iterator[Fault]:
    if beyond.count:
        message = (
            f"{beyond.count:,} row(s) have values outside the range of their revision: a reader that goes by the "
            "range does not find them"
        )
        yield Fault("row-range", message, beyond.first)


def _place_our_rows(
    chunks: Chunks, placement: Placement, layout: PageLayout | None = None
) -> Iterator[Fault]:
    """Check a file of ours, whose blocks stand in the order of its rows and sum to them."""
    rows = placement.blocks["rows"].to_numpy()
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
    weights = np.empty(int(starts[-1]), np.int32)
    lower, upper = placement.boxes()
    outside, hidden = _Tally(), _Tally()
    for start, frame in chunks:
        stop = start + frame.height
        block = np.searchsorted(starts, np.arange(start, stop), side="right") - 1
        weights[start:stop] = frame_weights(frame, placement.revision.columns)
        wrong = np.zeros(frame.height, np.bool_)
        for j, (point, _) in enumerate(placement.points(frame, foreign=False)):
            wrong |= (point < lower[block, j]) | (point >= upper[block, j])
        outside.add(wrong, start)
        if WEIGHT_COLUMN in frame.columns:
            hidden.add(_unlike(frame, weights[start:stop]), start)
    cubes = placement.blocks["cube"].to_list()
    if outside.count:
        cube = cubes[int(np.searchsorted(starts, outside.first, side="right")) - 1]
        yield Fault(
            "row-cube", f"{outside.count:,} row(s) lie outside the cube of their block", outside.first, cube
        )
    yield from _weight_faults(weights, starts, placement)
    if layout is not None:
        yield from _order_faults(weights, starts, placement)
        yield from _page_faults(weights, layout)
    yield from _hidden_faults(hidden)


def _check_hidden_weights(chunks: Chunks, indexed: Sequence[str]) -> Iterator[Fault]:
    """Check the hidden column alone, of a file whose blocks cannot be used."""
    hidden = _Tally()
    for start, frame in chunks:
        hidden.add(_unlike(frame, frame_weights(frame, indexed)), start)
    yield from _hidden_faults(hidden)


def _unlike(frame: pl.DataFrame, weights: I32Array) -> BoolArray:
    """Tell which rows have another hidden weight than they should."""
    stored = frame.get_column(WEIGHT_COLUMN).cast(pl.Int64).fill_null(1 << _LOW_BITS).to_numpy()
    wrong: BoolArray = stored != weights >> _LOW_BITS
    return wrong


def _hidden_faults(hidden: _Tally) -> Iterator[Fault]:
    if hidden.count:
        message = f"{WEIGHT_COLUMN} of {hidden.count:,} row(s) is not the high half of their weight"
        yield Fault("hidden-weight", message, hidden.first)


def _weight_faults(weights: I32Array, starts: I64Array, placement: Placement) -> Iterator[Fault]:
    filled = placement.blocks.with_row_index("at").filter(pl.col("rows") > 0)
    at = filled["at"].to_numpy()
    if not len(at):
        return
    first = starts[:-1][at]
    least, most = np.minimum.reduceat(weights, first), np.maximum.reduceat(weights, first)
    low, high = filled["min_weight"].to_numpy(), filled["max_weight"].to_numpy()
    over = np.flatnonzero((most > high) | (least < low))
    for bad in over[:1]:
        inside = weights[first[bad] : starts[at[bad] + 1]]
        wrong = (inside > high[bad]) | (inside < low[bad])
        message = (
            f"{int(wrong.sum()):,} row(s) have weights outside {low[bad]} to {high[bad]}, the bounds of their block"
            + (f", and {len(over) - 1:,} other block(s) have such rows" if len(over) > 1 else "")
        )
        yield Fault("row-weight", message, int(first[bad] + np.argmax(wrong)), filled["cube"][int(bad)])
    for bad in np.flatnonzero(least > low)[:1]:
        message = f"the smallest weight of the block is {least[bad]}, its tag says {low[bad]}"
        yield Fault("min-weight", message, int(first[bad]), filled["cube"][int(bad)])


def _order_faults(weights: I32Array, starts: I64Array, placement: Placement) -> Iterator[Fault]:
    filled = placement.blocks.with_row_index("at").filter(pl.col("rows") > 0)
    first = starts[:-1][filled["at"].to_numpy()]
    falls = weights[1:] < weights[:-1]
    falls[first[1:] - 1] = False
    if falls.any():
        row = int(np.argmax(falls)) + 1
        cube = filled["cube"][int(np.searchsorted(first, row, side="right")) - 1]
        message = "rows of a block do not rise in weight, so its pages cannot be chosen"
        yield Fault("row-order", message, row, cube)


def _page_faults(weights: I32Array, layout: PageLayout) -> Iterator[Fault]:
    first = weights[:: layout.page_rows] >> _LOW_BITS
    logged = np.asarray(layout.weights, np.int32)
    if len(logged) != len(first):
        return  # a fault of the log
    for page in np.flatnonzero(logged != first)[:1]:
        message = (
            f"page {page} begins with a weight of high half {first[page]}, its layout tag says {logged[page]}"
        )
        yield Fault("layout", message, int(page) * layout.page_rows)


def _place_foreign_rows(chunks: Chunks, placement: Placement) -> Iterator[Fault]:
    """Check a file of another writer, whose rows may stand in any order.

    A row belongs to the first cube on its way down whose block takes its weight. Counts and smallest weights
    are compared only if every row's place is certain (`point_bounds`).
    """
    merged = placement.blocks.group_by("cube", maintain_order=True).agg(
        pl.col("min_weight").min(), pl.col("max_weight").max(), pl.col("rows").sum()
    )
    one = Placement(placement.revision, merged, placement.bounded)
    found = _Assigned(one)
    for start, frame in chunks:
        found.add(start, frame)
    yield from found.faults()


class _Assigned:
    """Rows of one file counted into its blocks, from the top of the tree down."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.lower, self.upper = placement.boxes()
        self.depth = placement.blocks["cube"].str.len_bytes().to_numpy()
        self.counts = np.zeros(placement.blocks.height, np.int64)
        self.least = np.full(placement.blocks.height, np.iinfo(np.int64).max)
        self.certain = True
        self.nowhere, self.astray = _Tally(), _Tally()

    def add(self, start: int, frame: pl.DataFrame) -> None:
        """Place some more rows."""
        weights = frame_weights(frame, self.placement.revision.columns).astype(np.int64)
        bounds = list(self.placement.points(frame, foreign=True))
        self.certain = self.certain and all((low == high).all() for low, high in bounds)
        low = self.placement.blocks["min_weight"].to_numpy()
        high = self.placement.blocks["max_weight"].to_numpy()
        remaining, in_cube = np.arange(len(weights)), np.zeros(len(weights), np.bool_)
        for depth in np.unique(self.depth):  # rows that found their block are not looked at further down
            weight, free = weights[remaining], np.ones(len(remaining), np.bool_)
            ends = [(below[remaining], above[remaining]) for below, above in bounds]
            for block in np.flatnonzero(self.depth == depth):
                inside = np.ones(len(remaining), np.bool_)
                for j, (below, above) in enumerate(ends):
                    inside &= (above >= self.lower[block, j]) & (below < self.upper[block, j])
                in_cube[remaining[inside]] = True
                inside &= free & (weight >= low[block])
                if self.placement.bounded:
                    inside &= weight <= high[block]
                free &= ~inside
                self.counts[block] += inside.sum()
                self.least[block] = min(int(weight[inside].min(initial=2**40)), self.least[block])
            remaining = remaining[free]
        lost = np.zeros(len(weights), np.bool_)
        lost[remaining] = True
        self.nowhere.add(lost & ~in_cube, start)
        self.astray.add(lost & in_cube, start)

    def faults(self) -> Iterator[Fault]:
        """Tell what is wrong, once all rows are placed."""
        if self.nowhere.count:
            message = f"{self.nowhere.count:,} row(s) lie in no cube of the file's blocks"
            yield Fault("row-cube", message, self.nowhere.first)
        if self.astray.count:
            message = f"{self.astray.count:,} row(s) have weights outside the bounds of the block they lie in"
            yield Fault("row-weight", message, self.astray.first)
        if not self.certain or self.nowhere.count or self.astray.count:
            return
        blocks = self.placement.blocks
        logged, low = blocks["rows"].to_numpy(), blocks["min_weight"].to_numpy()
        for bad in np.flatnonzero(self.counts != logged)[:1]:
            message = f"the block holds {self.counts[bad]:,} rows, its tag says {logged[bad]:,}"
            yield Fault("block-rows", message, None, blocks["cube"][int(bad)])
        wrong: BoolArray = (self.counts > 0) & (self.counts == logged) & (self.least != low)
        for bad in np.flatnonzero(wrong)[:1]:
            message = f"the smallest weight of the block is {self.least[bad]}, its tag says {low[bad]}"
            yield Fault("min-weight", message, None, blocks["cube"][int(bad)])


class _Tally:
    """How many rows are wrong, and which is the first."""

    def __init__(self) -> None:
        self.count, self.first = 0, 0

    def add(self, wrong: BoolArray, start: int) -> None:
        """Count the rows of a chunk that starts at row `start` of the file."""
        some = int(wrong.sum())
        if some and not self.count:
            self.first = start + int(np.argmax(wrong))
        self.count += some
