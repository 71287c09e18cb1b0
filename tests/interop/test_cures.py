"""Delta tables that we refuse: Spark with Delta runs the calls that the errors suggest."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qbeast
import qbeast_spark_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[1] / "golden" / "delta"
CALL = re.compile(r"qbeast_spark_bridge\.\w+\(.*?\)(?=[.,]( |$)|$)")


def run_call(error: qbeast.QbeastError, spark: SparkSession, new: Path) -> object:
    found = CALL.search(str(error))
    assert found is not None, error
    call = re.sub(r"columns=\[.*?\]", "columns=['id']", found[0])
    return eval(call, {"qbeast_spark_bridge": qbeast_spark_bridge, "spark": spark, "new": new})  # noqa: S307 -- our own message is tested


def test_spark_reads_shredded_variants(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.sql("set spark.sql.variant.writeShredding.enabled=true")
    spark.sql("set spark.sql.variant.forceShreddingSchemaForTest=a int, b string")
    spark.sql(
        f"create table delta.`{path}` (id bigint, v variant) using delta tblproperties ('delta.enableVariantShredding'='true')"
    )
    spark.sql(
        f"""insert into delta.`{path}` select id, parse_json('{{"a": ' || id || ', "b": "x"}}') from range(100)"""
    )
    print(next(path.glob("_delta_log/*0.json")).read_text())
    qbeast.convert_table(path, columns=["id"])
    assert qbeast.read_table(path, columns=["id"]).height == 100
    with pytest.raises(qbeast.UnsupportedTableError) as caught:
        qbeast.read_table(path)
    print(caught.value)
    df = run_call(caught.value, spark, tmp_path / "new")
    df.show(3)
    assert sorted(tuple(row) for row in df.selectExpr("id", "v:a::int a").collect()) == [
        (i, i) for i in range(100)
    ]
    for f in (lambda: qbeast.open_table(path).optimize(), lambda: qbeast.open_table(path).delete("id = 3")):
        try:
            print(f())
        except qbeast.QbeastError as e:
            print("NO", e)
    try:
        print(qbeast_spark_bridge.optimize(spark, path))
    except Exception as e:
        print("NO", e)
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableVariantShredding'='false')")
    print(spark.sql(f"insert overwrite delta.`{path}` select * from delta.`{path}`").collect())
    try:
        print(qbeast.read_table(path).height)
    except Exception as e:
        print("NO", e)
