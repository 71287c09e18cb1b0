"""An importance is proposed where filters open clearly less with it, and not where all columns are filtered alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import qbeast

ROWS = [3_000, pytest.param(600_000, marks=pytest.mark.sweep)]
DAYS = [
    f"ts >= TIMESTAMP '2025-01-{day:02} 00:00:00' AND ts < TIMESTAMP '2025-01-{day + 1:02} 00:00:00'"
    for day in (3, 7, 11, 16, 20, 27)
]
MOSTLY_DAYS = [*DAYS, "ms > 500"]
ALIKE = [pl.col(name).is_between(0.4, 0.44) for name in ("a", "b")]


def web_log(count: int) -> pl.DataFrame:
    """Requests of 30 days, in the order of time."""
    random = np.random.default_rng(5)
    return pl.DataFrame(
        {
            "ts": np.sort(random.integers(0, 30 * 86_400_000, count)),
            "path": random.zipf(1.3, count) % 500,
            "ms": random.gamma(1.5, 80.0, count).round(1),
        }
    ).with_columns(
        ts=pl.datetime(2025, 1, 1) + pl.duration(milliseconds="ts"), path=pl.format("/page/{}", "path")
    )


def write(path: Path, rows: pl.DataFrame, *columns: str, **importance: float) -> qbeast.Table:
    qbeast.write_table(rows, path, columns=columns, importance=importance, cube_size=2_000)
    return qbeast.open_table(path)


def opened(table: qbeast.Table, queries: list[str]) -> float:
    return float(np.mean([table.rows(query).explain().bytes_opened for query in queries]))


@pytest.mark.parametrize("count", ROWS)
def test_advised_importance_opens_what_is_expected(count: int, tmp_path: Path) -> None:
    rows = web_log(count)
    table = write(tmp_path / "t", rows, "ts", "ms")
    advice = table.advise(MOSTLY_DAYS)
    assert (advice.keep, advice.columns, advice.importance.keys()) == (False, ("ts", "ms"), {"ts"})
    assert advice.cube_size == table.cube_size
    assert f"importance={advice.importance}" in repr(advice)
    assert ([1.0, 1.0],) in advice.alternatives.select("importance").rows()
    table = write(tmp_path / "u", rows, *advice.columns, **advice.importance)
    assert advice.bytes_opened == pytest.approx(opened(table, MOSTLY_DAYS), rel=0.15)
    assert opened(table, MOSTLY_DAYS) * 1.1 < advice.bytes_opened_now


@pytest.mark.parametrize("count", ROWS)
def test_importance_of_table_is_kept(count: int, tmp_path: Path) -> None:
    advice = write(tmp_path / "t", web_log(count), "ts", "ms", ts=4.0).advise(MOSTLY_DAYS)
    assert (advice.keep, advice.columns, advice.importance) == (True, ("ts", "ms"), {"ts": 4.0})


@pytest.mark.parametrize("count", ROWS)
def test_suggested_importance_opens_what_is_expected(count: int, tmp_path: Path) -> None:
    rows = web_log(count)
    proposal = qbeast.suggest_columns(rows, MOSTLY_DAYS, table_rows=count)
    assert set(proposal.columns) == {"ts", "ms"}
    assert proposal.importance.keys() == {"ts"}
    assert f"importance={proposal.importance}" in repr(proposal)
    table = write(tmp_path / "t", rows, *proposal.columns, **proposal.importance)
    shares = [table.rows(query).explain().share for query in MOSTLY_DAYS]
    assert proposal.opened == pytest.approx(np.mean(shares), rel=0.15)


def points(count: int) -> pl.DataFrame:
    random = np.random.default_rng(6)
    return pl.DataFrame({name: random.random(count) for name in ("a", "b")})


@pytest.mark.parametrize("count", ROWS)
def test_columns_that_are_filtered_alike_get_no_importance(count: int) -> None:
    proposal = qbeast.suggest_columns(points(count), ALIKE)
    assert (set(proposal.columns), proposal.importance) == ({"a", "b"}, {})


@pytest.mark.parametrize("count", ROWS)
def test_importance_without_reason_is_dropped(count: int, tmp_path: Path) -> None:
    advice = write(tmp_path / "t", points(count), "a", "b", a=64.0).advise(ALIKE)
    assert (advice.keep, advice.columns, advice.importance) == (False, ("a", "b"), {})
