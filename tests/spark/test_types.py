"""Variants, voids and widened types in Spark: the same rows and samples as in Polars, and files that Spark reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import qbeast
from qbeast_spark_bridge import open_table, read_table, register, write_table
from tests.helpers.tables import assert_same_rows, small_files
from tests.helpers.type_changes import CHANGES, Change, widen_by_others

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
DELTA = Path(__file__).parents[1] / "format" / "delta"
JSON = ["to_json(v) v", "to_json(array_of_variants[0]) a", "to_json(struct_of_variants.v) s"]


def converted(name: str, folder: Path, *columns: str) -> Path:
    path = Path(shutil.copytree(DELTA / name, folder / "t"))
    qbeast.convert_table(path, columns=columns)
    return path


def texts(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.selectExpr("id", *JSON).collect())


def test_variants_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    path = converted("variant/spark-variant-checkpoint", tmp_path, "id")
    files = [str(file) for file in path.glob("*.parquet")]
    native = spark.read.schema(read_table(spark, path).schema).parquet(*files)
    expected = texts(native)
    assert len(expected) == 102
    assert texts(read_table(spark, path)) == expected
    qbeast.open_table(path).optimize()  # written by us now
    assert texts(read_table(spark, path)) == expected
    assert texts(spark.read.format("qbeast").load(str(path))) == expected
    register(spark)
    function = spark.sql("SELECT * FROM qbeast_sample(:path, 1.0)", args={"path": str(path)})
    assert texts(function) == expected
    in_polars = qbeast.read_table(path)
    sample = sorted(qbeast.read_table(path, sample=0.3)["id"].to_list())
    assert sorted(row["id"] for row in read_table(spark, path, sample=0.3).collect()) == sample
    rows = read_table(spark, path).localCheckpoint()
    write_table(rows, path, mode="append")
    assert texts(read_table(spark, path)) == sorted(expected * 2)
    assert_same_rows(qbeast.read_table(path), pl.concat([in_polars, in_polars]), "id")
    open_table(spark, path).optimize(full=True)
    assert texts(read_table(spark, path)) == sorted(expected * 2)
    assert_same_rows(qbeast.read_table(path), pl.concat([in_polars, in_polars]), "id")
    assert qbeast.open_table(path).check().ok


def test_new_variant_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("""select id, parse_json('{"a": 1}') v from range(3)""")
    with pytest.raises(qbeast.SchemaMismatchError, match="variant"):
        write_table(df, tmp_path / "t", columns=["id"])


@pytest.mark.sweep
def test_void_columns_are_null(spark: SparkSession, tmp_path: Path) -> None:
    path = converted("void/void-column", tmp_path, "id")
    for _ in range(2):
        rows = read_table(spark, path)
        assert rows.schema["void_col"].dataType.typeName() == "void"
        assert sorted(map(tuple, rows.collect())) == [(1, None), (2, None), (3, None)]
        assert read_table(spark, path, columns=["void_col"]).count() == 3
        qbeast.open_table(path).optimize()
    sample = qbeast.read_table(path, sample=0.6)["id"].sort().to_list()
    assert sorted(row["id"] for row in read_table(spark, path, sample=0.6).collect()) == sample


@pytest.mark.parametrize(
    "change", [CHANGES[0], *(pytest.param(one, marks=pytest.mark.sweep) for one in CHANGES[1:])], ids=str
)
def test_widened_rows_and_samples_are_those_of_polars(
    spark: SparkSession, change: Change, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    with small_files(file_rows=300, page_rows=16):
        qbeast.write_table(change.rows, path, columns=["v", "id"], cube_size=60)
    widen_by_others(path, change.new, [{"fromType": change.old, "toType": change.new}])
    qbeast.write_table(change.more, path, mode="append")
    for sample in (None, 0.1, (0.2, 0.5)):
        expected = qbeast.read_table(path, sample=sample)
        found = pl.DataFrame(read_table(spark, path, sample=sample).toArrow())
        assert_same_rows(found.cast({"v": change.wide}), expected, "id")
