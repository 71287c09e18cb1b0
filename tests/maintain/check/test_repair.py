"""A repair mends what the log can mend and nothing else; no row is lost or comes twice, whatever was spoiled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.format.collection import Golden, each
from tests.helpers import damage as d
from tests.helpers.faults import DATA_FAULTS, INDEXED, LOG_FAULTS, ORDER
from tests.helpers.invariants import read_log
from tests.helpers.races import landing_first
from tests.helpers.spoiled_copies import spoiled_copies
from tests.helpers.tables import assert_same_rows, sampled, small_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning"),
]

LOST = {"no file", "half a file", "no Parquet file"}
REWRITTEN = {"another hidden weight"}
SOME = (
    "legacy/v050_announced_compacted",
    "legacy/v050_mixed_states",
    "qbeast-spark-0.7.1/delta_delete",
    "qbeast-spark-0.7.1/old_date",
    "qbeast-spark-0.8/empty",
    "qbeast-spark-0.8/quant_string",
)
KEEPS_INDEX = {
    "the other spelling",
    "a key more",
    "other statistics",
    "no count of rows",
    "a longer file",
    "a least value too large",
    "a largest value too small",
    "other nulls",
    *(
        name
        for name, (_, codes) in (LOG_FAULTS | DATA_FAULTS).items()
        if codes <= {"layout", "layout-unreadable", "pages"}
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    rows = pl.DataFrame(
        {
            "row": np.arange(300),
            "a": rng.integers(0, 1000, 300),
            "b": rng.normal(size=300),
            "s": [f"key {value}" for value in rng.integers(0, 90, 300)],
        }
    )
    path = tmp_path_factory.mktemp("repair") / "t"
    # Files of older versions have no copies of their tags.
    with small_files(file_rows=120, page_rows=16), spoiled_copies(lambda _: {}):
        qbeast.write_table(rows[:240], path, columns=INDEXED, cube_size=40)
        qbeast.write_table(rows[240:], path, mode="append")
    return path


@pytest.fixture
def table(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "t"))


def stored_rows(table: Path) -> pl.DataFrame:
    """What the data files hold, read without any index."""
    files = [pl.read_parquet(table / path).drop("_qbeast_weight") for path in read_log(table).adds]
    return pl.concat(files)


QUICK = {
    "no JSON",
    "the other spelling",
    "other statistics",
    "a longer file",
    "half a file",
    "another first weight",
    "another hidden weight",
    "a row lost",
    "a damaged page directory",
    "a largest value too small",
}


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.sweep)
        for name in (*LOG_FAULTS, *DATA_FAULTS)
    ],
)
def test_repair_shows_rows_once_and_names_rest(table: Path, name: str) -> None:
    change, _ = (LOG_FAULTS | DATA_FAULTS)[name]
    spoiled = d.spoil(table, change, indexed=INDEXED, at=1)
    before = read_log(table)
    opened = qbeast.open_table(table)
    result = opened.repair()
    assert result.remaining["advice"].null_count() == 0, result
    after = read_log(table)
    if name in LOST:
        assert not result.committed
        assert spoiled.path in set(result.remaining["path"])
        return
    rows = stored_rows(table)
    assert_same_rows(opened.read(), rows)
    early = pl.col("a") < 300
    expected = sampled(rows, INDEXED, 0.3).filter(early)
    assert_same_rows(opened.rows(sample=0.3).lazy().filter(early).collect(), expected)
    left = set(opened.check().faults["code"])
    assert left == set(result.remaining["code"])
    if name in REWRITTEN:
        assert left == {"hidden-weight"}
        assert not result.committed
        return
    assert left <= ORDER
    assert (result.committed, result.version, opened.version) == (True, 2, 2)
    assert result.repaired_files["path"].to_list() == [spoiled.path]
    tags = after.adds[spoiled.path].get("tags") or {}
    assert ("blocks" in tags) == (name in KEEPS_INDEX), result
    assert {path: add for path, add in after.adds.items() if path != spoiled.path} == {
        path: add for path, add in before.adds.items() if path != spoiled.path
    }
    assert DeltaTable(table).count() == rows.height


def test_repair_keeps_everything_else_of_a_file(table: Path) -> None:
    spoiled = d.spoil(table, d.tags(blocks="oops", other="kept"), indexed=INDEXED)
    before = read_log(table).adds[spoiled.path]
    qbeast.open_table(table).repair()
    after = read_log(table).adds[spoiled.path]
    assert after.pop("tags") == {"other": "kept"}
    assert after.pop("dataChange") is False
    assert after == {key: value for key, value in before.items() if key not in {"tags", "dataChange"}}
    info = json.loads((table / "_delta_log" / f"{2:020}.json").read_text().splitlines()[0])["commitInfo"]
    assert info["operation"] == "REPAIR"


def test_repaired_table_passes_check_after_optimize(table: Path) -> None:
    d.spoil(table, d.tags(blocks="oops"), indexed=INDEXED)
    opened = qbeast.open_table(table)
    rows = stored_rows(table)
    planned = opened.repair(dry_run=True)
    assert (opened.version, planned.committed) == (1, False)
    result = opened.repair()
    assert planned.repaired_files.equals(result.repaired_files)
    assert planned.remaining.equals(result.remaining)
    again = opened.repair()
    assert (again.committed, again.repaired_files.height) == (False, 0)
    opened.optimize(full=True)
    opened.optimize(revision=0)
    assert opened.check().ok, opened.check()
    assert_same_rows(opened.read(), rows)


def test_concurrently_replaced_file_is_kept(table: Path) -> None:
    d.spoil(table, d.tags(blocks="oops"), indexed=INDEXED)
    opened = qbeast.open_table(table)
    with landing_first(lambda: qbeast.open_table(table).optimize(revision=0)):
        result = opened.repair()
    assert (result.committed, result.repaired_files.height) == (False, 0)
    assert_same_rows(opened.read(), stored_rows(table))


@each(bundled=SOME, fast=SOME[2:])
def test_repair_does_not_change_golden_tables(golden: Golden, tmp_path: Path) -> None:
    path = Path(shutil.copytree(golden.path, tmp_path / "t"))
    opened = qbeast.open_table(path)
    version = opened.version
    result = opened.repair()
    assert (result.committed, result.version, opened.version) == (False, version, version)
    assert set(result.remaining["code"]) == ({"rows-doubled"} if golden.is_doubled else set())
