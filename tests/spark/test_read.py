"""Spark returns what Polars returns: all rows, samples, versions and columns, in every zone and mode."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from qbeast_spark_bridge import read_table
from tests.format.collection import Golden, each, open_golden
from tests.helpers.strategies import ROW
from tests.helpers.tables import small_files
from tests.spark.frames import INDEXED, every_type, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
OTHERS = [("America/New_York", True), ("America/New_York", False), ("Pacific/Kiritimati", True)]
SAMPLES = (0.01, 0.1, 0.5, (0.2, 0.7), (0.9, 1.0))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every type, indexed by all that can be, in many small files of two versions."""
    path = tmp_path_factory.mktemp("read") / "every type"
    rows = every_type()
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(rows[:500], path, columns=INDEXED, cube_size=50)
        qbeast.write_table(rows[500:], path, mode="append")
    return path


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Any]:
    """Set what a test needs, and undo it."""
    before: dict[str, str | None] = {}

    def change(**values: object) -> None:
        for name, value in values.items():
            key = name.replace("__", ".")
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, str(value))

    yield change
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def collected(rows: DataFrame) -> pl.DataFrame:
    """Rows in Polars, instants in UTC."""
    frame = pl.DataFrame(rows.toArrow())
    zoned = [
        name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime) and dtype.time_zone
    ]
    return frame.with_columns(pl.col(name).dt.convert_time_zone("UTC") for name in zoned).sort(
        frame.columns[0]
    )


def plan_of(rows: DataFrame) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        rows.explain(extended=False)
    return printed.getvalue()


def test_requested_row_count_equals_polars_with_weights(spark: SparkSession, table: Path) -> None:
    actual = collected(read_table(spark, table, rows=300, expand=True, columns=[ROW]))
    expected = qbeast.read_table(table, rows=300, expand=True, columns=[ROW])
    assert_frame_equal(actual, expected.sort(ROW), check_exact=True)
    assert read_table(spark, table, expand=True).selectExpr("sum(sampling_weight)").first()[0] == 600
    with pytest.raises(qbeast.InvalidInputError, match="cannot be combined"):
        read_table(spark, table, rows=10, sample=0.1)


@pytest.mark.sweep
def test_filtered_rows_equal_polars(spark: SparkSession, table: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- the name everybody gives it

    for where, rows in ((f"{ROW} % 7 = 1", 20), (f"{ROW} < 90", 60), (f"{ROW} < 5", 60), (f"{ROW} < 90", 0)):
        expected = qbeast.read_table(table, where=where, rows=rows, expand=True, columns=[ROW])
        for condition in (where, F.expr(where)):
            actual = collected(
                read_table(spark, table, where=condition, rows=rows, expand=True, columns=[ROW])
            )
            assert_frame_equal(actual, expected.sort(ROW), check_exact=True)


def test_full_read_returns_every_value(spark: SparkSession, table: Path) -> None:
    actual = collected(read_table(spark, table))
    assert_frame_equal(actual, qbeast.read_table(table).sort(ROW), check_exact=True)


@pytest.mark.parametrize(
    ("zone", "ansi"),
    [("Asia/Kathmandu", True), *(pytest.param(zone, ansi, marks=pytest.mark.sweep) for zone, ansi in OTHERS)],
)
def test_samples_equal_polars(
    spark: SparkSession, table: Path, settings: Any, zone: str, *, ansi: bool
) -> None:
    settings(spark__sql__session__timeZone=zone, spark__sql__ansi__enabled=str(ansi).lower())
    for sample in SAMPLES if ansi else SAMPLES[1:2]:
        expected = qbeast.read_table(table, sample=sample)[ROW].sort().to_list()
        assert numbers(read_table(spark, table, sample=sample)) == expected


def test_sample_selects_and_filters_columns(spark: SparkSession, table: Path) -> None:
    rows = read_table(spark, table, sample=0.5, where="small > 0", columns=["x.y", ROW])
    assert rows.columns == ["x.y", ROW]
    expected = qbeast.read_table(table, sample=0.5, where=pl.col("small") > 0)
    assert numbers(rows) == expected[ROW].sort().to_list()


@pytest.mark.parametrize("sample", [0.0, (0.5, 0.5)])
def test_empty_selection_has_same_columns(spark: SparkSession, table: Path, sample: Any) -> None:
    rows = read_table(spark, table, sample=sample, where="small > 0")
    assert rows.schema == read_table(spark, table).schema
    assert rows.count() == 0
    assert read_table(spark, table, where=pl.lit(value=False), columns=["real"]).columns == ["real"]


def test_empty_table_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(every_type().clear(), tmp_path / "t", columns=["whole"])
    assert collected(read_table(spark, tmp_path / "t", sample=0.5)).schema == every_type().schema


def test_frame_keeps_its_version(spark: SparkSession, tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(100)})
    qbeast.write_table(rows[:50], tmp_path / "t", columns=[ROW])
    first = read_table(spark, tmp_path / "t")
    qbeast.write_table(rows[50:], tmp_path / "t", mode="append")
    assert numbers(first) == numbers(read_table(spark, tmp_path / "t", version=0)) == list(range(50))
    assert numbers(read_table(spark, tmp_path / "t")) == list(range(100))


def test_columns_added_later_are_null_before(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({ROW: range(50), "b": 1}), tmp_path / "t", columns=[ROW])
    more = pl.DataFrame({ROW: range(50, 90), "c": [{"x": 1}] * 40, "d": [[1]] * 40})
    qbeast.write_table(more, tmp_path / "t", mode="append", schema_mode="merge")
    for sample in (None, 0.5):
        actual = collected(read_table(spark, tmp_path / "t", sample=sample))
        assert_frame_equal(actual, qbeast.read_table(tmp_path / "t", sample=sample).sort(ROW))
    assert read_table(spark, tmp_path / "t", where="c IS NULL").count() == 50


def test_comments_and_nullability_match_delta_reader(spark: SparkSession, tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({ROW: range(5), "c": "a"}), tmp_path / "t", columns=[ROW])
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0] |= {"nullable": False, "metadata": {"comment": "numbers the rows"}}
            schema["fields"][1]["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": "char(9)"}
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    rows = read_table(spark, tmp_path / "t", where="c = 'a'")
    assert rows.schema[ROW].metadata == {"comment": "numbers the rows"}
    assert rows.schema[ROW].nullable
    assert [row["c"] for row in rows.collect()] == ["a"] * 5, "not padded"


def test_many_files_are_read_and_setting_restored(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    with small_files(file_rows=10, page_rows=5):
        qbeast.write_table(pl.DataFrame({ROW: range(600)}), tmp_path / "t", columns=[ROW], cube_size=10)
    assert qbeast.open_table(tmp_path / "t").rows().files().height > 32
    key = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    assert numbers(read_table(spark, tmp_path / "t")) == list(range(600))
    assert spark.conf.get(key, None) is None
    settings(**{key.replace(".", "__"): 7})
    assert numbers(read_table(spark, tmp_path / "t", sample=0.99)) == sorted(
        qbeast.read_table(tmp_path / "t", sample=0.99)[ROW]
    )
    assert spark.conf.get(key) == "7"


def test_page_skipping_filters_are_pushed_down(spark: SparkSession, table: Path) -> None:
    pushed = plan_of(read_table(spark, table, sample=0.1, columns=[ROW]))
    assert "PushedFilters: [Or(IsNull(_qbeast_weight),LessThanOrEqual(_qbeast_weight,-26215))]" in pushed
    pushed = plan_of(
        read_table(spark, table, where=(pl.col("small") > 3) & pl.col("moment").is_not_null(), columns=[ROW])
    )
    assert "GreaterThan(small,3)" in pushed
    assert "IsNotNull(moment)" in pushed
    assert "_qbeast_weight" not in plan_of(read_table(spark, table, where="whole > 0"))


def test_invalid_arguments_raise(spark: SparkSession, table: Path) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("sample", {"sample": 1.5}),
        ("columns", {"columns": ["whole", "nowhere"]}),
        ("columns", {"columns": "whole"}),
        ("columns", {"columns": ["whole", "whole"]}),
        ("columns", {"columns": []}),
        ("where", {"where": 5}),
        ("where", {"where": pl.col("whole") + 1 > 5}),
    ]
    for argument, options in wrong:
        with pytest.raises(qbeast.InvalidInputError) as caught:
            read_table(spark, table, **options)
        assert caught.value.argument == argument


def test_paths_without_our_table_raise(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(qbeast.TableNotFoundError):
        read_table(spark, tmp_path / "nothing")
    pl.DataFrame({"x": [1]}).write_delta(tmp_path / "delta")
    with pytest.raises(qbeast.InvalidInputError, match="sample_by"):
        read_table(spark, tmp_path / "delta", sample=0.1)
    qbeast.write_table(pl.DataFrame({"x": [1]}), tmp_path / "t", columns=["x"])
    with pytest.raises(qbeast.VersionNotFoundError):
        read_table(spark, tmp_path / "t", version=3)


@pytest.mark.classic
@pytest.mark.sweep
@each()
def test_jvm_tables_give_same_rows_and_samples(spark: SparkSession, golden: Golden) -> None:
    table = open_golden(golden)
    whole, sample = (read_table(spark, golden.path, sample=sample) for sample in (None, 0.1))
    assert whole.columns == list(table.schema)
    # One job for both.
    actual = pl.DataFrame(
        whole.selectExpr("id", "'all' AS of").union(sample.selectExpr("id", "'some'")).toArrow()
    )
    for name, fraction in (("all", None), ("some", 0.1)):
        expected = table.rows(sample=fraction).lazy().select("id").collect()["id"]
        assert actual.filter(of=name)["id"].sort().to_list() == expected.sort().to_list()
