"""Statistics of files by the names of columns in the table, with the values of partition columns."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from qbeast_core.log.columns.stored import StoredColumns

_BOUNDS: Final = ("min", "max")


def statistics_by_name(files: pl.DataFrame, columns: StoredColumns) -> pl.DataFrame:
    """Return the files of `deltalake` with statistics by the names of columns in the table.

    A partition column has its value as minimum and maximum, so filters skip files by it as by others.

    >>> no_statistics = {"min": [{}], "max": [{}], "null_count": [{}]}
    >>> files = pl.DataFrame({"num_records": [3], "partition": [{"d": 1}], **no_statistics})
    >>> statistics_by_name(files, StoredColumns({}, partitions=("d",))).select("min", "null_count").row(0)
    ({'d': 1}, {'d': 0})
    """
    if columns.is_plain:
        return files
    renamed = {kind: _fields(kind, files.schema[kind], columns) for kind in (*_BOUNDS, "null_count")}
    for name in columns.partitions:
        value = pl.col("partition").struct.field(name)
        nulls = pl.when(value.is_null()).then("num_records").otherwise(0).cast(pl.Int64)
        for kind in _BOUNDS:
            bound = value.fill_nan(None) if files.schema["partition"].to_schema()[name].is_float() else value  # type: ignore[attr-defined]
            renamed[kind][name] = bound
        renamed["null_count"][name] = nulls
    structs = {
        kind: pl.struct([value.alias(name) for name, value in fields.items()])
        for kind, fields in renamed.items()
        if fields
    }
    return files.with_columns(**structs)


def _fields(kind: str, dtype: pl.DataType, columns: StoredColumns) -> dict[str, pl.Expr]:
    """Return the statistics of each column."""
    if not isinstance(dtype, pl.Struct):
        return {}
    inner = dtype.to_schema()
    fields: dict[str, pl.Expr] = {}
    for name, column in columns.columns.items():
        if column.stored_name in inner:
            value = pl.col(kind).struct.field(column.stored_name)
            fields[name] = _named(value, inner[column.stored_name], column.stored_type, column.dtype)
    return fields


def _named(value: pl.Expr, found: Any, stored: Any, dtype: Any) -> pl.Expr:
    """Return a value of structs with the names of fields in the table. Lists and maps have no statistics."""
    if not (isinstance(found, pl.Struct) and isinstance(stored, pl.Struct) and isinstance(dtype, pl.Struct)):
        return value
    present = found.to_schema()
    names = zip(stored.fields, dtype.fields, strict=True)
    fields = [
        _named(value.struct.field(old.name), present[old.name], old.dtype, new.dtype).alias(new.name)
        for old, new in names
        if old.name in present
    ]
    return pl.struct(fields) if fields else value
