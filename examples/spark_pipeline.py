"""A pipeline on real data: Spark writes flights as they arrive, Polars samples, Spark queries, streams and optimizes.

Run with ``make demo-spark``. Raw files, table and checkpoint are left in ``demo-output/spark/``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

import qbeast
import qbeast_spark_bridge as bridge
from examples.demo import flights, months, opened, title
from qbeast_spark_bridge.session import ensure_java

OUTPUT = Path("demo-output", "spark")
INDEXED = ["time_hour", "dep_delay", "tailnum"]
SAMPLE = 0.05
# The same question for Spark, for Polars, and for the plan.
LATE = "dep_delay > 120 AND time_hour >= TIMESTAMP'2013-06-01 00:00:00Z'"
LATE_IN_POLARS = (pl.col("dep_delay") > 120) & (pl.col("time_hour") >= datetime(2013, 6, 1, tzinfo=UTC))


def main() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    spark = start_spark()
    try:
        run(spark, flights(), OUTPUT)
    finally:
        spark.stop()


def run(spark: SparkSession, rows: pl.DataFrame, folder: Path) -> None:
    """Run the pipeline; it ends the program where an answer is not that of the raw rows."""
    raw, table = folder / "raw", folder / "flights"
    write_months(spark, rows, raw, table)
    existing = rows.filter(pl.col("month") < 12)
    sample_in_polars(table, existing)
    ask_spark(spark, table, existing)
    stream_last_month(spark, rows, raw, table, folder / "checkpoint")
    optimize(spark, rows, table)


def start_spark() -> SparkSession:
    """Start Spark in this process, for this machine alone and quiet."""
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def write_months(spark: SparkSession, rows: pl.DataFrame, raw: Path, table: Path) -> None:
    title("1. Months arrive as raw Parquet; Spark writes six, then appends five")
    raw.mkdir(parents=True)
    for month in months(rows):
        month.write_parquet(raw / f"2013-{month['month'][0]:02}.parquet")
    for first, last in ((1, 6), (7, 11)):
        start = time.perf_counter()
        files = [str(raw / f"2013-{month:02}.parquet") for month in range(first, last + 1)]
        written = bridge.write_table(spark.read.parquet(*files), table, columns=INDEXED, mode="append")
        seconds = time.perf_counter() - start
        print(
            f"  months {first:2} to {last:2}: {written.rows:>7,} rows, version {written.version}, {seconds:.1f} s"
        )
        check("the rows written", written.rows, rows.filter(pl.col("month").is_between(first, last)).height)
    kinds = ", ".join(f"{name} by {kind}" for name, kind in written.transformers.items())
    print(f"  indexed: {kinds}; chosen from the data; design effect of samples {written.design_effect:.2f}")


def sample_in_polars(table: Path, known: pl.DataFrame) -> None:
    title(f"2. Polars asks a {SAMPLE:.0%} sample for the mean delay, with an error bar")
    delay = pl.col("dep_delay")
    mean = delay.mean().alias("mean")
    error = (1.96 * delay.std() / delay.count().cast(pl.Float64).sqrt()).alias("error")
    guess = qbeast.scan_table(table, sample=SAMPLE).group_by("origin").agg(mean, error, pl.len()).collect()
    both = known.group_by("origin").agg(mean.alias("truth")).join(guess, on="origin").sort("origin")
    for origin, truth, seen, bar, count in both.iter_rows():
        print(f"  {origin}  {seen:5.1f} ± {bar:.1f} min from {count:>6,} flights; in truth {truth:5.1f}")
        check(f"the truth of {origin} within two error bars", abs(seen - truth) < 2 * bar, expected=True)
    print(f"  opened {opened(qbeast.open_table(table).rows(sample=SAMPLE).explain())}")


def ask_spark(spark: SparkSession, table: Path, known: pl.DataFrame) -> None:
    title("3. Spark asks for delays of more than two hours since June")
    truth = known.filter(LATE_IN_POLARS).group_by("origin").len()
    request = {
        "read_table(where=...)": bridge.read_table(spark, table, where=LATE).groupBy("origin").count(),
        "SQL on a view": view(spark, table),
    }
    for road, answer in request.items():
        start = time.perf_counter()
        actual = dict(map(tuple, answer.collect()))
        seconds = time.perf_counter() - start
        print(f"  {road:<22} {', '.join(f'{k} {v:,}' for k, v in sorted(actual.items()))}; {seconds:.1f} s")
        check(road, actual, dict(truth.iter_rows()))
    print(f"  opened {opened(qbeast.open_table(table).rows(LATE_IN_POLARS).explain())}")
    keys = bridge.read_table(spark, table, sample=SAMPLE).select("flight", "time_hour").count()
    check("rows of the sample in Spark", keys, qbeast.scan_table(table, sample=SAMPLE).collect().height)
    print(f"  the {SAMPLE:.0%} sample has the same {keys:,} rows in Spark as in Polars")


def view(spark: SparkSession, table: Path) -> DataFrame:
    """Count late flights in SQL; the option `where` chooses pages, as `read_table` does."""
    bridge.register(spark)
    options = f'path "{table.absolute()}", where "{LATE}"'
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW late USING qbeast OPTIONS ({options})")
    return spark.sql("SELECT origin, count(*) FROM late GROUP BY origin")


def stream_last_month(
    spark: SparkSession, rows: pl.DataFrame, raw: Path, table: Path, checkpoint: Path
) -> None:
    title("4. A stream appends the last month, once, however often it is run")
    schema = spark.read.parquet(str(raw)).schema
    for attempt in ("first run", "run again", "after a crash"):
        if attempt == "after a crash":
            # As if Spark had died after the table took the rows, before it wrote that down.
            shutil.rmtree(checkpoint / "commits")
        arriving = spark.readStream.schema(schema).option("pathGlobFilter", "2013-12*").parquet(str(raw))
        sink = arriving.writeStream.format("qbeast").option("checkpointLocation", str(checkpoint))
        sink.trigger(availableNow=True).start(str(table)).awaitTermination()
        actual = qbeast.open_table(table)
        count = actual.rows().lazy().select(pl.len()).collect().item()
        print(f"  {attempt:<13} {count:>8,} rows, version {actual.version}")
        check("the rows of the year", count, rows.height)
    answers = (
        spark_table.agg({"distance": "sum", "dep_delay": "sum"}).first()
        for spark_table in (bridge.read_table(spark, table), spark.read.format("qbeast").load(str(table)))
    )
    truth = (rows["distance"].sum(), rows["dep_delay"].sum())
    for answer in answers:
        check("sums of the year", tuple(answer), truth)
    print(f"  sums of the year agree in Spark: {truth[0]:,} miles, {truth[1]:,.0f} minutes late")


def optimize(spark: SparkSession, rows: pl.DataFrame, table: Path) -> None:
    title("5. Spark puts the year into one index, and no answer changes")
    before = qbeast.open_table(table)
    sample = before.read(sample=SAMPLE)
    planned = bridge.open_table(spark, table).optimize(into="newest", full=True, dry_run=True)
    start = time.perf_counter()
    result = bridge.open_table(spark, table).optimize(into="newest", full=True)
    seconds = time.perf_counter() - start
    print(
        f"  {result.files} files in place of {planned.files_removed}, {result.rows:,} rows, {seconds:.1f} s"
    )
    check("the rows put back", result.rows, rows.height)
    after = qbeast.open_table(table)
    again = after.read(sample=SAMPLE)
    check("the sample", again.sort(again.columns).equals(sample.sort(sample.columns)), expected=True)
    for name, item in (("before", before), ("after", after)):
        print(f"  {name:<6} the delays since June opened {opened(item.rows(LATE_IN_POLARS).explain())}")


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"{what}: {found}, not {expected}")


if __name__ == "__main__":
    main()
