"""The quickstart of qbeast-spark, with the jar replaced by this package: the lines are the same, but for three.

    python -m examples.qbeast_spark_quickstart

Tables are written to a temporary folder.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import qbeast_spark_bridge as bridge
from examples.spark_pipeline import start_spark


def main() -> None:
    spark = start_spark()
    with tempfile.TemporaryDirectory() as folder:
        run(spark, Path(folder))
    spark.stop()


def run(spark: SparkSession, folder: Path) -> dict[str, object]:
    """Run the lines of the quickstart; return what they print."""
    bridge.register(spark)  # instead of the jar, the extension and the catalog
    path, printed = str(folder / "qtable"), dict[str, object]()

    data = spark.createDataFrame(
        [(1, "a", 10), (2, "b", 20), (3, "c", 30)], "id: int, name: string, age: int"
    )
    columns = {"columnsToIndex": "id,age"}
    data.write.mode("overwrite").format("qbeast").options(**columns).save(path)

    append = spark.createDataFrame([(4, "d", 40), (5, "e", 50)], "id: int, name: string, age: int")
    append.write.mode("append").format("qbeast").options(**columns).save(path)

    qbeast_df = spark.read.format("qbeast").load(path)
    printed["rows"] = qbeast_df.count()
    printed["older than 20"] = sorted(row.name for row in qbeast_df.filter("age > 20").collect())

    # Not `qbeast_df.sample(0.5)`: Spark does not pass a sample on, and reads everything.
    printed["sample"] = spark.read.format("qbeast").option("sample", 0.5).load(path).count()

    # Not CREATE TABLE ... USING qbeast: Spark does not pass the path on.
    name = bridge.register_table(spark, path, "student")
    spark.sql(f"INSERT INTO {name} VALUES (6, 'f', 60)")  # noqa: S608 - a quoted name
    bridge.refresh(spark, "student")  # Spark plans a view once
    printed["in SQL"] = spark.table(name).groupBy().sum("age").first()[0]  # type: ignore[index]

    table = bridge.QbeastTable.forPath(spark, path)
    table.optimize()
    printed["indexed by"] = table.indexedColumns()
    printed["revision"] = table.latestRevisionID()
    printed["cube size"] = table.cubeSize()
    printed["operations"] = table.history()["operation"].to_list()
    for what, value in printed.items():
        print(f"{what}: {value}")
    return printed


if __name__ == "__main__":
    main()
