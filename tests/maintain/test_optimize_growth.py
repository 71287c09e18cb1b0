"""A table that grows by small appends: an optimize now and then keeps samples cheap and rewrites little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import qbeast

COLUMNS = ["a", "b", "c"]


def points(rows: int, seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    columns = {name: random.random(rows) for name in COLUMNS}
    return pl.DataFrame({**columns, "id": np.arange(rows) + seed * 10**8})


def amplification(table: qbeast.Table, fraction: float) -> float:
    plan = table.rows(sample=fraction).explain()
    return plan.bytes_opened / (fraction * plan.bytes_total)


def test_one_optimize_joins_files_of_small_appends(tmp_path: Path) -> None:
    qbeast.write_table(points(20_000, 0), tmp_path / "t", columns=COLUMNS)
    for number in range(1, 6):
        result = qbeast.write_table(points(400, number), tmp_path / "t", mode="append")
        assert result.files == 1
    table = qbeast.open_table(tmp_path / "t")
    before = amplification(table, 0.05)
    result = table.optimize()
    assert (result.files_removed, result.rows, result.files) == (5, 2000, 1)
    assert amplification(table, 0.05) < before / 1.4
    assert not table.optimize().committed


@pytest.mark.sweep
def test_health_estimates_what_filters_open(tmp_path: Path) -> None:
    qbeast.write_table(points(200_000, 0), tmp_path / "t", columns=COLUMNS)
    for number in range(1, 11):
        qbeast.write_table(points(20_000, number), tmp_path / "t", mode="append")
    table = qbeast.open_table(tmp_path / "t")
    expected = table.metrics().health
    assert opened(table) == pytest.approx(list(expected.opened.values()), rel=0.35)
    result = table.optimize()
    assert (result.opened, result.opened_after) == (expected.opened, table.metrics().health.opened)
    assert opened(table) == pytest.approx(list(expected.opened_after.values()), rel=0.35)


def opened(table: qbeast.Table) -> list[float]:
    """Return the share that a thirtieth of the values of each column opens, in the mean."""
    starts = np.linspace(0, 29 / 30, 12).tolist()
    return [
        float(
            np.mean([table.rows(pl.col(name).is_between(at, at + 1 / 30)).explain().share for at in starts])
        )
        for name in COLUMNS
    ]


@pytest.mark.sweep
def test_optimize_after_hundred_appends_restores_samples(tmp_path: Path) -> None:
    qbeast.write_table(points(2_000_000, 0), tmp_path / "t", columns=COLUMNS)
    table = qbeast.open_table(tmp_path / "t")
    fresh = {fraction: amplification(table, fraction) for fraction in (0.01, 0.02, 0.05, 0.1)}
    for number in range(1, 101):
        assert qbeast.write_table(points(500, number), tmp_path / "t", mode="append").files == 1
    table = table.refresh()
    assert amplification(table, 0.01) > 1.3 * fresh[0.01]
    result = table.optimize()
    assert result.files_removed >= 100
    assert result.bytes < 0.05 * table.rows().explain().bytes_total
    after = {fraction: amplification(table, fraction) for fraction in fresh}
    assert all(after[fraction] <= max(1.5, 1.05 * fresh[fraction]) for fraction in fresh), (fresh, after)


@pytest.mark.sweep
@pytest.mark.parametrize("start", [30_000, 300_000])
def test_lifetime_writes_each_byte_three_times_at_most(tmp_path: Path, start: int) -> None:
    request = written = qbeast.write_table(points(start, 0), tmp_path / "t", columns=COLUMNS).bytes
    total = start
    for number in range(1, 101):
        rows = total // 100
        total += rows
        added = qbeast.write_table(points(rows, number), tmp_path / "t", mode="append").bytes
        request, written = request + added, written + added
        if number % 10 == 0:
            table = qbeast.open_table(tmp_path / "t")
            written += table.optimize().bytes
    assert written <= 3 * request, written / request
    table = qbeast.open_table(tmp_path / "t")
    assert table.rows().lazy().select(pl.col("id").n_unique()).collect().item() == total
    assert table.rows().files().height < 30
