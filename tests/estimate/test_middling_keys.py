"""Keys just below those that files list: a sample that lacks them is unreliable, or reads on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.sampling.sums import Repeats, SeenRows
from tests.helpers.small_files import resized
from tests.helpers.tables import small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

# Number of keys, and the share of the rows of each; their values are above most others, not above all.
SHAPES = {"three of 0.35 %": (3, 0.0035), "six of 0.37 %": (6, 0.0037), "twenty of 0.1 %": (20, 0.001)}
ROWS = 20_000
PILOT_ROWS = 4_000
X = pl.col("x")


def rows_of(shape: str, seed: int) -> pl.DataFrame:
    number, share = SHAPES[shape]
    random, heavy = np.random.default_rng([seed, number]), round(share * ROWS)
    key, is_heavy = random.integers(0, 2**40, ROWS), np.arange(ROWS) < number * heavy
    key[is_heavy] = np.repeat(random.integers(0, 2**40, number), heavy)
    x = np.where(is_heavy, 40.0, random.lognormal(0, 1, ROWS))
    columns = {"key": key, "x": x, "w": random.random(ROWS), "g": np.where(is_heavy, "a", "b")}
    return pl.DataFrame({**columns, "p": random.choice(["u", "v"], ROWS)})[random.permutation(ROWS)]


def questions(
    shape: str, seed: int, path: Path
) -> Iterator[tuple[str, qbeast.Table, pl.DataFrame, str | None]]:
    """Yield questions over all rows, under a filter, after a delete, and in one partition."""
    rows = rows_of(shape, seed)
    with small_files(file_rows=ROWS // (1 + seed % 2)):
        qbeast.write_table(rows, path / "t", columns=["key"])
        qbeast.write_table(rows, path / "p", columns=["key"], partition_by=["p"])
    table = qbeast.open_table(path / "t")
    yield "all", table, rows, None
    yield "filter", table, rows, "w < 0.6"
    yield "partition", qbeast.open_table(path / "p"), rows, "p = 'u'"
    table.delete("w < 0.2")
    yield "deleted", table, rows.filter(pl.col("w") >= 0.2), None


def kept(shape: str, seed: int, path: Path) -> Iterator[tuple[str, bool, bool]]:
    """Yield each question, whether its promise was kept, and whether a sample of a tenth holds or is unreliable."""
    for name, table, rows, where in questions(shape, seed, path):
        truth = (rows if where is None else rows.filter(pl.sql_expr(where)))["x"].mean()
        assert isinstance(truth, float)
        promise = table.rows(where).estimate({"x": X.mean()}, error=0.05)
        assert promise.met
        sample = table.rows(where, sample=0.1).estimate({"x": X.mean()}).frame.row(0, named=True)
        right = abs(promise.frame["x"].item() - truth) <= 0.05 * truth
        yield name, right, not sample["reliable"] or sample["x_low"] <= truth <= sample["x_high"]


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_promises_are_kept_beside_middling_keys(shape: str, tmp_path: Path) -> None:
    trials = 60
    with resized(pilot_rows=PILOT_ROWS):
        results = [item for seed in range(trials) for item in kept(shape, seed, tmp_path / str(seed))]
    for name in ("all", "filter", "partition", "deleted"):
        promises, samples = zip(*(flags for question, *flags in results if question == name), strict=True)
        assert min(np.mean(promises), np.mean(samples)) >= 0.95 - 2 * (0.95 * 0.05 / trials) ** 0.5, name


def test_sample_without_middling_keys_is_unreliable(tmp_path: Path) -> None:
    qbeast.write_table(rows_of("three of 0.35 %", 1), tmp_path, columns=["key"])
    table = qbeast.open_table(tmp_path)
    sample = table.rows(sample=0.1).estimate({"x": X.mean(), "n": pl.len()})
    assert not sample.frame["reliable"].item()
    assert "lacks heavy keys" in sample.notes[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_of_tags_show_missing_keys(shape: str) -> None:
    """Samples of keys, without a table: those that lack all of these keys deviate, and usual ones do not."""
    number, share = SHAPES[shape]
    total, heavy = 100_000, int(share * 100_000)
    light = total - number * heavy
    repeats = Repeats(total, float(number * heavy * (heavy - 1)))
    random = np.random.default_rng(2)
    for p in (0.1, 0.2, 0.4):
        rows = random.binomial(light, p, 500).tolist()
        assert all(SeenRows(float(n), float(n), p).lacks_keys(repeats) for n in rows)
        assert not any(SeenRows(float(n), float(n), p).lacks_keys(Repeats(light, 0.0)) for n in rows)


def test_users_with_different_numbers_of_rows_are_no_alarm() -> None:
    random = np.random.default_rng(3)
    sizes = np.minimum(random.geometric(0.05, 20_000), 200).astype(float)
    repeats = Repeats(sizes.sum(), float((sizes * (sizes - 1)).sum()))
    alarms = 0
    for _ in range(500):
        n = sizes[random.random(len(sizes)) < 0.1]
        seen = SeenRows(n.sum(), (n**2).sum(), 0.1, ((n**2 - n) ** 2).sum())
        alarms += seen.lacks_keys(repeats)
    assert alarms == 0


def test_count_beside_few_keys_of_another_group_is_unreliable(tmp_path: Path) -> None:
    keys = np.repeat(
        np.arange(1_000), 10
    )  # the rows of each key are in one group; one key in twenty-five in `a`
    rows = pl.DataFrame({"key": keys, "g": np.where(keys % 25 == 0, "a", "b")})
    qbeast.write_table(rows, tmp_path, columns=["key"])
    table = qbeast.open_table(tmp_path)
    frame = table.rows(sample=0.4).estimate({"n": pl.len()}, by="g").frame
    assert frame.select("g", "reliable").rows() == [("a", False), ("b", False)]
