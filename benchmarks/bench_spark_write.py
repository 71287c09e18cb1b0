"""What does an indexed write cost on Spark, compared with Spark's own Parquet writer?

    python -m benchmarks.bench_spark_write [million rows ...]

8 columns of lineitem (scale 1, repeated as needed) in Parquet files, indexed on three; two cores. Candidates in turn:
`write_table` in a session with default settings, and in one that counts the bytes of rows (docs/spark.md),
`df.write.parquet`, and the same after `repartition` into as many files as ours. Then with one core, and with more rows.
CPU: seconds of driver, JVM and workers, all 16 columns of lineitem, in turns, beside Parquet with zstd.
Memory is the peak of the JVM (driver and executor in one) and of the largest Python worker.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl
from pyspark.sql import DataFrame, SparkSession

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table
from qbeast_spark_bridge import register, write_table

MILLION = 1_000_000
ROWS = 5 * MILLION
SIZES = (1, 10)
FILES = 10
ROUNDS = 5
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
USUAL_BYTES = 64 << 20


def run(sizes: tuple[int, ...] = SIZES) -> list[Figure]:
    two = measure.in_child(_beside_spark, 2).result
    item = measure.in_child(_alone, 1, ROWS).result
    both = measure.in_child(_alone, 2, ROWS).result
    cpu = measure.in_child(_cpu_seconds).result
    figures = [
        Figure("Spark, write over df.write.parquet", two["ours"] / two["plain"], "x", 3.2, _seconds(two)),
        Figure(
            "Spark, write over df.repartition(F).write.parquet", two["ours"] / two["shuffled"], "x", 1.4, ""
        ),
        Figure(
            "Spark, the same two where batches are counted",
            two["counted"] / two["plain"],
            note=f"{two['counted'] / two['shuffled']:.2f}; {two['counted']:.1f} s",
        ),
        Figure("Spark, pass one of the write", two["pass one"] / two["ours"], "of the time"),
        Figure("Spark, pass two of the write", two["pass two"] / two["ours"], "of the time"),
        Figure("Spark, peak memory of the JVM", two["jvm"] / 2**20, "MiB"),
        Figure("Spark, peak memory of a Python worker", two["worker"] / 2**20, "MiB"),
        Figure("Spark, peak memory of the driver's Python", two["driver"] / 2**20, "MiB"),
        Figure("Spark, pass one with 1 core over 2 cores", item["pass one"] / both["pass one"]),
        Figure("Spark, pass two with 1 core over 2 cores", item["pass two"] / both["pass two"]),
    ]
    parts = f"{cpu['pass one']:.1f} s pass one, {cpu['pass two']:.1f} s pass two, {cpu['around']:.1f} s around them"
    figures += [
        Figure("Spark, CPU of a write over df.write.parquet", cpu["write"] / cpu["plain"], "x", 1.9, parts),
        Figure(
            "Spark, CPU of an append of 1 M rows, over the same",
            cpu["append"] / cpu["plain append"],
            "x",
            2.0,
        ),
        Figure("Spark, the same by format", cpu["format"] / cpu["plain append"], "x"),
    ]
    each = both["took"] / ROWS
    for millions in sizes:
        took = measure.in_child(_alone, 2, millions * MILLION).result
        cost = took["took"] / (millions * MILLION)
        note = f"{took['took']:.1f} s; worker {took['worker'] / 2**20:.0f} MiB, driver {took['driver'] / 2**20:.0f} MiB"
        figures.append(
            Figure(f"Spark, time per row at {millions} M rows over 5 M", cost / each, "x", None, note)
        )
    return figures


def session(cores: int) -> SparkSession:
    options = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(data.CACHE / "warehouse"),
    }
    warnings.simplefilter("ignore")  # PySpark and pandas disagree on versions
    return SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()


def source(rows: int) -> Path:
    """Write the rows as Parquet once, 10 files per 5 million rows."""
    folder = data.CACHE / f"spark-{rows}"
    if not folder.exists():
        columns = list(data.WRITE_COLUMNS)
        frame = pl.read_parquet(data.lineitem_path(), columns=columns, n_rows=min(rows, ROWS)).select(columns)
        folder.mkdir()
        files = max(FILES * rows // ROWS, 2)
        for number in range(files):
            start = number * (rows // files)
            part = pl.concat([frame.slice(start % frame.height, rows // files)])
            part.write_parquet(folder / f"{number}.parquet", compression="snappy")
    return folder


def _beside_spark(cores: int) -> dict[str, float]:
    spark = session(cores)
    try:
        rows = spark.read.parquet(str(source(ROWS)))
        with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
            to = Path(scratch)
            files = int(_ours(rows, to / "warm")["files"])
            candidates: dict[str, Callable[[Path], dict[str, float]]] = {
                "ours": lambda folder: _ours(rows, folder),
                "plain": lambda folder: _plain(rows, folder),
                "counted": lambda folder: _counted(rows, folder),
                "shuffled": lambda folder: _plain(rows.repartition(files), folder),
            }
            taken: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
            for turn in range(ROUNDS + 1):  # the first turn warms up
                for name in sorted(candidates, reverse=turn % 2 == 1):
                    taken[name].append(candidates[name](to / name))
                    shutil.rmtree(to / name)
        figures = {step: median(item[step] for item in taken["ours"][1:]) for step in taken["ours"][0]}
        seconds = {name: median(item["took"] for item in each[1:]) for name, each in taken.items()}
        return figures | seconds | _memory()
    finally:
        spark.stop()


def _alone(cores: int, rows: int) -> dict[str, float]:
    """Write once with a number of tasks and as many cores, so that the JVM and Python have no spare core."""
    os.sched_setaffinity(0, range(cores))
    spark = session(cores)
    try:
        with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
            _ours(spark.read.parquet(str(source(ROWS))), Path(scratch) / "warm")
            return _ours(spark.read.parquet(str(source(rows))), Path(scratch) / "t", rows=rows) | _memory()
    finally:
        spark.stop()


def _cpu_seconds() -> dict[str, float]:
    """Return medians of CPU seconds of writes and appends."""
    spark = session(2)
    register(spark)
    rows = spark.read.parquet(str(data.lineitem_path()))
    more = rows.limit(MILLION).coalesce(2).cache()
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        to, taken = Path(scratch), list[dict[str, float]]()
        for each in (more, more):  # the first turn warms up
            _cpu_parts(each, to / "grown")
            each.write.option("compression", "zstd").mode("overwrite").parquet(str(to / "plain"))
        candidates: dict[str, Callable[[], object]] = {
            "plain": lambda: (
                rows.write.option("compression", "zstd").mode("overwrite").parquet(str(to / "p"))
            ),
            "write": lambda: taken.append(_cpu_parts(rows, to / "t")),
            "plain append": lambda: (
                more.write.option("compression", "zstd").mode("append").parquet(str(to / "plain"))
            ),
            "append": lambda: write_table(more, to / "grown", mode="append"),
            "format": lambda: more.write.format("qbeast").mode("append").save(str(to / "grown")),
        }
        seconds = {name: list[float]() for name in candidates}
        for turn in range(ROUNDS + 1):
            for name in sorted(candidates, reverse=turn % 2 == 1):
                begun = measure.tree_cpu_seconds()
                candidates[name]()
                seconds[name].append(measure.tree_cpu_seconds() - begun)
    spark.stop()
    steps = {step: median(item[step] for item in taken[1:]) for step in taken[0]}
    return steps | {name: median(each[1:]) for name, each in seconds.items()}


def _cpu_parts(frame: DataFrame, to: Path) -> dict[str, float]:
    steps: dict[str, float] = {}
    begun = measure.tree_cpu_seconds()
    write_table(
        frame,
        to,
        columns=list(data.W1_COLUMNS),
        mode="overwrite",
        progress=lambda step: steps.setdefault(step.stage, measure.tree_cpu_seconds()),
    )
    one, two = steps["plan"] - steps["read"], steps["commit"] - steps["write"]
    return {"pass one": one, "pass two": two, "around": measure.tree_cpu_seconds() - begun - one - two}


def _plain(frame: DataFrame, to: Path) -> dict[str, float]:
    return {"took": measure.timed(lambda: frame.write.parquet(str(to)))}


def _counted(frame: DataFrame, to: Path) -> dict[str, float]:
    frame.sparkSession.conf.set(BATCH_BYTES, USUAL_BYTES)
    try:
        return _ours(frame, to)
    finally:
        frame.sparkSession.conf.unset(BATCH_BYTES)


def _ours(frame: DataFrame, to: Path, *, rows: int = ROWS) -> dict[str, float]:
    steps: dict[str, float] = {}
    begun = time.perf_counter()
    result = write_table(
        frame,
        to,
        columns=list(data.W1_COLUMNS),
        progress=lambda step: steps.setdefault(step.stage, time.perf_counter()),
    )
    took = time.perf_counter() - begun
    assert result.rows == rows == qbeast.scan_table(to).select(pl.len()).collect().item()
    return {
        "took": took,
        "pass one": steps["plan"] - steps["read"],
        "pass two": steps["commit"] - steps["write"],
        "files": float(result.files),
    }


def _memory() -> dict[str, float]:
    """Peak resident bytes of the JVM, of the largest Python worker, and of this process."""
    peak = {"jvm": 0.0, "worker": 0.0, "driver": float(_peak(Path("/proc/self")))}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            kind = "worker" if "pyspark.daemon" in command else "jvm" if "org.apache.spark" in command else ""
            if kind:
                peak[kind] = max(peak[kind], float(_peak(process)))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return peak


def _peak(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    actual = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(actual[0]) * 1024 if actual else 0


def _seconds(took: dict[str, float]) -> str:
    return f"{took['took']:.1f} s over {took['plain']:.1f} s and {took['shuffled']:.1f} s; goal 2.5"


if __name__ == "__main__":
    print(table(run(tuple(int(text) for text in sys.argv[1:]) or SIZES)))
