"""Columns of mapped and partitioned tables in Spark: names in files, and values of partition columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.types import StructField, StructType

from qbeast_core.log.columns.stored import StoredColumns
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.table.read.reader import Reader
from qbeast_spark_bridge.schema import nullable_schema, quoted, stored_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A name that all versions of Spark return as it is.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")

# Columns of the join with partition values; no column of a table can have a name of this form.
_FILE: Final = "qbeast file\u2028"


def stored_schema(schema: StructType, columns: StoredColumns) -> StructType:
    """Return the columns to read from files, by their names and with their types there."""
    if columns.is_plain:
        return schema
    names = columns.read_from_files(schema.names)
    if columns.mode == "none":
        return StructType([schema[name] for name in names])
    return nullable_schema(StructType([stored_field(columns.columns[name]) for name in names]))


def can_find_columns(reader: Reader, number: int) -> bool:
    """Return whether Spark's reader finds the columns and the partition of a file by names."""
    columns = reader.snapshot.columns
    if columns.mode == "id" and reader.snapshot.file_facts[number][1]:
        return False  # its columns are found by id
    return not columns.partitions or _has_own_name(reader, number)


def by_table_names(
    files: DataFrame, schema: StructType, reader: Reader, numbers: Sequence[int], *, hidden: bool
) -> DataFrame:
    """Return the rows of files with the columns of the table, and the hidden column if there is one."""
    columns = reader.snapshot.columns
    if columns.is_plain:
        return files
    rows = _with_partitions(files, reader, numbers) if columns.partitions else files
    shown = [(_partition if field.name in columns.partitions else _named)(field, columns) for field in schema]
    return rows.select(*shown, *([WEIGHT_COLUMN] if hidden else []))


def _named(field: StructField, columns: StoredColumns) -> Column:
    stored = columns.columns[field.name]
    column = F.col(quoted(stored.stored_name))
    # A cast renames fields of structs by their position.
    return (column if stored.stored_type == stored.dtype else column.cast(field.dataType)).alias(field.name)


def _partition(field: StructField, columns: StoredColumns) -> Column:
    number = columns.partitions.index(field.name)
    return F.col(f"`{_FILE}{number}`").cast(field.dataType).alias(field.name)


def _with_partitions(files: DataFrame, reader: Reader, numbers: Sequence[int]) -> DataFrame:
    """Return rows of files with the texts of their partition values."""
    texts = reader.snapshot.partition_texts
    names = [f"{_FILE}{number}" for number in range(len(reader.snapshot.columns.partitions))]
    if len({texts[number] for number in numbers}) == 1:
        values = zip(names, texts[numbers[0]], strict=True)
        return files.withColumns({name: F.lit(text).cast("string") for name, text in values})
    rows = [(FilePath(reader.paths[number]).name, *texts[number]) for number in numbers]
    schema = ", ".join(f"`{name}` string" for name in (_FILE, *names))
    of_files = F.broadcast(files.sparkSession.createDataFrame(rows, schema))
    # A name is shorter than a path, and each version of Spark has its own encoding of paths.
    named = files.withColumn(_FILE, F.col("_metadata.file_name"))
    return named.join(of_files, _FILE)


def _has_own_name(reader: Reader, number: int) -> bool:
    name = FilePath(reader.paths[number]).name
    return _PLAIN_NAME.fullmatch(name) is not None and reader.snapshot.file_names[name] == 1
