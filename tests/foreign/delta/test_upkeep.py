"""Checkpoints, restores and vacuums by Spark and by us, in turn: rows, tags and older versions are what they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import FILTERS, INDEXED, SAMPLES, Delta, assert_right, rows_from
from tests.helpers.tables import assert_same_rows, small_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep


def write_versions(path: Path, count: int = 3) -> pl.DataFrame:
    """Write a table of as many versions, in small files."""
    with small_files(file_rows=60, page_rows=8):
        for number in range(count):
            rows = rows_from(200 * number, 200)
            qbeast.write_table(rows, path, columns=INDEXED, cube_size=40, mode="append")
    return rows_from(0, 200 * count)


def pruned(path: Path) -> list[float]:
    """What share of the bytes queries open: the index at work."""
    table = qbeast.open_table(path)
    request = [table.rows(sample=sample).explain() for sample in SAMPLES]
    plans = [*request, *(table.rows(where).explain() for where in FILTERS.values())]
    return [plan.share for plan in plans]


def force_checkpoint(table: Delta) -> None:
    """Let Spark write a checkpoint of the newest version now, as its own commits do every so often."""
    jvm = table.spark.sparkContext._jvm  # noqa: SLF001 -- Delta has no statement for it
    java = table.spark._jsparkSession  # type: ignore[attr-defined] # noqa: SLF001 -- as above
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java, str(table.path)).checkpoint()


def without_commits(table: Delta, copy: Path) -> Delta:
    """Copy the table without the commits before its checkpoint, as after a clean-up, to where nobody knows it."""
    shutil.copytree(table.path, copy)
    log = copy / "_delta_log"
    names = [path.name for path in log.iterdir()]
    newest = max(int(name[:20]) for name in names if ".checkpoint." in name and name[0] != ".")
    for name in names:
        if name.endswith(".crc") or (name[20:] == ".json" and int(name[:20]) < newest):
            (log / name).unlink()
    return Delta(table.spark, copy)


@pytest.mark.parametrize(
    "properties",
    [
        "'team' = 'us'",
        "'delta.checkpointPolicy' = 'v2'",
        "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpoint.writeStatsAsJson' = 'false'",
        "'delta.checkpoint.writeStatsAsStruct' = 'false'",
    ],
)
def test_index_survives_one_checkpoint_by_spark(spark: SparkSession, tmp_path: Path, properties: str) -> None:
    table = Delta(spark, tmp_path / "t")
    model = write_versions(table.path)
    table.sql(f"alter table {{t}} set tblproperties ({properties})")
    before = pruned(table.path)
    assert max(before[0], before[3]) < 0.7
    force_checkpoint(table)
    left = without_commits(table, tmp_path / "copy")
    assert pruned(left.path) == before
    assert_right(left, model)
    qbeast.write_table(rows_from(600, 100), left.path, mode="append")
    qbeast.open_table(left.path).optimize(full=True)
    assert_right(left, rows_from(0, 700))


def test_index_survives_checkpoints_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path / "t")
    write_versions(table.path, 9)  # versions 0 to 8
    table.append(rows_from(1800, 50))
    table.append(rows_from(1850, 50))
    assert list(table.path.glob("_delta_log/*010.checkpoint*"))
    before = pruned(table.path)
    left = without_commits(table, tmp_path / "copy")
    assert pruned(left.path) == before
    assert before[0] < 0.5
    assert_right(left, rows_from(0, 1900))


def test_spark_reads_our_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_versions(path, 2)
    qbeast.open_table(path).set_properties({"delta.checkpointInterval": "3"})
    qbeast.write_table(rows_from(400, 200), path, mode="append")
    table = Delta(spark, path)
    assert list(path.glob("_delta_log/*003.checkpoint.parquet"))
    table.sql("delete from {t} where row = 7")
    left = without_commits(table, tmp_path / "copy")
    model = rows_from(0, 600).filter(pl.col("row") != 7)
    assert_right(left, model)
    left.sql("update {t} set note = 'new' where row = 8")
    left.append(rows_from(600, 50))
    noted = pl.when(pl.col("row") == 8).then(pl.lit("new")).otherwise("note").alias("note")
    assert_right(left, pl.concat([model.with_columns(noted), rows_from(600, 50)]))


def test_restores_undo_both_writers(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(rows_from(0), tmp_path, columns=INDEXED, cube_size=40)
    opened = qbeast.open_table(tmp_path)
    models = [rows_from(0)]
    before = pruned(tmp_path)

    qbeast.write_table(rows_from(10**6), tmp_path, mode="append")  # 1: a new revision
    models.append(pl.concat([rows_from(0), rows_from(10**6)]))
    opened.refresh().optimize(into="newest", full=True)  # 2
    models.append(models[1])
    table.sql("delete from {t} where a < 20")  # 3
    models.append(models[1].filter((pl.col("a") < 20).fill_null(value=False).not_()))
    table.sql("restore table {t} to version as of 0")  # 4
    models.append(models[0])
    assert pruned(tmp_path) == before
    assert_right(table, models[0])
    qbeast.open_table(tmp_path).restore(3)  # 5
    models.append(models[3])
    assert_right(table, models[3])
    table.sql("restore table {t} to version as of 1")  # 6
    models.append(models[1])
    assert_right(table, models[1])
    qbeast.write_table(rows_from(2 * 10**6), tmp_path, mode="append")  # 7
    models.append(pl.concat([models[1], rows_from(2 * 10**6)]))
    assert_right(table, models[7])
    assert [entry["operation"] for entry in table.sql("describe history {t} limit 4")] == [
        "WRITE",
        "RESTORE",
        "RESTORE",
        "RESTORE",
    ]
    for version, model in enumerate(models):
        assert_same_rows(qbeast.read_table(tmp_path, version=version), model)
        assert_same_rows(table.read(versionAsOf=version), model)


def test_spark_vacuum_keeps_table_readable(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    model = write_versions(tmp_path)
    table.sql("alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    table.sql("delete from {t} where row in (7, 207, 407)")
    model = model.filter(~pl.col("row").is_in([7, 207, 407]))
    qbeast.open_table(tmp_path).optimize()
    table.sql("delete from {t} where row = 8")
    model = model.filter(pl.col("row") != 8)
    ours = qbeast.open_table(tmp_path).vacuum(retention_hours=0, allow_short_retention=True)
    theirs = {row["path"] for row in table.sql("vacuum {t} retain 0 hours dry run")}
    names = {path.rpartition("/")[2] for path in theirs}
    assert {path.rpartition("/")[2] for path in ours.files} == names
    table.sql("vacuum {t} retain 0 hours")
    assert_right(table, model)
    assert {path.name for path in tmp_path.iterdir()}.isdisjoint(names)


def test_our_vacuum_keeps_table_readable_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    model = write_versions(tmp_path)
    table.sql("alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    table.sql("delete from {t} where row in (7, 207, 407)")
    qbeast.open_table(tmp_path).optimize()
    table.sql("delete from {t} where row = 208")
    model = model.filter(~pl.col("row").is_in([7, 207, 407, 208]))
    done = qbeast.open_table(tmp_path).vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert {Path(name).suffix for name in done.files} == {".parquet", ".bin"}
    assert_right(table, model)
    left = [row["path"] for row in table.sql("vacuum {t} retain 0 hours dry run")]
    assert [path for path in left if path.endswith(".parquet")] == []
