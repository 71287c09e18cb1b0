"""Two changes of the same files: the later one is planned again and both hold; failures leave no file of vectors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.io.store import LocalStore
from tests.helpers.changes import spread
from tests.helpers.invariants import check_invariants
from tests.helpers.races import landing_first
from tests.helpers.row_ids import commits
from tests.helpers.stores import put_files
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files
from tests.helpers.vectors import enable_vectors, few, hidden_rows, rows_by_sql, vector_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.HiddenColumnWarning"),
]
ROWS = spread(120)
NUMBER = pl.col(ROW)
OURS, THEIRS, BOTH = (NUMBER % 20).eq(3), (NUMBER % 20).eq(8), (NUMBER % 40).eq(3)
NEW = spread(4, 9000)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("beside") / "t"
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=60, deletion_vectors=True)
    return path


@pytest.fixture
def path(master: Path, tmp_path: Path) -> Path:
    return shutil.copytree(master, tmp_path / "t")


def with_f(rows: pl.DataFrame, condition: pl.Expr, value: float) -> pl.DataFrame:
    return rows.with_columns(f=pl.when(condition).then(value).otherwise("f"))


SOURCE = pl.concat([with_f(ROWS.filter(OURS), OURS, 2.0), NEW])


def merge(table: qbeast.Table) -> qbeast.ChangeResult:
    return table.merge(SOURCE, ROW)


CHANGES: dict[
    str, tuple[Callable[[qbeast.Table], qbeast.ChangeResult], Callable[[pl.DataFrame], pl.DataFrame]]
] = {
    "delete": (lambda table: table.delete(OURS), lambda rows: rows.filter(~OURS)),
    "update": (lambda table: table.update(OURS, {"f": 2.0}), lambda rows: with_f(rows, OURS, 2.0)),
    "merge": (merge, lambda rows: pl.concat([rows.join(SOURCE, on=ROW, how="anti"), SOURCE])),
}
OTHERS: dict[str, tuple[Callable[[qbeast.Table], Any], pl.DataFrame]] = {
    "delete of other rows": (lambda table: table.delete(THEIRS), ROWS.filter(~THEIRS)),
    "delete of the same rows": (lambda table: table.delete(BOTH), ROWS.filter(~BOTH)),
    "update of the same rows": (lambda table: table.update(BOTH, {"f": -1.0}), with_f(ROWS, BOTH, -1.0)),
    "optimize": (lambda table: table.optimize(full=True), ROWS),
    "append": (
        lambda table: qbeast.write_table(spread(30, 3000), table.uri, mode="append"),
        pl.concat([ROWS, spread(30, 3000)]),
    ),
    "append of others": (
        lambda table: write_deltalake(table.uri, spread(30, 3000), mode="append"),
        pl.concat([ROWS, spread(30, 3000)]),
    ),
    "tags": (lambda table: table.set_properties({"owner": "us"}), ROWS),
}


def check(path: Path, rows: pl.DataFrame) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), rows)
    assert_same_rows(pl.scan_delta(str(path)).collect(), rows)
    assert_same_rows(rows_by_sql(path).select(rows.columns), rows)
    assert table.check().ok
    check_invariants(path, may_stage=True)
    check_no_orphans(path)


def check_no_orphans(path: Path) -> None:
    """Assert that a version names every file of rows and of vectors."""
    actions = [action["add"] for commit in commits(path) for action in commit if "add" in action]
    assert {file.name for file in path.glob("*.parquet")} == {add["path"] for add in actions}
    vectors = [add["deletionVector"]["pathOrInlineDv"] for add in actions if "deletionVector" in add]
    assert len(vector_files(path)) == len(set(vectors))


USUAL = ("update, delete of the same rows", "delete, delete of other rows")


@pytest.mark.parametrize("pair", few([f"{name}, {other}" for name in CHANGES for other in OTHERS], *USUAL))
def test_both_changes_of_a_file_hold(path: Path, pair: str) -> None:
    name, other = pair.split(", ")
    (run, expected), (beside, left) = CHANGES[name], OTHERS[other]
    with landing_first(lambda: beside(qbeast.open_table(path))):
        result = run(qbeast.open_table(path))
    assert result.version == 2
    check(path, expected(left))


@pytest.mark.parametrize("name", few(CHANGES, "delete"))
def test_append_beside_needs_no_second_plan(path: Path, name: str) -> None:
    run, expected = CHANGES[name]
    with (
        put_files() as names,
        landing_first(lambda: qbeast.write_table(spread(3, 777_000), path, mode="append")),
    ):
        result = run(qbeast.open_table(path))
    assert [name for name in names if not (path / name).exists()] == []  # none was written in vain
    assert (result.attempts, len(vector_files(path))) == (2, 1)
    check(path, pl.concat([expected(ROWS), spread(3, 777_000)]))


@pytest.mark.parametrize("name", few(CHANGES, "update"))
def test_disabled_vectors_hide_no_rows(path: Path, name: str) -> None:
    run, expected = CHANGES[name]
    disable = {"delta.enableDeletionVectors": None}
    with landing_first(lambda: qbeast.open_table(path).set_properties(disable)):
        result = run(qbeast.open_table(path))
    assert set(result.plan["action"]) == {"rewrite"}
    assert not hidden_rows(path)
    check(path, expected(ROWS))


def test_switched_dialect_hides_no_rows(tmp_path: Path) -> None:
    rows = ROWS.drop("d")
    qbeast.write_table(rows, tmp_path, columns=[ROW, "a"], deletion_vectors=True)

    def switch() -> None:
        qbeast.open_table(tmp_path).set_properties({"delta.enableDeletionVectors": None})
        qbeast.open_table(tmp_path).switch_dialect("qbeast-spark")

    with landing_first(switch):
        result = qbeast.open_table(tmp_path).delete(OURS)
    assert set(result.plan["action"]) == {"rewrite"}
    assert_same_rows(qbeast.read_table(tmp_path), rows.filter(~OURS))


def test_tables_with_hidden_rows_keep_their_dialect(tmp_path: Path) -> None:
    rows = ROWS.drop("d")
    qbeast.write_table(rows, tmp_path, columns=[ROW, "a"], deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    table.delete(OURS)
    with pytest.raises(qbeast.InvalidInputError, match="1 of its files have hidden rows"):
        table.switch_dialect("qbeast-spark")
    table.optimize(purge=True)
    with pytest.raises(qbeast.InvalidInputError, match="enableDeletionVectors': None"):
        table.switch_dialect("qbeast-spark")
    table.set_properties({"delta.enableDeletionVectors": None})
    assert table.switch_dialect("qbeast-spark").committed
    assert_same_rows(table.read(), rows.filter(~OURS))


def test_rows_hidden_beside_a_switch_refuse_it(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.drop("d"), tmp_path, columns=[ROW, "a"])

    def hide() -> None:
        enable_vectors(tmp_path)
        qbeast.open_table(tmp_path).delete(OURS)

    with landing_first(hide), pytest.raises(qbeast.QbeastError, match="hidden rows"):
        qbeast.open_table(tmp_path).switch_dialect("qbeast-spark", jvm="0.8")
    assert hidden_rows(tmp_path)


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def full_disk() -> Any:
    msg = "the disk is full"
    raise qbeast.StorageError(msg, path="t")


@pytest.mark.parametrize("step", few(["vectors", "stored vectors", "feed", "commit"], "stored vectors"))
def test_failed_changes_leave_no_file(path: Path, step: str) -> None:
    table = qbeast.open_table(path)
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    before, put = files(path), LocalStore.put

    def failing(store: LocalStore, name: str, data: bytes) -> Any:
        fails = name.startswith("_change_data") if step == "feed" else name.endswith(".bin")
        if step != "vectors" or not fails:
            put(store, name, data)
        if fails:
            full_disk()

    patch = mock.patch.object(LocalStore, "put", failing) if step != "commit" else landing_first(full_disk)
    with patch, pytest.raises(qbeast.StorageError, match="full"):
        table.update(OURS, {"f": 2.0})
    assert files(path) == before
    assert_same_rows(table.read(), ROWS)
