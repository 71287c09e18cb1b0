"""Rows that a filter keeps are counted exactly: by the log where cubes decide, by a look at the rest."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.reading import Reading
from qbeast_core.table.read.planner import Planner
from tests.helpers.scattering import PartsEngine
from tests.helpers.tables import first_plans_by_statistics

DAY = dt.date(2024, 1, 1)


def rows(count: int, seed: int, day: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    numbers = pl.Series("x", random.normal(0, 10, count)).set(pl.Series(random.random(count) < 0.03), None)
    return pl.DataFrame({"id": random.permutation(count), "x": numbers}).with_columns(
        x=pl.when(pl.col("id") % 97 == 0).then(math.nan).otherwise("x"),
        day=pl.lit(DAY) + pl.duration(days=day + pl.Series(random.integers(0, 3, count))),
        kind=pl.Series(random.choice(["a", "b", "c"], count)),
        fare=pl.Series(random.lognormal(3, 0.4, count)),
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """Days in order by appends, small cubes and pages, deleted rows in some files, and a file without index."""
    path = str(tmp_path_factory.mktemp("counted") / "t")
    for at in range(3):
        qbeast.write_table(
            rows(20_000, at, 10 * at), path, columns=["x", "id"], mode="append", cube_size=1500
        )
    deltalake.write_deltalake(path, rows(3_000, 9, 30).to_arrow(), mode="append")
    return qbeast.open_table(path)


@pytest.fixture(scope="module")
def deleted(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """The same, with rows that deletion vectors hide."""
    path = str(tmp_path_factory.mktemp("counted") / "hiding")
    for at in range(2):
        qbeast.write_table(
            rows(20_000, at, 10 * at), path, columns=["x", "id"], mode="append", cube_size=1500
        )
    changed = qbeast.open_table(path)
    changed.delete("kind = 'a' AND id < 9000")
    return changed


FILTERS: list[str | pl.Expr] = [
    "x > -5",
    "x > 2 AND id < 12000",
    "NOT (x <= 3)",
    "x IS NULL",
    "x IS NOT NULL OR id < 500",
    "day < DATE '2024-01-08'",
    "day >= DATE '2024-01-11' AND x < 4",
    "id BETWEEN 3000 AND 16000 OR x > 30",
    "id >= 0",
    "id < 0",
    pl.col("x").is_nan() | (pl.col("x") < -3),
    pl.col("x").is_in([1.0, 2.0]) | (pl.col("id") > 100),
]


@pytest.mark.parametrize(
    ("where", "engine"), [*((where, None) for where in FILTERS), (FILTERS[1], PartsEngine())], ids=str
)
def test_count_equals_all_rows(
    table: qbeast.Table, deleted: qbeast.Table, where: str | pl.Expr, engine: Any
) -> None:
    for item in (table, deleted):
        request = question_of(item.planner, {"n": pl.len()}, Limits.of(error=0.1), where=where)
        for planner in (item.planner, Planner(item.planner.snapshot)):
            reading = Reading(planner, request, engine=engine)
            unplaced = 0
            with first_plans_by_statistics():
                window = reading.without_index()
            if window is not None:
                unplaced = sum(int(item.totals()[0, 0]) for item in reading.read(window))
            if reading.count(1 << 60):
                assert reading.counted is not None
                assert reading.counted + unplaced == item.count(where)


def test_cubes_and_files_are_counted_without_reads(table: qbeast.Table) -> None:
    for where, count in (("day < DATE '2024-01-08'", 20_000), ("id >= 0", 63_000)):
        actual = table.rows(where).estimate({"n": pl.len()}, error=0.1)
        assert actual.frame.select("n", "n_low", "n_high", "reliable").row(0) == (count, count, count, True)
        assert actual.rows_read in (0, 3_000)  # of the file without index
    placed = qbeast.open_table(table.uri, version=2)
    actual = placed.rows("day < DATE '2024-01-08' AND id >= 0").estimate({"n": pl.len()}, error=0.1)
    assert (actual.frame["n"].item(), actual.bytes_opened, actual.fraction, actual.met) == (
        20_000,
        0,
        0.0,
        True,
    )
    none = placed.rows("id < 0", sample=0.1).estimate({"n": pl.len(), "m": pl.col("x").mean()})
    assert none.frame.select("n", "n_high", "m").row(0) == (0, 0, None)


def test_only_pages_on_the_boundary_are_read(tmp_path: Path) -> None:
    some = rows(100_000, 4, 0)
    qbeast.write_table(some, tmp_path / "t", columns=["id", "x"], cube_size=1000)
    table = qbeast.open_table(tmp_path / "t")
    actual = table.rows("id < 50000").estimate({"n": pl.len()}, error=0.001)
    assert actual.frame.select("n", "n_low", "n_high").row(0) == (50_000,) * 3
    assert 0 < actual.rows_read < 50_000
    assert actual.bytes_opened < 0.5 * table.rows("id < 50000", columns=["id"]).explain().bytes_opened


def test_sums_are_calibrated_to_the_count(table: qbeast.Table) -> None:
    """A sum over rows whose number is known is that number times a mean: their errors are one."""
    placed = qbeast.open_table(table.uri, version=2)
    request: dict[str, pl.Expr | str] = {"n": pl.len(), "sum": "sum(fare)", "mean": "avg(fare)"}
    actual = placed.rows("day < DATE '2024-01-08'", sample=0.1).estimate(request).frame
    assert actual["n_low"].item() == actual["n"].item() == 20_000
    for end in ("", "_low", "_high"):
        assert actual[f"sum{end}"].item() == pytest.approx(20_000 * actual[f"mean{end}"].item())


@pytest.mark.parametrize(("trials", "least"), [(6, 5), pytest.param(100, 88, marks=pytest.mark.sweep)])
def test_intervals_of_calibrated_sums_hold(tmp_path: Path, trials: int, least: int) -> None:
    """A trial is another window of weights; the filter is decided by the statistics of files."""
    for at in range(2):
        some = rows(60_000, 20 + at, 10 * at)
        qbeast.write_table(some, tmp_path / "t", columns=["id", "x"], mode="append")
    table, where = qbeast.open_table(tmp_path / "t"), "day < DATE '2024-01-08'"
    truth = (
        table.rows()
        .lazy()
        .filter(pl.col("day") < dt.date(2024, 1, 8))
        .select(pl.col("fare").sum())
        .collect()
        .item()
    )
    windows = [(at / 100, (at + 1) / 100) for at in range(trials)]
    actual = pl.concat(
        table.rows(where, sample=item).estimate({"s": "sum(fare)", "n": "count(*)"}).frame for item in windows
    )
    assert actual["reliable"].sum() > 0.9 * trials - 1
    assert (actual["n"] == 60_000).all()
    held = ((actual["s_low"] <= truth) & (truth <= actual["s_high"])).sum()
    assert least <= held < max(trials, 7)
