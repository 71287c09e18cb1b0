"""The partition columns of a table after a write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.support.suggestions import did_you_mean
from qbeast_core.table.data.schema import listed_names

# Names of partition columns, or the name of one.
PartitionBy: TypeAlias = Sequence[str] | str

_ARGUMENT: Final = "partition_by"


def partition_columns(
    requested: PartitionBy | None,
    schema: pl.Schema,
    *,
    now: tuple[str, ...] | None,
    may_change: bool,
    dialect: BlocksDialect,
) -> tuple[str, ...]:
    """Return the partition columns of a table of these columns after a write.

    `now` are those of the table, None for a new table. Without a request, a table keeps its partition columns.
    """
    names = (now or ()) if requested is None else listed_names(requested, _ARGUMENT)
    if now is not None and names != now and not may_change:
        has = f"is partitioned by {list(now)}" if now else "has no partitions"
        msg = (
            f"the table {has}, not by {list(names)}. Leave `{_ARGUMENT}` out, or replace the table with "
            'mode="overwrite", schema_mode="overwrite".'
        )
        raise InvalidInputError(msg, argument=_ARGUMENT, value=list(names))
    if names:
        _check(names, schema, dialect)
    return names


def _check(names: tuple[str, ...], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Raise if a table of these columns cannot have these partition columns."""
    unknown = [name for name in names if name not in schema]
    nested = [name for name in names if name in schema and schema[name].is_nested()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if unknown:
        msg = (
            f"the rows have no column(s) {unknown} to partition by. They have {list(schema)}."
            f"{did_you_mean(unknown, schema)} A table without partitions: {_ARGUMENT}=[]."
        )
    elif twice:
        msg = f"columns to partition by named twice: {twice}. Name each once."
    elif nested:
        types = ", ".join(f"{name!r} ({schema[name]})" for name in nested)
        msg = f"lists, structs and maps cannot be partition columns: {types}. Choose other columns."
    elif len(names) == len(schema):
        msg = "all columns are partition columns, so files would have no column. Leave one out."
    elif dialect == "qbeast-spark":
        msg = (
            f"tables of the dialect 'qbeast-spark' cannot have partitions. Index {list(names)} instead, "
            "or use the dialect 'documented'."
        )
    else:
        return
    raise InvalidInputError(msg, argument=_ARGUMENT, value=list(names), known=list(schema))
