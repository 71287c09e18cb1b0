"""Keys that hold much of a table: what is promised holds whether they are in a sample or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.tree.keys import dump_keys, parse_heavy, parse_keys
from tests.helpers.tables import estimated

ROWS = 100_000


def rows(share: float, *, key: float | None = None, seed: int = 1) -> pl.DataFrame:
    """Rows of which one key has a share, whose values are smaller than those of others."""
    random = np.random.default_rng(seed)
    heavy = random.random(ROWS) < share
    x = pl.Series(random.normal(size=ROWS))
    return pl.DataFrame(
        {
            "x": x.set(pl.Series(heavy), key),
            "w": np.where(heavy, random.random(ROWS) * 0.5, random.random(ROWS)),
        }
    )


@pytest.mark.parametrize(
    ("key", "share", "where", "error"),
    [
        (None, 0.25, "w < 0.5", 0.05),
        pytest.param(None, 0.05, "w < 0.5", 0.02, marks=pytest.mark.sweep),
        (None, 0.25, "w < 0.5 AND (x < -1 OR x IS NULL)", 0.05),
        pytest.param(0.5, 0.3, None, 0.02, marks=pytest.mark.sweep),
        (0.5, 0.3, "x BETWEEN 0.4 AND 0.6", 0.05),
    ],
)
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_answers_with_heavy_keys_keep_their_promise(
    tmp_path: Path, key: float | None, share: float, where: str | None, error: float
) -> None:
    frame = rows(share, key=key)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    request: dict[str, Any] = {"n": pl.col("w").count(), "sum": pl.col("w").sum()}
    actual = qbeast.open_table(str(tmp_path)).rows(where).estimate(request, error=error)
    kept = frame if where is None else frame.filter(pl.sql_expr(where))
    assert actual.met
    for name, truth in (("n", kept.height), ("sum", kept["w"].sum())):
        assert actual.frame[name].item() == pytest.approx(truth, rel=error)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_sample_without_some_keys_is_unreliable(tmp_path: Path) -> None:
    frame = rows(0.25)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    table = qbeast.open_table(str(tmp_path))
    for limit in ({"sample": 0.1}, {"error": 0.05, "max_fraction": 0.1}):
        actual = estimated(table, {"n": pl.len()}, where="w < 0.5", **limit)
        low, high, reliable = actual.frame.select("n_low", "n_high", "reliable").row(0)
        assert not reliable or low <= frame.filter(pl.col("w") < 0.5).height <= high
        assert reliable or "does not fit" in actual.notes[0]


def _without_list(tag: str, _: int) -> str:
    return f"1:{tag.split(':')[1]}"


def _without_order(tag: str, count: int) -> str:
    sketch, heavy = parse_keys(tag), parse_heavy(tag, count)
    assert sketch is not None
    assert heavy is not None
    return dump_keys(sketch, replace(heavy, firsts=np.full(len(heavy), -1)))


def retag(folder: Path, change: Callable[[str, int], str]) -> None:
    """Write the table's tags as others would."""
    for commit in (folder / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            count = json.loads(add["stats"])["numRecords"]
            add["tags"]["qbeast.keys"] = change(add["tags"]["qbeast.keys"], count)
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.mark.parametrize("change", [_without_list, _without_order])
@pytest.mark.parametrize("share", [pytest.param(0.02, marks=pytest.mark.sweep), 0.25])
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_files_without_list_or_order_keep_promise(
    tmp_path: Path, change: Callable[[str, int], str], share: float
) -> None:
    frame = rows(share).with_columns(w=pl.when(pl.col("x").is_null()).then(0.0).otherwise("w") * 0.1 + 1)
    qbeast.write_table(frame, str(tmp_path), columns=["x"])
    retag(tmp_path, change)
    table = qbeast.open_table(str(tmp_path))
    actual = table.rows().estimate({"w": pl.col("w").mean()}, error=0.001)
    assert actual.met
    assert actual.frame["w"].item() == pytest.approx(frame["w"].mean(), rel=0.001)
    sampled = table.rows(sample=0.1).estimate({"w": pl.col("w").mean()}).frame.row(0, named=True)
    # Keys without an order are read apart.
    assert sampled["reliable"] == (change is _without_order)
    assert sampled["w_low"] <= frame["w"].mean() <= sampled["w_high"] or not sampled["reliable"]


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_many_similar_keys_are_reliable(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": np.arange(ROWS) % (ROWS // 20), "w": np.random.default_rng(3).random(ROWS)})
    for part in frame.iter_slices(ROWS // 2):
        qbeast.write_table(part, str(tmp_path), columns=["x"], mode="append")
    retag(tmp_path, _without_list)
    actual = qbeast.open_table(str(tmp_path)).rows(sample=0.1).estimate({"w": pl.col("w").mean()})
    assert actual.frame["reliable"].item()
