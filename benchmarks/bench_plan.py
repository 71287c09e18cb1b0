"""How long does planning take when a table has many files?

    python -m benchmarks.bench_plan [files]

A synthetic log: `files` adds (10,000 by default) of 5 blocks each with statistics, three float columns, in one
checkpoint and one commit after it. The data files do not exist, because planning must not touch them. Cold: a new
process opens the table and plans one filter (imports not counted). Warm: the next filters on the opened table. Once
with the tags of every Qbeast writer, once with ours (`qbeast.layout` and `qbeast.rules` too).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from statistics import median
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
ROUNDS = 5
WARM_FILTERS = 20
# Files -> maximum seconds, cold and warm.
MOST = {10_000: (0.15, 0.05), 100_000: (0.8, 0.4)}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def run(files: int = 10_000) -> list[Figure]:
    figures = []
    for tags in ("plain", "ours"):
        folder = data.CACHE / "plan" / f"{tags}-{files}"
        _write_log(folder, files, ours=tags == "ours")
        runs = [measure.in_child(_cold_then_warm, folder).result for _ in range(ROUNDS)]
        cold, warm = (median(values) for values in zip(*runs, strict=True))
        most_cold, most_warm = MOST.get(files, (None, None)) if tags == "plain" else (None, None)
        what = f"plan over {files:,} files x {BLOCKS} blocks"
        figures += [
            Figure(f"{what}, {tags} tags, cold", cold, "s", most_cold),
            Figure(f"{what}, {tags} tags, warm", warm, "s", most_warm),
        ]
    return figures


def _cold_then_warm(folder: Path) -> tuple[float, float]:
    start = time.perf_counter()
    opened = qbeast.open_table(str(folder))
    plan = opened.rows(_filter(0.5)).explain()
    share = plan.rows_opened / plan.rows_total
    cold = time.perf_counter() - start
    assert 0 < share < 0.5
    places = np.random.default_rng(7).uniform(0.1, 0.9, WARM_FILTERS)
    return cold, median(
        measure.timed(lambda at=at: opened.rows(_filter(at)).explain().rows_opened) for at in places
    )


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
    print(table(run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
