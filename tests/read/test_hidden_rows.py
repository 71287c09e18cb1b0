"""Reads by page of a file with hidden rows: the same rows as of the whole file, from a part of its bytes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.read.planner import scans_of
from qbeast_core.table.read.tasks import read_scans
from tests.helpers.deletion_vectors import delete
from tests.helpers.requests import counted, read_bytes

COUNT = 50_000
GONE = sorted({*range(0, COUNT, 37), *range(20_000, 20_700), COUNT - 1})

QUERIES: dict[str, dict[str, Any]] = {
    "point": {"where": "id = 31415"},
    "range": {"where": "id BETWEEN 1000 AND 4000 AND x > 100"},
    "sample": {"sample": 0.05},
    "range of a sample": {"sample": (0.3, 0.6), "where": "x < 20000"},
    "other columns": {"where": pl.col("s") == "text 7", "sample": 0.5},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one file, some of whose rows a deletion vector hides."""
    path = tmp_path_factory.mktemp("hidden") / "t"
    x = np.random.default_rng(3).integers(0, COUNT, COUNT)
    texts = [f"text {number % 50}" for number in range(COUNT)]
    qbeast.write_table(pl.DataFrame({"id": range(COUNT), "x": x, "s": texts}), path, columns=["id", "x"])
    delete(path, GONE)
    return path


def expected(path: Path, **options: Any) -> pl.DataFrame:
    """The rows that the version before the deletion returns, without the hidden ones."""
    (file,) = path.glob("*.parquet")
    gone = pl.read_parquet(file, columns=["id"])["id"].gather(GONE)
    rows = qbeast.open_table(path, version=0).read(**options)
    return rows.filter(~pl.col("id").is_in(gone.implode())).sort("id")


@pytest.mark.parametrize("query", QUERIES)
def test_pages_around_hidden_rows(path: Path, query: str) -> None:
    table, options = qbeast.open_table(path), QUERIES[query]
    rows = expected(path, **options)
    assert rows.height > (query != "point")
    assert_frame_equal(table.read(**options).sort("id"), rows)
    assert table.count(**options) == rows.height
    for task_bytes in (20_000, 100_000, 1 << 30):
        tasks = pickle.loads(pickle.dumps(table.rows(**options).tasks(task_bytes=task_bytes)))  # noqa: S301
        assert_frame_equal(pl.concat(frame for task in tasks for frame in task.read()).sort("id"), rows)
    plan = table.rows(**options).explain()
    if query != "other columns":
        assert plan.bytes_opened < 0.6 * plan.bytes_total
        assert plan.files["ranges"].null_count() == 0


def test_parts_of_a_file_are_read_together(path: Path) -> None:
    table = qbeast.open_table(path)
    plan = table.planner.plan(pl.col("id") < 30_000, None)
    (scan,) = scans_of(table.planner, plan)
    assert scan.pages is not None
    keep = table.planner.row_filter(plan, ["id", "x", "s"])
    frames = read_scans(scan.split(7), keep, table.planner.files)
    assert_frame_equal(pl.concat(frames).sort("id"), expected(path, where="id < 30000"))


def test_estimates_skip_hidden_rows(path: Path) -> None:
    table, where = qbeast.open_table(path), "x < 20000"
    rows = expected(path, where=where)
    whole = table.rows(where, sample=1.0).estimate({"n": pl.len(), "sum": pl.col("x").sum()}).frame
    assert whole.select("n", "sum").row(0) == (rows.height, rows["x"].sum())
    part = table.rows(where, sample=0.2).estimate({"n": pl.len(), "sum": pl.col("x").sum()}).frame
    assert part["sum"].item() == pytest.approx(rows["x"].sum(), rel=0.1)
    assert part["n"].item() == pytest.approx(rows.height, rel=0.1)


def test_counts_read_undecided_pages(path: Path) -> None:
    table = qbeast.open_table(path)
    ranges = [(0, 9000), (12_345, 45_678), (19_000, 21_000), (40_000, COUNT)]
    conditions = [f"id BETWEEN {first} AND {last}" for first, last in ranges]
    counts = [expected(path, where=where).height for where in conditions]
    with counted() as by_count:
        assert [table.count(where) for where in conditions] == counts
    with counted() as by_read:
        assert [table.read(where=where, columns=["id"]).height for where in conditions] == counts
    assert 0 < read_bytes(by_count) < 0.7 * read_bytes(by_read)
    assert table.count() == COUNT - len(GONE)


@pytest.mark.parametrize("hides", [True, False])
def test_file_that_pages_cannot_be_read_of_is_read_once(path: Path, tmp_path: Path, *, hides: bool) -> None:
    copy = tmp_path / "t"
    qbeast.write_table(
        pl.read_parquet(next(path.glob("*.parquet"))).drop("_qbeast_weight"), copy, columns=["id", "x"]
    )
    if hides:
        delete(copy, GONE)
    table = qbeast.open_table(copy)
    rows = table.read().sort("id")
    tasks = table.rows().tasks(task_bytes=50_000)
    assert len(tasks) > 2
    (file,) = copy.glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[data.rfind(b"QBPAGES3") + 9] ^= 0xFF  # the checksum of the page directory
    file.write_bytes(data)
    assert_frame_equal(pl.concat(frame for task in tasks for frame in task.read()).sort("id"), rows)
    part = qbeast.open_table(copy).read("id < 900").sort("id")
    assert_frame_equal(part, rows.filter(pl.col("id") < 900))
