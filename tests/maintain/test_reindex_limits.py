"""What a reindex refuses, and what it does to tables with a sample column, without index, or in use by others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.log.schema import schema_to_delta
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.mixed_columns import (
    ROWS,
    check_version,
    columns_of_files,
    files_that_lost_their_place,
    new,
    sampled_by_log,
)
from tests.helpers.races import landing_first
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
MORE = ROWS.head(60).with_columns(pl.col(ROW) + 1000)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["prize"], {}, "names no such column"),
        (["b:lniear"], {}, "not a kind of index"),
        (["flag"], {}, "cannot be indexed"),
        (["b", "b"], {}, "named twice"),
        ([], {}, "at least one column"),
        (["sample"], {}, "sample column 'sample'"),
        (["b"], {"cube_size": 0}, "cube_size"),
        (["b"], {"cube_size": True}, "cube_size"),
        (["b"], {"commit_metadata": {"operation": "x"}}, "commit_metadata"),
    ],
)
def test_invalid_options_change_nothing(tmp_path: Path, columns: Any, options: Any, message: str) -> None:
    table = new(tmp_path, sample_column="sample")
    with pytest.raises(qbeast.InvalidInputError, match=message):
        table.reindex(columns, **options)
    assert qbeast.open_table(tmp_path).version == 0


def test_dialect_of_the_jvm_is_refused_by_name(tmp_path: Path) -> None:
    table = new(tmp_path, dialect="qbeast-spark")
    with pytest.raises(qbeast.InvalidInputError, match=r"qbeast-spark.*switch_dialect.*Nothing was changed"):
        table.reindex(["b"])
    assert table.refresh().version == 0
    table.switch_dialect("documented")
    assert table.reindex(["b"]).committed
    check_version(tmp_path, ROWS)


def test_dialect_of_the_jvm_needs_one_list_of_columns(tmp_path: Path) -> None:
    table = new(tmp_path)
    table.reindex(["b:linear"])
    with pytest.raises(qbeast.InvalidInputError, match=r'optimize\(into="new"\)'):
        table.switch_dialect("qbeast-spark")
    table.optimize(into="new")
    assert {revision.columns for revision in table.revisions} == {("b",)}
    table.switch_dialect("qbeast-spark", jvm="0.8")
    qbeast.write_table(MORE, tmp_path, mode="append")
    check_version(tmp_path, pl.concat([ROWS, MORE]))


@pytest.mark.parametrize("first", ["reindex", "switch"])
def test_reindex_and_dialect_exclude_each_other(tmp_path: Path, first: str) -> None:
    def reindex() -> object:
        return qbeast.open_table(tmp_path).reindex(["b"])

    def switch() -> object:
        return qbeast.open_table(tmp_path).switch_dialect("qbeast-spark", jvm="0.8")

    new(tmp_path, [f"{ROW}:linear"])
    winner, loser = (reindex, switch) if first == "reindex" else (switch, reindex)
    with landing_first(winner), pytest.raises(qbeast.QbeastError, match="qbeast-spark"):
        loser()
    check_version(tmp_path, ROWS)


def test_sample_column_follows_the_revision_of_each_file(tmp_path: Path) -> None:
    table = new(tmp_path, sample_column="sample")
    table.reindex(["b"])
    for _ in range(2):
        check_invariants(tmp_path)
        assert table.check().ok
        rows = table.read()
        found = pl.scan_delta(tmp_path).filter(pl.col("sample") < 0.5).collect()
        assert_same_rows(found, sampled_by_log(tmp_path, rows, 0.5))
        assert_same_rows(found, table.read(sample=0.5))
        assert_same_rows(rows.drop("sample"), ROWS)
        table.optimize()
    assert read_log(tmp_path).configuration["qbeast.minReader"] == "3"


def test_converted_table_changes_its_columns(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS)
    qbeast.convert_table(tmp_path, [ROW])
    table = qbeast.open_table(tmp_path)
    result = table.reindex(["s:hash", "b"], cube_size=30)
    assert (result.columns, result.cube_size, result.revision_id) == (("s", "b"), 30, 0)
    assert not table.reindex(["s:hash", "b"], cube_size=30).committed
    check_version(tmp_path, ROWS)
    table.optimize()
    assert table.revisions[-1].transformer_kinds == {"s": "hash", "b": "linear"}
    check_version(tmp_path, ROWS)


def test_table_without_rows_changes_its_columns(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.clear(), tmp_path, [ROW])
    table = qbeast.open_table(tmp_path)
    assert table.reindex(["s", "b"]).columns == ("s", "b")
    qbeast.write_table(ROWS, tmp_path, mode="append")
    assert check_version(tmp_path, ROWS).indexed_columns == ("s", "b")


def test_lost_column_is_replaced(tmp_path: Path) -> None:
    table = new(tmp_path, ["b"])
    lost = ROWS.drop("b")
    write_deltalake(tmp_path, lost, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(qbeast.InvalidColumnsError, match="another writer"):
        table.refresh().read(sample=0.1)
    assert table.reindex(["s"]).committed
    check_version(tmp_path, lost)
    assert table.reindex(full=True).rows_left == 0
    check_version(tmp_path, lost)


def test_append_before_the_commit_stays_in_first_columns(tmp_path: Path) -> None:
    table = new(tmp_path)
    with landing_first(lambda: qbeast.write_table(MORE, tmp_path, mode="append", cube_size=20)):
        table.reindex(["s"])
    rows = pl.concat([ROWS, MORE])
    assert check_version(tmp_path, rows).indexed_columns == ("s",)


def test_append_in_flight_lands_in_first_columns(tmp_path: Path) -> None:
    new(tmp_path, ["a"])
    with landing_first(lambda: qbeast.open_table(tmp_path).reindex(["b"])):
        qbeast.write_table(MORE, tmp_path, mode="append")
    assert set(columns_of_files(tmp_path)) == {("a",)}
    expected = pl.concat([ROWS, MORE])
    assert check_version(tmp_path, expected).indexed_columns == ("b",)
    qbeast.open_table(tmp_path).reindex(full=True)
    check_version(tmp_path, expected)


def test_append_in_flight_beyond_the_space_is_a_conflict(tmp_path: Path) -> None:
    new(tmp_path)
    with (
        landing_first(lambda: qbeast.open_table(tmp_path).reindex(["b"])),
        pytest.raises(qbeast.CommitConflictError, match="indexed by b now"),
    ):
        qbeast.write_table(MORE, tmp_path, mode="append")
    check_version(tmp_path, ROWS)


def test_staged_append_in_flight_has_the_newest_weights(tmp_path: Path) -> None:
    """Hidden weights of its files are those of the first columns: nothing may rely on them."""
    table = new(tmp_path, ["a"])
    with landing_first(lambda: table.reindex(["b"])), files_that_lost_their_place():
        result = qbeast.write_table(MORE, tmp_path, mode="append")
    assert result.staged_files
    check_version(tmp_path, pl.concat([ROWS, MORE]))


@pytest.mark.parametrize(
    ("options", "columns"),
    [({"columns": ["s"]}, ("s",)), ({"columns": ["s"], "full": True}, ("s",)), ({"cube_size": 5}, ("b",))],
    ids=str,
)
def test_two_reindexes_at_once_are_one_after_the_other(
    tmp_path: Path, options: dict[str, Any], columns: tuple[str, ...]
) -> None:
    table = new(tmp_path)
    with landing_first(lambda: qbeast.open_table(tmp_path).reindex(["b"])):
        result = table.reindex(**options)
    assert [revision.columns for revision in table.revisions] == [columns, (ROW,), ("b",), columns]
    assert result.columns == table.indexed_columns == columns
    assert result.cube_size == options.get("cube_size", 20)
    check_version(tmp_path, ROWS)


@pytest.mark.parametrize("change", ["delete", "update", "optimize"])
def test_change_in_flight_keeps_all_rows(tmp_path: Path, change: str) -> None:
    table = new(tmp_path)
    with landing_first(lambda: qbeast.open_table(tmp_path).reindex(["b"])):
        match change:
            case "delete":
                table.delete(pl.col(ROW) < 20)
            case "update":
                table.update(pl.col(ROW) < 20, {"s": pl.lit("new")})
            case _:
                table.optimize(full=True)
    expected = ROWS.filter(pl.col(ROW) >= 20) if change == "delete" else ROWS
    if change == "update":
        expected = ROWS.with_columns(s=pl.when(pl.col(ROW) < 20).then(pl.lit("new")).otherwise("s"))
    assert check_version(tmp_path, expected).indexed_columns == ("b",)


def test_column_that_only_old_files_need_may_change(tmp_path: Path) -> None:
    """Files whose columns changed their type have no index: they get the weights of the newest revision."""
    rows = ROWS.with_columns(n=pl.col("a").cast(pl.Int32))
    with small_files(file_rows=30, page_rows=8):
        qbeast.write_table(rows, tmp_path, ["n"], cube_size=20)
    table = qbeast.open_table(tmp_path)
    table.reindex(["b"])
    table.optimize()
    table.widen_columns({"n": pl.Int64})
    expected = rows.cast({"n": pl.Int64})
    assert_same_rows(table.read(), expected)
    parts = [table.read(sample=ends) for ends in ((0.0, 0.2), (0.2, 0.6), (0.6, 1.0))]
    assert_same_rows(pl.concat(parts), expected)
    assert "long" in schema_to_delta(table.schema)


@pytest.fixture(scope="module")
def appended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with rows by two lists of columns."""
    path = tmp_path_factory.mktemp("appended") / "t"
    new(path).reindex(["b"])
    qbeast.write_table(MORE, path, mode="append")
    return path


@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_lost_revision_is_repaired_without_loss_of_rows(appended: Path, tmp_path: Path) -> None:
    shutil.copytree(appended, tmp_path / "damaged")
    log = tmp_path / "damaged" / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('"qbeast.revision.2":"{', '"qbeast.revision.2":"oops'))
    rows, damaged = pl.concat([ROWS, MORE]), qbeast.open_table(tmp_path / "damaged")
    assert damaged.check().faults.height
    with pytest.raises(qbeast.InvalidMetadataError, match=r"Table\.repair"):
        damaged.reindex(["s"])
    parts = [damaged.read(sample=ends) for ends in ((0.0, 0.4), (0.4, 1.0))]
    assert_same_rows(pl.concat(parts), rows)
    damaged.repair()
    assert damaged.check().ok
    damaged.reindex(["b"], full=True)
    assert_same_rows(damaged.read(), rows)
