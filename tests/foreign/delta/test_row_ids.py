"""Row tracking and liquid clustering beside Spark's own Delta: ids of rows stay, and each leaves files of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import INDEXED, Delta, rows_from
from tests.helpers.handmade_log import replay
from tests.helpers.row_ids import check_log, row_ids
from tests.helpers.tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

CREATE = "create table {t} (row bigint, a double, b string, note string) using delta"


def ids(table: Delta) -> dict[int, tuple[int, int]]:
    """Return the id and the commit version of each row, as Spark reads them."""
    frame = table.spark.read.format("delta").load(str(table.path))
    columns = frame.selectExpr("row", "_metadata.row_id", "_metadata.row_commit_version").collect()
    return {row: (row_id, version) for row, row_id, version in columns}


def test_ids_stay_with_both_writers(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path / "t")
    table.sql(CREATE + " tblproperties ('delta.enableRowTracking' = 'true')")
    table.append(rows_from(0))
    qbeast.convert_table(table.path, columns=INDEXED)
    properties = qbeast.open_table(table.path).properties
    names = [
        properties[f"delta.rowTracking.materializedRow{name}ColumnName"] for name in ("Id", "CommitVersion")
    ]

    def merge() -> None:
        source = rows_from(350, 100).with_columns(note=pl.lit("merged"))
        qbeast.open_table(table.path).merge(source, on="row")

    steps: list[Callable[[], object]] = [
        lambda: qbeast.open_table(table.path).optimize(full=True),
        lambda: table.append(rows_from(1000, 100)),
        lambda: qbeast.write_table(rows_from(2000, 100), table.path, mode="append"),
        lambda: table.sql("update {t} set note = 'spark' where row % 7 = 1"),
        lambda: qbeast.open_table(table.path).update("row % 5 = 1", {"note": "'ours'", "a": "a + 200"}),
        lambda: table.sql("optimize {t}"),
        lambda: qbeast.open_table(table.path).delete("row % 11 = 3"),
        lambda: table.sql("delete from {t} where row % 13 = 3"),
        merge,
        lambda: qbeast.open_table(table.path).optimize(full=True),
    ]
    for step in steps:
        old_rows = {row["row"]: row for row in table.read().iter_rows(named=True)}
        old = ids(table)
        step()
        check_log(table.path)
        new, new_rows = ids(table), {row["row"]: row for row in table.read().iter_rows(named=True)}
        assert new.keys() == new_rows.keys()
        assert new == row_ids(table.path, "row", names)
        version = qbeast.open_table(table.path).version
        for key, (row_id, changed_in) in new.items():
            if key in old:
                assert row_id == old[key][0]
                assert changed_in == (old[key][1] if new_rows[key] == old_rows[key] else version)
            else:
                assert (row_id > max(row_id for row_id, _ in old.values()), changed_in) == (True, version)
        assert_same_rows(qbeast.read_table(table.path), table.read())
    assert qbeast.open_table(table.path).check().ok


def test_liquid_clustering_and_ours_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Delta(spark, tmp_path / "t")
    table.sql(CREATE + " cluster by (a, row)")
    table.append(rows_from(0))
    table.sql("optimize {t}")
    qbeast.convert_table(table.path, columns=INDEXED)
    liquid = set(replay(table.path))
    table.append(rows_from(400))
    result = qbeast.open_table(table.path).optimize()
    assert (result.committed, result.files_left) == (True, len(liquid))
    ours = set(replay(table.path)) - liquid
    assert ours
    qbeast.write_table(rows_from(800), table.path, mode="append")
    table.append(rows_from(1200))
    table.sql("optimize {t}")
    live = replay(table.path)
    assert ours <= set(live)
    assert {file.get("clusteringProvider") for file in live.values()} == {"liquid", "qbeast"}
    assert_same_rows(table.read(), rows_from(0, 1600), "row")
    assert_same_rows(qbeast.read_table(table.path), rows_from(0, 1600), "row")
    assert sorted(table.sql("describe detail {t}")[0]["clusteringColumns"]) == ["a", "row"]
