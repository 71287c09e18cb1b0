"""Summaries of the indexed columns from one pass, by partition; summaries of batches can be merged."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.space.values import I64Array, NumberColumn, U64Array, number_values
from qbeast_core.spec.revision import INTEGER_DATA_TYPES, DataType
from qbeast_core.support.frames import join_equal, own_column
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import data_type_of, map_chunks, to_index_column

_NUMBER: Final = own_column("tree")


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partitions of a table by number: row n of `values` belongs to tree n.

    Nulls are equal, and so are values of NaN. As in Delta, the empty text is null.

    >>> some = NO_PARTITIONS.with_rows(pl.DataFrame({"day": ["tue", "mon", "tue"]}))
    >>> some.values["day"].to_list(), some.numbers(pl.DataFrame({"day": ["tue", "wed"]})).tolist()
    (['mon', 'tue'], [1, -1])
    """

    values: pl.DataFrame

    @property
    def columns(self) -> list[str]:
        """Names of the partition columns."""
        return self.values.columns

    @property
    def tree_count(self) -> int:
        """Number of trees. A table without partition columns has one."""
        return self.values.height if self.columns else 1

    def with_rows(self, rows: pl.DataFrame) -> Partitions:
        """Return these partitions, then the new partitions in `rows`, which has only partition columns."""
        if not rows.columns:
            return self
        values = _distinct_values(rows)
        if not self.columns:
            return Partitions(values)
        new = join_equal(values, self.values, self.columns, "anti", nulls_equal=True)
        return Partitions(pl.concat([self.values, new.sort(self.columns)])) if new.height else self

    def numbers(self, rows: pl.DataFrame) -> I64Array | None:
        """Return the number of each row's tree, -1 for an unknown partition; None without partition columns."""
        if not self.columns:
            return None
        values = self.values.with_row_index(_NUMBER)
        stored = with_stored_values(rows.select(self.columns), self.columns)
        joined = join_equal(stored, values, self.columns, "left", nulls_equal=True, maintain_order="left")
        numbers: I64Array = joined[_NUMBER].cast(pl.Int64).fill_null(-1).to_numpy()
        return numbers


def _distinct_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct rows, sorted. Without columns there are none."""
    if not rows.columns:
        return pl.DataFrame()
    return with_stored_values(rows.unique(), rows.columns).unique().sort(rows.columns)


def with_stored_values(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows with the values of partition columns as Delta stores them.

    >>> with_stored_values(pl.DataFrame({"day": ["", "mon"], "f": [-0.0, 1.0], "text": ["", ""]}), ["day", "f"]).rows()
    [(None, 0.0, ''), ('mon', 1.0, '')]
    """
    values: list[pl.Expr] = []
    for name in columns:
        match rows.schema[name]:
            case pl.String():
                values.append(pl.col(name).replace("", None))
            case pl.Binary():
                values.append(pl.when(pl.col(name) != b"").then(pl.col(name)))
            case pl.Float32() | pl.Float64():
                zero = pl.lit(0.0, rows.schema[name])  # -0.0 is another text
                values.append(pl.when(pl.col(name) == 0.0).then(zero).otherwise(pl.col(name)).alias(name))
            case _:
                pass
    return rows.with_columns(values) if values else rows


NO_PARTITIONS: Final = Partitions(pl.DataFrame())


# Rows of the uniform sample for quantiles; the error of a rank is about 0.2 %.
_SAMPLE_ROWS: Final = 1 << 16

# Key limit of a sample that holds all rows.
EVERY_KEY: Final = (1 << 64) - 1

# Column of a sample with the keys of its rows; tables cannot have a column with this name.
KEY_COLUMN: Final = "\0row key"

_LARGEST_KEY: Final = 0xFFFFFFFFFFFFF800  # a float64 below 2**64


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """Maximum size of the sample of a summary: rows, and approximate bytes."""

    rows: int
    size_bytes: int


def domain_limits() -> SampleLimits:
    """Return the maximum sample to build a tree from."""
    return SampleLimits(sizing().domain_rows, sizing().domain_bytes)


_QUANTILE_LIMITS: Final = SampleLimits(_SAMPLE_ROWS, 1 << 40)


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Range of one indexed column."""

    name: str
    data_type: DataType
    nulls: int
    lowest: float | str | None
    highest: float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class IndexSummary:
    """Rows, ranges and a uniform sample of the indexed columns.

    The sample keeps the rows with the smallest keys, which hash row numbers. It does not depend on weights, which are
    equal for equal index keys.
    """

    rows: int
    columns: tuple[ColumnSummary, ...]
    sample: pl.DataFrame
    key_limit: int = EVERY_KEY
    weight_sum: int = 0
    # Distinct values of the partition columns of all rows.
    partitions: pl.DataFrame = field(default_factory=pl.DataFrame)
    # Separate summary of rows outside of the space of a revision; not included in the other fields.
    outside: IndexSummary | None = None

    @property
    def sampled_rows(self) -> int:
        """Rows of both samples."""
        return self.sample.height + (0 if self.outside is None else self.outside.sampled_rows)

    def values(self, name: str) -> pl.Series:
        """Return the sampled values of a column, nulls included."""
        return self.sample.get_column(name)

    def below(self, key_limit: int) -> IndexSummary:
        """Return the summary with a smaller sample: only keys up to `key_limit`, as in another summary."""
        if key_limit >= self.key_limit:
            return self
        return replace(self, sample=self.sample.filter(pl.col(KEY_COLUMN) <= key_limit), key_limit=key_limit)


def summarise(
    frame: pl.DataFrame,
    names: Sequence[str],
    *,
    partitions: Sequence[str] = (),
    sample_by: Sequence[str] = (),
    first_row: int = 0,
    limits: SampleLimits = _QUANTILE_LIMITS,
) -> IndexSummary:
    """Summarise one batch of rows. The sample also has the partition columns and the sampling key.

    >>> s = summarise(pl.DataFrame({"a": [3, None, 1]}), ["a"])
    >>> s.rows, s.columns[0].lowest, s.columns[0].highest, s.columns[0].nulls
    (3, 1, 3, 1)
    """
    columns_frame = frame[list(dict.fromkeys((*names, *partitions, *sample_by)))]
    rows, keys = _sampled_rows(first_row, frame.height, limits.rows)
    sample = columns_frame[pl.Series(rows)] if len(rows) < frame.height else columns_frame
    sample = sample.hstack([pl.Series(KEY_COLUMN, keys)])
    columns = tuple(_column(columns_frame.get_column(name)) for name in names)
    limit = int(keys.max()) if len(rows) < frame.height else EVERY_KEY
    distinct = _distinct_values(frame.select(partitions))
    return _cut_sample(IndexSummary(frame.height, columns, sample, limit, partitions=distinct), limits)


def merge_summaries(
    parts: Sequence[IndexSummary], *, limits: SampleLimits = _QUANTILE_LIMITS
) -> IndexSummary:
    """Merge the summaries of several batches, in any order."""
    limit = min(part.key_limit for part in parts)
    outside = [part.outside for part in parts if part.outside is not None]
    merged = IndexSummary(
        rows=sum(part.rows for part in parts),
        columns=tuple(reduce(_merge_columns, same) for same in zip(*(p.columns for p in parts), strict=True)),
        sample=pl.concat([part.below(limit).sample for part in parts]),
        key_limit=limit,
        weight_sum=sum(part.weight_sum for part in parts),
        partitions=_distinct_values(pl.concat([part.partitions for part in parts])),
        outside=merge_summaries(outside, limits=limits) if outside else None,
    )
    return _cut_sample(merged, limits)


def _cut_sample(summary: IndexSummary, limits: SampleLimits) -> IndexSummary:
    """Drop the largest keys until the sample is within the limits."""
    sample = summary.sample
    max_rows = limits.rows
    size = int(sample.estimated_size())
    if size > limits.size_bytes:
        max_rows = min(max_rows, max(sample.height * limits.size_bytes // size, 1))
    if sample.height <= max_rows:
        return summary
    kept = sample.bottom_k(max_rows, by=KEY_COLUMN)
    return replace(summary, sample=kept, key_limit=int(kept.get_column(KEY_COLUMN).to_numpy().max()))


def summarise_ends(ends: pl.Series, *, nulls: int) -> ColumnSummary:
    """Summarise a column from its minimum and maximum."""
    data_type = data_type_of(ends.name, ends.dtype)
    lowest, highest = _in_format_unit(ends, data_type)
    return ColumnSummary(ends.name, data_type, nulls, lowest, highest)


def _merge_columns(left: ColumnSummary, right: ColumnSummary) -> ColumnSummary:
    both = (left, right)
    # Values of one column have one type; texts compare by code points, which is UTF-8 byte order.
    return ColumnSummary(
        left.name,
        left.data_type,
        left.nulls + right.nulls,
        min((c.lowest for c in both if c.lowest is not None), default=None),
        max((c.highest for c in both if c.highest is not None), default=None),
    )


def _column(values: pl.Series) -> ColumnSummary:
    finite = values.filter(values.is_finite()) if values.dtype.is_float() else values
    # Times as integers: Python's types end at the year 9999.
    plain = finite.to_physical() if values.dtype.is_temporal() else finite
    ends = pl.Series(values.name, [plain.min(), plain.max()], dtype=plain.dtype).cast(values.dtype)
    return summarise_ends(ends, nulls=values.null_count())


def _in_format_unit(ends: pl.Series, data_type: DataType) -> tuple[float | str | None, float | str | None]:
    if ends.null_count():
        return None, None
    if data_type == "StringDataType":
        return str(ends[0]), str(ends[1])
    if data_type in {"IntegerDataType", "LongDataType"}:
        return int(ends[0]), int(ends[1])  # exact beyond 2**53
    column = to_index_column(ends)
    numbers = number_values(column) if isinstance(column, NumberColumn) else np.zeros(2)
    number = int if data_type in INTEGER_DATA_TYPES else float
    return number(numbers[0]), number(numbers[1])


def _sampled_rows(first_row: int, rows: int, max_rows: int) -> tuple[I64Array, U64Array]:
    """Return the rows with the smallest keys, and these keys: a uniform sample that can be merged with others.

    Rows are ascending, from 0; a key is a hash of the row number.

    >>> [array.tolist() for array in _sampled_rows(0, 3, 1)]
    [[2], [487617019471545679]]
    """
    limit = np.uint64(min(2.0 * max_rows / max(rows, 1), 1.0) * _LARGEST_KEY)
    is_complete = rows <= max_rows

    def chunk(start: int, stop: int) -> tuple[I64Array, U64Array]:
        keys = _row_keys(first_row + start, stop - start)
        candidates = np.arange(len(keys)) if is_complete else np.flatnonzero(keys <= limit)
        return candidates + start, keys[candidates]

    chunks = map_chunks(chunk, rows)
    rows_kept = np.concatenate([np.zeros(0, np.int64), *(place for place, _ in chunks)])
    keys = np.concatenate([np.zeros(0, np.uint64), *(key for _, key in chunks)])
    if len(keys) > max_rows:
        kept = np.sort(np.argpartition(keys, max_rows)[:max_rows])
        rows_kept, keys = rows_kept[kept], keys[kept]
    return rows_kept, keys


def _row_keys(first_row: int, rows: int) -> U64Array:
    """Return a hash of 64 bits for each row number (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(first_row + 1, first_row + rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


_SIZE_BYTES: Final = 8
_PARTS: Final = 4


def dump_summary(summary: IndexSummary) -> bytes:
    """Serialise a summary: sizes, a JSON header, sample and partitions as Arrow files, and the summary of rows outside.

    >>> from qbeast_core.tree.summary import summarise
    >>> load_summary(dump_summary(summarise(pl.DataFrame({"a": [3, None, 1]}), ["a"]))).columns[0].lowest
    1
    """
    header = orjson.dumps(
        {
            "rows": summary.rows,
            "keyLimit": summary.key_limit,
            "weightSum": summary.weight_sum,
            "columns": [asdict(column) for column in summary.columns],
        }
    )
    frames = [io.BytesIO(), io.BytesIO()]
    for sink, frame in zip(frames, (summary.sample, summary.partitions), strict=True):
        frame.write_ipc(sink, compression="lz4")
    outside = b"" if summary.outside is None else dump_summary(summary.outside)
    parts = (header, *(sink.getvalue() for sink in frames), outside)
    return b"".join([*(len(part).to_bytes(_SIZE_BYTES, "little") for part in parts), *parts])


def load_summary(data: bytes) -> IndexSummary:
    """Return the summary from the bytes of `dump_summary`."""
    sizes = [int.from_bytes(data[i * _SIZE_BYTES : (i + 1) * _SIZE_BYTES], "little") for i in range(_PARTS)]
    ends = [_PARTS * _SIZE_BYTES + sum(sizes[:i]) for i in range(_PARTS + 1)]
    head, sample, partitions, outside = (data[first:end] for first, end in pairwise(ends))
    header = orjson.loads(head)
    return IndexSummary(
        rows=header["rows"],
        columns=tuple(ColumnSummary(**column) for column in header["columns"]),
        sample=pl.read_ipc(io.BytesIO(sample)),
        key_limit=header["keyLimit"],
        weight_sum=header["weightSum"],
        partitions=pl.read_ipc(io.BytesIO(partitions)),
        outside=load_summary(outside) if outside else None,
    )


# Bits of the random numbers of rows: a float64 holds them exactly.
KEY_BITS: Final = 53

_SHIFT: Final = 64 - KEY_BITS


def counted_summary(
    sample: pl.DataFrame,
    drawn: pl.Series,
    columns: Sequence[ColumnSummary],
    *,
    rows: int,
    least_limit: int,
    weight_sum: int,
    limits: SampleLimits,
    partitions: pl.DataFrame | None = None,
) -> IndexSummary:
    """Return the summary of rows with random numbers; rows below a limit are in the sample.

    >>> from qbeast_core.tree.summary import summarise_ends
    >>> frame = pl.DataFrame({"a": [1, 5, 3]})
    >>> counts = summarise_ends(pl.Series("a", [1, 7]), nulls=2)
    >>> drawn = pl.Series([10, 90, 20])
    >>> summary = counted_summary(
    ...     frame, drawn, [counts], rows=90, least_limit=50, weight_sum=0, limits=SampleLimits(99, 1 << 20)
    ... )
    >>> summary.values("a").to_list(), summary.columns[0].highest
    ([1, 3], 7)
    """
    keys = (drawn.cast(pl.UInt64) * (1 << _SHIFT)).alias(KEY_COLUMN)
    key_limit = (least_limit << _SHIFT) - 1 if least_limit < 1 << KEY_BITS else EVERY_KEY
    summary = IndexSummary(
        rows=rows,
        columns=tuple(columns),
        sample=sample.with_columns(keys).filter(pl.col(KEY_COLUMN) <= key_limit),
        key_limit=key_limit,
        weight_sum=weight_sum,
        partitions=_distinct_values(pl.DataFrame() if partitions is None else partitions),
    )
    return _cut_sample(summary, limits)
