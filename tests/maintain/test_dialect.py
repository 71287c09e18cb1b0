"""Tables whose blocks are spelled anew: the same rows and samples, tags that the other reader knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.maintenance.metadata import hidden_column_files
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from tests.helpers.invariants import BLOCK_KEYS, check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, sampled
from tests.helpers.vectors import ENABLED, vector_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.HiddenColumnWarning"),
]

ROWS = pl.DataFrame(
    {"id": range(900), "b": [f"key {i % 31}" for i in range(900)], "x": [i / 7 for i in range(900)]}
)
LINEAR = ["id:linear", "b:hash", "x:linear"]


def table(path: Path, columns: list[str], rows: pl.DataFrame = ROWS, **options: Any) -> qbeast.Table:
    qbeast.write_table(rows, path, columns=columns, cube_size=50, **options)
    return qbeast.open_table(path)


def spellings(path: Path) -> set[tuple[str, ...]]:
    tags = [add.get("tags") or {} for add in read_log(path).adds.values()]
    return {tuple(block) for tag in tags if "blocks" in tag for block in json.loads(tag["blocks"])}


def test_switching_back_changes_only_tags(tmp_path: Path) -> None:
    opened = table(tmp_path, LINEAR)
    before = read_log(tmp_path).adds
    result = opened.switch_dialect("qbeast-spark")
    assert (result.version, result.committed, result.retagged_files) == (1, True, len(before))
    assert opened.version == 1
    assert spellings(tmp_path) == {tuple(BLOCK_KEYS["qbeast-spark"])}
    log = read_log(tmp_path)
    assert log.configuration["columnsToIndex"] == "id:linear,b:hashing,x:linear"
    check_invariants(tmp_path)
    again = opened.switch_dialect("qbeast-spark")
    assert (again.version, again.committed, again.retagged_files) == (1, False, 0)
    opened.switch_dialect("documented")
    assert spellings(tmp_path) == {tuple(BLOCK_KEYS["documented"])}
    assert read_log(tmp_path).adds == {path: add | {"dataChange": False} for path, add in before.items()}
    assert_same_rows(opened.read(), ROWS, "id")
    assert_same_rows(opened.read(sample=0.5), sampled(ROWS, ["id", "b", "x"], 0.5), "id")


def test_switch_keeps_foreign_files_and_empty_tables(tmp_path: Path) -> None:
    opened = table(tmp_path / "t", LINEAR)
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    opened.switch_dialect("qbeast-spark")
    assert sum(not add.get("tags") for add in read_log(tmp_path / "t").adds.values()) == 1
    empty = table(tmp_path / "e", ["id"], ROWS.clear())
    assert empty.switch_dialect("qbeast-spark", jvm="0.8").committed
    qbeast.write_table(ROWS, tmp_path / "e", mode="append")
    assert spellings(tmp_path / "e") == {tuple(BLOCK_KEYS["qbeast-spark"])}
    ROWS.write_delta(tmp_path / "c")
    qbeast.convert_table(tmp_path / "c", ["id", "b:hash"])
    qbeast.open_table(tmp_path / "c").switch_dialect("qbeast-spark")
    assert read_log(tmp_path / "c").configuration["columnsToIndex"] == "id,b:hashing"


@pytest.mark.parametrize(
    ("columns", "rows", "report"),
    [
        (["id:quantiles"], ROWS, "indexes id by quantiles"),
        (["id:linear", "x:linear"], ROWS.with_columns(x=pl.lit(1.5)), "indexes x by"),
        (["s"], pl.DataFrame({"s": [1]}, schema={"s": pl.Int16}), "cannot index"),
    ],
)
def test_switch_to_unreadable_jvm_table_raises(
    columns: list[str], rows: pl.DataFrame, report: str, tmp_path: Path
) -> None:
    opened = table(tmp_path, columns, rows)
    with pytest.raises(qbeast.InvalidColumnsError, match=report):
        opened.switch_dialect("qbeast-spark")
    with pytest.raises(qbeast.InvalidInputError, match="`dialect` must be"):
        opened.switch_dialect("jvm")  # type: ignore[arg-type]
    with pytest.raises(qbeast.InvalidInputError, match="`jvm` must be"):
        opened.switch_dialect("documented", jvm="1")  # type: ignore[arg-type]
    assert read_log(tmp_path).version == 0


def by_tasks(path: Path) -> None:
    task = begin_append(str(path), ROWS.clear())
    publish_parts(task, [task.write(ROWS)])


def unfit(path: Path, held: set[str]) -> set[str]:
    """Name the files that are new and hold the hidden column, where the JVM may read them."""
    newest = load_snapshot(path)
    numbers = hidden_column_files(newest) if newest.config.dialect == "qbeast-spark" else []
    return {newest.data_paths[number] for number in numbers} - held


@pytest.mark.parametrize(
    "change",
    [lambda path: qbeast.write_table(ROWS, path, mode="append"), by_tasks],
    ids=["whole", "by tasks"],
)
def test_append_after_switch_adds_no_hidden_column(tmp_path: Path, change: Callable) -> None:
    opened = table(tmp_path, LINEAR)
    rows_held = set(load_snapshot(tmp_path).data_paths)
    with (
        landing_first(lambda: opened.switch_dialect("qbeast-spark")),
        pytest.raises(qbeast.CommitConflictError, match=r"_qbeast_weight.* write again"),
    ):
        change(tmp_path)
    assert set(load_snapshot(tmp_path).data_paths) == rows_held
    change(tmp_path)  # as the message says
    assert set(load_snapshot(tmp_path).data_paths) > rows_held
    assert not unfit(tmp_path, rows_held)


@pytest.mark.parametrize("change", ["overwrite", "optimize"])
def test_replaced_files_follow_a_concurrent_switch(tmp_path: Path, change: str) -> None:
    opened = table(tmp_path, LINEAR)
    write_deltalake(tmp_path, ROWS, mode="append")  # a switch leaves it as it is
    rows_held = set(load_snapshot(tmp_path).data_paths)
    with landing_first(lambda: opened.switch_dialect("qbeast-spark")):
        if change == "optimize":
            qbeast.open_table(tmp_path).optimize()
        else:
            qbeast.write_table(ROWS, tmp_path, mode="overwrite")
    assert not set(load_snapshot(tmp_path).data_paths) >= rows_held
    assert not unfit(tmp_path, rows_held)
    check_invariants(tmp_path)


JVM = "qbeast-spark"


def is_for_a_jvm_with_vectors(path: Path) -> bool:
    """Whether qbeast-spark has to read a table with vectors, as deltalake reads its log."""
    if not DeltaTable.is_deltatable(str(path)):
        return False
    features = DeltaTable(path).protocol().reader_features or []
    configuration = DeltaTable(path).metadata().configuration
    return configuration.get("qbeast.blocksDialect") == JVM and "deletionVectors" in features


def plain_with_vectors(path: Path) -> None:
    write_deltalake(path, ROWS, configuration=ENABLED)


def ours_with_vectors(path: Path) -> None:
    table(path, LINEAR, deletion_vectors=True)


def of_a_jvm(path: Path) -> None:
    table(path, LINEAR, dialect=JVM)


REFUSED: dict[str, tuple[Callable[[Path], None], Callable[[str], object], str]] = {
    "write": (
        lambda _: None,
        lambda uri: qbeast.write_table(ROWS, uri, columns=LINEAR, dialect=JVM, deletion_vectors=True),
        "Leave `deletion_vectors` out.*'documented'",
    ),
    "append": (
        of_a_jvm,
        lambda uri: qbeast.write_table(ROWS, uri, mode="append", deletion_vectors=True),
        "Leave `deletion_vectors` out",
    ),
    "set": (of_a_jvm, lambda uri: qbeast.open_table(uri).set_properties(ENABLED), r"Table\.switch_dialect"),
    "overwrite": (
        ours_with_vectors,
        lambda uri: qbeast.write_table(ROWS, uri, mode="overwrite", dialect=JVM),
        "copy the rows to a new table",
    ),
    "switch": (
        ours_with_vectors,
        lambda uri: qbeast.open_table(uri).switch_dialect(JVM),
        r"Table\.set_properties\({'delta\.enableDeletionVectors': None}\)",
    ),
    "switch for 0.8": (
        ours_with_vectors,
        lambda uri: qbeast.open_table(uri).switch_dialect(JVM, jvm="0.8"),
        "DROP FEATURE deletionVectors",
    ),
    "convert": (
        plain_with_vectors,
        lambda uri: qbeast.convert_table(uri, columns=LINEAR, dialect=JVM),
        "copy the rows to a new table",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_for_a_jvm_get_no_vectors(tmp_path: Path, name: str) -> None:
    begin, change, cure = REFUSED[name]
    path = tmp_path / "t"
    begin(path)
    with pytest.raises(qbeast.QbeastError, match=cure):
        change(str(path))
    assert not is_for_a_jvm_with_vectors(path)


@pytest.mark.parametrize("first", ["vectors", "dialect"])
def test_vectors_beside_a_switch_are_refused(tmp_path: Path, first: str) -> None:
    opened = table(tmp_path, LINEAR)

    def enable() -> None:
        qbeast.open_table(tmp_path).set_properties(ENABLED)

    def switch() -> None:
        qbeast.open_table(tmp_path).switch_dialect(JVM)

    other, ours = (enable, switch) if first == "vectors" else (switch, enable)
    with landing_first(other), pytest.raises(qbeast.CommitConflictError, match="deletion vectors exclude"):
        ours()
    assert not is_for_a_jvm_with_vectors(tmp_path)
    assert_same_rows(opened.read(), ROWS, "id")


@pytest.mark.parametrize("marked", [True, False])
def test_vectors_of_other_writers_leave_a_table_writable(tmp_path: Path, *, marked: bool) -> None:
    """Spark may enable vectors in a table of qbeast-spark; our writes go on, and hide no rows."""
    of_a_jvm(tmp_path)
    if not marked:  # as qbeast-spark writes its tables
        log = tmp_path / "_delta_log" / f"{0:020d}.json"
        log.write_text(log.read_text().replace(f'"qbeast.blocksDialect":"{JVM}",', ""))
    DeltaTable(tmp_path).alter.set_table_properties(ENABLED)
    later = ROWS.with_columns(pl.col("id") + 10_000)  # of a new revision
    qbeast.write_table(later, tmp_path, mode="append")
    opened = qbeast.open_table(tmp_path)
    opened.delete(pl.col("id") % 100 == 7)
    opened.optimize(full=True)
    rows = pl.concat([ROWS, later])
    assert_same_rows(opened.read(), rows.filter(pl.col("id") % 100 != 7), "id")
    assert not vector_files(tmp_path)
    check_invariants(tmp_path)
