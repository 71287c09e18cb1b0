"""The first pass: one Spark job counts the rows and samples their indexed columns."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 -- the usual name
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from qbeast_core.support.sizing import sizing
from qbeast_core.table.engine.files import SummaryTask
from qbeast_core.tree.summary import (
    KEY_BITS,
    IndexSummary,
    counted_summary,
    domain_limits,
    summarise_ends,
)
from qbeast_spark_bridge.spark_types import numbered, quoted, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.tasks import batch_of, gathered, in_utc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PACKED_COLUMN: Final = "rows binary"
_CHOICES: Final = 1 << KEY_BITS
_PARTITION_SHIFT: Final = 33  # of monotonically_increasing_id
_CUBE_SAMPLE: Final = 1 << 10  # enough rows to estimate the size of a cube to 3 %
_DEFAULT_CUBE_SIZE: Final = 1 << 14
_HALF_BITS: Final = 16
_MICROS_PER_SECOND: Final = 1_000_000


def summarise_rows(df: DataFrame, task: SummaryTask, schema_json: str) -> IndexSummary:
    """Summarise all rows of a DataFrame on the executors."""
    table = spark_schema(schema_json)
    types = StructType([table[name] for name in task.schema])
    others = StructType([table[name] for name in task.read_schema if name not in task.schema])
    counts = Observation()
    rows = _with_stored_values(df, [table[name] for name in task.partitions])
    drawn = _with_random_numbers(rows, types, others, task.cube_size)
    numbers = {name: f"c{number}" for number, name in enumerate(task.read_schema)}
    weight = F.hash(*(numbers[name] for name in task.hashed))
    observed = drawn.observe(counts, *_aggregates(types, weight))
    sample = _collect(observed.where("drawn < max_drawn").drop("max_drawn"))
    partitions = _distinct(rows, StructType([table[name] for name in task.partitions]), task.partitions)
    return _summary(sample, counts.get, task, partitions)


def _with_stored_values(df: DataFrame, partitions: list[StructField]) -> DataFrame:
    """Return the rows with the values of partition columns as Delta stores them; see `RowShape`."""
    for field in partitions:
        if field.name not in df.columns:
            continue
        value = F.col(quoted(field.name)).cast(field.dataType)
        match field.dataType:
            case StringType() | BinaryType():
                df = df.withColumn(field.name, F.when(F.length(value) > 0, value))
            case FloatType() | DoubleType():
                df = df.withColumn(field.name, value + F.lit(0.0).cast(field.dataType))
            case _:
                pass
    return df


def _distinct(df: DataFrame, types: StructType, schema: pl.Schema) -> pl.DataFrame:
    """Return the distinct values of the partition columns, by a separate job: Spark cannot observe them."""
    if not schema:
        return pl.DataFrame()
    return _frame(_collect(df.select(*_values(df, types)).distinct()), schema)


def _send_sample(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield sampled rows as compressed Arrow streams, for a Spark without `DataFrame.toArrow`."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for rows in gathered(batches):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_table(rows)
        yield batch_of(_PACKED_COLUMN, [sink.getvalue().to_pybytes()])


def _collect(sample: DataFrame) -> list[pa.Table]:
    """Collect the sample as Arrow tables."""
    if hasattr(sample, "toArrow"):  # from Spark 4.0 on
        return [in_utc(sample.toArrow())]
    packed = numbered(sample).mapInArrow(WorkerCall.of(_send_sample, None), _PACKED_COLUMN).collect()
    return [pa.ipc.open_stream(bytes(row["rows"])).read_all() for row in packed]


def _with_random_numbers(
    df: DataFrame, types: StructType, others: StructType, cube_size: int | None
) -> DataFrame:
    """Return the indexed columns in the table's types, with a random number and its sampling limit for each row.

    `others` are more columns for the sample.
    """
    values = _values(df, StructType([*types.fields, *others.fields]))
    numbered_rows = df.select(*values, F.monotonically_increasing_id().alias("row"))
    names = [f"c{number}" for number in range(len(values))]
    drawn = F.shiftrightunsigned(F.xxhash64("row"), 64 - KEY_BITS)
    limit = (_share(cube_size) * F.lit(float(_CHOICES))).cast("long")
    return numbered_rows.select(drawn.alias("drawn"), limit.alias("max_drawn"), *names)


def _values(df: DataFrame, types: StructType) -> list[Column]:
    """Return columns in the table's types, null if they are missing, named by their position."""
    names_in_df = set(df.columns)
    return [
        (F.col(quoted(field.name)) if field.name in names_in_df else F.lit(None))
        .cast(field.dataType)
        .alias(f"c{number}")
        for number, field in enumerate(types.fields)
    ]


def _share(cube_size: int | None) -> Column:
    """Return the share to sample at the position of a row: enough for a tree, within the memory of the driver.

    The merged sample has the share of its smallest part. The number of partitions is unknown, so partition n computes
    its share as if there were n + 1 partitions.
    """
    row = F.col("row").bitwiseAND((1 << _PARTITION_SHIFT) - 1) + F.lit(1)
    partitions = F.shiftright("row", _PARTITION_SHIFT) + F.lit(1)
    enough = F.lit(_CUBE_SAMPLE / max(cube_size or _DEFAULT_CUBE_SIZE, _CUBE_SAMPLE))
    share = F.greatest(enough, F.lit(float(sizing().min_sample_rows)) / row)
    max_share = F.lit(float(domain_limits().rows)) / (partitions * row)
    return F.least(F.lit(1.0), share, max_share)


def _aggregates(types: StructType, weight: Column) -> list[Column]:
    """Return the aggregates of all rows, with the names that `_summary` uses."""
    names = [f"c{number}" for number in range(len(types))]
    aggregates = [
        F.count(F.lit(1)).alias("rows"),
        F.min("max_drawn").alias("max_drawn"),
        # Sums of halves do not overflow below 2**47 rows.
        F.sum(weight.bitwiseAND((1 << _HALF_BITS) - 1).cast("long")).alias("low_halves"),
        F.sum(F.shiftright(weight, _HALF_BITS).cast("long")).alias("high_halves"),
    ]
    for name, field in zip(names, types.fields, strict=True):
        value = _finite(F.col(name), field.dataType)
        aggregates += [
            F.count(name).alias(f"{name} count"),
            _plain(F.min(value), field.dataType).alias(f"{name} lowest"),
            _plain(F.max(value), field.dataType).alias(f"{name} highest"),
        ]
    return aggregates


def _finite(value: Column, dtype: DataType) -> Column:
    if not isinstance(dtype, FloatType | DoubleType):
        return value
    infinite = F.lit(float("inf"))
    return F.when(~F.isnan(value) & (F.abs(value) != infinite), value)


def _plain(end: Column, dtype: DataType) -> Column:
    """Return a bound of a column as a number or text, which does not depend on settings of the session."""
    match dtype:
        case DateType():
            return F.unix_date(end)
        case TimestampType():
            return F.unix_micros(end)
        case TimestampNTZType():
            return _micros_without_zone(end)
        case DecimalType():
            return end.cast("string")
        case FloatType():
            return end.cast("double")
        case _:
            return end


def _micros_without_zone(moment: Column) -> Column:
    """Return the microseconds since 1970 of a timestamp without zone, independent of the session's zone."""
    days = F.unix_date(moment.cast("date")).cast("long")
    seconds = (days * 24 + F.hour(moment)) * 3600 + F.minute(moment) * 60
    fraction = (F.date_part(F.lit("SECOND"), moment) * _MICROS_PER_SECOND).cast("long")
    return seconds * _MICROS_PER_SECOND + fraction


def _frame(tables: list[pa.Table], schema: pl.Schema) -> pl.DataFrame:
    """Return the rows of tables whose columns have the order of the schema."""
    frames = [pl.DataFrame(rows.rename_columns(list(schema))).cast(schema) for rows in tables]
    return pl.concat([schema.to_frame(), *frames])


def _summary(
    tables: list[pa.Table], counts: dict[str, Any], task: SummaryTask, partitions: pl.DataFrame
) -> IndexSummary:
    schema = task.schema
    sample = _frame(tables, pl.Schema({"drawn": pl.Int64(), **task.read_schema}))
    rows = int(counts["rows"])
    halves = counts["high_halves"] or 0, counts["low_halves"] or 0
    columns = [
        summarise_ends(
            _ends([counts[f"c{number} lowest"], counts[f"c{number} highest"]], name, dtype),
            nulls=rows - int(counts[f"c{number} count"]),
        )
        for number, (name, dtype) in enumerate(schema.items())
    ]
    return counted_summary(
        sample.drop("drawn"),
        sample["drawn"],
        columns,
        rows=rows,
        least_limit=_CHOICES if counts["max_drawn"] is None else int(counts["max_drawn"]),
        weight_sum=(int(halves[0]) << _HALF_BITS) + int(halves[1]),
        limits=domain_limits(),
        partitions=partitions,
    )


def _ends(bounds: list[Any], name: str, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Decimal):
        values = [None if text is None else Decimal(text) for text in bounds]
        return pl.Series(name, values, dtype=dtype)
    physical = pl.Int32() if dtype == pl.Date else pl.Int64() if dtype.is_temporal() else dtype
    return pl.Series(name, bounds, dtype=physical).cast(dtype)
