"""Columns of more importance have narrower pages; rows and samples are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, small_files

RANDOM = np.random.default_rng(8)
ROWS = pl.DataFrame({"a": RANDOM.random(4_000), "b": RANDOM.random(4_000), "row": range(4_000)})
RANGES = {name: pl.col(name).is_between(0.4, 0.43) for name in ("a", "b")}


@pytest.fixture(autouse=True)
def _many_pages() -> Iterator[None]:
    with small_files(file_rows=4_000, page_rows=16):
        yield


def write(path: Path, importance: dict[str, float] | None = None) -> qbeast.Table:
    qbeast.write_table(ROWS, path, columns=["a", "b"], importance=importance)
    return qbeast.open_table(path)


def rows_opened(table: qbeast.Table, column: str) -> int:
    return table.rows(RANGES[column]).explain().rows_opened


def test_important_column_opens_less_than_others(tmp_path: Path) -> None:
    plain, wished = write(tmp_path / "plain"), write(tmp_path / "wished", {"a": 6})
    assert rows_opened(wished, "a") < 0.7 * rows_opened(plain, "a")
    assert rows_opened(wished, "b") > rows_opened(plain, "b")
    for table in (plain, wished):
        for where in RANGES.values():
            assert_same_rows(qbeast.read_table(table.uri, where=where), ROWS.filter(where), "row")
    expected = qbeast.read_table(plain.uri, sample=0.2)
    assert_same_rows(qbeast.read_table(wished.uri, sample=0.2), expected, "row")
    check_invariants(Path(wished.uri))


def test_optimize_follows_a_new_importance(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    before = rows_opened(table, "b")
    result = table.set_importance({"b": 6})
    assert (result.version, result.changed, table.importance) == (1, ("qbeast.importance",), {"b": 6.0})
    assert rows_opened(table, "b") == before
    table.optimize(full=True)
    assert rows_opened(table, "b") < 0.7 * before
    table.set_importance({})
    assert table.importance == {}
    assert "qbeast.importance" not in DeltaTable(table.uri).metadata().configuration


def test_reindex_sets_importance_with_the_columns(tmp_path: Path) -> None:
    table = write(tmp_path / "t", {"a": 2})
    result = table.reindex(["a", "b"], importance={"b": 3})
    assert (result.committed, result.new_revision, table.importance) == (True, False, {"b": 3.0})
    result = table.reindex(["row"], importance={"row": 2})
    assert (result.new_revision, table.importance) == (True, {"row": 2.0})
    assert not table.reindex(["row"], importance={"row": 2}).committed


def test_renamed_column_keeps_its_importance(tmp_path: Path) -> None:
    table = write(tmp_path / "t", {"a": 6})
    table.rename_column("a", "z", upgrade_protocol=True)
    assert table.importance == {"z": 6.0}
    more = ROWS.rename({"a": "z"}).with_columns(pl.col("row") + 4_000)
    qbeast.write_table(more, table.uri, mode="append", importance={"z": 6})
    assert_same_rows(table.refresh().read(), pl.concat([ROWS.rename({"a": "z"}), more]), "row")


@pytest.mark.parametrize("wrong", [{"a": 0}, {"a": -1.0}, {"a": True}, {"a": "3"}, {"a": 1e9}, {"row": 2}, 3])
def test_invalid_importance_is_refused(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        write(tmp_path / "t", wrong)
    assert caught.value.argument == "importance"
    assert not (tmp_path / "t").exists()


def test_append_with_another_importance_is_refused(tmp_path: Path) -> None:
    table = write(tmp_path / "t", {"a": 2})
    with pytest.raises(qbeast.InvalidInputError, match="set_importance"):
        qbeast.write_table(ROWS, table.uri, mode="append", importance={"a": 3})


def test_damaged_importance_counts_as_none(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log" / ("0" * 20 + ".json")
    text = log.read_text().replace(
        '"configuration":{', '"configuration":{"qbeast.importance":"{\\"a\\":-1}",'
    )
    log.write_text(text)
    table = qbeast.open_table(tmp_path / "t")
    with pytest.warns(qbeast.CorruptTagWarning, match=r"qbeast\.importance"):
        assert_same_rows(table.read(), ROWS, "row")
    assert table.importance == {}
    assert "qbeast.importance" in str(table.check().faults["message"].to_list())
