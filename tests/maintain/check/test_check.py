"""A check finds sound tables sound, and names the file and the fault of spoiled ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.check.faults import FAULT_SCHEMA
from tests.format.collection import FAST, Golden, each, find
from tests.helpers import damage as d
from tests.helpers.faults import DATA_FAULTS, INDEXED, LOG_FAULTS, ORDER
from tests.helpers.tables import small_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning"),
]


ROWS = 300


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "a": rng.integers(0, 1000, ROWS),
            "b": rng.normal(size=ROWS),
            "s": [f"key {value}" for value in rng.integers(0, 90, ROWS)],
            "note": range(ROWS),
        }
    )
    path = tmp_path_factory.mktemp("check") / "t"
    with small_files(file_rows=120, page_rows=16):
        qbeast.write_table(rows[:240], path, columns=INDEXED, cube_size=40)
        qbeast.write_table(rows[240:], path, mode="append")
    return path


@pytest.fixture
def table(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "t"))


def test_written_table_passes_check(table: Path) -> None:
    for data in (True, False):
        report = qbeast.open_table(table).check(data=data)
        assert report.ok, report
        assert report.faults.schema == FAULT_SCHEMA
        assert report.rows == ROWS
        assert report.files == DeltaTable(table).get_add_actions().num_rows
        assert "OK: no faults" in repr(report)


@pytest.mark.parametrize("name", LOG_FAULTS)
def test_log_faults_are_found_without_data(table: Path, name: str) -> None:
    change, codes = LOG_FAULTS[name]
    spoiled = d.spoil(table, change, indexed=INDEXED, at=1)
    report = qbeast.open_table(table).check(data=False)
    assert not report.ok
    assert_named(report, spoiled, codes)


@pytest.mark.parametrize("name", DATA_FAULTS)
def test_data_faults_are_found(table: Path, name: str) -> None:
    change, codes = DATA_FAULTS[name]
    spoiled = d.spoil(table, change, indexed=INDEXED, at=1)
    report = qbeast.open_table(table).check()
    assert not report.ok
    assert_named(report, spoiled, codes)


def assert_named(report: qbeast.CheckReport, spoiled: d.Spoiled, codes: set[str]) -> None:
    """One of the codes, at the spoiled file; of others, what follows from its blocks alone."""
    there = report.faults.filter(path=spoiled.path)
    assert codes & set(there["code"]), report
    assert set(report.faults.filter(pl.col("path") != spoiled.path)["code"]) <= ORDER, report
    assert spoiled.path in repr(report)


def test_first_misplaced_row_is_named(table: Path) -> None:
    spoiled = d.spoil(table, d.rewritten(d.other_hidden_weight), indexed=INDEXED)
    report = qbeast.open_table(table).check()
    stored = pq.read_metadata(table / spoiled.path)
    row = stored.num_rows // 2
    ends = np.cumsum([stored.row_group(number).num_rows for number in range(stored.num_row_groups)])
    (fault,) = report.faults.iter_rows(named=True)
    assert (fault["row"], fault["severity"]) == (row, "error")
    assert fault["row_group"] == np.searchsorted(ends, row, side="right")


def test_progress_follows_every_file(table: Path) -> None:
    steps: list[qbeast.Progress] = []
    report = qbeast.open_table(table).check(progress=steps.append)
    assert [step.files_done for step in steps] == list(range(1, report.files + 1))
    assert {(step.stage, step.files_total, step.rows) for step in steps} == {("read", report.files, ROWS)}


def test_block_below_an_upper_threshold_is_named(table: Path) -> None:
    blocks = qbeast.open_table(table).blocks()
    deep = blocks.filter(pl.col("depth") == 1).row(0, named=True)
    # The root's own threshold is raised above the weights of its children.
    for at in range(qbeast.open_table(table).blocks()["path"].n_unique()):
        d.spoil(
            table,
            d.blocks(
                lambda actual: [item.update(maxWeight=2**31 - 1) for item in actual if item["cube"] == ""]
            ),
            indexed=INDEXED,
            at=at,
        )
    actual = qbeast.open_table(table).check(data=False).faults
    assert {"weight-order", "threshold-order"} & set(actual["code"])
    assert deep["cube"] in set(actual["cube"])
    assert not qbeast.open_table(table).check().ok


def test_leaf_with_threshold_is_a_warning(table: Path) -> None:
    blocks = qbeast.open_table(table).blocks()
    leaf = blocks.filter(pl.col("depth") == pl.col("depth").max())["cube"][0]
    for at in range(blocks["path"].n_unique()):
        d.spoil(
            table,
            d.blocks(
                lambda actual: [item.update(maxWeight=2**31 - 2) for item in actual if item["cube"] == leaf]
            ),
            indexed=INDEXED,
            at=at,
        )
    (fault,) = qbeast.open_table(table).check().faults.iter_rows(named=True)
    assert (fault["code"], fault["severity"], fault["cube"]) == ("leaf-threshold", "warning", leaf)


def test_stale_newest_revision_is_a_table_fault(table: Path) -> None:
    commit = table / "_delta_log" / f"{0:020}.json"
    commit.write_text(
        commit.read_text().replace('"qbeast.lastRevisionID":"1"', '"qbeast.lastRevisionID":"0"')
    )
    faults = qbeast.open_table(table).check(data=False).faults.filter(code="last-revision")
    assert faults["path"].to_list() == [None]


def test_statistics_of_staged_files_are_checked(table: Path) -> None:
    rows = pl.DataFrame({"a": [1, 5], "b": [0.5, float("nan")], "s": ["x" * 200, "y"], "note": [1, 2]})
    write_deltalake(table, rows, mode="append")
    d.spoil(table, d.stats(lambda actual: actual["maxValues"].update(a=4)), indexed=INDEXED, at=-1)
    (fault,) = qbeast.open_table(table).check().faults.iter_rows(named=True)
    assert fault["code"] == "stats-bounds"
    assert "'a' holds 5, above the max of its statistics" in fault["message"]


@each(fast=FAST - {"legacy/v050_mixed_states"} | {"legacy/v050_announced_compacted"})
def test_golden_tables_pass_except_for_known_faults(golden: Golden) -> None:
    for data in (True, False):
        report = qbeast.open_table(golden.path).check(data=data)
        codes = set(report.faults["code"])
        assert codes == ({"rows-doubled"} if golden.is_doubled and data else set()), report
        assert report.files == 0 or report.rows >= golden.expected.height


def move_to_another_cube(block: dict[str, Any]) -> None:
    key = "cubeId" if "cubeId" in block else "cube"
    block[key] = "AAAAAA" if block[key] != "AAAAAA" else "wwwwww"


@pytest.mark.parametrize(
    ("edit", "codes"),
    [
        (move_to_another_cube, {"row-cube", "row-weight", "block-rows"}),
        (lambda block: block.update(minWeight=block["minWeight"] + 1), {"row-weight"}),
        (lambda block: block.update(elementCount=block["elementCount"] + 1), {"blocks-count"}),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "qbeast-spark-0.7.1/lin_float",
        pytest.param("qbeast-spark-0.8/dims3", marks=pytest.mark.sweep),
        "legacy/v040_identity_null",
        pytest.param("legacy/v050_num3_nulls", marks=pytest.mark.sweep),
    ],
)
def test_faults_of_other_writers_are_found(tmp_path: Path, name: str, edit: Any, codes: set[str]) -> None:
    golden = find(name)
    path = Path(shutil.copytree(golden.path, tmp_path / "t"))
    change = d.blocks(lambda blocks: edit(blocks[0])) if name.startswith("qbeast") else flat_block(edit)
    spoiled = d.spoil(path, change, indexed=golden.indexed)
    actual = qbeast.open_table(path).check().faults
    assert set(actual["path"]) == {spoiled.path}
    assert codes & set(actual["code"]), actual


def flat_block(edit: Any) -> d.Damage:
    """Change the only block of a file of before 0.6.0."""

    def change(_table: Path, add: d.Add, _indexed: list[str]) -> None:
        tags = add["tags"]
        block = {"cube": tags["cube"], **{key: int(tags[key]) for key in ("minWeight", "elementCount")}}
        edit(block)
        tags.update({key: str(value) for key, value in block.items()})

    return change
