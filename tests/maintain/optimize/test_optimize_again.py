"""Optimizes in a row restore the shape in steps, and then leave the table alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import read_log
from tests.helpers.small_files import resized
from tests.helpers.tables import assert_same_rows, folder, small_files

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
# Maximum number of optimizes until a table is in shape, and of rows that they write for each row of the table.
MAX_STEPS, MAX_WRITTEN = 12, 8
KINDS = ["spread", "skewed", "growing", "few keys"]


def rows_of(kind: str, count: int, number: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng([seed, number])
    a, b = rng.random(count), rng.random(count)
    if kind == "skewed":
        a, b = np.exp(4 * a), rng.normal(0, 1, count)
    if kind == "growing":
        a = a + number / 4
    if kind == "few keys":
        a, b = np.floor(a * 4), np.floor(b * 9)
    return pl.DataFrame({"row": np.arange(count) + 10_000 * number, "a": a, "b": b})


def check_again(kind: str, sizes: list[int], every: int, seed: int) -> None:
    with folder() as path, small_files(), resized(small_file_rows=8):
        frames: list[pl.DataFrame] = []
        for number, size in enumerate(sizes):
            frames.append(rows_of(kind, size, number, seed))
            qbeast.write_table(
                frames[-1], path, columns=["a", "b"], cube_size=16, mode="append" if number else "error"
            )
            if number % every == every - 1 or number == len(sizes) - 1:
                check_in_shape_afterwards(path, pl.concat(frames))


def check_in_shape_afterwards(path: Path, rows: pl.DataFrame) -> None:
    table, steps = qbeast.open_table(path), list[qbeast.OptimizeResult]()
    while not steps or steps[-1].committed:
        assert len(steps) <= MAX_STEPS, steps
        steps.append(table.optimize())
    assert (steps[-1].version, steps[-1].files, steps[-1].rows) == (table.version, 0, 0)
    assert sum(step.rows for step in steps) <= MAX_WRITTEN * rows.height, steps
    assert table.check(data=True).ok
    assert_same_rows(table.read(), rows)


@pytest.mark.timeout(3000)
@examples(2, sweep=24, parent=RELAXED)
@given(
    kind=st.sampled_from(KINDS),
    first=st.integers(1, 1500 if is_sweep() else 120),
    appended=st.lists(st.integers(1, 90 if is_sweep() else 30), min_size=2, max_size=40 if is_sweep() else 5),
    every=st.integers(2, 20),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_optimizes_end_with_table_in_shape(
    kind: str, first: int, appended: list[int], every: int, seed: int
) -> None:
    check_again(kind, [first, *appended], every, seed)


def test_one_optimize_joins_all_small_writes(tmp_path: Path) -> None:
    for number, size in enumerate([400, 400, *[150] * 8]):
        frame = rows_of("spread", size, number, 0)
        qbeast.write_table(frame, tmp_path, columns=["a", "b"], mode="append")
    table = qbeast.open_table(tmp_path)
    before = {Path(path).name for path in table.rows().files()["path"]}
    result = table.optimize()
    assert (result.files, result.files_removed, result.rows) == (1, 10, 2000)
    assert set(result.plan["path"]) == before
    assert not table.optimize().committed


@pytest.mark.parametrize("days", [6, pytest.param(24, marks=pytest.mark.sweep)])
def test_daily_writes_join_with_neighbours_in_time(tmp_path: Path, days: int) -> None:
    for day in range(days):
        rows = rows_of("spread", 8_000, day, 0).with_columns(day=2 * day + pl.col("a"))
        qbeast.write_table(rows, tmp_path, columns=["day", "b"], mode="append")
    table = qbeast.open_table(tmp_path)
    result = table.optimize()
    assert result.rows == 8_000 * days
    assert 2 <= result.files < days
    of_day = table.rows(pl.col("day").is_between(4, 5)).explain().files
    assert of_day["opened"].sum() == 1
    assert result.opened["day"] < result.opened_after["day"] < 1.7 * result.opened["day"]
    assert result.opened_after["b"] < result.opened["b"]
    assert result.opened_after == table.metrics().health.opened


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_plan_names_each_file_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = pl.DataFrame({"row": range(60), "a": [5] * 60, "b": rng.integers(0, 60, 60)})
    last = pl.DataFrame({"row": range(60), "a": rng.integers(-3, 7, 60), "b": rng.integers(-3, 7, 60)})
    with small_files():
        for rows in (first, first, last):
            qbeast.write_table(rows, tmp_path, columns=["a", "b"], cube_size=20, mode="append")
        table = qbeast.open_table(tmp_path)
        live = set(read_log(tmp_path).adds)
        planned = table.optimize(revision="all", dry_run=True)
        done = table.optimize(revision="all")
    assert planned.plan["path"].is_unique().all()
    assert sorted(done.plan["path"]) == sorted(live - set(read_log(tmp_path).adds))
    assert set(done.plan["path"]) <= set(planned.plan["path"])
    assert set(planned.plan["revision_id"]) == set(done.plan["revision_id"]) == {1, 2}
