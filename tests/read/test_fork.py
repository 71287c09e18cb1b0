"""A forked process is told what it is, where it would wait for ever; one that was forked before all work may work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import qbeast

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
]

SCRIPT = """
import os, sys
import polars as pl
import qbeast

path, early = sys.argv[1], sys.argv[2] == "early"
table = None if early else qbeast.open_table(path)
if not early:
    table.rows().head(1)
jobs = {
    "early": lambda: qbeast.open_table(path).version,
    "open": lambda: qbeast.open_table(path),
    "scan": lambda: table.rows("id < 3").lazy(),
    "count": lambda: table.count("id < 3"),
    "explain": lambda: table.rows("id < 3").explain(),
    "repr": lambda: repr(table),
    "tasks": lambda: table.rows().tasks(),
    "refresh": lambda: table.refresh(),
    "delete": lambda: table.delete("id = 3"),
    "write": lambda: qbeast.write_table(pl.DataFrame({"id": [1]}), path, mode="append"),
}
for name, job in jobs.items():
    if early is not (name == "early"):
        continue
    child = os.fork()
    if child == 0:
        try:
            print(name, job(), flush=True)
        except qbeast.StorageError as error:
            print(name, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def output_lines(path: Path, when: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path), when],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    return ran.stdout.splitlines()


def test_forked_process_raises(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"id": range(1000)}), tmp_path, columns=["id"])
    lines = output_lines(tmp_path, "late")
    names = ["open", "scan", "count", "explain", "repr", "tasks", "refresh", "delete", "write"]
    assert [line.split()[0] for line in lines] == names
    for line in lines:
        assert "was forked" in line
        assert "multiprocessing.get_context('spawn')" in line
        assert "damaged" not in line
    assert qbeast.open_table(tmp_path).version == 0
    assert output_lines(tmp_path, "early") == ["early 0"]
