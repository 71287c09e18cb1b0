"""What does a read by Spark cost, compared with Spark's own reader on the same files?

    python -m benchmarks.bench_spark_read [scale]

Bytes: all that the JVM requested from the system while it read rows (its counter in /proc, less those of the same query
over no file), over the bytes of the table: lineitem, scale 1, 16 columns, three indexed. Filters: boxes of
benchmarks/boxes.py, compared with the plan of `Table.explain`. Seconds: candidates in turn, every column read into
Spark's no-op sink. Rows of samples and filters are counted and compared with Polars.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession

import qbeast
from benchmarks import boxes, data, measure, rivals, tables
from benchmarks.report import Figure, table
from qbeast_core.io.directory import parse_directory
from qbeast_spark_bridge import read_table, register

SAMPLES = {0.01: 1.35, 0.1: 14.0}
# One percent of the values of a column.
RANGE, MAX_RANGE = "l_partkey BETWEEN 83781 AND 85780", 17.0
SAMPLE_COLUMN = (0.001, 0.01, 0.1, 0.3)
FILTERS = ("1d@1%", "2d@10%", "3d@10%", "3d@30%")
BOXES = 6
MANY = (1_000, 10_000)


def run(scale: int = 1) -> list[Figure]:
    warnings.simplefilter("ignore")  # PySpark and pandas disagree on versions
    folder = tables.indexed(f"lineitem-{scale}", lambda: data.lineitem(scale), data.W1_COLUMNS)
    advised = measure.in_child(_filters_as_advised, (folder, scale)).result
    kept = _pages_by_bounds(folder, scale)
    spark = session()
    try:
        return [
            *advised,
            *kept,
            *_shares(spark, folder),
            *_sample_column(spark, scale),
            *sql_samples(spark, folder),
            *_filters(spark, folder, scale, target=None),
            *_seconds(spark, folder, scale),
            *_many(spark),
        ]
    finally:
        spark.stop()


def session(settings: dict[str, str] | None = None) -> SparkSession:
    """Return a session with two cores, no console, and default settings except memory and `settings`."""
    options = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(data.CACHE / "warehouse"),
        **(settings or {}),
    }
    return SparkSession.builder.master("local[2]").config(map=options).getOrCreate()


def drain(rows: DataFrame) -> None:
    """Read every column of every row, and drop it."""
    rows.write.format("noop").mode("overwrite").save()


def bytes_of(action: Callable[[], object]) -> int:
    """Count the bytes that the JVM reads inside the block."""
    before = _read_by_jvm()
    action()
    return _read_by_jvm() - before


def _read_by_jvm() -> int:
    """The counter of the java process that PySpark started from this one."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if lines["Name"] == "java" and int(lines["PPid"]) == os.getpid():
            return int(status.with_name("io").read_text().split()[1])
    message = "no java process was started from here"
    raise RuntimeError(message)


def _rest(spark: SparkSession, folder: Path) -> int:
    """Return the bytes that a query reads besides data: classes, sockets."""
    drain(read_table(spark, folder, sample=0.0))
    return bytes_of(lambda: drain(read_table(spark, folder, sample=0.0)))


def _shares(spark: SparkSession, folder: Path) -> list[Figure]:
    total = measure.folder_bytes(rivals.data_files(folder))
    drain(read_table(spark, folder, sample=0.01))  # the first query of a kind loads classes
    rest = _rest(spark, folder)
    figures = []
    for fraction, most in SAMPLES.items():
        read = bytes_of(lambda f=fraction: drain(read_table(spark, folder, sample=f))) - rest
        planned = qbeast.open_table(folder).rows(sample=fraction).explain().share
        figures.append(
            Figure(
                f"Spark, {fraction:.0%} sample, bytes of the table",
                100 * read / total,
                "%",
                most,
                f"plan {planned:.2%}",
            )
        )
        expected = qbeast.scan_table(folder, sample=fraction).select(pl.len()).collect().item()
        assert read_table(spark, folder, sample=fraction).count() == expected
    rows = read_table(spark, folder, where=RANGE)
    drain(rows)
    read, opened = bytes_of(lambda: drain(rows)) - rest, qbeast.open_table(folder)
    assert rows.count() == opened.count(RANGE)
    note, what = (
        f"plan {opened.rows(RANGE).explain().share:.2%}",
        "Spark, 1 % of the parts, bytes of the table",
    )
    return [*figures, Figure(what, 100 * read / total, "%", MAX_RANGE, note)]


def _sample_column(spark: SparkSession, scale: int) -> list[Figure]:
    """Measure samples that Spark's own reader takes by the sample column."""
    folder = tables.indexed(
        f"lineitem-{scale}-sample", lambda: data.lineitem(scale), data.W1_COLUMNS, sample_column="sample"
    )
    files = rivals.data_files(folder)
    total, names = measure.folder_bytes(files), list(map(str, files))

    def sample(fraction: float) -> DataFrame:
        return spark.read.parquet(*names).where(f"sample < {fraction}")

    drain(sample(0.0))
    rest = bytes_of(lambda: drain(sample(0.0)))
    figures = []
    for fraction in SAMPLE_COLUMN:
        read = bytes_of(lambda f=fraction: drain(sample(f))) - rest
        rows = (
            pl.scan_delta(str(folder)).filter(pl.col("sample") < fraction).select(pl.len()).collect().item()
        )
        assert sample(fraction).count() == rows
        what = f"Spark SQL, sample < {fraction}, bytes of the table"
        most = 1.6 if fraction == 0.01 else None
        figures.append(Figure(what, 100 * read / total, "%", most, f"{rows:,} rows"))
    return figures


def sql_samples(spark: SparkSession, folder: Path) -> list[Figure]:
    """Measure the CPU of samples in SQL: of the driver, the JVM and the Python processes."""
    register(spark)
    query = "SELECT count(*), max(l_comment), avg(l_extendedprice) FROM "
    figures = []
    for fraction in (0.01, 0.1):
        function = f"qbeast_sample('{folder}', {fraction}"
        options = f"path '{folder}', sample '{fraction}', columns 'l_comment,l_extendedprice'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sampled USING qbeast OPTIONS ({options})")
        frame = read_table(spark, folder, sample=fraction)
        queries = {
            "qbeast_sample of two columns": f"{query} {function}, 'l_comment,l_extendedprice')",
            "qbeast_sample of all columns": f"{query} {function})",
            "a view of two columns": f"{query} sampled",
        }
        rows = {tuple(spark.sql(text).collect()[0]) for text in queries.values()}
        frame.createOrReplaceTempView("sampled_by_spark")
        assert rows == {tuple(spark.sql(f"{query} sampled_by_spark").collect()[0])}
        queries |= {"read_table": f"{query} sampled_by_spark"}
        calls = {name: partial(_collect, spark, text) for name, text in queries.items()}
        calls["read_table"] = partial(_collect_sample, spark, folder, fraction, queries["read_table"])
        took = measure.interleaved(calls, clock=measure.tree_cpu_seconds)
        figures += [
            Figure(
                f"Spark SQL, {fraction:.0%} sample by {name}, CPU over read_table",
                took[name] / took["read_table"],
                "x",
                None if "all" in name else 1.5,
                f"{took[name]:.2f} s of {took['read_table']:.2f} s",
            )
            for name in list(queries)[:-1]
        ]
    return figures


def _collect(spark: SparkSession, text: str) -> None:
    spark.sql(text).collect()


def _collect_sample(spark: SparkSession, folder: Path, fraction: float, text: str) -> None:
    read_table(spark, folder, sample=fraction).createOrReplaceTempView("sampled_by_spark")
    _collect(spark, text)


def _filters_as_advised(arguments: tuple[Path, int]) -> list[Figure]:
    """Measure filters with the setting of docs/spark.md for less read-ahead."""
    spark = session({"spark.buffer.size": "4096"})
    try:
        figures = _filters(spark, *arguments, target=1.1)
        return [replace(figure, what=f"{figure.what}, buffer of 4 kB") for figure in figures]
    finally:
        spark.stop()


def _pages_by_bounds(folder: Path, scale: int) -> list[Figure]:
    """Count the pages that remain by minimum and maximum only, as in Spark, in the files of the plan."""
    drawn = boxes.draw_boxes(data.lineitem(scale).select(data.W1_COLUMNS), data.W1_COLUMNS, number=BOXES)
    opened = qbeast.open_table(folder)
    pages = pl.concat(_pages_of(file) for file in rivals.data_files(folder))
    figures = []
    for name in FILTERS:
        ratios = []
        for box in drawn[name]:
            files = opened.rows(box.predicate()).explain().files.filter("opened")
            kept = pages.join(files, on="path", how="semi").filter(box.may_hold()).height
            ratios.append(kept / int(files["pages_opened"].sum()))
        note = f"{min(ratios):.2f} to {max(ratios):.2f}"
        what = f"Pages that minima and maxima keep, boxes {name}, over the plan's"
        figures.append(Figure(what, mean(ratios), "x", None, note))
    return figures


def _pages_of(file: Path) -> pl.DataFrame:
    """Return the bounds of the indexed columns, one row per page."""
    rows = pl.read_parquet(file, columns=data.W1_COLUMNS)
    content = file.read_bytes()
    at, size = content.rfind(b"QBPAGES3"), len(content)
    stored = content[at : size - 8 - int.from_bytes(content[-8:-4], "little")]
    starts = parse_directory(stored, tail_bytes=size - at, size_bytes=size).cuts.starts()
    bounds = [
        bound
        for name in data.W1_COLUMNS
        for bound in (pl.col(name).min().alias(f"{name}_min"), pl.col(name).max().alias(f"{name}_max"))
    ]
    page = pl.Series("page", np.repeat(np.arange(len(starts) - 1), np.diff(starts)))
    return rows.group_by(page).agg(bounds).with_columns(path=pl.lit(file.name))


def _filters(spark: SparkSession, folder: Path, scale: int, *, target: float | None) -> list[Figure]:
    drawn = boxes.draw_boxes(data.lineitem(scale).select(data.W1_COLUMNS), data.W1_COLUMNS, number=BOXES)
    opened = qbeast.open_table(folder)
    figures = []
    for name in FILTERS:
        ratios = []
        for box in drawn[name]:
            rows = read_table(spark, folder, where=box.predicate())
            drain(rows)
            read = bytes_of(lambda rows=rows: drain(rows)) - _rest(spark, folder)
            ratios.append(read / opened.rows(box.predicate()).explain().bytes_opened)
            expected = opened.rows().lazy().filter(box.predicate()).select(pl.len()).collect().item()
            assert rows.count() == expected
        note = f"{min(ratios):.2f} to {max(ratios):.2f}"
        figures.append(Figure(f"Spark, boxes {name}, bytes over the plan's", mean(ratios), "x", target, note))
    return figures


def _seconds(spark: SparkSession, folder: Path, scale: int) -> list[Figure]:
    files = [str(file) for file in rivals.data_files(folder)]
    plain = str(data.lineitem_path(scale))
    box = boxes.draw_boxes(data.lineitem(scale).select("l_partkey"), ("l_partkey",), number=1)["1d@1%"][0]
    (low, high) = box.ranges["l_partkey"]
    condition = f"l_partkey BETWEEN {low} AND {high}"
    weight = f"hash({', '.join(data.W1_COLUMNS)}) < {int(0.01 * (2**32 - 1) - 2**31)}"
    took = measure.interleaved(
        {
            "full": lambda: drain(read_table(spark, folder)),
            "spark": lambda: drain(spark.read.parquet(*files)),
            "sample": lambda: drain(read_table(spark, folder, sample=0.01)),
            "spark sample": lambda: drain(spark.read.parquet(*files).where(weight)),
            "filter": lambda: drain(read_table(spark, folder, where=condition)),
            "spark filter": lambda: drain(spark.read.parquet(*files).where(condition)),
            "plain filter": lambda: drain(spark.read.parquet(plain).where(condition)),
        }
    )
    return [
        _ratio("Spark, full read over spark.read.parquet of the same files", took, "full", "spark", 1.1),
        _ratio("Spark, 1 % sample over reading all and filtering by hash", took, "sample", "spark sample"),
        _ratio("Spark, 1 % filter over the same filter on the same files", took, "filter", "spark filter"),
        _ratio(
            "Spark, 1 % filter over the same filter on files without index", took, "filter", "plain filter"
        ),
    ]


def _ratio(what: str, took: dict[str, float], ours: str, theirs: str, most: float | None = None) -> Figure:
    note = f"{took[ours] * 1e3:.0f} ms of {took[theirs] * 1e3:.0f} ms"
    return Figure(what, took[ours] / took[theirs], "x", most, note)


def _many(spark: SparkSession) -> list[Figure]:
    """Time a count of many tiny files, from opening the table on, and Spark's own listing."""
    return [_count_of(spark, count) for count in MANY]


def _count_of(spark: SparkSession, files: int) -> Figure:
    folder, rows = many_files(files), 100 * files
    paths = [str(file) for file in rivals.data_files(folder)]
    schema = read_table(spark, folder).schema
    ours = measure.timed(lambda: _expect(read_table(spark, folder), rows))
    theirs = measure.timed(lambda: _expect(spark.read.schema(schema).parquet(*paths), rows))
    shutil.rmtree(folder)
    note = f"{ours:.2f} s of {theirs:.2f} s"
    return Figure(f"Spark, count of {files:,} files over spark.read.parquet", ours / theirs, "x", None, note)


def _expect(rows: DataFrame, count: int) -> None:
    assert rows.count() == count


def many_files(count: int) -> Path:
    """Create a table of `count` files of 100 rows: copies of one file."""
    folder = data.CACHE / f"many-{count}"
    shutil.rmtree(folder, ignore_errors=True)
    qbeast.write_table(pl.DataFrame({"id": range(100)}), folder, columns=["id"])
    log = folder / "_delta_log" / f"{0:020}.json"
    actions: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    kept = [action for action in actions if "add" not in action]
    adds = [{"add": {**add, "path": f"{number:06}.parquet"}} for number in range(count)]
    for action in adds:
        os.link(folder / add["path"], folder / action["add"]["path"])
    log.write_text("".join(json.dumps(action) + "\n" for action in [*kept, *adds]))
    return folder


if __name__ == "__main__":
    started = time.perf_counter()
    print(table(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1)))
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
