"""The first pass: Spark counts the rows and draws a sample of their indexed columns, in one job."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from qbeast_core.table.engine.tasks.passes import SummaryTask
from qbeast_core.tree.keys.counted import KEY_BITS, ColumnCounts, counted_summary
from qbeast_core.tree.space.summary import DOMAIN_LIMITS, IndexSummary
from qbeast_spark_bridge.schema import numbered, quoted, spark_schema
from qbeast_spark_bridge.worker.call import WorkerCall
from qbeast_spark_bridge.worker.transport import batch_of, gathered, in_utc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SENT: Final = "rows binary"
_CHOICES: Final = 1 << KEY_BITS
_PARTITION_SHIFT: Final = 33  # of monotonically_increasing_id
_CUBE_SAMPLE: Final = 1 << 10  # rows that estimate the size of a cube to 3 %
_USUAL_CUBE: Final = 1 << 14
_WHOLE_ROWS: Final = 1 << 15
_HALF_BITS: Final = 16
_SECOND: Final = 1_000_000


def summarise_rows(df: DataFrame, task: SummaryTask, schema_json: str) -> IndexSummary:
    """Summarise all rows of a DataFrame on the executors."""
    table = spark_schema(schema_json)
    types = StructType([table[name] for name in task.schema])
    drawn = _drawn(df, types, task.cube_size)
    counts = Observation()
    observed = drawn.observe(counts, *_counted(types))
    sample = _collected(observed.where("drawn < most").drop("most"))
    return _summary(sample, counts.get, task.schema)


def send_sample(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield sampled rows as compressed Arrow streams, for a Spark without `DataFrame.toArrow`."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for rows in gathered(batches):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_table(rows)
        yield batch_of(_SENT, [sink.getvalue().to_pybytes()])


def _collected(sample: DataFrame) -> list[pa.Table]:
    """Return all rows of the sample as Arrow."""
    if hasattr(sample, "toArrow"):  # from Spark 4.0 on
        return [in_utc(sample.toArrow())]
    sent = numbered(sample).mapInArrow(WorkerCall.of(send_sample, None), _SENT).collect()
    return [pa.ipc.open_stream(bytes(row["rows"])).read_all() for row in sent]


def _drawn(df: DataFrame, types: StructType, cube_size: int | None) -> DataFrame:
    """Return the indexed columns in the types of the table, with the random number and the limit of each row."""
    known = set(df.columns)
    values = [
        (F.col(quoted(field.name)) if field.name in known else F.lit(None))
        .cast(field.dataType)
        .alias(f"c{number}")
        for number, field in enumerate(types.fields)
    ]
    numbered_rows = df.select(*values, F.monotonically_increasing_id().alias("row"))
    names = [f"c{number}" for number in range(len(values))]
    drawn = F.shiftrightunsigned(F.xxhash64("row"), 64 - KEY_BITS)
    limit = (_share(cube_size) * F.lit(float(_CHOICES))).cast("long")
    return numbered_rows.select(drawn.alias("drawn"), limit.alias("most"), *names)


def _share(cube_size: int | None) -> Column:
    """Return the sampled share at the position of a row: enough for a tree, and no more than the driver can hold.

    The merged sample is as small a share as its smallest part, and the number of partitions is unknown: partition n
    follows n others, so it takes a share of the whole for n + 1.
    """
    row = F.col("row").bitwiseAND((1 << _PARTITION_SHIFT) - 1) + F.lit(1)
    partitions = F.shiftright("row", _PARTITION_SHIFT) + F.lit(1)
    enough = F.lit(_CUBE_SAMPLE / max(cube_size or _USUAL_CUBE, _CUBE_SAMPLE))
    wanted = F.greatest(enough, F.lit(float(_WHOLE_ROWS)) / row)
    bearable = F.lit(float(DOMAIN_LIMITS.rows)) / (partitions * row)
    return F.least(F.lit(1.0), wanted, bearable)


def _counted(types: StructType) -> list[Column]:
    """Return the aggregates of all rows, under the names that `_summary` reads."""
    names = [f"c{number}" for number in range(len(types))]
    weight = F.hash(*names)
    found = [
        F.count(F.lit(1)).alias("rows"),
        F.min("most").alias("most"),
        # Sums of halves do not overflow below 2**47 rows.
        F.sum(weight.bitwiseAND((1 << _HALF_BITS) - 1).cast("long")).alias("low_halves"),
        F.sum(F.shiftright(weight, _HALF_BITS).cast("long")).alias("high_halves"),
    ]
    for name, field in zip(names, types.fields, strict=True):
        value = _finite(F.col(name), field.dataType)
        found += [
            F.count(name).alias(f"{name} known"),
            _plain(F.min(value), field.dataType).alias(f"{name} lowest"),
            _plain(F.max(value), field.dataType).alias(f"{name} highest"),
        ]
    return found


def _finite(value: Column, dtype: DataType) -> Column:
    if not isinstance(dtype, FloatType | DoubleType):
        return value
    infinite = F.lit(float("inf"))
    return F.when(~F.isnan(value) & (F.abs(value) != infinite), value)


def _plain(end: Column, dtype: DataType) -> Column:
    """Return a bound of a column as a number or text, which every session returns unchanged."""
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
    """Return the microseconds since 1970 of a moment that has no zone, whatever the session's zone is."""
    days = F.unix_date(moment.cast("date")).cast("long")
    seconds = (days * 24 + F.hour(moment)) * 3600 + F.minute(moment) * 60
    fraction = (F.date_part(F.lit("SECOND"), moment) * _SECOND).cast("long")
    return seconds * _SECOND + fraction


def _summary(sampled: list[pa.Table], counts: dict[str, Any], schema: pl.Schema) -> IndexSummary:
    names = ["drawn", *schema]
    frames = [pl.DataFrame(rows.rename_columns(names)) for rows in sampled]
    sample = pl.concat(frames) if frames else pl.Schema({"drawn": pl.Int64(), **schema}).to_frame()
    rows = int(counts["rows"])
    halves = counts["high_halves"] or 0, counts["low_halves"] or 0
    columns = [
        ColumnCounts(
            _ends([counts[f"c{number} lowest"], counts[f"c{number} highest"]], name, dtype),
            nulls=rows - int(counts[f"c{number} known"]),
        )
        for number, (name, dtype) in enumerate(schema.items())
    ]
    return counted_summary(
        sample.select(pl.col(name).cast(dtype) for name, dtype in schema.items()),
        sample["drawn"],
        columns,
        rows=rows,
        least_limit=_CHOICES if counts["most"] is None else int(counts["most"]),
        weight_sum=(int(halves[0]) << _HALF_BITS) + int(halves[1]),
        limits=DOMAIN_LIMITS,
    )


def _ends(found: list[Any], name: str, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Decimal):
        values = [None if text is None else Decimal(text) for text in found]
        return pl.Series(name, values, dtype=dtype)
    physical = pl.Int32() if dtype == pl.Date else pl.Int64() if dtype.is_temporal() else dtype
    return pl.Series(name, found, dtype=physical).cast(dtype)
