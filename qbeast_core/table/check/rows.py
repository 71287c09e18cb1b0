"""One data file, checked from end to end in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.io.footer import Unreadable, read_footer, stored_size
from qbeast_core.log.actions import Leaf, leaf_column, leaves_of
from qbeast_core.plan.bounds import text_above, widened_bounds
from qbeast_core.spec.blocks import WEIGHT_COLUMN, Layout
from qbeast_core.support.frames import time_texts
from qbeast_core.support.sizing import sizing
from qbeast_core.table.check.faults import Fault
from qbeast_core.table.check.placement import (
    ForeignRows,
    OurRows,
    PagedRows,
    Placement,
    RowCheck,
    check_pages,
    hidden_weights,
    read_layout,
    row_range,
    sample_column_values,
)
from qbeast_core.table.data.scan import SCAN_ERRORS, FileScan, TableFiles, scan_files
from qbeast_core.tree.grid import frame_weights

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
        checks.append(row_range(placement.revision, foreign=not job.ours))
        if job.ours and job.sample_column is not None and not job.wants_hidden:
            checks.append(sample_column_values(job.sample_column))
            computed = [job.sample_column]
        hidden |= job.ours and job.wants_hidden  # a missing column reads as nulls, and none of them is right
    if hidden:
        checks.append(hidden_weights())
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
