"""The lines that users of qbeast-spark type: each works, or its error has the words that lead to another line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_spark_bridge.session import load_ipython_extension

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

APPEND = '.mode("append").option("columnsToIndex"'
READ = "spark.read.format('qbeast').load(old)"
WRITE = "rows.write.format('qbeast')"
INDEXED = f"{WRITE}.option('columnsToIndex', 'id,price')"

WORKING = [
    "rows.write.mode('overwrite').format('qbeast').option('columnsToIndex', 'id,price').save(new)",
    f"{INDEXED}.mode('append').save(new)",
    f"{INDEXED}.option('cubeSize', 500).mode('append').save(new)",
    f"{INDEXED}.option('columnStats', '{{\"id_min\":0,\"id_max\":999}}').mode('append').save(new)",
    f"{INDEXED}.option('userMetadata', 'mine').mode('append').save(new)",
    f"{INDEXED}.option('txnAppId', 'job').option('txnVersion', 1).mode('append').save(new)",
    f"{WRITE}.option('columnsToIndex', 'id:linear').mode('append').save(old)",
    f"{WRITE}.mode('append').save(old)",
    f"{WRITE}.mode('overwrite').save(old)",
    "rows.write.insertInto('sales')",
    "spark.sql('INSERT INTO sales VALUES (7, 1.5)')",
    "spark.sql('INSERT INTO sales SELECT * FROM arrived')",
    "spark.sql('INSERT OVERWRITE sales SELECT * FROM arrived')",
    "spark.sql('SELECT * FROM sales').collect()",
    f"{READ}.filter('id > 3').collect()",
    "spark.sql(f\"SELECT * FROM qbeast_sample('{old}', 0.1)\").collect()",
    "spark.sql(f\"SELECT * FROM qbeast_estimate('{old}', 'avg(price)', '', 0.1)\").collect()",
    "spark.sql(f\"SELECT * FROM qbeast_changes('{old}', 0)\").collect()",
    "spark.readStream.format('qbeast').load(old).isStreaming",
    "bridge.QbeastTable.forPath(spark, old).optimize()",
    "bridge.QbeastTable.forPath(spark, old).optimize(1)",
    "bridge.QbeastTable.forPath(spark, old).optimize(fraction=0.5)",
    "bridge.QbeastTable.forPath(spark, old).indexedColumns()",
    "bridge.QbeastTable.forPath(spark, old).cubeSize()",
    "bridge.QbeastTable.forPath(spark, old).revisionsIDs()",
    "bridge.QbeastTable.forPath(spark, old).latestRevisionID()",
    "bridge.QbeastTable.forPath(spark, old).getIndexMetrics()",
    "bridge.QbeastTable.forPath(spark, old).history()",
    "bridge.QbeastTable.forPath(spark, old).delete('id < 3')",
    "bridge.computeQuantilesForColumn(rows, 'price')",
]

REFUSED = {
    f"{INDEXED}.save(new)": '"ErrorIfExists" mode',
    f"{INDEXED}.mode('ignore').save(new)": '"Ignore" mode',
    f"{WRITE}.mode('append').save(new)": "needs columns to index",
    f"{WRITE}.option('columnsToIndex', 'price').mode('append').save(old)": "reindex",
    f"{INDEXED}.option('qbeastPreCommitHook.x', 'y').mode('append').save(new)": "has no option",
    f"{INDEXED}.saveAsTable('made')": APPEND,
    "spark.sql(\"CREATE TABLE made USING qbeast OPTIONS ('columnsToIndex'='id') AS SELECT * FROM arrived\")": APPEND,
    "spark.sql(f\"CREATE TABLE made USING qbeast LOCATION '{old}'\")": APPEND,
    "spark.catalog.createTable('made', old, 'qbeast')": APPEND,
    "spark.sql('CREATE TABLE qbeast_catalog.default.t (id bigint) USING qbeast')": "REQUIRES_SINGLE_PART_NAMESPACE",
    "spark.sql(f'SELECT * FROM qbeast.`{old}`').collect()": "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
    "spark.sql('DELETE FROM sales WHERE id < 3')": "does not support deletes",
    # Spark makes the name itself; what uses it first names the way out.
    "spark.sql(\"CREATE TABLE made (id bigint) USING qbeast OPTIONS ('columnsToIndex'='id')\") and "
    "spark.sql('SELECT * FROM made').collect()": "DROP TABLE",
}


@pytest.fixture
def names(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Give the names of the lines: a table, a path without one, rows, and views."""
    bridge.register(spark)
    old = str(tmp_path / "old")
    stored = pl.DataFrame({"id": range(50), "price": [n / 7 for n in range(50)]})
    qbeast.write_table(stored, old, columns=["id:linear"])
    qbeast.write_table(stored, old, mode="append")
    rows = spark.createDataFrame([(101, 1.5), (102, 2.5)], "id bigint, price double")
    rows.createOrReplaceTempView("arrived")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sales USING qbeast OPTIONS (path '{old}')")
    yield {"spark": spark, "bridge": bridge, "rows": rows, "old": old, "new": str(tmp_path / "new")}
    spark.sql("DROP TABLE IF EXISTS made")


@pytest.mark.parametrize("line", WORKING)
def test_line_works(names: dict[str, Any], line: str) -> None:
    eval(line, names)  # noqa: S307 - a line above
    written = "new" if "save(new)" in line else "old"
    ids = set(qbeast.read_table(names[written])["id"])
    writes = {"save(": {101, 102}, "insertInto": {101, 102}, "arrived": {101, 102}, "VALUES": {7}}
    for word, expected in writes.items():
        assert word not in line or expected <= ids
    assert ("verwrite" not in line.replace("OVERWRITE", "overwrite")) or ids == {101, 102}


@pytest.mark.parametrize(("line", "words"), REFUSED.items())
def test_error_leads_to_a_line(names: dict[str, Any], line: str, words: str) -> None:
    with pytest.raises((PySparkException, qbeast.QbeastError)) as caught:
        eval(line, names)  # noqa: S307 - a line above
    assert words in str(caught.value)
    assert qbeast.open_table(names["old"]).version == 1
    with pytest.raises(qbeast.TableNotFoundError):
        qbeast.open_table(names["new"])


def test_notebook_shows_message_without_traces(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shell = InteractiveShell(user_ns=names)
    assert bridge.load_ipython_extension is load_ipython_extension  # type: ignore[attr-defined]
    load_ipython_extension(shell)
    shell.run_cell("spark.read.format('qbeast').load('/no/such/table').count()")
    printed = capsys.readouterr()
    assert "there is no table at /no/such/table" in printed.err
    assert "Traceback" not in printed.err + printed.out
    shell.run_cell("spark.sql('SELECT * FROM nothing_here').collect()")
    printed = capsys.readouterr()
    assert "TABLE_OR_VIEW_NOT_FOUND" in printed.err + printed.out
    assert "Traceback" in printed.err + printed.out
