"""What Spark cannot do with a table ends in one message, ours where Spark asks us, and changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.delta_statements import PAGE, statements
from tests.helpers.snippets import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.helpers.delta_statements import Statement

SCHEMA = "id bigint, s string"
APPEND = 'df.write.format("qbeast").mode("append").option("columnsToIndex", '


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a table that no refused road may change."""
    place = tmp_path_factory.mktemp("refused") / "t"
    qbeast.write_table(pl.DataFrame({"id": range(1000), "s": ["x"] * 1000}), place, columns=["id:linear"])
    yield place
    assert qbeast.open_table(place).version == 0
    assert not (place.parent / "new").exists()


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: Path) -> DataFrame:
    """Return rows to come, with views of them and of the table."""
    actual = spark.createDataFrame([(1, "a")], SCHEMA)
    actual.createOrReplaceTempView("arrived")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sales USING qbeast OPTIONS (path '{table}')")
    return actual


def error_text(call: Callable[[], object]) -> str:
    with pytest.raises((PySparkException, qbeast.QbeastError)) as caught:
        call()
    return str(caught.value)


STATEMENTS = {
    "DELETE FROM sales WHERE id < 3": "Table does not support deletes: qbeast",
    "UPDATE sales SET s = 'b' WHERE id < 3": "Table `qbeast` does not support UPDATE TABLE",
    "MERGE INTO sales USING arrived ON sales.id = arrived.id WHEN MATCHED THEN DELETE": (
        "Table `qbeast` does not support MERGE INTO TABLE"
    ),
    "SELECT * FROM qbeast.`{table}`": "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
}
"""What Spark refuses without asking anybody: in its words, which the page has."""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("statement", "words"), STATEMENTS.items(), ids=[item.split()[0] for item in STATEMENTS]
)
def test_documentation_lists_what_spark_rejects(
    spark: SparkSession, rows: DataFrame, table: Path, statement: str, words: str
) -> None:
    assert rows.columns == ["id", "s"]
    assert words in error_text(lambda: spark.sql(statement.format(table=table)).collect())
    assert words in PAGE


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE made USING qbeast LOCATION '{table}'",
        "CREATE TABLE made USING qbeast AS SELECT * FROM arrived",
    ],
)
def test_statements_name_the_line_to_type(
    spark: SparkSession, rows: DataFrame, table: Path, statement: str
) -> None:
    assert rows.columns == ["id", "s"]
    text = error_text(lambda: spark.sql(statement.format(table=table)).collect())
    assert APPEND in text


def test_names_and_modes_that_spark_keeps_are_refused(rows: DataFrame, table: Path) -> None:
    text = error_text(lambda: rows.write.format("qbeast").saveAsTable("made"))
    assert APPEND in text
    assert "DROP TABLE" in text
    new = str(table.parent / "new")
    for mode, named in (("error", "ErrorIfExists"), ("ignore", "Ignore")):
        text = error_text(lambda mode=mode: rows.write.format("qbeast").mode(mode).save(new))
        assert f'"{named}" mode' in text
        assert f"`{named}`" in PAGE


def test_bridge_takes_spark_frames(table: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="must be a Spark DataFrame"):
        bridge.write_table(str(table), pl.DataFrame({"id": [1]}), columns=["id"])


REPLACED = statements()


def test_statements_of_delta_are_refused_without_its_jar(other_session: SparkSession, tmp_path: Path) -> None:
    assert len(REPLACED) > 26
    assert {item.with_jar.split()[0].strip(",;:") for item in REPLACED} == {"works", "refused"}
    other_session.sql("SELECT 1L AS id, 'a' AS s").createOrReplaceTempView("source")
    for item in REPLACED:
        with pytest.raises(
            (PySparkException, Py4JJavaError)
        ):  # a format that Spark does not find is of the latter
            other_session.sql(item.at(tmp_path).statement).collect()
    assert not other_session.catalog.tableExists("copied")


def prepare(spark: SparkSession, statement: str, path: Path, files: Path) -> None:
    """Make what the call in place of a statement needs."""
    qbeast.write_table(pl.DataFrame({"id": range(20), "s": ["a"] * 20}), path, columns=["id"])
    if "DROP CONSTRAINT" in statement:
        qbeast.open_table(path).add_constraint("positive", "id >= 0")
    if "UNSET" in statement:
        qbeast.open_table(path).set_properties({"delta.appendOnly": "true"})
    if statement.startswith(("REFRESH", "DROP")):
        bridge.register_table(spark, path, "logs")
    files.mkdir()
    pl.DataFrame({"id": [1], "s": ["a"]}).write_parquet(files / "a.parquet")


@pytest.mark.sweep
@pytest.mark.parametrize("item", REPLACED, ids=lambda item: item.statement)
def test_call_instead_of_a_statement_of_delta_runs(
    other_session: SparkSession, item: Statement, tmp_path: Path
) -> None:
    path, files = tmp_path / "logs", tmp_path / "files"
    prepare(other_session, item.statement, path, files)
    places = {"path": str(path), "new": str(tmp_path / "copied"), "files": str(files)}
    source = other_session.createDataFrame([(7, "new"), (50, "new")], SCHEMA)
    names = {"spark": other_session, "bridge": bridge, "qbeast": qbeast, "source": source, **places}
    time = qbeast.open_table(path).history()["timestamp"][0].isoformat()
    before = qbeast.open_table(path).version
    result = eval(item.at(tmp_path, time).call, names)  # noqa: S307 - our own text is what is tested
    if hasattr(result, "toArrow"):
        assert result.count() > 0
    table = qbeast.open_table(path)
    kept = table.read().sort("id")
    match item.statement.split()[0]:
        case "UPDATE" | "MERGE":
            assert kept.filter(pl.col("id") == 7)["s"].to_list() != ["a"]
            assert kept.height == 20
        case "DELETE":
            assert kept["id"].to_list() == [number for number in range(20) if number != 7]
        case "TRUNCATE":
            assert kept.is_empty()
        case "INSERT":
            assert (
                kept.height
                == {"OVERWRITE": 2, "INTO": 9 if "REPLACE" in item.statement else 22}[
                    item.statement.split()[1]
                ]
            )
        case "COPY":
            assert kept.height == 21
        case "ALTER":
            assert table.version > before
        case _:
            assert kept.height == 20


def lines_of(block: int, folder: Path) -> list[str]:
    """Return the statements of a block of SQL of the page."""
    text = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[block]
    lines = [line.split("--")[0].strip().rstrip(";") for line in text.splitlines()]
    return [line.replace(DATA, str(folder)) for line in lines]


def test_views_of_the_page_show_versions_samples_and_changes(
    other_session: SparkSession, tmp_path: Path
) -> None:
    for first in (0, 20):
        rows = pl.DataFrame({"id": range(first, first + 20), "s": ["a"] * 20})
        qbeast.write_table(rows, tmp_path / "logs", columns=["id"], mode="append")
    bridge.register(other_session)
    views = [re.findall(r"VIEW (\w+)", line)[0] for line in lines_of(0, tmp_path)]
    for line in lines_of(0, tmp_path):
        other_session.sql(line)
    sample = qbeast.read_table(tmp_path / "logs", sample=0.1).height
    assert [other_session.table(name).count() for name in views] == [40, 20, sample, 20]


def test_name_that_spark_accepts_is_dead_until_it_is_dropped(
    other_session: SparkSession, tmp_path: Path
) -> None:
    qbeast.write_table(pl.DataFrame({"id": range(20), "s": ["a"] * 20}), tmp_path / "logs", columns=["id"])
    bridge.register(other_session)
    create, select, drop = lines_of(1, tmp_path)
    other_session.sql(create)
    try:
        text = error_text(lambda: other_session.sql(select).collect())
    finally:
        other_session.sql(drop)
    assert APPEND in text
    assert "register_table(spark, path, name)" in text
    assert not other_session.catalog.tableExists("logs")
    assert qbeast.open_table(tmp_path / "logs").count() == 20
