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
from deltalake import DeltaTable

import qbeast
from benchmarks import data, measure
from benchmarks.report import Figure, table
from qbeast_core.spec.blocks import pack_boxes

COLUMNS = ("x", "y", "z")
BLOCKS = 5
BANDS, PAGE_ROWS = 5, 2048
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
    """Return a log with the protocol and metadata of a real table, and invented files."""
    shutil.rmtree(folder, ignore_errors=True)
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1)
    frame = pl.DataFrame(dict(zip(COLUMNS, corners, strict=True)))
    qbeast.write_table(frame, str(folder), columns=[f"{name}:linear" for name in COLUMNS])
    log = folder / "_delta_log"
    first = log / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    real = next(action["add"] for action in actions if "add" in action)
    kept = [action for action in actions if "add" not in action]
    adds = [{"add": _add(number, files, real["tags"]["revision"], ours=ours)} for number in range(files)]
    first.write_text("".join(json.dumps(action) + "\n" for action in kept + adds[:-1]))
    DeltaTable(folder).create_checkpoint()
    info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
    (log / f"{1:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in (info, adds[-1])))


def _add(number: int, files: int, revision: str, *, ours: bool) -> dict[str, Any]:
    depth = int(np.ceil(np.log(files * BLOCKS) / np.log(8)))
    cells = np.arange(number * BLOCKS, (number + 1) * BLOCKS) * 8**depth // (files * BLOCKS)
    blocks = [_block(int(cell), depth) for cell in cells]
    lower, upper = _bounds(cells, depth)
    rows = sum(block["elementCount"] for block in blocks)
    stats = {
        "numRecords": rows,
        "minValues": dict(zip(COLUMNS, lower, strict=True)),
        "maxValues": dict(zip(COLUMNS, upper, strict=True)),
        "nullCount": dict.fromkeys(COLUMNS, 0),
    }
    tags = {"revision": revision, "blocks": json.dumps(blocks, separators=(",", ":"))}
    if ours:
        tags |= {"qbeast.rules": "1", "qbeast.layout": _layout(rows, lower, upper)}
    return {
        "path": f"part-{number:08d}.parquet",
        "partitionValues": {},
        "size": rows * 30,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
        "tags": tags,
    }


def _block(cell: int, depth: int) -> dict[str, Any]:
    """Cell number -> cube: its octal digits are the groups of three bits, level by level."""
    digits = [(cell >> 3 * level) & 7 for level in reversed(range(depth))]
    return {
        "cube": "".join(ALPHABET[digit << 3] for digit in digits),
        "minWeight": -(2**30),
        "maxWeight": 2**31 - 1,
        "replicated": False,
        "elementCount": 16_000,
    }


def _bounds(cells: np.ndarray, depth: int) -> tuple[list[float], list[float]]:
    lower, upper = [], []
    for dimension in range(3):
        place = np.zeros(len(cells), dtype=np.int64)
        for level in reversed(range(depth)):
            place = place * 2 + ((cells >> (3 * level + 2 - dimension)) & 1)
        lower.append(float(place.min()) / 2**depth)
        upper.append((float(place.max()) + 1) / 2**depth)
    return lower, upper


def _layout(rows: int, lower: list[float], upper: list[float]) -> str:
    """Return a tag with pages at random places in the box of the file."""
    random = np.random.default_rng(rows)
    band_rows, weights = rows // BANDS, np.linspace(-(2**30), 2**30, BANDS).astype(np.int64).tolist()
    pages = BANDS * -(-band_rows // PAGE_ROWS)
    firsts = [round(low * 2**32) for low in lower]
    steps = [-(-(round(high * 2**32) - first) // 256) for first, high in zip(firsts, upper, strict=True)]
    sides = np.sort(random.integers(0, 256, (len(firsts), 2, pages)), axis=1)
    stored = {
        "v": 3,
        "tail": 20_000,
        "directory": 8_000,
        "bands": [[band_rows, PAGE_ROWS, weight] for weight in weights],
        "box": list(zip(firsts, steps, strict=True)),
        "p": pack_boxes(sides.astype(np.uint8).tobytes()),
    }
    return json.dumps(stored, separators=(",", ":"))


if __name__ == "__main__":
    print(table(run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
