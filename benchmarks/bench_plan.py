"""What does planning cost when a table has many files?

    python -m benchmarks.bench_plan [files ...]

A synthetic log: `files` adds (10,000, 100,000 and 1,000,000 by default) of 5 blocks each with statistics and all tags,
three float columns, in one checkpoint and one commit after it. The data files do not exist, because planning must not
touch them. Each step runs in a new process whose modules are loaded. CPU seconds, and memory as the peak beyond that of
these modules. deltalake opens the same log, and Polars plans the same filter on `scan_delta`.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table
from qbeast_core.spec.blocks import pack_boxes

COLUMNS = ("x", "y", "z")
BLOCKS = 5
BLOCK_ROWS, PAGE_ROWS = 16_000, 2048
CHUNK = 50_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
FILES = (10_000, 100_000, 1_000_000)
MADE, FIRST, SECOND = "open and filter, plan file is made", "open and first filter", "second filter"
SAMPLE, APPEND, APPENDED = "sample of 1 %", "first append of 1,000 rows", "append of 1,000 rows"
DELTA, POLARS = "deltalake opens the table", "Polars plans the filter on scan_delta"
# Files -> step -> maximum CPU seconds and megabytes.
MOST = {
    100_000: {SECOND: (0.2, 450.0)},
    1_000_000: {
        MADE: (6.0, 1500.0),
        FIRST: (1.0, 200.0),
        SECOND: (0.8, 200.0),
        SAMPLE: (3.0, 600.0),
        APPENDED: (0.5, 300.0),
    },
}

Costs = dict[str, tuple[float, float]]


def run(*files: int) -> list[Figure]:
    figures = []
    for count in files or FILES:
        folder = data.CACHE / "plan" / f"{count}"
        _write_log(folder, count, ours=True)
        with tempfile.TemporaryDirectory(dir=data.CACHE) as cache:
            costs: Costs = {}
            for steps in (_made, _filters, _sample, _append, _deltalake, _polars):
                costs |= measure.in_child(steps, folder, cache).result
        for step, (seconds, megabytes) in costs.items():
            what = f"{count:,} files, {step}"
            most_seconds, most_megabytes = MOST.get(count, {}).get(step, (None, None))
            figures += [
                Figure(f"{what}, CPU", seconds, "s", most_seconds),
                Figure(f"{what}, peak memory", megabytes, "MB", most_megabytes),
            ]
        shutil.rmtree(folder)
    return figures


class _Meter:
    """Measures steps of this process, beyond its modules."""

    def __init__(self, folder: Path, cache: str) -> None:
        tempfile.tempdir = cache
        small = Path(cache) / f"small-{os.getpid()}"
        qbeast.write_table(pl.DataFrame({name: [0.0, 1.0] for name in COLUMNS}), small, columns=[*COLUMNS])
        qbeast.open_table(small).rows("x > 0.5").explain()
        pl.scan_delta(str(small)).collect()
        importlib.import_module("qbeast_core.table.snapshot.planned")
        shutil.rmtree(small)
        self.folder, self.base, self.costs = str(folder), _resident_bytes(), Costs()

    def __call__(self, step: str, call: Callable[[], object]) -> Any:
        measure.reset_peak()
        start = _cpu_seconds()
        result = call()
        peak = measure.peak_rss_bytes() - self.base
        self.costs[step] = _cpu_seconds() - start, peak / 1e6
        return result


def _made(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    meter(MADE, lambda: _opened_rows(qbeast.open_table(meter.folder), 0.5))
    return meter.costs


def _filters(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    opened: list[qbeast.Table] = []

    def first() -> None:
        opened.append(qbeast.open_table(meter.folder))
        _opened_rows(opened[0], 0.5)

    meter(FIRST, first)
    meter(SECOND, lambda: _opened_rows(opened[0], 0.3))
    return meter.costs


def _sample(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    opened = qbeast.open_table(meter.folder)
    meter(SAMPLE, lambda: opened.rows(sample=0.01).explain().rows_opened)
    return meter.costs


def _append(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    rows = pl.DataFrame({name: np.random.default_rng(3).random(1_000) for name in COLUMNS})
    qbeast.open_table(meter.folder)
    for step in (APPEND, APPENDED):
        meter(step, lambda: qbeast.write_table(rows, meter.folder, mode="append"))
    return meter.costs


def _deltalake(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    meter(DELTA, lambda: DeltaTable(meter.folder))
    return meter.costs


def _polars(folder: Path, cache: str) -> Costs:
    meter = _Meter(folder, cache)
    meter(POLARS, lambda: pl.scan_delta(meter.folder).filter(_filter(0.5)).explain())
    return meter.costs


def _opened_rows(opened: qbeast.Table, at: float) -> None:
    plan = opened.rows(_filter(at)).explain()
    assert 0 < plan.rows_opened < plan.rows_total / 2


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _resident_bytes() -> int:
    line = next(line for line in measure.STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def _filter(at: float) -> pl.Expr:
    return pl.all_horizontal(pl.col(name).is_between(at - 0.1, at + 0.1) for name in COLUMNS)


def _write_log(folder: Path, files: int, *, ours: bool) -> None:
    """Write a log with the protocol and metadata of a real table, and invented files."""
    shutil.rmtree(folder, ignore_errors=True)
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1)
    frame = pl.DataFrame(dict(zip(COLUMNS, corners, strict=True)))
    qbeast.write_table(frame, str(folder), columns=[f"{name}:linear" for name in COLUMNS])
    log = folder / "_delta_log"
    DeltaTable(folder).create_checkpoint()
    real, checkpoint = log / f"{0:020d}.json", log / f"{0:020d}.checkpoint.parquet"
    rest = pq.read_table(checkpoint)
    is_add = rest["add"].combine_chunks().is_valid()
    empty = rest.filter(is_add)
    revision = dict(rest["add"].filter(is_add)[0].as_py()["tags"])["revision"]
    rest = rest.filter(pc.invert(is_add)).select(["add", "metaData", "protocol"])
    schema = rest.schema
    with pq.ParquetWriter(checkpoint, schema) as writer:
        writer.write_table(rest)
        for first in range(0, files - 1, CHUNK):
            adds = _adds(np.arange(first, min(first + CHUNK, files - 1)), files, revision, ours=ours)
            column = pa.array(adds, schema.field("add").type)
            # Copies of the nulls of a real checkpoint: pyarrow refuses its own for fields that are never null.
            none = pa.array(np.zeros(len(adds), np.int64))
            nulls = {name: empty[name].take(none) for name in ("metaData", "protocol")}
            writer.write_table(pa.table({"add": column, **nulls}, schema=schema))
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": rest.num_rows + files - 1}))
    kept = [line for line in real.read_text().splitlines() if '"add"' not in line[:8]]
    real.write_text("\n".join(kept) + "\n")
    (last,) = _adds(np.array([files - 1]), files, revision, ours=ours)
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
    (log / f"{1:020d}.json").write_text(
        "".join(json.dumps(action) + "\n" for action in (info, {"add": last}))
    )


def _adds(numbers: np.ndarray, files: int, revision: str, *, ours: bool) -> list[dict[str, Any]]:
    """Return the adds of some files: each has neighbouring cubes of the deepest level, and rows of all weights."""
    depth = int(np.ceil(np.log(files * BLOCKS) / np.log(8)))
    cells = (numbers[:, None] * BLOCKS + np.arange(BLOCKS)) * 8**depth // (files * BLOCKS)
    digits = (cells[..., None] >> (3 * np.arange(depth)[::-1])) & 7
    lower, upper = _bounds(digits)
    texts = np.array([ALPHABET[digit << 3] for digit in range(8)])[digits]
    rows = BLOCKS * BLOCK_ROWS
    adds = []
    for place, number in enumerate(numbers.tolist()):
        low, high = lower[place].tolist(), upper[place].tolist()
        blocks = [_block("".join(cube)) for cube in texts[place]]
        stats = {
            "numRecords": rows,
            "minValues": dict(zip(COLUMNS, low, strict=True)),
            "maxValues": dict(zip(COLUMNS, high, strict=True)),
            "nullCount": dict.fromkeys(COLUMNS, 0),
        }
        tags = {"revision": revision, "blocks": json.dumps(blocks, separators=(",", ":"))}
        if ours:
            tags |= {"qbeast.rules": "1", "qbeast.layout": _layout(number, rows, low, high)}
        adds.append(
            {
                "path": f"part-{number:08d}-{number * 2654435761 % 2**32:08x}.parquet",
                "partitionValues": {},
                "size": rows * 30,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(stats, separators=(",", ":")),
                "tags": tags,
            }
        )
    return adds


def _block(cube: str) -> dict[str, Any]:
    return {
        "cube": cube,
        "minWeight": -(2**31) + 100_000,
        "maxWeight": 2**31 - 1,
        "replicated": False,
        "elementCount": BLOCK_ROWS,
    }


def _bounds(digits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of files, from the octal digits of their cubes: one bit for each dimension and level."""
    depth = digits.shape[-1]
    halves = 2 ** np.arange(depth)[::-1]
    places = np.stack([(((digits >> (2 - dimension)) & 1) * halves).sum(-1) for dimension in range(3)], -1)
    return places.min(1) / 2**depth, (places.max(1) + 1) / 2**depth


def _layout(number: int, rows: int, lower: list[float], upper: list[float]) -> str:
    """Return a tag with bands of 1/32 to 1/2 of the rows, and pages at random places in the box of the file."""
    random = np.random.default_rng(number)
    shares = [1 / 32, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2]
    starts = np.cumsum([0, *shares[:-1]])
    weights = (-(2**31) + 100_000 + starts * 2**32).astype(np.int64).tolist()
    bands = [[int(rows * share), PAGE_ROWS, weight] for share, weight in zip(shares, weights, strict=True)]
    pages = sum(-(-band[0] // PAGE_ROWS) for band in bands)
    firsts = [round(low * 2**32) for low in lower]
    steps = [-(-(round(high * 2**32) - first) // 256) for first, high in zip(firsts, upper, strict=True)]
    sides = np.sort(random.integers(0, 256, (len(firsts), 2, pages)), axis=1)
    stored = {
        "v": 3,
        "tail": 20_000,
        "directory": 8_000,
        "bands": bands,
        "box": list(zip(firsts, steps, strict=True)),
        "p": pack_boxes(sides.astype(np.uint8).tobytes()),
    }
    return json.dumps(stored, separators=(",", ":"))


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))
