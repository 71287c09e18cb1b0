"""CarbonData tables become tables of ours: the same rows, a clean check, the loads in the history."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.foreign.carbondata.collection import IMPORTED, in_order, swept, table_path

# The rows are few and alike.
pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

NAMES = [
    "sdk230_complex_map",
    "sdk161_prim_snappy",
    "tx230_complex_tx",
    "tx230_partitioned",
]


@pytest.mark.filterwarnings("ignore::qbeast.LostValuesWarning")
@pytest.mark.parametrize("name", [*NAMES, *swept(IMPORTED)])
def test_import_keeps_rows_and_passes_check(name: str, tmp_path: Path) -> None:
    source = qbeast.read_carbondata(table_path(name))
    result = qbeast.import_carbondata(table_path(name), tmp_path / "new")
    table = qbeast.open_table(tmp_path / "new")
    assert result.rows == source.height
    assert table.check().ok
    assert_frame_equal(in_order(table.read()), in_order(source))


def test_sort_columns_are_indexed_and_properties_kept(tmp_path: Path) -> None:
    path = table_path("tx230_evolution_defaults")
    qbeast.import_carbondata(path, tmp_path / "new")
    table = qbeast.open_table(tmp_path / "new")
    assert table.indexed_columns == ("k",)
    log = (tmp_path / "new/_delta_log/00000000000000000000.json").read_bytes().splitlines()
    metadata = next(line["metaData"] for line in map(orjson.loads, log) if "metaData" in line)
    stored = qbeast.open_carbondata(path).properties
    assert {f"carbondata.{key}": value for key, value in stored.items()}.items() <= metadata[
        "configuration"
    ].items()
    assert any(field["metadata"] for field in orjson.loads(metadata["schemaString"])["fields"])


def test_history_has_a_version_per_load(tmp_path: Path) -> None:
    path = table_path("tx230_basic_3segments")
    result = qbeast.import_carbondata(path, tmp_path / "new", segments="history")
    assert (result.commits, result.segments, result.version, result.rows) == (3, ("0", "1", "2"), 2, 60)
    for version, name in enumerate(result.segments):
        so_far = [qbeast.read_carbondata(path, segments=[item]) for item in result.segments[: version + 1]]
        table = qbeast.open_table(tmp_path / "new", version=version)
        assert_frame_equal(table.read().sort("id"), pl.concat(so_far).sort("id"))
        commit = table.history().filter(version=version)["metadata"][0]
        assert commit["carbondata.segments"] == name
        assert commit["carbondata.loadStart"].startswith("2026-11-21T")
    assert table.check().ok


def test_history_replaces_unchanged_compactions_by_loads(tmp_path: Path) -> None:
    path = table_path("tx230_minor_compaction")
    result = qbeast.import_carbondata(path, tmp_path / "new", segments="history")
    assert result.segments == ("0", "1", "2", "3")
    # CarbonData's own compaction lost timestamps; the loads still have them. All else is the same.
    actual = qbeast.read_table(tmp_path / "new").sort("id")
    now = qbeast.read_carbondata(path).sort("id")
    assert_frame_equal(actual.drop("ts"), now.drop("ts"))
    assert actual["ts"].null_count() < now["ts"].null_count()


def test_history_keeps_compactions_with_changed_rows(tmp_path: Path) -> None:
    path = table_path("tx230_update_then_major")
    result = qbeast.import_carbondata(path, tmp_path / "new", segments="history")
    assert result.segments == ("1.1",)
    assert_frame_equal(
        qbeast.read_table(tmp_path / "new").sort("id"), qbeast.read_carbondata(path).sort("id")
    )


def test_compaction_of_itself_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "old"
    shutil.copytree(table_path("tx230_minor_compaction"), path)
    status = path / "Metadata/tablestatus"
    loads = orjson.loads(status.read_bytes())
    inner = next(load for load in loads if load.get("mergedLoadName"))
    status.write_bytes(orjson.dumps([*loads, {**inner, "mergedLoadName": inner["loadName"]}]))
    result = qbeast.import_carbondata(path, tmp_path / "new", segments="history")
    assert result.rows == qbeast.read_carbondata(path).height


def test_rows_larger_than_the_memory_are_spilled(tmp_path: Path) -> None:
    path = table_path("tx230_delete_multiblocklet")
    result = qbeast.import_carbondata(
        path,
        tmp_path / "new",
        columns=["id"],
        resources=qbeast.Resources(engine="spill", memory_bytes=16 << 20),
    )
    assert result.engine == "spill"
    actual = qbeast.read_table(tmp_path / "new").sort("id")
    assert_frame_equal(actual, qbeast.read_carbondata(path).sort("id"))


def test_dry_run_writes_no_file(tmp_path: Path) -> None:
    result = qbeast.import_carbondata(table_path("tx230_partitioned"), tmp_path / "new", dry_run=True)
    assert (result.dry_run, result.committed, result.rows) == (True, False, 37)
    assert not (tmp_path / "new").exists()
