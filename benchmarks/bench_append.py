"""What does a small append cost?

    python -m benchmarks.bench_append

1,000 rows are appended to lineitem (scale 1, 6 million rows, 16 columns, three indexed), 15 times after three to warm
up, against `write_deltalake` on a plain table of the same rows. Each round in processes of its own, by turns, on
copies; CPU seconds of the whole process, as a small append waits for the disk half of its time.
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
        seconds: dict[str, list[float]] = {name: [] for name in tables}
        for turn in range(ROUNDS):
            for name in sorted(tables, reverse=turn % 2 == 0):
                copy = Path(scratch) / "copy"
                shutil.copytree(tables[name], copy, copy_function=os.link)
                seconds[name].append(measure.in_child(_appended, name, copy).result)
                shutil.rmtree(copy)
    ours, theirs = (median(seconds[name]) for name in ("qbeast", "plain"))
    note = f"{ours * 1000:.0f} ms over {theirs * 1000:.0f} ms"
    return [
        Figure(f"append of {ROWS:,} rows to 6 M over write_deltalake, CPU", ours / theirs, "x", 2.0, note)
    ]


def _appended(name: str, path: Path) -> float:
    """Median of the CPU seconds of an append."""
    warnings.simplefilter("ignore")
    rows = pl.read_parquet(data.lineitem_path(), n_rows=ROWS * (APPENDS + WARM_UP))
    append: Callable[[pl.DataFrame], object] = (
        (lambda some: qbeast.write_table(some, path, mode="append"))
        if name == "qbeast"
        else (lambda some: write_deltalake(path, some, mode="append"))
    )
    seconds: list[float] = []
    for some in rows.iter_slices(ROWS):
        start = time.process_time()
        append(some)
        seconds.append(time.process_time() - start)
    return median(seconds[WARM_UP:])


if __name__ == "__main__":
    print(table(run()))
