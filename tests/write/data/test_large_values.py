"""Values of many bytes: memory follows bytes, not rows; what Parquet cannot hold is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.io.encode import page_rows_within
from qbeast_core.table.engine.sources import FilesSource, rows_and_bytes
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.small_files import resized

MIB = 1 << 20

# Peak memory is that of a process, so each case gets one. It says what the frame took, and what was added to that.
PROCESS = """
import json, os, resource, sys
import numpy as np, polars as pl
import qbeast, qbeast_core.table.rewrite.optimize, polars.testing
kind, path = sys.argv[1:]
random = np.random.default_rng(3)
noise = lambda size: random.bytes(size)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
qbeast.write_table(pl.DataFrame({"id": range(500)}), path + "/warm", columns=["id"])
qbeast.read_table(path + "/warm", sample=0.5)
values = {
    "100 kB": lambda: [noise(100_000) for _ in range(20)],
    "8 MB": lambda: [noise(8 << 20) for _ in range(12)],
    "300 MB": lambda: [noise(300 << 20), b"a", None],
    "one in many": lambda: [noise(4 << 20) if i % 5000 == 0 else b"x" for i in range(100_000)],
    "lists": lambda: [[noise(1 << 20) for _ in range(4)] for _ in range(16)],
    "structs": lambda: [{"a": noise(4 << 20), "b": i} for i in range(16)],
    "zeros": lambda: [bytes(1 << 20)] * 600,
    "texts": lambda: [noise(2 << 20).hex() for _ in range(16)],
}[kind]()
frame = pl.DataFrame({"id": range(len(values)), "value": values})
del values
size, before = frame.estimated_size(), peak()
qbeast.write_table(frame, path + "/t", columns=["id"])
written = peak()
table = qbeast.open_table(path + "/t")
sampled = sum(part.height for part in table.rows(sample=0.5).lazy().collect_batches())
read = peak()
assert table.check().ok
polars.testing.assert_frame_equal(table.read().sort("id"), frame)
print(json.dumps({"size": size, "write": written - before, "read": read - written, "sampled": sampled}))
"""

CASES = ["100 kB", "8 MB", "300 MB", "one in many", "lists", "structs", "zeros", "texts"]


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told in other units elsewhere")
@pytest.mark.parametrize("kind", CASES)
def test_memory_follows_bytes(kind: str, tmp_path: Path) -> None:
    root = str(Path(qbeast.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "POLARS_MAX_THREADS": "2"}
    command = [sys.executable, "-c", PROCESS, kind, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    actual = json.loads(run.stdout)
    assert actual["sampled"] > 0
    # The file in memory, once being encoded and once whole, in a buffer that doubles; and room for allocators.
    assert actual["write"] <= 4 * actual["size"] + 150 * MIB, actual
    assert actual["read"] <= 4 * actual["size"] + 300 * MIB, actual


def page_rows_of(path: Path) -> set[int]:
    layouts = [json.loads(add["tags"]["qbeast.layout"]) for add in read_log(path).adds.values()]
    return {page_rows for layout in layouts for _, page_rows, _ in layout["bands"]}


def test_pages_of_large_values_have_fewer_rows(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(600), "text": ["é" * 10_000] * 600})
    with resized(min_page_rows=300):
        qbeast.write_table(rows, tmp_path, columns=["id"])
        assert page_rows_of(tmp_path) == {300}
        large = rows.with_columns(pl.lit("é" * 200_000).alias("text"))[:70]
        qbeast.write_table(large, tmp_path / "large", columns=["id"])
    (page_rows,) = page_rows_of(tmp_path / "large")
    assert 2 * MIB < page_rows * 400_000 <= 4 * MIB
    check_invariants(tmp_path / "large")
    table = qbeast.open_table(tmp_path / "large")
    assert table.rows("id < 8").explain().rows_opened < 70
    assert table.rows(sample=0.1).explain().rows_opened < 40
    assert_frame_equal(qbeast.read_table(tmp_path / "large").sort("id"), large)


def test_single_large_value_keeps_page_sizes() -> None:
    rows = pl.DataFrame({"text": ["x" * (32 * MIB), *["y"] * 4_000]})
    assert page_rows_within(rows, 2048) == 2048
    many = pl.DataFrame({"text": ["x" * (3 * MIB), "y", "y", "y"] * 64})
    assert page_rows_within(many, 256) == 16


NESTED: dict[str, Any] = {
    "text": "x" * 999,
    "binary": b"x" * 999,
    "list": ["x" * 500, "y" * 499],
    "struct": {"a": "x" * 500, "b": ["y" * 500]},
}


@pytest.mark.parametrize("kind", list(NESTED))
@resized(max_value_bytes=900)
def test_value_beyond_parquet_limit_raises(kind: str, tmp_path: Path) -> None:
    small = pl.DataFrame({"id": [1, 2], "large": [None, NESTED[kind]]})
    path = tmp_path / "t"
    with pytest.raises(
        qbeast.InvalidInputError, match=r"row 1 has a value of [\d,]+ bytes in column 'large'"
    ):
        qbeast.write_table(small, path, columns=["id"])
    assert not list(tmp_path.rglob("*.parquet"))
    qbeast.write_table(small[:1], path, columns=["id"])
    before = sorted(path.rglob("*"))
    with pytest.raises(qbeast.InvalidInputError, match="'large'"):
        qbeast.write_table(small, path, mode="append")
    assert sorted(path.rglob("*")) == before


def test_rewrite_counts_uncompressed_bytes(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(64), "text": ["z" * MIB] * 64})
    for part in rows.iter_slices(16):
        qbeast.write_table(part, tmp_path, columns=["id"], mode="append")
    assert sum(add["size"] for add in read_log(tmp_path).adds.values()) < MIB  # zstd leaves little of it
    snapshot, numbers = load_snapshot(tmp_path), np.arange(4)
    counts, sizes = rows_and_bytes(FilesSource(snapshot=snapshot, files=numbers))
    assert counts.tolist() == [16] * 4
    assert 16 * MIB <= sizes.min() <= sizes.max() <= 17 * MIB
