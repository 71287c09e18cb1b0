"""Files that other writers left without index, or with rows deleted, are indexed by the next optimize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import copy_of
from tests.format.collection import find
from tests.helpers.deletion_vectors import delete
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows

COLUMNS = ["row", "a"]


def rows(start: int, count: int = 1000, *, most: float = 1.0) -> pl.DataFrame:
    rng = np.random.default_rng(start)
    return pl.DataFrame({"row": range(start, start + count), "a": rng.random(count) * most})


def by_others(path: Path, frame: pl.DataFrame) -> None:
    write_deltalake(path, frame, mode="append")


def check(path: Path, wanted: pl.DataFrame) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), wanted)
    assert_same_rows(pl.scan_delta(path).collect(), wanted)
    everything = wanted.filter(pl.col("a") < 0.3)
    assert_same_rows(table.rows().lazy().filter(pl.col("a") < 0.3).collect(), everything)
    check_invariants(path)


def hybrid(path: Path, *, most: float = 1.0) -> pl.DataFrame:
    """A table of a thousand rows and two files without index."""
    base = pl.concat([rows(0, 1000), pl.DataFrame({"row": [9000], "a": [1.0]})])
    qbeast.write_table(base, path, columns=["row:linear", "a:linear"], cube_size=100)
    added = [rows(5000, 200), rows(6000, 200, most=most)]
    for frame in added:
        by_others(path, frame)
    return pl.concat([base, *added])


def test_files_without_index_use_newest_revision(tmp_path: Path) -> None:
    everything = hybrid(tmp_path / "t")
    table = qbeast.open_table(tmp_path / "t")
    before = table.read(sample=0.2)
    result = table.optimize()
    assert result.plan["reason"].to_list() == ["staged", "staged"]
    assert (result.rows, result.new_revision, result.revision_id) == (400, False, 1)
    check(tmp_path / "t", everything)
    assert_same_rows(table.read(sample=0.2), before)
    assert not table.optimize().committed


def test_rows_out_of_space_add_a_revision(tmp_path: Path) -> None:
    everything = hybrid(tmp_path / "t", most=40.0)
    table = qbeast.open_table(tmp_path / "t")
    result = table.optimize(revision=0)
    assert (result.commits, result.new_revision, result.revision_id) == (1, True, 2)
    assert [revision.revision_id for revision in table.revisions] == [0, 1, 2]
    assert set(table.rows().files()["revision_id"]) == {1, 2}
    check(tmp_path / "t", everything)


def test_dry_run_changes_no_file(tmp_path: Path) -> None:
    hybrid(tmp_path / "t")
    files = sorted((tmp_path / "t").rglob("*"))
    table = qbeast.open_table(tmp_path / "t")
    result = table.optimize(dry_run=True)
    assert (result.committed, result.dry_run, result.commits, table.version) == (False, True, 0, 2)
    assert sorted((tmp_path / "t").rglob("*")) == files
    assert "would rewrite\n  staged: 2 files, 400 rows" in repr(result)


def test_rows_hidden_by_deletion_vectors_are_dropped(tmp_path: Path) -> None:
    everything = rows(0, 3000)
    qbeast.write_table(everything, tmp_path / "t", columns=COLUMNS, cube_size=200)
    delete(tmp_path / "t", list(range(0, 3000, 3)))
    table = qbeast.open_table(tmp_path / "t")
    left = table.read()
    assert left.height == 2000
    result = table.optimize()
    assert result.plan["reason"].to_list() == ["deletion vector"]
    assert result.rows == 2000
    check(tmp_path / "t", left)
    assert not load_snapshot(tmp_path / "t").files["has_deletion_vector"].any()


@pytest.mark.parametrize(
    "name", ["qbeast-spark-0.7.1/convert_parquet", "qbeast-spark-0.8/convert_parquet_append"]
)
def test_converted_table_gets_its_first_revision(name: str, tmp_path: Path) -> None:
    golden = find(name)
    path = copy_of(golden, tmp_path)
    table = qbeast.open_table(path)
    sample = table.read(sample=0.3).sort("id")
    result = table.optimize()
    assert result.plan.filter(pl.col("reason") == "staged").height
    assert table.read().sort("id").equals(golden.expected)
    assert table.read(sample=0.3).sort("id").equals(sample)
    assert table.cube_size == 300
    assert None not in table.rows().files()["revision_id"].to_list()
    assert '"cubeId"' in load_snapshot(path).files["blocks"][0]
    assert not table.optimize().committed


def test_progress_history_and_report_agree(tmp_path: Path) -> None:
    hybrid(tmp_path / "t")
    table, report = qbeast.open_table(tmp_path / "t"), []
    result = table.optimize(progress=report.append, commit_metadata={"who": "nightly"})
    assert [item.stage for item in report] == ["read", "plan", "write", "commit", "done"]
    assert {item.rows for item in report} == {400}
    newest = table.history(1).unnest("metadata").row(0, named=True)
    assert (newest["operation"], newest["who"], newest["is_blind_append"]) == ("OPTIMIZE", "nightly", False)
    assert newest["parameters"] == {"predicate": "[]", "revision": "1", "reasons": "staged"}
    metrics = newest["metrics"]
    assert metrics["numRemovedFiles"] == result.files_removed == 2
    assert metrics["numRemovedBytes"] == result.bytes_removed
    assert metrics["numAddedBytes"] == result.bytes
    text = f"instead of\n  staged: 2 files, 400 rows, {result.bytes_removed:,} bytes\n  a filter on 1/30 of"
    assert text in repr(result)


@pytest.mark.parametrize(
    "options",
    [
        {"revision": 7},
        {"revision": "some"},
        {"revision": 1, "files": []},
        {"revision": "all", "into": "new"},
        {"into": "old"},
        {"files": ["nowhere.parquet"]},
        {"fraction": 1.5},
        {"fraction": "half"},
        {"fraction": True},
        {"fraction": float("nan")},
        {"commit_metadata": {"operationMetrics": "mine"}},
    ],
)
def test_invalid_options_raise(tmp_path: Path, options: dict[str, Any]) -> None:
    qbeast.write_table(rows(0, 50), tmp_path / "t", columns=COLUMNS)
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.InvalidInputError, match="Nothing was changed"):
        table.optimize(**options)


def test_foreign_widened_column_gets_new_revision(tmp_path: Path) -> None:
    frame = rows(0, 400).with_columns(pl.col("row").cast(pl.Int32))
    qbeast.write_table(frame, tmp_path / "t", columns=["row:linear"], cube_size=50)
    wide = rows(400, 100)
    write_deltalake(
        tmp_path / "t", pl.concat([frame.cast(wide.schema), wide]), mode="overwrite", schema_mode="overwrite"
    )
    table = qbeast.open_table(tmp_path / "t")
    result = table.optimize()
    assert (result.new_revision, result.revision_id, table.cube_size) == (True, 2, 50)
    check(tmp_path / "t", rows(0, 400).vstack(wide))
    assert not table.optimize().committed
