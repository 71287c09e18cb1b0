"""Tables that tasks create and replace: one commit, rows that wait for an index, and an index that stays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from qbeast_core.io.location import Location
from qbeast_core.table.write.by_tasks import begin_write, publish_parts
from qbeast_core.table.write.options import WriteOptions
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def rows_of(count: int, first: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(first)
    return pl.DataFrame({"id": np.arange(first, first + count), "x": random.random(count)})


def write(path: Path, frames: list[pl.DataFrame], *, info: Any = None, **options: Any) -> Any:
    """Write as an engine does: plan once, write parts in other processes, commit once."""
    task = begin_write(Location.of(path), frames[0].clear(), WriteOptions(**options))
    task = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes
    parts = [task.write(frame) for frame in frames]
    return publish_parts(task, parts, info=info or {})


def test_created_table_waits_for_index(tmp_path: Path) -> None:
    frames = [rows_of(300), rows_of(200, 300)]
    write(tmp_path, frames, mode="append", columns=["id", "x:quantiles"], cube_size=100, info={"why": "test"})
    table = qbeast.open_table(tmp_path)
    assert (table.version, table.indexed_columns) == (0, ("id", "x"))
    assert table.rows().files()["revision_id"].null_count() == 2
    assert table.history()["metadata"].struct.field("why").to_list() == ["test"]
    check_invariants(tmp_path, may_stage=True)
    assert_same_rows(pl.scan_delta(tmp_path).collect(), pl.concat(frames), "id")
    assert_same_rows(table.read(), pl.concat(frames), "id")
    assert table.optimize().committed
    (revision,) = [item for item in table.revisions if item.revision_id]
    assert revision.desired_cube_size == 100
    assert revision.transformer_kinds == {"id": "linear", "x": "quantiles"}
    twin = tmp_path / "twin"
    qbeast.write_table(pl.concat(frames), twin, columns=["id", "x:quantiles"], cube_size=100)
    assert table.blocks().drop("path").equals(qbeast.open_table(twin).blocks().drop("path"))


def test_appends_with_equal_options_are_accepted(tmp_path: Path) -> None:
    options = {"mode": "append", "columns": ["id", "x"], "cube_size": 100}
    write(tmp_path, [rows_of(300)], **options)
    write(tmp_path, [rows_of(50, 300)], **options)
    qbeast.open_table(tmp_path).optimize()
    outcome = write(tmp_path, [rows_of(20, 100)], **options)
    assert outcome.snapshot.files["revision"].null_count() == 0
    for other in (
        {"columns": ["x", "id"]},
        {"columns": ["id"]},
        {"columns": ["id:hash", "x"]},
        {"cube_size": 7},
    ):
        with pytest.raises(qbeast.InvalidInputError, match="reindex"):
            write(tmp_path, [rows_of(5)], **{**options, **other})
    assert qbeast.read_table(tmp_path).height == 370


def test_overwrite_keeps_the_index_of_its_table(tmp_path: Path) -> None:
    with small_files():
        qbeast.write_table(rows_of(400), tmp_path, columns=["id", "x"], cube_size=40)
        write(tmp_path, [rows_of(150), rows_of(150, 150)], mode="overwrite")
    table = qbeast.open_table(tmp_path)
    assert table.rows().files()["revision_id"].unique().to_list() == [2]
    check_invariants(tmp_path)
    assert_same_rows(table.read(), pl.concat([rows_of(150), rows_of(150, 150)]), "id")
    assert_same_rows(qbeast.read_table(tmp_path, version=0), rows_of(400), "id")
    assert table.check(data=True).ok


def test_overwrite_by_other_columns_waits_for_index(tmp_path: Path) -> None:
    qbeast.write_table(rows_of(400), tmp_path, columns=["id", "x"], cube_size=40)
    write(tmp_path, [rows_of(90)], mode="overwrite", columns=["x"])
    table = qbeast.open_table(tmp_path)
    assert (table.indexed_columns, table.rows().files()["revision_id"].to_list()) == (("x",), [None])
    table.optimize()
    assert table.rows().files()["revision_id"].to_list() == [2]
    assert table.check(data=True).ok
    other = pl.DataFrame({"name": ["a", "b"], "id": [1.5, 2.5]})
    write(tmp_path, [other], mode="overwrite", schema_mode="overwrite", columns=["id"])
    assert_same_rows(qbeast.read_table(tmp_path), other, "name")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_writes_of_no_rows_leave_a_table(tmp_path: Path, mode: str) -> None:
    write(tmp_path, [rows_of(0)], mode=mode, columns=["id"])
    assert DeltaTable(tmp_path).version() == 0
    assert qbeast.read_table(tmp_path).equals(rows_of(0))
    qbeast.write_table(rows_of(20), tmp_path, mode="append")
    write(tmp_path, [rows_of(0)], mode="overwrite")
    assert qbeast.read_table(tmp_path).height == 0


def test_new_table_needs_columns(tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="columnsToIndex"):
        write(tmp_path, [rows_of(3)], mode="append")
    assert not list(tmp_path.iterdir())


def test_lost_race_of_creation_leaves_other_table(tmp_path: Path) -> None:
    task = begin_write(Location.of(tmp_path), rows_of(0), WriteOptions(mode="append", columns=["id"]))
    part = task.write(rows_of(30))
    qbeast.write_table(rows_of(7), tmp_path / "other", columns=["id"])
    (tmp_path / "other" / "_delta_log").rename(tmp_path / "_delta_log")
    for file in (tmp_path / "other").glob("*.parquet"):
        file.rename(tmp_path / file.name)
    with pytest.raises(qbeast.TableExistsError):
        publish_parts(task, [part])
    assert qbeast.read_table(tmp_path).height == 7
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_partitions_key_and_compression_of_new_table(tmp_path: Path) -> None:
    rows = rows_of(200).with_columns(day=pl.col("id") % 3, user=pl.col("id") // 5)
    options = {
        "partition_by": ["day"],
        "sample_by": ["user"],
        "sample_column": "sample",
        "compression": "snappy",
    }
    write(tmp_path, [rows], mode="append", columns=["id", "x"], **options)
    table = qbeast.open_table(tmp_path)
    table.optimize()
    assert table.sample_by == ("user",)
    assert DeltaTable(tmp_path).metadata().partition_columns == ["day"]
    assert table.properties["delta.parquet.compression.codec"] == "snappy"
    read = table.read().drop("sample")
    assert_same_rows(read, rows, "id")
    half = table.read(sample=0.5)
    assert half["user"].n_unique() * 5 == half.height


def test_optimize_joins_the_files_of_tasks(tmp_path: Path) -> None:
    qbeast.write_table(rows_of(2_000), tmp_path, columns=["id", "x"])
    write(tmp_path, [rows_of(2_000)[at::8] for at in range(8)], mode="append")
    table = qbeast.open_table(tmp_path)
    assert table.rows().files().height == 9
    result = table.optimize()
    assert (result.files_removed, result.files, result.rows) == (9, 1, 4_000)
