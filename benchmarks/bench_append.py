"""What does a small append cost?

    python -m benchmarks.bench_append

1,000 rows are appended to lineitem (scale 1, 6 million rows, 16 columns, three indexed), 15 times after three to warm
up, and compared with `write_deltalake` on a plain table of the same rows. Each round runs in its own processes, in
turns, on copies. Measured are CPU seconds of the whole process, and seconds: an append waits for the disk four times
(files and their folders) before it is a version.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl
from deltalake import write_deltalake

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table

ROWS = 1_000
APPENDS, WARM_UP = 15, 3
ROUNDS = 3


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=data.CACHE) as scratch:
        tables = {"qbeast": Path(scratch) / "qbeast", "plain": Path(scratch) / "plain"}
        frame = data.lineitem()
        qbeast.write_table(frame, tables["qbeast"], columns=list(data.W1_COLUMNS))
        write_deltalake(tables["plain"], frame)
        del frame
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in tables}
        for turn in range(ROUNDS):
            for name in sorted(tables, reverse=turn % 2 == 0):
                copy = Path(scratch) / "copy"
                shutil.copytree(tables[name], copy, copy_function=os.link)
                costs[name].append(measure.in_child(_appended, name, copy).result)
                shutil.rmtree(copy)
    figures: list[Figure] = []
    for kind, what in enumerate(("CPU", "time")):
        ours, theirs = (median(cost[kind] for cost in costs[name]) for name in ("qbeast", "plain"))
        note = f"{ours * 1000:.0f} ms over {theirs * 1000:.0f} ms"
        label = f"append of {ROWS:,} rows to 6 M over write_deltalake, {what}"
        figures.append(Figure(label, ours / theirs, "x", 2.0, note))
    return figures


def _appended(name: str, path: Path) -> tuple[float, float]:
    """Return the median CPU seconds and seconds of an append."""
    warnings.simplefilter("ignore")
    rows = pl.read_parquet(data.lineitem_path(), n_rows=ROWS * (APPENDS + WARM_UP))
    append: Callable[[pl.DataFrame], object] = (
        (lambda part: qbeast.write_table(part, path, mode="append"))
        if name == "qbeast"
        else (lambda part: write_deltalake(path, part, mode="append"))
    )
    cpu: list[float] = []
    seconds: list[float] = []
    for part in rows.iter_slices(ROWS):
        start, cpu_start = time.perf_counter(), time.process_time()
        append(part)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return median(cpu[WARM_UP:]), median(seconds[WARM_UP:])


if __name__ == "__main__":
    print(table(run()))
