"""Tables that a JVM writes, too, hold no column beyond their schema: it would take it for one of the table's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from qbeast_core.tree.grid import frame_weights
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, small_files

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "_qbeast_weight"
INDEXED = ["id:linear", "name:hash"]
ROWS = pl.DataFrame({"id": range(1_000), "name": [f"n {i % 97}" for i in range(1_000)], "x": [0.5] * 1_000})


def later(first: int) -> pl.DataFrame:
    return ROWS.with_columns(pl.col("id") + first)


def holders(path: Path) -> list[str]:
    """Live files that hold the hidden column."""
    files = qbeast.open_table(path).rows().files()["path"]
    return sorted(file for file in files if HIDDEN in pl.read_parquet_schema(file))


def names(path: Path) -> list[str]:
    return [Path(file).name for file in holders(path)]


def written(path: Path, dialect: str) -> qbeast.Table:
    with small_files(file_rows=400, page_rows=50):
        qbeast.write_table(ROWS, path, columns=INDEXED, cube_size=100, dialect=dialect)
    return qbeast.open_table(path)


def by_tasks(path: Path) -> None:
    rows = pl.concat([later(0), later(1_000_000)])  # some of them are staged
    context = begin_append(str(path), rows.clear())
    publish_parts(context, [context.write(rows)])


STEPS: dict[str, Callable[[Path], object]] = {
    "append": lambda path: qbeast.write_table(later(100), path, mode="append"),
    "wider append": lambda path: qbeast.write_table(later(10**6), path, mode="append"),
    "tasks": by_tasks,
    "optimize": lambda path: qbeast.open_table(path).optimize(full=True),
    "delete": lambda path: qbeast.open_table(path).delete(pl.col("id") < 200),
    "update": lambda path: qbeast.open_table(path).update(pl.col("id") < 200, {"x": 2.0}),
    "merge": lambda path: qbeast.open_table(path).merge(later(900), on="id"),
    "overwrite": lambda path: qbeast.write_table(ROWS, path, mode="overwrite", columns=INDEXED),
}


@pytest.mark.parametrize("step", list(STEPS))
def test_jvm_tables_never_get_the_hidden_column(step: str, tmp_path: Path) -> None:
    written(tmp_path, "qbeast-spark")
    assert not holders(tmp_path)
    STEPS[step](tmp_path)
    assert not holders(tmp_path)
    check_invariants(tmp_path, may_stage=True)
    assert qbeast.open_table(tmp_path).check().ok


def test_samples_and_filters_still_open_few_pages(tmp_path: Path) -> None:
    jvm, ours = written(tmp_path / "jvm", "qbeast-spark"), written(tmp_path / "ours", "documented")
    for sample, predicate in [(0.05, None), (None, pl.col("id") < 100), (0.2, pl.col("id") > 750)]:
        with_column, without = (
            table.rows(predicate, sample=sample, columns=["id"]).explain() for table in (ours, jvm)
        )
        assert without.rows_opened == with_column.rows_opened < ROWS.height / 2
    weights = frame_weights(ROWS, ["id", "name"])
    limit = int(0.05 * (2**32 - 1) - 2**31)
    assert_same_rows(jvm.read(sample=0.05), ROWS.filter(pl.Series(weights < limit)), "id")


def test_optimize_removes_hidden_column_after_switch(tmp_path: Path) -> None:
    table = written(tmp_path, "documented")
    by_tasks(tmp_path)  # files without index hold it, too
    write_deltalake(tmp_path, later(2_000_000), mode="append")
    before = table.read()
    with pytest.warns(qbeast.HiddenColumnWarning, match=r"and \d+ more.*`optimize\(full=True\)`") as caught:
        result = table.switch_dialect("qbeast-spark")
    assert caught[0].filename == __file__
    assert sorted(result.hidden_column_files) == names(tmp_path)
    assert table.check().ok
    table.optimize(full=True)
    assert not holders(tmp_path)
    assert table.switch_dialect("qbeast-spark").hidden_column_files == ()
    assert_same_rows(
        table.read(),
        pl.concat([before, later(2_000_000), *[later(0), later(1_000_000)]]),
        "id",
    )


def test_older_revisions_are_folded_in(tmp_path: Path) -> None:
    table = written(tmp_path, "documented")
    qbeast.write_table(later(10**7), tmp_path, mode="append")
    with pytest.warns(qbeast.HiddenColumnWarning, match=r"`optimize\(full=True, into=.newest.\)`"):
        qbeast.open_table(tmp_path).switch_dialect("qbeast-spark")
    table = qbeast.open_table(tmp_path)
    table.optimize(full=True, into="newest")
    assert not holders(tmp_path)


def test_unreleased_jvm_keeps_hidden_column(tmp_path: Path) -> None:
    result = written(tmp_path, "documented").switch_dialect("qbeast-spark", jvm="0.8")
    assert sorted(result.hidden_column_files) == names(tmp_path)


def test_files_without_hidden_column_pass_after_switch(tmp_path: Path) -> None:
    table = written(tmp_path, "qbeast-spark")
    assert table.switch_dialect("documented").hidden_column_files == ()
    qbeast.write_table(later(9), tmp_path, mode="append")
    assert len(names(tmp_path)) > 0
    assert qbeast.open_table(tmp_path).check().ok


def test_file_without_required_hidden_column_is_faulty(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    (path,) = (Path(file) for file in DeltaTable(tmp_path).file_uris())
    pl.read_parquet(path).drop(HIDDEN).write_parquet(path)
    codes = qbeast.open_table(tmp_path).check().faults["code"].to_list()
    assert "hidden-weight" in codes or "file-unreadable" in codes
