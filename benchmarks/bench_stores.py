"""What does a read request from an object store that takes 30 ms for every answer?

    python -m benchmarks.bench_stores

Two tables of four columns, two of them indexed: 1,000 appends of 2,000 rows each, with a checkpoint; and 6 M rows
written at once. Measured for an opening, and for reads of a table just opened: requests, and the longest chain of
requests that waited for one another. Compared with `deltalake` and `pl.scan_delta`, in turns; there the seconds count
opening and reading.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table
from benchmarks.slow_store import SlowStore, serving

APPENDS, APPENDED_ROWS, ROWS = 1_000, 2_000, 6_000_000
ROUNDS = 3
RANGE = pl.col("x").is_between(0.5, 0.52)
READS: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "range of 2 %": lambda rows: rows.filter(RANGE),
    "two columns": lambda rows: rows.select("x", "z"),
}


def run() -> list[Figure]:
    folder = data.CACHE / "stores"
    _write(folder)
    figures = []
    with serving(folder) as store:
        for name in ("appended", "whole"):
            figures += _opening(store, name) + _sampling(store, name)
            for what, read in READS.items():
                figures += _reading(store, name, what, read)
    return figures


def _write(folder: Path) -> None:
    if (folder / "done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    rows = _rows(APPENDS * APPENDED_ROWS)
    for start in range(0, rows.height, APPENDED_ROWS):
        part = rows.slice(start, APPENDED_ROWS)
        qbeast.write_table(part, folder / "appended", columns=["x", "y"], cube_size=500, mode="append")
    qbeast.write_table(_rows(ROWS), folder / "whole", columns=["x", "y"])
    (folder / "done").touch()


def _rows(count: int) -> pl.DataFrame:
    random = np.random.default_rng(7)
    texts = pl.Series(random.integers(0, 10**6, count)).cast(pl.String)
    numbers = random.integers(0, 10**9, count)
    return pl.DataFrame({"x": random.random(count), "y": random.random(count), "z": numbers, "t": texts})


def _opening(store: SlowStore, name: str) -> list[Figure]:
    def theirs() -> object:
        return DeltaTable(store.uri(name), storage_options=store.options).file_uris()

    store.asked()
    theirs()
    alone = store.asked()
    _open(store, name)
    request = store.asked()
    seconds = measure.interleaved({"qbeast": lambda: _open(store, name), "deltalake": theirs}, rounds=ROUNDS)
    note = f"{request.requests} requests; deltalake: {alone.round_trips}, {alone.requests}"
    return [
        Figure(f"{name}: open, round trips", request.round_trips, "trips", 3, note),
        Figure(f"{name}: open, time over deltalake's", seconds["qbeast"] / seconds["deltalake"]),
    ]


def _sampling(store: SlowStore, name: str) -> list[Figure]:
    table, size_bytes = _open(store, name), _size_bytes(store, name)
    store.asked()
    seconds = measure.timed(lambda: table.read(sample=0.01))
    request = store.asked()
    note = f"{request.requests} requests, {request.bytes / size_bytes:.1%} of the bytes, {seconds:.2f} s"
    return [Figure(f"{name}: sample of 1 %, round trips", request.round_trips, "trips", None, note)]


def _reading(
    store: SlowStore, name: str, what: str, read: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> list[Figure]:
    def ours() -> object:
        return read(_open(store, name).rows().lazy()).collect()

    def theirs() -> object:
        return read(pl.scan_delta(store.uri(name), storage_options=store.options)).collect()

    table = _open(store, name)
    store.asked()
    read(table.rows().lazy()).collect()
    request = store.asked()
    theirs()
    other = store.asked()
    seconds = measure.interleaved({"qbeast": ours, "scan_delta": theirs}, rounds=ROUNDS)
    note = (
        f"{request.requests} requests, {request.bytes / 1e6:.1f} MB; scan_delta with its opening {other.round_trips}, "
        f"{other.requests}, {other.bytes / 1e6:.1f} MB"
    )
    return [
        Figure(f"{name}: {what}, round trips", request.round_trips, "trips", None, note),
        Figure(f"{name}: {what}, time over scan_delta's", seconds["qbeast"] / seconds["scan_delta"]),
    ]


def _open(store: SlowStore, name: str) -> qbeast.Table:
    return qbeast.open_table(store.uri(name), storage_options=store.options)


def _size_bytes(store: SlowStore, name: str) -> int:
    return _open(store, name).rows().explain().bytes_total


if __name__ == "__main__":
    print(table(run()))
