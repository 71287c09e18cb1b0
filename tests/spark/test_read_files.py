"""Files of any name and of any writer are read right, though Spark's own reader passes over some of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl
import pytest
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

import qbeast
from qbeast_spark_bridge import read_table
from tests.helpers.deletion_vectors import GONE, ROWS, delete
from tests.helpers.planned import planned
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, small_files
from tests.spark.frames import numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NAMES = (
    *(
        "a b",
        "p%20q",
        "a[1]",
        "b{1,2}",
        "c*",
        "d?",
        "e\\f",
        "g,h",
        "k#l",
        "é",
        "q'r\"s",
        "x ",
        "[",
        "}",
        "a;b&c+d",
    ),
    *(
        "_x",
        "._y",
        ".z",
        "x._COPYING_",
        "i:j",
        "row=7/f",
        "row=7/b=2/f",
        "_dir/f",
        ".dir/_f",
        "c:d/e*",
        "a=1/[f",
    ),
)
FOLDERS = ("plain", "a b 100% [c] {d,e}*", "_hidden", "x=1", "10:30")


def table_of(path: Path, *, files: int) -> pl.DataFrame:
    rows = pl.DataFrame({ROW: range(files * 10), "text": ["a"] * files * 10})
    with small_files(file_rows=10, page_rows=5):
        qbeast.write_table(rows, path, columns=[ROW], cube_size=10)
    return rows


def rewrite_log(path: Path, change: Callable[[dict], None], what: str = "add") -> None:
    """Change the files that the first commit added, or what else it holds."""
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if what in action:
            change(action[what])
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_files_of_any_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = table_of(path, files=2 * len(NAMES))
    names = iter(NAMES)

    def rename(add: dict) -> None:
        name = next(names, None)
        if name is not None:
            new = path / f"{name}.parquet"
            new.parent.mkdir(parents=True, exist_ok=True)
            (path / add["path"]).rename(new)
            add["path"] = quote(f"{name}.parquet")

    rewrite_log(path, rename)
    assert next(names, None) is None, "every name was given"
    actual = read_table(spark, path)
    assert actual.columns == [ROW, "text"]
    assert numbers(actual) == rows[ROW].to_list()
    expected = qbeast.read_table(path, sample=0.4, where=pl.col(ROW) > 50)
    assert numbers(read_table(spark, path, sample=0.4, where=f"{ROW} > 50")) == expected[ROW].sort().to_list()


@pytest.mark.sweep
@pytest.mark.parametrize("folder", FOLDERS)
def test_tables_in_any_folder_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    rows = table_of(tmp_path / folder / "t", files=3)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / folder / "t", f"{folder}/t", f"{tmp_path}/{folder}/t/"):
        actual = read_table(spark, path)
        assert actual.columns == [ROW, "text"]
        assert numbers(actual) == rows[ROW].to_list()


@pytest.mark.sweep
def test_absolute_paths_in_log_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path, other = tmp_path / "t", tmp_path / "other place"
    rows = table_of(path, files=6)
    other.mkdir()
    count = iter(range(6))

    def move(add: dict) -> None:
        number = next(count, 0)
        if number % 3:
            new = other / add["path"]
            (path / add["path"]).rename(new)
            add["path"] = new.as_uri() if number % 3 == 1 else quote(str(new))

    rewrite_log(path, move)
    with pytest.raises(qbeast.UnsupportedTableError, match="allow_absolute_paths=True"):
        read_table(spark, path)
    assert qbeast.read_table(path, allow_absolute_paths=True)[ROW].sort().to_list() == rows[ROW].to_list()
    assert numbers(read_table(spark, path, allow_absolute_paths=True)) == rows[ROW].to_list()


def test_deleted_rows_are_not_returned(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=["id", "x"], cube_size=300)
    delete(path, GONE)
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 4000), path, mode="append")  # a clean file beside
    for options in (
        {},
        {"sample": 0.3},
        {"where": "x < 100"},
        {"sample": (0.1, 0.4), "where": pl.col("x") < 2000},
    ):
        condition = options.get("where")
        expected = qbeast.read_table(
            path,
            sample=options.get("sample"),
            where=pl.col("x") < 100 if isinstance(condition, str) else condition,
        )
        actual = read_table(spark, path, **options).toArrow()
        assert sorted(actual["id"].to_pylist()) == expected["id"].sort().to_list()


def test_column_mapping_raises(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(path, files=1)
    rewrite_log(
        path, lambda about: about["configuration"].update({"delta.columnMapping.mode": "name"}), "metaData"
    )
    with pytest.raises(qbeast.UnsupportedTableError, match="columnMapping"):
        read_table(spark, path)


@pytest.mark.sweep
def test_filter_treats_nan_as_largest(spark: SparkSession, tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {ROW: range(4000), "x": [float("nan") if i % 100 == 0 else i % 7 for i in range(4000)]}, strict=False
    )
    with small_files(file_rows=1000, page_rows=50):
        qbeast.write_table(rows, tmp_path / "t", columns=["x", ROW], cube_size=200)
    for where, condition in (
        ("x > 50", pl.col("x") > 50),
        ("x = CAST('NaN' AS DOUBLE)", pl.col("x").is_nan()),
    ):
        expected = rows.filter(condition)[ROW].to_list()
        assert len(expected) == 40
        assert numbers(read_table(spark, tmp_path / "t", where=where)) == expected
        assert numbers(read_table(spark, tmp_path / "t", where=condition)) == expected


def test_collated_strings_compare_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame(
        {ROW: range(400), "name": [("Abc", "aBC", "x", "Y")[number % 4] for number in range(400)]}
    )
    with small_files(file_rows=50, page_rows=5):
        qbeast.write_table(rows, path, columns=["name", ROW], cube_size=20)

    def collate(about: dict) -> None:
        schema = json.loads(about["schemaString"])
        schema["fields"][1]["metadata"] = {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}
        about["schemaString"] = json.dumps(schema)

    rewrite_log(path, collate, "metaData")
    expected = rows.filter(pl.col("name").str.to_lowercase() == "abc")[ROW].to_list()
    assert numbers(read_table(spark, path, where=F.col("name") == "ABC")) == expected
    assert numbers(read_table(spark, path, where="row >= 0").where("name = 'ABC'")) == expected
    sampled = qbeast.read_table(path, sample=0.3)[ROW].sort().to_list()
    assert numbers(read_table(spark, path, sample=0.3)) == sampled
    for condition in (pl.col("name") == "ABC", "name = 'ABC'"):
        with pytest.raises(qbeast.InvalidInputError, match="collation"):
            read_table(spark, path, where=condition)


def test_a_table_with_a_plan_file_is_read_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame({ROW: range(60), "part": ["a", "b"] * 30, "x": [float(n) for n in range(60)]})
    with small_files(file_rows=10, page_rows=5):
        qbeast.write_table(
            rows, path, columns=[ROW], partition_by=["part"], cube_size=10, deletion_vectors=True
        )
    qbeast.open_table(path).delete(f"{ROW} = 33")
    with planned(path) as copy:
        for where, options in (
            (None, {}),
            (f"{ROW} < 17 OR {ROW} = 70", {}),
            (f"part = 'b' AND {ROW} > 20", {"sample": 0.5}),
            (f"{ROW} >= 20", {"rows": 9}),
            (f"{ROW} < 0", {}),
        ):
            actual = read_table(spark, copy, where=where, **options).toPandas()
            assert_same_rows(pl.DataFrame(actual), qbeast.read_table(path, where=where, **options), ROW)
