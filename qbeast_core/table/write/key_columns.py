"""The partition columns and the sampling key of a table after a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError, unknown_columns
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.table_config import SAMPLE_BY, TableConfig
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.data.schema import listed_names
from qbeast_core.tree.grid import can_be_hashed

# Names of the columns of a sampling key, or the name of one.
SampleBy: TypeAlias = Sequence[str] | str

_SAMPLE_BY: Final = "sample_by"


def sampling_key(
    requested: SampleBy | None,
    schema: pl.Schema,
    *,
    now: tuple[str, ...] | None,
    may_change: bool,
    dialect: BlocksDialect,
    sample_column: str | None = None,
) -> tuple[str, ...]:
    """Return the sampling key of a table of these columns after a write. Empty: the indexed columns.

    `now` is that of the table, None for a new table. Without a request, a table keeps its sampling key.
    """
    names = (now or ()) if requested is None else listed_names(requested, _SAMPLE_BY)
    if now is not None and names != now and not may_change:
        has = f"has the sampling key {list(now)}" if now else "has no sampling key"
        msg = (
            f"the table {has}, not {list(names)}. Leave `{_SAMPLE_BY}` out, or replace the rows with "
            'mode="overwrite".'
        )
        raise InvalidInputError(msg, argument=_SAMPLE_BY, value=list(names))
    if names:
        _check_key(names, schema, dialect, sample_column)
    return names


def with_sampling_key(metadata: Metadata, names: tuple[str, ...]) -> Metadata:
    """Return the metadata with this sampling key, by the names of columns in files."""
    if not names and SAMPLE_BY not in metadata.configuration:
        return metadata
    columns = StoredColumns.of(metadata)
    config = TableConfig.from_configuration(metadata.configuration)
    stored = tuple(columns.stored_name(name) for name in names)
    if stored == config.sample_by:
        return metadata
    return metadata.model_copy(update={"configuration": config.with_sample_by(stored).to_configuration()})


def with_importance(metadata: Metadata, importance: Mapping[str, float], indexed: Sequence[str]) -> Metadata:
    """Return the metadata with an importance of indexed columns; raise if one is not indexed."""
    unknown = [name for name in importance if name not in indexed]
    if unknown:
        unknown_columns("importance", unknown, indexed)
    columns, config = StoredColumns.of(metadata), TableConfig.from_configuration(metadata.configuration)
    stored = {columns.stored_name(name): float(number) for name, number in importance.items()}
    return metadata.model_copy(update={"configuration": config.with_importance(stored).to_configuration()})


def _check_key(
    names: tuple[str, ...], schema: pl.Schema, dialect: BlocksDialect, sample_column: str | None
) -> None:
    """Raise if a table of these columns cannot have this sampling key."""
    unknown = [name for name in names if name not in schema]
    twice = sorted({name for name in names if names.count(name) > 1})
    unfit = [name for name in names if name in schema and not _is_key(schema[name])]
    if unknown:
        msg = (
            f"the rows have no column(s) {unknown} to sample by. They have {list(schema)}."
            f"{did_you_mean(unknown, schema)} A table without a sampling key: {_SAMPLE_BY}=[]."
        )
    elif twice:
        msg = f"columns to sample by named twice: {twice}. Name each once."
    elif sample_column in names:
        msg = (
            f"{sample_column!r} is the sample column, which is computed from the sampling key. "
            "Choose other columns."
        )
    elif unfit:
        types = ", ".join(f"{name!r} ({schema[name]})" for name in unfit)
        msg = (
            f"columns of these types cannot be a sampling key: {types}. Equal keys must have equal "
            "bytes, so floats and nested columns are refused: cast them to integers, decimals or text."
        )
    elif dialect == "qbeast-spark":
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have a sampling key: the JVM samples by the indexed "
            "columns. Use the dialect 'documented'."
        )
    else:
        return
    raise InvalidInputError(msg, argument=_SAMPLE_BY, value=list(names), known=list(schema))


def _is_key(dtype: pl.DataType) -> bool:
    return can_be_hashed(dtype) and not dtype.is_float()


# Names of partition columns, or the name of one.
PartitionBy: TypeAlias = Sequence[str] | str

_PARTITION_BY: Final = "partition_by"


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
    names = (now or ()) if requested is None else listed_names(requested, _PARTITION_BY)
    if now is not None and names != now and not may_change:
        has = f"is partitioned by {list(now)}" if now else "has no partitions"
        msg = (
            f"the table {has}, not by {list(names)}. Leave `{_PARTITION_BY}` out, or replace the table with "
            'mode="overwrite", schema_mode="overwrite".'
        )
        raise InvalidInputError(msg, argument=_PARTITION_BY, value=list(names))
    if names:
        _check_partitions(names, schema, dialect)
    return names


def _check_partitions(names: tuple[str, ...], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Raise if a table of these columns cannot have these partition columns."""
    unknown = [name for name in names if name not in schema]
    nested = [name for name in names if name in schema and schema[name].is_nested()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if unknown:
        msg = (
            f"the rows have no column(s) {unknown} to partition by. They have {list(schema)}."
            f"{did_you_mean(unknown, schema)} A table without partitions: {_PARTITION_BY}=[]."
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
    raise InvalidInputError(msg, argument=_PARTITION_BY, value=list(names), known=list(schema))
