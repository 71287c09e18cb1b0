"""Restores and vacuums by Spark and by us, in turn: rows, index and older versions are what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

import qbeast
from tests.integration.tables import assert_same_rows, small_files
from tests.interop.delta import FILTERS, INDEXED, SAMPLES, Delta, assert_right, rows_from

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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
    asked = [table.explain(sample=sample) for sample in SAMPLES]
    return [plan.share for plan in [*asked, *map(table.explain, FILTERS.values())]]


def test_both_restore_what_both_did(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path)
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(rows_from(0), tmp_path, columns=INDEXED, cube_size=40)
    opened = qbeast.open_table(tmp_path)
    models = [rows_from(0)]
    before = pruned(tmp_path)

    qbeast.write_table(rows_from(10**6), tmp_path, mode="append")  # 1: a new revision
    models.append(pl.concat([rows_from(0), rows_from(10**6)]))
    opened.refresh().optimize(fold=True, all_revisions=False, full=True)  # 2
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


def test_a_vacuum_of_spark_leaves_the_table_and_takes_what_ours_would(
    spark: SparkSession, tmp_path: Path
) -> None:
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
