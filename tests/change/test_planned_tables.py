"""Each operation on a table that is opened by a plan file does what it does on one that is opened by its log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.plan_files import by_deltalake, checkpoint, opened, planned
from tests.helpers.small_files import small_files

ROWS = pl.DataFrame({"id": range(60), "b": [float(number * 37 % 60) for number in range(60)]})
NEW = ROWS.head(20).with_columns(id=pl.col("id") + 55)

WITHOUT_VECTORS = ("switch the dialect", "dialects", "indexes")

Operation = Callable[[qbeast.Table], Any]


def append_to_decoded(table: qbeast.Table) -> None:
    assert table.blocks().height
    qbeast.write_table(NEW, table.uri, mode="append")


def in_turn(*names: str) -> Operation:
    def run(table: qbeast.Table) -> None:
        for name in names:
            OPERATIONS[name](table.refresh())

    return run


OPERATIONS: dict[str, Operation] = {
    "append": lambda table: qbeast.write_table(NEW, table.uri, mode="append"),
    "append to decoded": append_to_decoded,
    "overwrite": lambda table: qbeast.write_table(NEW, table.uri, mode="overwrite"),
    "overwrite a part": lambda table: qbeast.write_table(
        NEW.filter(pl.col("id") < 58), table.uri, mode="overwrite", where="id >= 55 AND id < 58"
    ),
    "delete": lambda table: table.delete("id < 7 OR b = 50"),
    "delete all": lambda table: table.delete("id >= 0"),
    "update": lambda table: table.update("b < 9", {"b": "b + 100"}),
    "merge": lambda table: table.merge(NEW, on="id"),
    "optimize": lambda table: table.optimize(),
    "optimize all": lambda table: table.optimize(full=True),
    "optimize into new": lambda table: table.optimize(into="new"),
    "reindex": lambda table: table.reindex(["b"]),
    "switch the dialect": lambda table: table.switch_dialect("qbeast-spark"),
    "switch back": lambda table: table.switch_dialect("documented"),
    "restore": lambda table: table.restore(0),
    "vacuum": lambda table: table.vacuum(dry_run=False),
    "repair": lambda table: table.repair(),
    "properties": lambda table: table.set_properties({"owner": "us"}),
    "constraint": lambda table: table.add_constraint("low", "id < 1000"),
    "sizes": lambda table: (table.metrics(), table.history(), table.check(), table.blocks()),
}
SERIES = {
    **{name: in_turn(name) for name in OPERATIONS},
    "dialects": in_turn("switch the dialect", "append", "switch back", "reindex", "append"),
    "indexes": in_turn("reindex", "append", "optimize into new", "switch the dialect"),
    "emptied": in_turn("delete all", "append", "optimize all", "vacuum"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Tables with and without deletion vectors."""
    folder = tmp_path_factory.mktemp("written")
    return {vectors: write(folder / f"{vectors}", vectors=vectors) for vectors in (False, True)}


def write(path: Path, *, vectors: bool) -> Path:
    """Write a table of several commits, with removed files in its checkpoint, all of them old."""
    with small_files(file_rows=12):
        qbeast.write_table(ROWS.head(30), path, columns=["id"], cube_size=10, deletion_vectors=vectors)
        qbeast.write_table(ROWS.slice(30), path, mode="append")
        qbeast.open_table(path).delete("id = 3 OR id = 40")
        qbeast.open_table(path).update("id > 50", {"b": "b / 2"})
    checkpoint(path)
    for file in path.glob("*.parquet"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return path


def outcome(table: Path, run: Operation) -> tuple[list[Any], pl.DataFrame]:
    """Run an operation, and return facts about the table, and its rows."""
    with small_files(file_rows=12):
        run(qbeast.open_table(table))
    newest = qbeast.open_table(table)
    listed = by_deltalake(table)
    columns = sorted(revision.columns for revision in newest.revisions)
    counts = (newest.count(), newest.snapshot.file_count, newest.snapshot.live_rows)
    assert counts[1] == listed.height
    assert newest.check().ok
    names = {file.name for file in table.glob("*.parquet")}
    assert names.issuperset(listed["path"])
    return [newest.version, columns, counts, len(names), newest.properties], newest.read()


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.HiddenColumnWarning", "ignore::qbeast.AddedColumnWarning")
@pytest.mark.parametrize("name", SERIES)
def test_operation_is_the_same_on_a_planned_table(
    written: dict[bool, Path], tmp_path: Path, name: str
) -> None:
    run, source = SERIES[name], written[name not in WITHOUT_VECTORS]
    facts, rows = outcome(Path(shutil.copytree(source, tmp_path / "t")), run)
    table = Path(shutil.copytree(source, tmp_path / "planned"))
    with planned(tmp_path / "temporary"):
        opened(table)
        actual, found = outcome(table, run)
        same(found, rows)
        same(found, pl.scan_delta(table).collect())
        assert actual == facts
        checkpoint(table)
        same(qbeast.open_table(table, version=facts[0]).read(), rows)


def same(actual: pl.DataFrame, expected: pl.DataFrame) -> None:
    assert_frame_equal(actual.sort("id", "b"), expected.sort("id", "b"), check_exact=True)
