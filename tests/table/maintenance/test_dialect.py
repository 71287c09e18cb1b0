"""Tables whose blocks are spelled anew: the same rows and samples, tags that the other reader knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.table.maintenance.dialect import hidden_column_files
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.table.write.append_by_tasks import begin_append, publish_parts
from tests.helpers.invariants import BLOCK_KEYS, check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, sampled

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
    assert_same_rows(opened.scan().collect(), ROWS, "id")
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
