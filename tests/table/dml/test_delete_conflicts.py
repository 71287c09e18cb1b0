"""Other writers beside a delete: it is as though it had begun after them; nothing is lost and nothing left over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.dml import change
from qbeast_core.table.rewrite.publish import MAX_ATTEMPTS
from tests.helpers.change_races import CONDITION, beside, check, grown, rows
from tests.helpers.invariants import read_log


def test_unrelated_append_needs_no_second_plan(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, more = grown(path), rows(5000).with_columns(pl.col("a") * 0.5 + 0.5)
    with mock.patch.object(change, "replace_rows", wraps=change.replace_rows) as rewritten:
        result = beside(path, lambda: qbeast.write_table(more, path, mode="append"))
    assert (rewritten.call_count, result.attempts, result.version) == (1, 2, 7)
    check(path, pl.concat([everything.filter(~CONDITION), more]))


@pytest.mark.parametrize("writer", ["qbeast", "deltalake"])
def test_concurrently_added_matches_are_deleted(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "t"
    everything, more = grown(path), rows(5000)
    appends: dict[str, Callable[[], Any]] = {
        "qbeast": lambda: qbeast.write_table(more, path, mode="append"),
        "deltalake": lambda: write_deltalake(path, more, mode="append"),
    }
    result = beside(path, appends[writer])
    expected = pl.concat([everything, more])
    assert result.rows_deleted == expected.filter(CONDITION).height
    check(path, expected.filter(~CONDITION))


@pytest.mark.parametrize(
    "how", ["overwrite", "delete", "compact", "optimize", "new column", "another delete"]
)
def test_rows_are_deleted_after_any_commit(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    kept = everything.filter(~CONDITION)
    others: dict[str, tuple[Callable[[], Any], pl.DataFrame]] = {
        "overwrite": (
            lambda: qbeast.write_table(rows(1), path, mode="overwrite"),
            rows(1).filter(~CONDITION),
        ),
        "delete": (lambda: DeltaTable(path).delete("a > 0.9"), kept.filter(pl.col("a") <= 0.9)),
        "compact": (DeltaTable(path).optimize.compact, kept),
        "optimize": (lambda: qbeast.open_table(path).optimize(), kept),
        "new column": (
            lambda: qbeast.open_table(path).add_columns({"b": pl.Int64}),
            kept.with_columns(b=pl.lit(None, pl.Int64)),
        ),
        "another delete": (lambda: qbeast.open_table(path).delete(CONDITION), kept),
    }
    other, left = others[how]
    result = beside(path, other)
    assert result.committed == (how != "another delete")
    check(path, left, may_stage=how in ("delete", "compact"))


def test_table_that_becomes_append_only_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    with pytest.raises(qbeast.UnsupportedTableError, match="appendOnly"):
        beside(path, lambda: qbeast.open_table(path).set_properties({"delta.appendOnly": "true"}))
    check(path, everything)


def test_constantly_outrun_delete_fails_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, more = grown(path, appends=1), rows(5000, 20)
    turns = MAX_ATTEMPTS
    with pytest.raises(qbeast.CommitConflictError, match="look at"):
        beside(path, lambda: write_deltalake(path, more, mode="append"), times=turns)
    assert read_log(path).version == 1 + turns
    check(path, pl.concat([everything, *[more] * turns]), may_stage=True)
