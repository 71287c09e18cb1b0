"""Other writers beside a change: it is as though it had begun after them; nothing is lost, nothing left over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.rewrite import replace
from tests.helpers.change_races import CONDITION, beside, check, rows
from tests.helpers.invariants import read_log
from tests.helpers.races import landing_first
from tests.helpers.stores import put_files
from tests.helpers.tables import assert_same_rows

EVERYTHING = pl.concat([rows(number * 200) for number in range(6)])
KEPT = EVERYTHING.filter(~CONDITION)
NEW = rows(5000)


@pytest.fixture
def path(grown_path: Path) -> Path:
    return grown_path


def test_unrelated_append_needs_no_second_plan(path: Path) -> None:
    more = NEW.with_columns(pl.col("a") * 0.5 + 0.5)
    with put_files() as files:
        result = beside(path, lambda: qbeast.write_table(more, path, mode="append"))
    assert [file for file in files if not (path / file).exists()] == []  # none was written in vain
    assert (result.attempts, result.version) == (2, 7)
    check(path, pl.concat([KEPT, more]))


@pytest.mark.parametrize(
    "how",
    [
        "append",
        "foreign append",
        "overwrite",
        "delete",
        "compact",
        "optimize",
        "new column",
        "another delete",
    ],
)
def test_rows_are_deleted_after_any_commit(path: Path, how: str) -> None:
    both = pl.concat([KEPT, NEW.filter(~CONDITION)])
    others: dict[str, tuple[Callable[[], Any], pl.DataFrame]] = {
        "append": (lambda: qbeast.write_table(NEW, path, mode="append"), both),
        "foreign append": (lambda: write_deltalake(path, NEW, mode="append"), both),
        "overwrite": (
            lambda: qbeast.write_table(rows(1), path, mode="overwrite"),
            rows(1).filter(~CONDITION),
        ),
        "delete": (lambda: DeltaTable(path).delete("a > 0.9"), KEPT.filter(pl.col("a") <= 0.9)),
        "compact": (DeltaTable(path).optimize.compact, KEPT),
        "optimize": (lambda: qbeast.open_table(path).optimize(), KEPT),
        "new column": (
            lambda: qbeast.open_table(path).add_columns({"b": pl.Int64}),
            KEPT.with_columns(b=pl.lit(None, pl.Int64)),
        ),
        "another delete": (lambda: qbeast.open_table(path).delete(CONDITION), KEPT),
    }
    other, left = others[how]
    result = beside(path, other)
    assert result.committed == (how != "another delete")
    assert "append" not in how or result.rows_deleted == 1400 - both.height
    check(path, left, may_stage=how in ("delete", "compact"))


def test_table_that_becomes_append_only_loses_nothing(path: Path) -> None:
    with pytest.raises(qbeast.UnsupportedTableError, match="appendOnly"):
        beside(path, lambda: qbeast.open_table(path).set_properties({"delta.appendOnly": "true"}))
    check(path, EVERYTHING)


def test_constantly_outrun_delete_fails_cleanly(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace, "MAX_ATTEMPTS", 3)
    more = rows(5000, 20)
    with pytest.raises(qbeast.CommitConflictError, match="look at"):
        beside(path, lambda: write_deltalake(path, more, mode="append"), times=3)
    assert read_log(path).version == 8
    check(path, pl.concat([EVERYTHING, *[more] * 3]), may_stage=True)


def test_concurrently_added_rows_are_updated(path: Path) -> None:
    values = {"a": pl.col("a") + 0.5}
    result = beside(
        path,
        lambda: qbeast.write_table(NEW, path, mode="append"),
        lambda opened: opened.update(CONDITION, values),
    )
    expected = pl.concat([EVERYTHING, NEW])
    assert result.rows_updated == expected.filter(CONDITION).height
    check(path, expected.with_columns(pl.when(CONDITION).then(pl.col("a") + 0.5).otherwise("a")))


def test_concurrently_added_key_is_updated(path: Path) -> None:
    source = NEW.head(50).with_columns(a=pl.lit(0.5))
    result = beside(
        path,
        lambda: qbeast.write_table(NEW, path, mode="append"),
        lambda opened: opened.merge(source, "row"),
    )
    assert (result.rows_updated, result.rows_inserted) == (50, 0)
    check(path, pl.concat([EVERYTHING, NEW.slice(50), source]))


def insert_new(opened: qbeast.Table) -> qbeast.ChangeResult:
    return opened.merge(NEW, "row", when_matched="ignore")


def test_concurrent_merges_insert_new_keys_once(path: Path) -> None:
    result = beside(path, lambda: qbeast.open_table(path).merge(NEW, "row"), insert_new)
    assert not result.committed
    check(path, pl.concat([EVERYTHING, NEW]))


def test_new_rows_follow_a_concurrent_append(path: Path) -> None:
    more = rows(7000)
    result = beside(path, lambda: qbeast.write_table(more, path, mode="append"), insert_new)
    assert (result.rows_inserted, result.attempts) == (NEW.height, 2)
    check(path, pl.concat([EVERYTHING, NEW, more]), may_stage=True)


OTHER = pl.DataFrame({"row": [5, 90_000], "a": [0.25, 0.75]})
CHANGES: dict[str, Callable[[qbeast.Table, tuple[str, int]], qbeast.ChangeResult]] = {
    "delete": lambda table, txn: table.delete(pl.col("row") < 50, txn=txn),
    "update": lambda table, txn: table.update(pl.col("row") < 50, {"a": pl.col("a") / 2}, txn=txn),
    "merge": lambda table, txn: table.merge(OTHER, "row", txn=txn),
    "nothing": lambda table, txn: table.delete(pl.col("row") < -1, txn=txn),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_with_transaction_happens_once(path: Path, name: str) -> None:
    first = CHANGES[name](qbeast.open_table(path), ("job", 3))
    assert (first.committed, first.version) == (True, 6)
    changed = qbeast.read_table(path)
    for version in (3, 2):
        again = CHANGES[name](qbeast.open_table(path), ("job", version))
        assert (again.committed, again.version, again.files) == (False, 6, 0)
        assert (again.rows_deleted, again.rows_updated, again.rows_inserted) == (0, 0, 0)
    assert_same_rows(qbeast.read_table(path), changed)
    assert CHANGES[name](qbeast.open_table(path), ("job", 4)).version == 7
    assert qbeast.open_table(path).check().ok


def test_concurrent_transaction_is_applied_once(path: Path) -> None:
    with landing_first(lambda: qbeast.open_table(path).merge(OTHER, "row", txn=("job", 1))):
        late = qbeast.open_table(path).merge(OTHER, "row", txn=("job", 1))
    assert (late.committed, late.rows_updated, late.version) == (False, 0, 6)
    expected = pl.concat([EVERYTHING.filter(pl.col("row") != 5), OTHER])
    assert_same_rows(qbeast.read_table(path), expected)
    with pytest.raises(qbeast.InvalidInputError, match="`txn` must be"):
        qbeast.open_table(path).delete(where=True, txn=("", 1))
