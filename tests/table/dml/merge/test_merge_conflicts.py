"""Other writers beside a merge: a key that both bring is there once, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.change_races import beside, check, grown
from tests.helpers.change_races import rows as more_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def test_concurrently_added_key_is_updated(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, more = grown(path), more_rows(5000)
    source = more.head(50).with_columns(a=pl.lit(0.5))

    def merge(opened: qbeast.Table) -> qbeast.ChangeResult:
        return opened.merge(source, "row")

    result = beside(path, lambda: qbeast.write_table(more, path, mode="append"), merge)
    assert (result.rows_updated, result.rows_inserted) == (50, 0)
    check(path, pl.concat([everything, more.slice(50), source]))


def test_concurrent_merges_insert_new_keys_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, new = grown(path), more_rows(5000)

    def merge(opened: qbeast.Table) -> qbeast.ChangeResult:
        return opened.merge(new, "row", when_matched="ignore")

    result = beside(path, lambda: qbeast.open_table(path).merge(new, "row"), merge)
    assert not result.committed
    check(path, pl.concat([everything, new]))


def test_new_rows_follow_a_concurrent_append(tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything, new, more = grown(path), more_rows(5000), more_rows(7000)

    def merge(opened: qbeast.Table) -> qbeast.ChangeResult:
        return opened.merge(new, "row", when_matched="ignore")

    result = beside(path, lambda: qbeast.write_table(more, path, mode="append"), merge)
    assert (result.rows_inserted, result.attempts) == (new.height, 2)
    check(path, pl.concat([everything, new, more]), may_stage=True)
