"""Columns that a table computes for the rows of a DataFrame: generated, default and identity columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.types import LongType, StructField, StructType

from qbeast_core.table.data.rules.identities import refuse_exhausted
from qbeast_core.table.engine.target import RowShape
from qbeast_spark_bridge.schema import numbered, quoted, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.complete import complete_rows
from qbeast_spark_bridge.worker.transport import decimals_as_longs, short_decimals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from qbeast_core.log.columns.declared_rules import Identity

_PARTITION_SHIFT: Final = 33  # of monotonically_increasing_id


def with_computed(df: DataFrame, names: Sequence[str], shape: RowShape) -> DataFrame:
    """Return the rows with the columns among `names` that the table computes, and that they lack.

    The workers compute them as they do when they write rows, so that both passes have the same values.
    """
    if shape.rules is None or shape.rules.optional.isdisjoint(set(names).difference(df.columns)):
        return df
    narrow = shape.of_columns(names)
    used = df.select([quoted(name) for name in df.columns if name in narrow.schema] or df.columns[:1])
    table, decimals = spark_schema(shape.schema_json), short_decimals(used.schema)
    types = StructType([StructField(f"c{number}", table[name].dataType) for number, name in enumerate(names)])
    call = WorkerCall.of(complete_rows, (narrow, used.columns, list(names), decimals))
    return decimals_as_longs(numbered(used), decimals).mapInArrow(call, types).toDF(*names)


def with_numbers(df: DataFrame, identities: Sequence[Identity]) -> tuple[DataFrame, int]:
    """Return the rows with numbers in identity columns, and how many numbers they use up.

    Row i of partition p gets number i * partitions + p, so that tasks draw numbers without each other.
    """
    rows = df.groupBy(F.spark_partition_id().alias("part")).count()
    counted = rows.agg(F.max("part"), F.max("count")).first()
    partitions, most = (0, 0) if counted is None or counted[0] is None else (counted[0] + 1, counted[1])
    for identity in identities:
        refuse_exhausted(identity, partitions * most)
    number = _number(partitions, most)
    columns = {identity.column: number * identity.step + identity.first for identity in identities}
    return df.select("*", *(column.alias(name) for name, column in columns.items())), partitions * most


def _number(partitions: int, most: int) -> Column:
    """Return the number of a row, from 0; raise in a task if the partitions differ from the counted ones."""
    row = F.monotonically_increasing_id()
    place, part = row.bitwiseAND((1 << _PARTITION_SHIFT) - 1), F.shiftright(row, _PARTITION_SHIFT)
    changed = F.raise_error(F.lit("the rows changed while identity values were drawn. Persist them first."))
    fits = (part < partitions) & (place < most)
    return F.when(fits, place * partitions + part).otherwise(changed.cast(LongType()))
