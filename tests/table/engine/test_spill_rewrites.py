"""Optimize, delete, update and merge in a budget: the same rows as in memory, a table in order, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.engine import budget
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.small_files import resized
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, small_files

ROWS = pl.DataFrame(
    {
        "row": range(160),
        "a": np.random.default_rng(4).random(160),
        "b": [None, 1, 2, 3] * 40,
        "text": [str(number % 17) for number in range(160)],
    }
)
MORE = pl.DataFrame({"row": [*range(30, 60), 999]}).with_columns(
    a=pl.col("row") / 200, b=pl.lit(5, dtype=pl.Int64), text=pl.lit("new")
)

Step = Callable[[qbeast.Table, dict[str, Any]], Any]

STEPS: dict[str, Step] = {
    "optimize": lambda table, options: table.optimize(full=True, **options),
    "redraw": lambda table, options: table.optimize(into="new", **options),
    "delete": lambda table, options: table.delete("a < 0.1 AND b > 1", **options),
    "update": lambda table, options: table.update("b = 2", {"a": "a / 2", "b": pl.lit(7)}, **options),
    "outside": lambda table, options: table.update("b = 3", {"a": "a + 50"}, **options),
    "merge": lambda table, options: table.merge(MORE, on="row", **options),
    "replace": lambda table, options: table.merge(
        MORE, on="row", when_not_matched_by_source="delete", not_matched_by_source_if="b = 1", **options
    ),
    "append": lambda table, options: qbeast.write_table(
        MORE.iter_slices(9), table.uri, mode="append", **options
    ),
}


def written(path: Path) -> None:
    with small_files():
        for number in range(2):
            part = ROWS[number * 80 : number * 80 + 80]
            qbeast.write_table(part, path, columns=["a", "b", "text"], mode="append", cube_size=10)


@examples(4, sweep=40)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3),
    batch_bytes=st.sampled_from([1 << 9, 1 << 20]),
    load_bytes=st.sampled_from([1 << 12, 1 << 20]),
)
def test_operations_in_budget_equal_those_in_memory(steps, batch_bytes, load_bytes) -> None:
    with (
        folder() as here,
        folder() as there,
        mock.patch.object(budget.Budget, "batch_bytes", batch_bytes),
        mock.patch.object(budget.Budget, "load_bytes", load_bytes),
        resized(min_part_rows=3),
    ):
        written(here), written(there)
        spilling = there.parent / "spilling"
        spilling.mkdir()
        with small_files():
            for name in steps:
                step = STEPS[name]
                rows_held = step(qbeast.open_table(here), {"resources": MEMORY})
                done = step(qbeast.open_table(there), {"resources": SPILL, "spill_dir": spilling})
                assert done.committed == rows_held.committed
                assert (done.engine, rows_held.engine) == (
                    "spill" if done.spilled_bytes else done.engine,
                    "memory",
                )
                counts = [
                    {
                        key: item.to_dict().get(key)
                        for key in ("rows_deleted", "rows_updated", "rows_inserted")
                    }
                    for item in (rows_held, done)
                ]
                assert counts[0] == counts[1]
                assert not list(spilling.iterdir())
        rows = qbeast.read_table(here)
        assert rows.sort(rows.columns).equals(qbeast.read_table(there).sort(rows.columns))
        check_invariants(there)
        assert qbeast.open_table(there).check().ok
        samples = [qbeast.read_table(path, sample=0.3).sort(rows.columns) for path in (here, there)]
        assert samples[0].equals(samples[1])


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    n = 200_000
    rng = np.random.default_rng(5)
    return pl.DataFrame({"row": np.arange(n), "a": rng.random(n), "b": rng.integers(0, 10**6, n)})


def test_large_tables_are_changed_in_the_budget(rows: pl.DataFrame, tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory_bytes": 4 << 20, "spill_dir": tmp_path}
    qbeast.write_table(rows, tmp_path / "t", columns=["a", "b"], cube_size=5000)
    table = qbeast.open_table(tmp_path / "t")
    assert table.optimize(full=True, **options).engine == "spill"
    assert table.delete("a > 0.9", **options).spilled_bytes > 0
    kept = rows.filter(pl.col("a") <= 0.9)
    changes = kept.gather_every(100).with_columns(b=-pl.col("b"))
    assert table.merge(changes, on="row", **options).rows_updated == changes.height
    assert (
        table.update("b < 0", {"a": "a / 2"}, **options).rows_updated
        == changes.filter(pl.col("b") < 0).height
    )
    expected = kept.join(changes, on="row", how="anti").vstack(
        changes.with_columns(a=pl.when(pl.col("b") < 0).then(pl.col("a") / 2).otherwise("a"))
    )
    assert_same_rows(table.scan().collect(), expected, "row")
    assert table.check().ok
    assert [item.name for item in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("call", ["optimize", "delete", "update", "merge"])
def test_too_small_budget_raises_and_changes_nothing(tmp_path: Path, call: str) -> None:
    written(tmp_path)
    table = qbeast.open_table(tmp_path)
    given: dict[str, tuple[Any, ...]] = {
        "optimize": (),
        "delete": ("row = 1",),
        "update": ("row = 1", {"b": 1}),
        "merge": (MORE, "row"),
    }
    with pytest.raises(qbeast.InvalidInputError, match="at least 4,194,304"):
        getattr(table, call)(*given[call], memory_bytes=1000)
    options = {"full": True} if call == "optimize" else {}
    with pytest.raises(qbeast.StorageError, match="there is no folder"):
        getattr(table, call)(
            *given[call],
            **options,
            resources=SPILL,
            spill_dir=tmp_path / "missing",
        )
    assert table.refresh().version == 1
