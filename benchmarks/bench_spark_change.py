"""What do changes of rows cost on Spark, compared with Spark's own Delta on a table of the same files?

    make .venv/pyspark-4.2/.done
    PYTHONPATH=.venv/pyspark-4.2 python -m benchmarks.bench_spark_change [rounds]

9 columns of lineitem (scale 1), `local[2]`, one session with Delta's extension (delta-spark from Maven Central, as in
`make delta-jars`). Delete a box on two of three indexed columns. In a table by order key and ship date, merge the
newest 1 % of the orders, a tenth of them new, and 0.1 % of all orders, wherever they are. Each run changes a fresh
copy of the same files, in turns, and the rows are compared afterwards. Measured are seconds, and the bytes of the
files that a change writes over those of the table.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import polars as pl
from pyspark.sql import DataFrame, SparkSession

import qbeast_spark_bridge as bridge
from benchmarks import bench_dml, data, measure, rivals, tables
from benchmarks.report import Figure, table

ROUNDS = 3
COLUMNS = ["l_linenumber", *data.WRITE_COLUMNS]
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.jars.packages": PACKAGE,
    "spark.jars.ivy": str(data.CACHE.parent / "ivy"),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # For two cores and a few dozen files: the defaults for a cluster would be slower for both.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One change of a table."""

    seconds: float
    written: float
    """Bytes of the new files, over the bytes of the table before."""
    files: str
    rows: tuple[int, float]
    """Rows of the table afterwards, and a checksum."""


def run(rounds: int = ROUNDS) -> list[Figure]:
    return list(measure.in_child(_both, rounds).result)


def rows_by_column() -> pl.DataFrame:
    return pl.read_parquet(data.lineitem_path(), columns=COLUMNS).select(COLUMNS)


def _both(rounds: int) -> list[Figure]:
    warnings.simplefilter("ignore")  # PySpark and pandas disagree on versions
    by_box = tables.indexed("spark-change-by-box", rows_by_column, data.W1_COLUMNS)
    by_order = tables.indexed("spark-change-by-order", rows_by_column, bench_dml.BY_ORDER)
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    try:
        newest, scattered = (_source(spark, name) for name in ("newest", "scattered"))
        return [
            *compare("delete of a box on 2 columns", by_box, _deletes(spark), rounds),
            *compare("merge of the newest 1 % of orders", by_order, _merges(spark, newest), rounds),
            *compare("merge of 0.1 % of orders from everywhere", by_order, _merges(spark, scattered), rounds),
        ]
    finally:
        spark.stop()


def compare(
    what: str, original: Path, changes: dict[str, Callable[[str], object]], rounds: int
) -> list[Figure]:
    runs: dict[str, list[Run]] = {name: [] for name in changes}
    for turn in range(rounds + 1):  # the first turn warms up
        for name in sorted(changes, reverse=turn % 2 == 1):
            runs[name].append(once(original, changes[name]))
    assert len({run.rows for each in runs.values() for run in each}) == 1, "both change the same rows"
    ours, theirs = (each[1:] for each in (runs["qbeast"], runs["Delta"]))
    seconds = [median(run.seconds for run in each) for each in (ours, theirs)]
    return [
        Figure(
            f"Spark, {what}, time over Spark's Delta",
            seconds[0] / seconds[1],
            "x",
            2.0,
            f"{seconds[0]:.1f} s over {seconds[1]:.1f} s",
        ),
        Figure(
            f"Spark, {what}, bytes written",
            100 * ours[0].written,
            "%",
            note=f"Delta {100 * theirs[0].written:.3g} %; files out and in: {ours[0].files}, Delta {theirs[0].files}",
        ),
    ]


def once(original: Path, change: Callable[[str], object]) -> Run:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        folder = Path(scratch) / "t"
        shutil.copytree(original, folder)
        before = set(rivals.data_files(folder))
        total = measure.folder_bytes(before)
        seconds = measure.timed(lambda: change(str(folder)))
        after = set(rivals.data_files(folder))
        sums = pl.scan_delta(str(folder)).select(pl.len(), pl.col("l_quantity").cast(pl.Float64).sum())
        return Run(
            seconds,
            measure.folder_bytes(after - before) / total,
            f"{len(before - after)} and {len(after - before)} of {len(before)}",
            sums.collect().row(0),
        )


def _deletes(spark: SparkSession) -> dict[str, Callable[[str], object]]:
    return {
        "qbeast": lambda path: bridge.open_table(spark, path).delete(bench_dml.BOX),
        "Delta": lambda path: spark.sql(f"DELETE FROM delta.`{path}` WHERE {bench_dml.BOX}").collect(),  # noqa: S608 -- our own
    }


def _merges(spark: SparkSession, source: DataFrame) -> dict[str, Callable[[str], object]]:
    source.createOrReplaceTempView("source")
    keys = " AND ".join(f"t.{key} = s.{key}" for key in bench_dml.KEYS)

    def theirs(path: str) -> object:
        source.createOrReplaceTempView("source")
        return spark.sql(
            f"MERGE INTO delta.`{path}` AS t USING source AS s ON {keys} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    return {
        "qbeast": lambda path: bridge.open_table(spark, path).merge(source, bench_dml.KEYS),
        "Delta": theirs,
    }


def _source(spark: SparkSession, name: str) -> DataFrame:
    """Write rows to merge as two Parquet files once, and read them with Spark."""
    folder = data.CACHE / f"spark-merge-{name}"
    if not folder.exists():
        rows = rows_by_column()
        if name == "newest":
            last = rows.filter(pl.col("l_orderkey") > bench_dml.LAST_ORDER * 0.99)
            new = last.filter(pl.col("l_orderkey") % 10 == 0)
            rows = pl.concat([last, new.with_columns(pl.col("l_orderkey") + bench_dml.LAST_ORDER)])
        else:
            rows = rows.filter(pl.col("l_orderkey").hash(7) % 1000 == 0)
        changed = rows.with_columns((pl.col("l_quantity") + 1).cast(rows.schema["l_quantity"]))
        folder.mkdir()
        for part in range(2):
            changed.gather_every(2, part).write_parquet(folder / f"{part}.parquet", compression="snappy")
    return spark.read.parquet(str(folder))


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:2]))))
