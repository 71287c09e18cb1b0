"""Spark's Delta and we change a table in turn, on each feature: nothing is lost, and the feature stays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from tests.foreign.delta.delta import Delta, rows_from
from tests.helpers.tables import assert_same_rows, sampled, small_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

ROUNDS = 4
COLUMNS = "row bigint, a double, b string, note string"


@dataclass(frozen=True)
class Feature:
    """How a table with a feature is created."""

    properties: Mapping[str, str]
    partitioned: bool = False
    after: str = ""


SPARK_CHANGES = (
    "update {t} set note = 'spark #', a = a + 1 where row % 11 = #",
    "update {t} set b = 'key 0' where row % 13 = #",
    "delete from {t} where row % 17 = #",
)
VECTORS = "delta.enableDeletionVectors"
MAPPED = {"delta.columnMapping.mode": "name"}
FEATURES = {
    "partitions": Feature({}, partitioned=True),
    "mapping by name": Feature(MAPPED),
    "mapping by id": Feature({"delta.columnMapping.mode": "id"}),
    "mapped partitions": Feature(MAPPED, partitioned=True),
    "deletion vectors": Feature({VECTORS: "true"}),
    "vectors of a feed": Feature({VECTORS: "true", "delta.enableChangeDataFeed": "true"}),
    "vectors of mapped partitions": Feature({VECTORS: "true", **MAPPED}, partitioned=True),
    "vectors of tracked rows": Feature({VECTORS: "true", "delta.enableRowTracking": "true"}),
    "change feed": Feature({"delta.enableChangeDataFeed": "true"}),
    "mapped feed": Feature({"delta.enableChangeDataFeed": "true", **MAPPED}, partitioned=True),
    "constraints": Feature({}, after="alter table {t} add constraint few check (row >= 0 or row is null)"),
    "row tracking": Feature({"delta.enableRowTracking": "true"}),
    "iceberg": Feature({"delta.enableIcebergCompatV2": "true", **MAPPED}),
}


@pytest.fixture(params=FEATURES)
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Delta:
    feature, actual = FEATURES[request.param], Delta(spark, tmp_path / "t")
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in feature.properties.items())
    listed = f"tblproperties ({properties})" if properties else ""
    parts = "partitioned by (b)" if feature.partitioned else ""
    actual.sql(f"create table {{t}} ({COLUMNS}) using delta {parts} {listed}")
    if feature.after:
        actual.sql(feature.after)
    actual.append(rows_from(0))
    return actual


def by_spark(table: Delta, model: pl.DataFrame, number: int) -> pl.DataFrame:
    new = rows_from(1000 * number + 1000, 60)
    table.append(new)
    for text in SPARK_CHANGES:
        table.sql(text.replace("#", str(number)))
    return changed(pl.concat([model, new]), f"spark {number}", number)


def by_us(table: Delta, model: pl.DataFrame, number: int) -> pl.DataFrame:
    new = rows_from(1000 * number + 1000, 60)
    qbeast.write_table(new, table.path, mode="append")
    ours = qbeast.open_table(table.path)
    if number % 4 == 1:
        ours.optimize()
    row = pl.col("row")
    ours.update(row % 11 == number, {"note": pl.lit(f"ours {number}"), "a": pl.col("a") + 1})
    ours.update(row % 13 == number, {"b": pl.lit("key 0")})
    source = new.head(5).with_columns(row + 500)
    ours.merge(source, on="row", when_matched="ignore")
    ours.delete(row % 17 == number)
    return changed(pl.concat([model, new, source]), f"ours {number}", number, merged=source)


def changed(
    model: pl.DataFrame, note: str, number: int, *, merged: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return the rows after the changes of a round; merged rows came after the updates."""
    row = pl.col("row")
    later = row.is_in([] if merged is None else merged["row"].to_list())
    first, second = (row % 11 == number) & ~later, (row % 13 == number) & ~later
    model = model.with_columns(
        note=pl.when(first).then(pl.lit(note)).otherwise("note"),
        a=pl.when(first).then(pl.col("a") + 1).otherwise("a"),
        b=pl.when(second).then(pl.lit("key 0")).otherwise("b"),
    )
    return model.filter((row % 17 == number).not_().fill_null(value=True))


def test_changes_in_turn_keep_all_rows(table: Delta) -> None:
    model, indexed = rows_from(0), ["row", "a"]
    warnings.simplefilter("ignore", qbeast.QbeastWarning)
    before = {key: value for key, value in table.properties().items() if key.startswith("delta.")}
    with small_files(file_rows=60, page_rows=8):
        qbeast.convert_table(table.path, columns=indexed, cube_size=40)
        for number in range(ROUNDS):
            model = (by_us if number % 2 else by_spark)(table, model, number)
            ours = qbeast.open_table(table.path)
            assert_same_rows(ours.read(), model)
            assert_same_rows(table.read(), model)
            assert_same_rows(ours.read(sample=0.3), sampled(model, indexed, 0.3))
            where = pl.col("b") == "key 3"
            assert_same_rows(ours.rows().lazy().filter(where).collect(), model.filter(where))
        report = ours.check()
        assert report.ok, report
    assert before.items() <= table.properties().items()
