"""Row tracking: ids of rows stay through every operation, computed by the protocol from commits and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.changes import ROW, changes, spread
from tests.helpers.row_ids import (
    check_log,
    commits,
    domains,
    highest,
    row_ids,
    tracked,
)
from tests.helpers.tables import MEMORY, SPILL, folder, small_files

GOLDEN = Path(__file__).parents[1] / "golden" / "delta" / "row-tracking" / "crc-full"
Step = Callable[[qbeast.Table, qbeast.Resources], Any]


def converted(path: Path, rows: pl.DataFrame, **options: Any) -> qbeast.Table:
    tracked(path, rows, **options)
    qbeast.convert_table(path, columns=[ROW, "a", "s"])
    return qbeast.open_table(path)


def tags(path: Path) -> dict[str, str]:
    return commits(path)[-1][0]["commitInfo"].get("tags", {})


def append(table: qbeast.Table, _: object) -> None:
    start = int(table.scan().select(pl.col(ROW).max()).collect().item() or 0) + 1
    qbeast.write_table(spread(60, start), table.uri, mode="append")


def source(rows: pl.DataFrame) -> pl.DataFrame:
    return changes(rows).unique(ROW, keep="first", maintain_order=True)


STEPS: dict[str, Step] = {
    "append": append,
    "optimize": lambda table, how: table.optimize(resources=how),
    "optimize full": lambda table, how: table.optimize(full=True, resources=how),
    "optimize into new": lambda table, how: table.optimize(into="new", resources=how),
    "reindex": lambda table, how: table.reindex([ROW, "d"], full=True, resources=how),
    "delete": lambda table, how: table.delete(pl.col("a") % 5 == 1, resources=how),
    "update": lambda table, how: table.update(pl.col("a") % 3 == 1, {"f": "f + 1"}, resources=how),
    "update moves": lambda table, how: table.update(pl.col("a") % 4 == 1, {"a": "a + 1000"}, resources=how),
    "merge": lambda table, how: table.merge(source(table.read()), on=ROW, resources=how),
    "retag": lambda table, _: table.set_properties({"owner": "us"}),
}
# Rows that a step writes again, also if they get the values that they have.
CHANGED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "update": lambda rows: rows.filter(pl.col("a") % 3 == 1),
    "update moves": lambda rows: rows.filter(pl.col("a") % 4 == 1),
    "merge": source,
}


def compared(table: qbeast.Table, step: str, how: qbeast.Resources) -> None:
    """Do a step. Assert that kept rows have their ids and versions, changed rows their ids, new rows new ids."""
    path = Path(table.uri)
    before = table.read()
    sent = set(CHANGED[step](before)[ROW]) if step in CHANGED else set()
    old_rows = {row[ROW]: row for row in before.fill_nan(None).iter_rows(named=True)}
    old, mark = row_ids(path, ROW), highest(path)
    STEPS[step](table, how)
    table.refresh()
    check_log(path)
    new_rows = {row[ROW]: row for row in table.read().fill_nan(None).iter_rows(named=True)}
    new = row_ids(path, ROW)
    assert new.keys() == new_rows.keys()
    for key, (row_id, version) in new.items():
        if key not in old:
            assert (row_id > mark, version) == (True, table.version)
        elif new_rows[key] == old_rows[key] and key not in sent:
            assert (row_id, version) == old[key]
        else:
            assert (row_id, version) == (old[key][0], table.version)
    if step != "retag":
        assert tags(path) == {"delta.rowTracking.preserved": "true"}
    assert domains(path)["app.owner"] == {"name": "us"}


@pytest.mark.parametrize("how", [MEMORY, SPILL], ids=["memory", "spill"])
@pytest.mark.parametrize("step", STEPS)
def test_rows_keep_ids_through_every_step(step: str, how: qbeast.Resources, tmp_path: Path) -> None:
    with small_files():
        table = converted(tmp_path / "t", spread(200))
        compared(table, step, how)
        compared(table, "optimize full", how)
        for other in ("append", step, "optimize", step):
            compared(table, other, how)
    table.check()


@pytest.mark.slow
@settings(max_examples=25)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6),
    how=st.sampled_from([MEMORY, SPILL]),
)
def test_ids_survive_any_order_of_steps(steps: list[str], how: qbeast.Resources) -> None:
    with folder() as path, small_files():
        table = converted(path / "t", spread(120))
        for step in steps:
            compared(table, step, how)
