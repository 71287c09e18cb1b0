"""Rounds read each row once, and of heavy keys as large a share of the rows as of all keys."""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.plan.weights import ALL_WEIGHTS, FileDraw, Stretch, WeightRange
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.reading import Reading
from qbeast_core.table.read.planner import scan_tasks, scans_of
from qbeast_core.table.read.tasks import read_scans
from tests.helpers import deletion_vectors
from tests.helpers.examples import examples

CUTS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
BOUND = st.integers(-(2**31), 2**31)


def rows(count: int = 60_000, heavy: float = 0.4) -> pl.DataFrame:
    random = np.random.default_rng(8)
    x = pl.Series(random.normal(size=count)).set(pl.Series(random.random(count) < heavy / 2), None)
    x = x.set(pl.Series(random.random(count) < heavy / 2), 1.5)
    return pl.DataFrame({"x": x, "id": np.arange(count), "w": random.random(count)})


def parts_of(table: qbeast.Table, where: str | None, *, tasks: bool = False) -> list[pl.DataFrame]:
    """The rows of each round, from `CUTS` to `CUTS`, and those that are read apart."""
    limits, asked = Limits.of(sample=0.1), {"n": pl.col("id").count()}
    reading = Reading(table.planner, question_of(table.planner, asked, limits, where=where))
    actual: list[pl.DataFrame] = []
    windows = [reading.between(start, end, by_key=True) for start, end in pairwise(CUTS)]
    for window in [*windows, *reading.apart]:
        frames = [table.rows().lazy().clear().select("x", "id", "w").collect()]
        if window is not None:
            plan, columns = window.plan.scan_plan, ["x", "id", "w"]
            if tasks:
                sent = pickle.dumps(scan_tasks(table.planner, plan, columns, task_bytes=10_000))
                made = pickle.loads(sent)  # noqa: S301 - our own
                frames += [frame for task in made for frame in task.read()]
            else:
                keep = table.planner.row_filter(plan, columns)
                frames += read_scans(scans_of(table.planner, plan), keep, table.planner.files)
        actual.append(pl.concat(frames))
    return actual


@pytest.fixture(scope="module", params=[0.4, 0.01])
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pl.DataFrame, qbeast.Table]:
    """Rows of which heavy keys have a share, and a table of them after an append."""
    frame, path = rows(30_000, heavy=request.param), tmp_path_factory.mktemp("drawn")
    cube_size = 1_000 if request.param > 0.1 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        for part in frame.iter_slices(20_000):
            qbeast.write_table(part, path, columns=["x"], mode="append", cube_size=cube_size)
    return frame, qbeast.open_table(path)


@pytest.mark.parametrize("how", ["here", "in tasks"])
@pytest.mark.parametrize("where", [None, "x > 1", "x IS NULL AND w < 0.5", "x < 0"])
def test_rounds_read_each_row_once(
    drawn: tuple[pl.DataFrame, qbeast.Table], where: str | None, how: str
) -> None:
    frame, table = drawn
    kept = frame if where is None else frame.filter(pl.sql_expr(where))
    actual = parts_of(table, where, tasks=how == "in tasks")
    if where is not None:
        actual = [part.filter(pl.sql_expr(where)) for part in actual]
    assert sorted(pl.concat(actual)["id"]) == kept["id"].to_list()
    for of in (pl.col("x").is_null(), pl.col("x") == 1.5):
        everything = kept.filter(of).height - pl.concat(actual[-2:]).filter(of).height
        for part, (start, end) in zip(actual, pairwise(CUTS), strict=False):
            sampled, expected = part.filter(of).height, (end - start) * everything
            assert abs(sampled - expected) <= (
                4 if where is None or "w" not in where else 4 * expected**0.5 + 4
            )


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_deleted_rows_of_heavy_keys_stay_deleted(tmp_path: Path) -> None:
    frame = rows(4_000)
    qbeast.write_table(frame, str(tmp_path), columns=["x"], cube_size=200)
    gone = list(range(3, 4_000, 7))
    deletion_vectors.delete(tmp_path, gone)
    table = qbeast.open_table(str(tmp_path))
    actual = parts_of(table, None)
    assert sorted(pl.concat(actual)["id"]) == sorted(table.read()["id"])
    assert pl.concat(actual).height == frame.height - len(gone)
    estimated = table.rows(sample=0.5).estimate({"n": pl.len(), "w": pl.col("w").mean()}).frame
    assert estimated["n"].item() == frame.height - len(gone)
    assert estimated["w"].item() == pytest.approx(table.read()["w"].mean(), rel=0.1)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_sample_of_heavy_key_opens_few_pages(tmp_path: Path) -> None:
    frame = rows(150_000, heavy=0.8)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    actual = (
        qbeast.open_table(str(tmp_path)).rows("x IS NULL", sample=0.05).estimate({"w": pl.col("w").mean()})
    )
    everything = (
        qbeast.open_table(str(tmp_path)).rows("x IS NULL", sample=1.0).estimate({"w": pl.col("w").mean()})
    )
    assert actual.frame["reliable"].item()
    assert actual.frame["w"].item() == pytest.approx(everything.frame["w"].item(), rel=0.05)
    assert actual.bytes_opened < 0.2 * everything.bytes_opened


@examples(5, sweep=200)
@given(first=st.integers(0, 100), count=st.integers(1, 2000), low=BOUND, high=BOUND, path=st.text())
def test_rows_have_weights_of_their_range(first: int, count: int, low: int, high: int, path: str) -> None:
    item = Stretch.of(first, count, path=path)
    weights = item.weights_of(np.arange(first, first + count)).astype(np.int64)
    assert (np.diff(weights) > 0).all()
    start, end = item.within(WeightRange(low, high))
    inside = np.flatnonzero((weights >= low) & (weights < high)) + first
    assert inside.tolist() == list(range(start, end))
    assert item.within(ALL_WEIGHTS) == (first, first + count)
    _, drawn, given_weights = FileDraw((item,)).of(np.arange(first + count + 5))
    assert np.flatnonzero(drawn).tolist() == list(range(first, first + count))
    assert given_weights[drawn].tolist() == weights.tolist()
