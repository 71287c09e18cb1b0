"""Tables, plans and lazy frames travel to other processes: where, which version, and what was asked for."""

from __future__ import annotations

import copy
import io
import pickle  # what joblib, Dask and Spark send values with
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame({"id": range(3000), "x": [i * 7919 % 3001 for i in range(3000)]})
LOW = pl.col("x") < 300


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 -- our own bytes


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> qbeast.Table:
    """A table opened by a relative path at a version that is not the newest."""
    monkeypatch.chdir(tmp_path)
    qbeast.write_table(ROWS, "t", columns=["id", "x"], cube_size=100)
    opened = qbeast.open_table("t")
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 3000), "t", mode="append")
    (tmp_path / "elsewhere").mkdir()
    return opened


@pytest.mark.parametrize("copied", [sent, copy.deepcopy, copy.copy])
def test_table_keeps_its_place_and_version(
    table: qbeast.Table, monkeypatch: pytest.MonkeyPatch, copied: Any
) -> None:
    again = copied(table)
    monkeypatch.chdir("elsewhere")
    assert (again.version, again.indexed_columns) == (0, ("id", "x"))
    assert_same_rows(again.read(), ROWS, "id")
    assert again.refresh().version == 1
    again.delete(LOW)
    assert (again.version, again.rows().lazy().filter(LOW).collect().height) == (2, 0)


@pytest.mark.parametrize("copied", [sent, copy.deepcopy])
@pytest.mark.parametrize("sample", [None, 0.3])
def test_pickled_plan_is_equal(table: qbeast.Table, sample: float | None, copied: Any) -> None:
    plan = table.rows(LOW, sample=sample, columns=["id"]).explain()
    before = copied(plan)  # nobody has looked at its files
    assert repr(before) == repr(plan)
    after = copied(plan)
    assert after.files.equals(plan.files)
    assert (after.share, after.rows_opened, after.columns) == (plan.share, plan.rows_opened, plan.columns)


@pytest.mark.parametrize("sample", [None, 0.3])
def test_lazy_frame_gives_the_same_rows(
    table: qbeast.Table, monkeypatch: pytest.MonkeyPatch, sample: float | None
) -> None:
    lazy = table.rows(sample=sample).lazy().filter(LOW).select("id")
    expected = lazy.collect().sort("id")
    travelled = sent(lazy), copy.deepcopy(lazy), pl.LazyFrame.deserialize(io.BytesIO(lazy.serialize()))
    monkeypatch.chdir("elsewhere")
    for again in travelled:
        assert again.collect().sort("id").equals(expected)


def work(table: qbeast.Table, lazy: pl.LazyFrame, plan: Any) -> tuple[int, int, int]:
    return table.version, lazy.collect().height, plan.rows_opened


@pytest.mark.sweep
def test_other_processes_unpickle_all(table: qbeast.Table, four: Pool) -> None:
    lazy, plan = table.rows().lazy().filter(LOW), table.rows(LOW).explain()
    actual = four.apply(work, (table, lazy, plan))
    assert actual == (0, lazy.collect().height, plan.rows_opened)


def test_secrets_travel_but_are_not_shown(tmp_path: Path) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "hidden"}
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t", version=0, storage_options=options)
    assert b"hidden" in pickle.dumps(table)
    for value in (sent(table), sent(table.rows(LOW).explain()), sent(table.rows().lazy())):
        assert "hidden" not in repr(value)


def test_replaced_table_is_not_mistaken(table: qbeast.Table, tmp_path: Path) -> None:
    pickled = pickle.dumps(table)
    (tmp_path / "t").rename(tmp_path / "gone")
    with pytest.raises(qbeast.TableNotFoundError):
        pickle.loads(pickled)  # noqa: S301 -- our own bytes
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    with pytest.raises(qbeast.TableNotFoundError, match="another table"):
        pickle.loads(pickled)  # noqa: S301 -- our own bytes
