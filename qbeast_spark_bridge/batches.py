"""Arrow batches as Spark hands them to its workers, and larger ones to work on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BUFFER_BYTES", "gathered", "in_utc", "numbered"]

BUFFER_BYTES: Final = 64 << 20
"""Bytes of rows that a worker gathers before it works on them."""

_BUFFER_ROWS: Final = 1 << 20


def numbered(df: DataFrame) -> DataFrame:
    """Return the rows with columns called c0, c1 and so on.

    PySpark's ``mapInArrow`` takes the name of a column for an expression: a dot in it would be a field of a
    struct, a backtick a quote.
    """
    return df.toDF(*(f"c{number}" for number in range(len(df.columns))))


def gathered(
    batches: Iterator[pa.RecordBatch], names: Sequence[str] | None = None, *, size_bytes: int = BUFFER_BYTES
) -> Iterator[pa.Table]:
    """Yield the rows of small batches as tables of about a size, at most a million rows; none is empty.

    Timestamps are treated as `in_utc` does.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        All of one schema.
    names : sequence of str, optional
        What the columns are really called.
    size_bytes : int
        About how many bytes each table has, 64 MB by default.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _BUFFER_ROWS or size >= size_bytes:
            yield _table(held, names)
            held, rows, size = [], 0, 0
    if rows:
        yield _table(held, names)


def in_utc(table: pa.Table) -> pa.Table:
    """Return the rows with timestamps that have a zone labelled UTC, which is what they count.

    Parameters
    ----------
    table : pyarrow.Table
        As Spark hands it over: labelled with the session's zone, of which some (``+05:30``) are unknown to
        other libraries.
    """
    fields = [_field_in_utc(field) for field in table.schema]
    return table if fields == list(table.schema) else table.cast(pa.schema(fields))


def _table(held: list[pa.RecordBatch], names: Sequence[str] | None) -> pa.Table:
    table = in_utc(pa.Table.from_batches(held))
    return table if names is None else table.rename_columns(list(names))


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_type_in_utc(field.type))


def _type_in_utc(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.timestamp(dtype.unit, "UTC") if dtype.tz else dtype
    if pa.types.is_struct(dtype):
        return pa.struct([_field_in_utc(dtype.field(i)) for i in range(dtype.num_fields)])
    if pa.types.is_list(dtype):
        return pa.list_(_field_in_utc(dtype.value_field))
    if pa.types.is_map(dtype):
        return pa.map_(_field_in_utc(dtype.key_field), _field_in_utc(dtype.item_field), dtype.keys_sorted)
    return dtype
