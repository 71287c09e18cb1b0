"""What an open table takes in memory: as the limits state it, and no less than what hangs on it."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.table.read.planner import Planner

FILES, BLOCKS = 4_000, 5
STATED = 950
"""Bytes per block, of files of five blocks with few index keys (docs/limits.md: 0.95 GB per million)."""


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """The reader of a table of thousands of files, after some filters."""
    folder = tmp_path_factory.mktemp("many") / "t"
    rows = pl.DataFrame({name: np.linspace(0, 1, 1000) for name in "xyz"})
    qbeast.write_table(rows, folder, columns=["x:linear", "y:linear", "z:linear"])
    log = folder / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    real = next(line["add"] for line in lines if "add" in line)
    adds = [{"add": renamed(real, number)} for number in range(FILES)]
    others = [line for line in lines if "add" not in line]
    log.write_text("".join(json.dumps(line) + "\n" for line in [*others, *adds]))
    DeltaTable(folder).create_checkpoint()
    table = qbeast.open_table(folder)
    for at in (0.3, 0.5):
        assert table.rows(pl.col("x") < at).explain().rows_opened > 0
    assert table.snapshot.blocks.binding.height == FILES * BLOCKS
    return table.planner


def renamed(add: dict[str, Any], number: int) -> dict[str, Any]:
    """The same file once more, as one of sixteen pages and five blocks."""
    weights = np.linspace(-(2**15), 2**15 - 1, 20).astype("<i2").tobytes()
    layout = {"v": 1, "rows": 4096, "tail": 20_000, "w": base64.b64encode(weights).decode()}
    block = {"minWeight": -(2**30), "maxWeight": 2**31 - 1, "replicated": False, "elementCount": 16_000}
    blocks = [{"cube": f"{'AgIo'[place % 4] * 6}{'AQgw4'[place]}", **block} for place in range(BLOCKS)]
    stats = json.loads(add["stats"]) | {"numRecords": 16_000 * BLOCKS}
    texts = {"blocks": blocks, "qbeast.layout": layout}
    tags = add["tags"] | {name: json.dumps(item, separators=(",", ":")) for name, item in texts.items()}
    del tags["qbeast.keys"]
    return {**add, "path": f"part-{number:08}.parquet", "stats": json.dumps(stats), "tags": tags}


def hanging_bytes(thing: object, seen: dict[int, object]) -> int:
    """Bytes of all frames and arrays that can be reached from something, each once."""
    if id(thing) in seen:
        return 0
    seen[id(thing)] = thing
    match thing:
        case pl.DataFrame() | pl.Series():
            return int(thing.estimated_size())
        case np.ndarray():
            return thing.nbytes if thing.base is None else 0
        case dict() | tuple() | list():
            parts = list(thing.values()) if isinstance(thing, dict) else list(thing)
        case _ if type(thing).__module__.startswith("qbeast_core"):
            slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
            parts = [getattr(thing, name, None) for name in {*slots, *getattr(thing, "__dict__", {})}]
        case _:
            return 0
    return sum(hanging_bytes(part, seen) for part in parts)


def test_table_fits_in_documented_memory(planner: Planner) -> None:
    assert planner.snapshot.size_bytes / (FILES * BLOCKS) <= STATED


def test_size_counts_everything_the_table_holds(planner: Planner) -> None:
    held_by_deltalake = 2.5 * planner.snapshot.files.estimated_size()  # measured: benchmarks/NOTES.md
    rows_held = hanging_bytes(planner, {}) + held_by_deltalake
    assert rows_held <= planner.snapshot.size_bytes <= 1.5 * rows_held
