"""Row tracking: ids of rows stay through every operation, computed by the protocol from commits and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.actions import AddFile
from qbeast_core.log.rebase import with_row_ids
from qbeast_core.table.dml.change import ChangeOptions, Delete, Update, run_change
from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from tests.helpers.changes import ROW, changes, spread
from tests.helpers.deletion_vectors import bitmap, z85
from tests.helpers.examples import examples
from tests.helpers.handmade_log import features, replay, write_log
from tests.helpers.races import landing_first
from tests.helpers.row_ids import (
    ENABLED,
    ID_COLUMN,
    NAMES,
    VERSION_COLUMN,
    check_log,
    commits,
    domain,
    domains,
    highest,
    row_ids,
    tracked,
)
from tests.helpers.scattering import PartsEngine
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, folder, small_files, using

Step = Callable[[qbeast.Table, qbeast.Resources], Any]


def converted(path: Path, rows: pl.DataFrame, **options: Any) -> qbeast.Table:
    tracked(path, rows, **options)
    qbeast.convert_table(path, columns=[ROW, "a", "s"])
    return qbeast.open_table(path)


def tags(path: Path) -> dict[str, str]:
    return commits(path)[-1][0]["commitInfo"].get("tags", {})


def append(table: qbeast.Table, _: object) -> None:
    start = int(table.rows().lazy().select(pl.col(ROW).max()).collect().item() or 0) + 1
    qbeast.write_table(spread(60, start), table.uri, mode="append")


def source(rows: pl.DataFrame) -> pl.DataFrame:
    return changes(rows).unique(ROW, keep="first", maintain_order=True)


STEPS: dict[str, Step] = {
    "append": append,
    "optimize": lambda table, how: using(table, how).optimize(),
    "optimize full": lambda table, how: using(table, how).optimize(full=True),
    "optimize into new": lambda table, how: using(table, how).optimize(into="new"),
    "reindex": lambda table, how: using(table, how).reindex([ROW, "d"], full=True),
    "delete": lambda table, how: using(table, how).delete(pl.col("a") % 5 == 1),
    "update": lambda table, how: using(table, how).update(pl.col("a") % 3 == 1, {"f": "f + 1"}),
    "update moves": lambda table, how: using(table, how).update(pl.col("a") % 4 == 1, {"a": "a + 1000"}),
    "merge": lambda table, how: using(table, how).merge(source(table.read()), on=ROW),
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose files have ids of rows, and a file without, which was appended."""
    path = tmp_path_factory.mktemp("made") / "t"
    with small_files(file_rows=40):
        table = converted(path, spread(60))
        table.optimize(full=True)
        append(table, MEMORY)
    return path


@pytest.mark.parametrize("step", STEPS)
def test_rows_keep_ids_through_every_step(step: str, made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "t")
    with small_files(file_rows=40):
        compared(qbeast.open_table(path), step, MEMORY)


@examples(1, sweep=15)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6),
    how=st.sampled_from([MEMORY, SPILL]),
)
def test_ids_survive_any_order_of_steps(steps: list[str], how: qbeast.Resources) -> None:
    with folder() as path, small_files():
        table = converted(path / "t", spread(60))
        for step in steps:
            compared(table, step, how)


CLUSTER: dict[str, Callable[[Snapshot, PartsEngine], object]] = {
    "update": lambda snapshot, engine: run_change(
        snapshot, Update(pl.col("a") % 3 == 1, {"a": "a + 500"}), ChangeOptions(), engine=engine
    ),
    "delete": lambda snapshot, engine: run_change(
        snapshot, Delete(pl.col("a") % 5 == 1), ChangeOptions(), engine=engine
    ),
    "optimize": lambda snapshot, engine: optimize(snapshot, OptimizeOptions(full=True), engine=engine),
}


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step == "update" else pytest.mark.sweep) for step in CLUSTER]
)
def test_workers_of_a_cluster_keep_ids(step: str, made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "t")
    old = row_ids(path, ROW)
    with small_files(file_rows=40):
        CLUSTER[step](load_snapshot(path), PartsEngine(part_rows=30))
    check_log(path)
    assert tags(path) == {"delta.rowTracking.preserved": "true"}
    assert all(row_id == old[key][0] for key, (row_id, _) in row_ids(path, ROW).items())
    assert qbeast.open_table(path).check().ok


def test_hidden_columns_stay_hidden(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = spread(200)
    table = converted(path, rows)
    table.optimize(full=True)
    assert table.columns == rows.columns
    assert_same_rows(table.read(), rows)
    for name, file in replay(path).items():
        assert {ID_COLUMN, VERSION_COLUMN} <= set(pl.read_parquet_schema(path / name))
        assert set(json.loads(file["stats"])["nullCount"]) == set(rows.columns)
    assert_same_rows(pl.DataFrame(DeltaTable(path).to_pyarrow_table()), rows)
    assert_same_rows(pl.scan_delta(str(path)).collect(), rows)


def test_rows_of_an_append_have_no_hidden_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    converted(path, spread(20))
    qbeast.write_table(spread(20, 100), path, mode="append")
    (new,) = [name for name in replay(path) if not name.startswith("part-")]
    assert ID_COLUMN not in pl.read_parquet_schema(path / new)


@pytest.mark.parametrize("configuration", [NAMES, {}], ids=["with names", "without"])
def test_ids_are_fresh_until_they_are_enabled(configuration: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(100), configuration=configuration)
    qbeast.write_table(spread(20, 100), path, mode="append")
    table.refresh().optimize(full=True)
    check_log(path)
    assert tags(path) == {}
    for name in replay(path):
        assert ID_COLUMN not in pl.read_parquet_schema(path / name)
    assert min(row_id for row_id, _ in row_ids(path, ROW).values()) > 1000


def test_suspended_tracking_assigns_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(100), configuration={**NAMES, "delta.rowTrackingSuspended": "true"})
    qbeast.write_table(spread(20, 100), path, mode="append")
    table.refresh().optimize(full=True)
    assert not any("baseRowId" in file for file in replay(path).values())
    assert highest(path) == 1000


def test_appends_at_once_have_ids_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "t"
    converted(path, spread(20))
    starts = iter((1000, 2000, 3000))

    def other() -> None:
        qbeast.write_table(spread(30, next(starts)), path, mode="append")

    with landing_first(other, times=3):
        qbeast.write_table(spread(50, 5000), path, mode="append")
    check_log(path)
    ids = row_ids(path, ROW)
    assert {row_id for key, (row_id, _) in ids.items() if key >= 1000} == set(range(201, 341))
    assert {version for key, (_, version) in ids.items() if key >= 5000} == {5}


@pytest.mark.parametrize("step", ["optimize full", "delete", "update", "merge"])
def test_rewrites_beside_an_append_keep_ids(step: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(200))
    old = row_ids(path, ROW)
    with landing_first(lambda: qbeast.write_table(spread(30, 50_000), path, mode="append")):
        STEPS[step](table, MEMORY)
    check_log(path)
    assert tags(path) == {"delta.rowTracking.preserved": "true"}
    new = row_ids(path, ROW)
    assert {key: row_id for key, (row_id, _) in new.items() if key in old} == {
        key: row_id for key, (row_id, _) in old.items() if key in new
    }


def test_rewrite_planned_before_tracking_reports_lost_ids(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(200), configuration=NAMES)

    def enable() -> None:
        (line,) = [action for commit in commits(path) for action in commit if "metaData" in action][-1:]
        line["metaData"]["configuration"] |= ENABLED
        write_log(path, [line], first=len(commits(path)))

    with landing_first(enable):
        table.optimize(full=True)
    check_log(path)
    assert tags(path) == {"delta.rowTracking.preserved": "false"}
    qbeast.open_table(path).delete(pl.col("a") == 3)
    assert tags(path) == {"delta.rowTracking.preserved": "true"}


def test_checkpoint_keeps_ids_and_domains(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(200))
    table.optimize(full=True)
    write_log(
        path, [domain("app.owner", {}, removed=True), domain("app.other", {"x": 1})], first=table.version + 1
    )
    before, old, mark = replay(path), row_ids(path, ROW), highest(path)
    assert load_snapshot(path).domains.keys() == {"delta.rowTracking", "app.other"}
    DeltaTable(path).create_checkpoint()
    for file in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        file.unlink()
    assert load_snapshot(path).domains.keys() == {"delta.rowTracking", "app.other"}
    opened = qbeast.open_table(path)
    opened.delete(pl.col(ROW) < 20)
    removed = [action["remove"] for action in commits(path)[-1] if "remove" in action]
    assert removed
    assert {item["path"]: item["baseRowId"] for item in removed} == {
        item["path"]: before[item["path"]]["baseRowId"] for item in removed
    }
    new = row_ids(path, ROW)  # of the commits that are left: the new files
    assert new == {key: value for key, value in old.items() if key in new}
    assert highest(path) > mark


def test_deletion_vectors_leave_ids_alone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = spread(100)
    tracked(path, rows)
    gone = [0, 7, 49]
    (first, _) = replay(path).values()
    size = len(bitmap(gone))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(bitmap(gone)),
        "sizeInBytes": size,
        "cardinality": len(gone),
    }
    names = ("rowTracking", "domainMetadata", "appendOnly", "deletionVectors")
    removed = {
        key: first[key] for key in ("path", "size", "dataChange", "baseRowId", "defaultRowCommitVersion")
    }
    write_log(
        path,
        [
            features(*names, reader=["deletionVectors"]),
            {"remove": {**removed, "deletionTimestamp": 1}},
            {"add": {**first, "deletionVector": vector}},
        ],
        first=1,
    )
    old = row_ids(path, ROW)
    qbeast.convert_table(path, columns=[ROW, "a"])
    table = qbeast.open_table(path)
    table.optimize()
    kept = rows.filter(~pl.int_range(pl.len()).is_in(gone))
    assert_same_rows(table.read(), kept)
    assert row_ids(path, ROW) == {key: old[key] for key in kept[ROW]}


def test_restored_rows_have_their_ids_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(200))
    table.optimize(full=True)
    version, old = table.version, row_ids(path, ROW)
    table.delete(pl.col("a") % 2 == 0)
    table.update(pl.col("a") % 3 == 0, {"f": "0.5"})
    table.restore(version)
    assert row_ids(path, ROW) == old
    qbeast.write_table(spread(20, 900), path, mode="append")
    check_log(path)


def test_files_for_the_jvm_have_no_hidden_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(200))
    table.switch_dialect("qbeast-spark")
    table.optimize(full=True)
    check_log(path)
    assert tags(path) == {"delta.rowTracking.preserved": "false"}
    for name in replay(path):
        assert ID_COLUMN not in pl.read_parquet_schema(path / name)


def test_damaged_domain_raises_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(20))
    damage = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "[", "removed": False}}
    write_log(path, [damage], first=table.version + 1)
    with pytest.raises(qbeast.InvalidMetadataError, match=r"delta\.rowTracking"):
        qbeast.write_table(spread(20, 100), path, mode="append")
    assert_same_rows(qbeast.read_table(path), spread(20))
    assert len(list(path.glob("*.parquet"))) == 2


def test_file_without_row_count_gets_no_ids() -> None:
    file = AddFile(path="a", size=1, modification_time=1)
    with pytest.raises(qbeast.UnsupportedTableError, match="number of rows"):
        with_row_ids([file], {}, version=1)
