"""Tables in an object store, written by Spark's workers and read by them: with qbeast's options, no jar of Hadoop's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.glue_service import ENTRIES, glue_client, serving_glue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def options(s3_options: dict[str, str]) -> dict[str, str]:
    """Options in small letters, as they are often given to Spark."""
    return {name.lower(): value for name, value in s3_options.items()}


@pytest.mark.parametrize("scheme", ["s3", pytest.param("s3a", marks=pytest.mark.sweep)])
def test_options_of_the_store_reach_the_workers(
    spark: SparkSession, bucket: str, options: dict[str, str], scheme: str
) -> None:
    address = f"{scheme}://{bucket}/a table"
    rows = spark.range(3_000, numPartitions=2).selectExpr("id AS key", "id * 7919 % 1009 AS value")
    bridge.write_table(rows, address, columns=["key", "value"], storage_options=options)
    assert sorted(qbeast.read_table(address, storage_options=options)["key"]) == list(range(3_000))

    bridge.register(spark)
    reader = spark.read.format("qbeast").options(
        **{f"storage.{name}": value for name, value in options.items()}
    )
    actual = (
        reader.option("sample", "0.5").option("where", "value < 100").load(address).select("key").collect()
    )
    sample = (
        qbeast.scan_table(address, sample=0.5, storage_options=options)
        .filter(pl.col("value") < 100)
        .collect()
    )
    assert sorted(row["key"] for row in actual) == sorted(sample["key"])
    assert len(actual) > 0

    result = bridge.open_table(spark, address, storage_options=options).optimize(full=True)
    assert (result.rows, result.committed) == (3_000, True)
    assert sorted(qbeast.read_table(address, storage_options=options)["key"]) == list(range(3_000))


def test_name_of_glue_stands_for_a_path(
    spark: SparkSession, bucket: str, s3_options: dict[str, str], options: dict[str, str]
) -> None:
    address = f"s3://{bucket}/named"
    qbeast.write_table(pl.DataFrame({"key": range(100)}), address, columns=["key"], storage_options=options)
    glue, database = glue_client(s3_options), f"of_{bucket}"
    glue.create_database(DatabaseInput={"Name": database})
    glue.create_table(DatabaseName=database, TableInput={"Name": "named", **ENTRIES["spark"](address)})
    name = f"glue://{database}.named"

    assert bridge.open_table(spark, name, storage_options=options).delete("key < 50").rows_deleted == 50
    bridge.register(spark)
    stored = {f"storage.{key}": value for key, value in options.items()}
    assert spark.read.format("qbeast").options(**stored).load(name).count() == 50
    bridge.register_table(spark, name, "of_glue", storage_options=options)
    spark.sql("INSERT INTO of_glue VALUES (7)").collect()
    bridge.refresh(spark, "of_glue")
    assert spark.table("of_glue").count() == len(qbeast.open_table(address, storage_options=options)) == 51
    spark.catalog.dropTempView("of_glue")


def test_table_of_lake_formation_is_read_by_tasks(
    spark: SparkSession, bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://{bucket}/lent"
    qbeast.write_table(
        pl.DataFrame({"key": range(100)}), address, columns=["key"], storage_options=s3_options
    )
    lent = {"AccessKeyId": "lent", "SecretAccessKey": "key", "SessionToken": "token"}
    with serving_glue() as service:
        for name in ("GLUE", "LAKEFORMATION"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.endpoint)
        of_lake = {"IsRegisteredWithLakeFormation": True, "CatalogId": "123456789012"}
        entry = {**of_lake, **ENTRIES["athena"](address)}
        service.replies.update(GetTable={"Table": entry}, GetTemporaryGlueTableCredentials=lent)
        rows = bridge.read_table(spark, "glue://shop.lent", where="key < 50", storage_options=s3_options)
    assert sorted(row.key for row in rows.collect()) == list(range(50))
