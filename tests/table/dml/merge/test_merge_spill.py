"""Merges whose source is matched in temporary files: what comes of them is what comes of the same rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.engine import budget
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

KEYS: dict[str, list[Any]] = {
    "whole": [None, *range(-3, 9)],
    "float": [None, 0.0, -0.0, float("nan"), 1.5, float("inf"), -2.5, 3e300],
    "text": [None, "", "a", "á", "a" * 40, "b", "\0"],
    "flag": [None, True, False],
    "day": [None, date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)],
}

CLAUSES: dict[str, dict[str, Any]] = {
    "upsert": {},
    "insert": {"when_matched": "ignore"},
    "delete": {"when_matched": "delete", "when_not_matched": "ignore"},
    "some": {
        "matched_if": "source.value > value",
        "delete_if": "source.value > 80",
        "not_matched_if": "source.value < 50",
    },
    "values": {
        "update": {"value": "value + source.value"},
        "insert": {"value": "source.value", "whole": "source.whole", "row": "source.row"},
    },
    "replace": {"when_not_matched_by_source": "delete", "not_matched_by_source_if": "value < 60"},
}


def drawn(rng: np.random.Generator, rows: int, first: int = 0) -> pl.DataFrame:
    columns = {
        name: pl.Series([values[place] for place in rng.integers(0, len(values), rows)])
        for name, values in KEYS.items()
    }
    frame = pl.DataFrame(
        columns,
        schema={
            "whole": pl.Int64,
            "float": pl.Float64,
            "text": pl.String,
            "flag": pl.Boolean,
            "day": pl.Date,
        },
    )
    return frame.with_columns(
        value=pl.Series(rng.integers(0, 100, rows)), row=pl.Series(rng.permutation(rows) + first)
    )


def given_as(rows: pl.DataFrame, kind: str) -> Any:
    kinds: dict[str, Callable[[], Any]] = {
        "frame": lambda: rows,
        "query": rows.lazy,
        "iterator": lambda: iter([*rows.iter_slices(7), rows.clear()]),
        "dataset": lambda: ds.dataset([rows.to_arrow()]),
    }
    return kinds[kind]()


@examples(4, sweep=50)
@given(
    seed=st.integers(0, 1 << 30),
    on=st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True),
    name=st.sampled_from(sorted(CLAUSES)),
    kind=st.sampled_from(["frame", "query", "iterator", "dataset"]),
    memory_bytes=st.sampled_from([1 << 10, 1 << 14, 1 << 24]),
)
def test_spilled_merge_equals_merge_in_memory(seed, on, name, kind, memory_bytes) -> None:
    rng = np.random.default_rng(seed)
    table, source = drawn(rng, 120), drawn(rng, 60, 1000).unique(on, maintain_order=True)
    with folder() as here, folder() as there, small_files():
        for path in (here, there):
            qbeast.write_table(table[:70], path, columns=["whole", "value"], cube_size=10)
            qbeast.write_table(table[70:], path, mode="append")
        rows_held = qbeast.open_table(here).merge(source, on, **CLAUSES[name], resources=MEMORY)
        spilling = there.parent / "spilling"
        spilling.mkdir()
        small = budget.Budget(memory_bytes, 2)
        with mock.patch.object(budget.Budget, "of", return_value=small):
            given = given_as(source, kind)
            done = qbeast.open_table(there).merge(
                given, on, **CLAUSES[name], resources=SPILL, spill_dir=spilling
            )
        assert not list(spilling.iterdir())
        assert done.engine == "spill"
        counts = ("rows_deleted", "rows_updated", "rows_inserted", "committed")
        assert [getattr(done, count) for count in counts] == [getattr(rows_held, count) for count in counts]
        assert_same_rows(qbeast.read_table(there), qbeast.read_table(here))
        check_invariants(there)


@pytest.fixture
def table(tmp_path: Path) -> qbeast.Table:
    rows = pl.DataFrame({"id": range(400), "value": [0] * 400})
    with small_files():
        qbeast.write_table(rows, tmp_path / "t", columns=["id"], cube_size=10)
    (tmp_path / "spilling").mkdir()
    return qbeast.open_table(tmp_path / "t")


def spilling(table: qbeast.Table) -> dict[str, Any]:
    return {"resources": SPILL, "spill_dir": Path(table.uri.removeprefix("file://")).parent / "spilling"}


def left(table: qbeast.Table) -> list[Path]:
    return list(spilling(table)["spill_dir"].iterdir())


def test_outrun_source_is_matched_again(table: qbeast.Table) -> None:
    source = pl.DataFrame({"id": [5, 399, 1000], "value": [1, 2, 3]})
    others = pl.DataFrame({"id": [5, 1000], "value": [8, 9]})
    outrun = [qbeast.write_table]

    def outrun_once(step: qbeast.Progress) -> None:
        if step.stage == "commit" and outrun:
            outrun.pop()(others, table.uri, mode="append")

    done = table.merge(iter([source]), "id", **spilling(table), progress=outrun_once)
    assert (done.rows_updated, done.rows_inserted, done.version) == (4, 0, 2)
    actual = table.scan().filter(pl.col("value") > 0).sort("id", "value").collect()
    assert actual.rows() == [(5, 1), (5, 1), (399, 2), (1000, 3)]
    assert not left(table)


def test_source_that_changes_between_reads_raises(table: qbeast.Table) -> None:
    readings: list[int] = []

    def moving(rows: pl.DataFrame) -> pl.DataFrame:
        readings.append(1)
        return rows.with_columns(pl.col("id") + len(readings))

    source = pl.LazyFrame({"id": [1, 2], "value": [1, 1]}).map_batches(moving, streamable=True)
    with pytest.raises(qbeast.InputChangedError, match=r"Nothing was changed\. It is read twice"):
        table.merge(source, "id", **spilling(table))
    assert table.refresh().version == 0
    assert not left(table)


def broken() -> Iterator[pl.DataFrame]:
    yield pl.DataFrame({"id": [1], "value": [1]})
    msg = "the line is cut"
    raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (broken, RuntimeError, "the line is cut"),
        (lambda: iter([]), qbeast.InvalidInputError, "returned no frame"),
        (
            lambda: pl.LazyFrame({"id": [7, 7], "value": [1, 2]}),
            qbeast.InvalidInputError,
            "several rows of the source",
        ),
        (lambda: pl.LazyFrame({"value": [1]}), qbeast.InvalidInputError, "no column.* to match by"),
        (
            lambda: pl.LazyFrame({"id": ["x"], "value": [1]}),
            qbeast.SchemaMismatchError,
            "does not fit the table",
        ),
    ],
)
def test_bad_source_changes_and_leaves_nothing(table: qbeast.Table, source, error, message) -> None:
    with pytest.raises(error, match=message):
        table.merge(source(), "id", **spilling(table))
    assert table.refresh().version == 0
    assert not left(table)


def test_small_source_stays_in_memory(table: qbeast.Table) -> None:
    source = pl.LazyFrame({"id": range(300), "value": [1] * 300})
    assert table.merge(source, "id", dry_run=True).engine == "memory"
    assert table.merge(source, "id", dry_run=True, memory_bytes=4 << 20).engine == "memory"
    many = pl.LazyFrame({"id": range(100_000), "value": [1] * 100_000})
    done = table.merge(many, "id", memory_bytes=4 << 20)
    assert (done.engine, done.rows_updated, done.rows_inserted) == ("spill", 400, 99_600)
    assert done.spilled_bytes > 0
