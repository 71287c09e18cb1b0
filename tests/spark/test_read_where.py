"""A condition keeps the rows that Spark's own reading of all files keeps, however it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import qbeast
from qbeast_spark_bridge import read_table
from qbeast_spark_bridge.predicates.conditions import parse_where
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.strategies import ROW
from tests.helpers.tables import small_files
from tests.spark.frames import INDEXED, every_type, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NAN = float("nan")
FRAME = every_type(300).drop("list", "struct")
# A failing example is shown as it was found: each takes a job, shrinking would take minutes.
quick = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("where") / "t"
    with small_files(file_rows=40, page_rows=5):
        qbeast.write_table(FRAME, path, columns=INDEXED, cube_size=25)
    return path


@pytest.fixture(scope="module")
def plain(spark: SparkSession, table: Path) -> DataFrame:
    """Read all files with Spark's own reader."""
    return spark.read.schema(read_table(spark, table).schema).parquet(f"{table}/*.parquet")


def truths(plain: DataFrame, texts: list[str]) -> list[list[int] | None]:
    """Return the rows for which each text is true; None where Spark refuses it. Nothing is pushed into files."""
    try:
        actual = plain.selectExpr(
            ROW, *(f"({text}) AS p{number}" for number, text in enumerate(texts))
        ).toArrow()
    except (PySparkException, Py4JError):
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return [*truths(plain, texts[:half]), *truths(plain, texts[half:])]
    frame = pl.DataFrame(actual).sort(ROW)
    return [frame.filter(pl.col(f"p{number}"))[ROW].to_list() for number in range(len(texts))]


def check_expressions(plain: DataFrame, exprs: list[pl.Expr]) -> int:
    """Compare what is said in SQL with what Polars keeps; count what is said."""
    said: list[str] = []
    expected: list[list[int]] = []
    for expr in exprs:
        kept = kept_rows(FRAME, expr)
        try:
            text = parse_where(expr, FRAME.schema)[0]
        except qbeast.InvalidInputError:
            continue
        if kept is not None:
            said.append(str(text))
            expected.append(kept[ROW].to_list())
    for text, rows, actual in zip(said, expected, truths(plain, said), strict=True):
        assert actual == rows, text
    return len(said)


@pytest.mark.timeout(1500)
@examples(2, sweep=60, parent=quick)
@given(exprs=st.lists(filters(FRAME), min_size=40, max_size=40))
def test_polars_expression_raises_or_means_the_same(plain: DataFrame, exprs: list[pl.Expr]) -> None:
    check_expressions(plain, exprs)


def values_of_columns() -> list[pl.Expr]:
    """Every column compared, in all ways, with values that it holds."""
    exprs: list[pl.Expr] = []
    for name, dtype in FRAME.schema.items():
        rows_held = FRAME[name].drop_nulls()
        column, value = pl.col(name), pl.lit(rows_held[7], dtype=dtype)
        exprs += [
            column == value,
            column != value,
            value <= column,
            column.is_null(),
            column.eq_missing(value),
        ]
        exprs += [
            column.ne_missing(pl.lit(None, dtype=dtype)),
            column.eq(column),
            column.is_between(value, value),
        ]
        exprs += [
            column.is_in(rows_held[:15].implode()),
            ~column.is_in(rows_held[:2].implode(), nulls_equal=True),
        ]
        if dtype != pl.Boolean():
            exprs += [column < value, ~(column >= value) | column.is_not_null()]
        if dtype.is_float():
            exprs += [column.is_nan(), ~column.is_finite(), column.is_infinite(), column > 1, column <= 0.5]
            exprs += [
                column.is_in([-0.0, 7.5]),
                column.lt(NAN),
                column == float("-inf"),
                column.is_not_nan(),
            ]
        if dtype.is_integer():
            exprs += [
                column > 2.5,
                column <= 2**40,
                column.is_in([1, 2, 3]),
                column == pl.lit(-3, dtype=pl.Int8),
            ]
        if dtype.is_decimal():
            exprs += [column > 5, column.is_in([1, 2])]
    text = pl.col("x.y")
    exprs += [text.str.starts_with("é'\\1"), ~text.str.ends_with("3"), text.str.contains("'\\", literal=True)]
    return [*exprs, pl.col("flag"), ~pl.col("flag"), pl.all_horizontal(pl.col("flag"), pl.col("small") > 3)]


@pytest.mark.parametrize("ansi", [pytest.param(False, marks=pytest.mark.sweep), True])
def test_comparisons_work_for_every_type(spark: SparkSession, plain: DataFrame, *, ansi: bool) -> None:
    exprs = values_of_columns()
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        assert check_expressions(plain, exprs) == len(exprs)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_null_compares_with_columns_of_any_type(spark: SparkSession) -> None:
    dtypes = [pl.Map(pl.String(), pl.Int64()), pl.List(pl.Int64()), pl.Struct({"n": pl.Int32()}), pl.Int64()]
    schema = pl.Schema({f"c{number}": dtype for number, dtype in enumerate(dtypes)})
    plain = spark.sql(
        "SELECT map('a', 1L) c0, array(1L) c1, struct(1) c2, 1L c3 UNION ALL SELECT NULL, NULL, NULL, NULL"
    )
    for name, dtype in schema.items():
        column, null = pl.col(name), pl.lit(None, dtype=dtype)
        for expr, expected in (
            (column == null, []),
            (column != null, []),
            (column.eq_missing(null), [None]),
            (column.ne_missing(null), [1]),
        ):
            kept = plain.where(str(parse_where(expr, schema)[0])).selectExpr(f"IF({name} IS NULL, NULL, 1)")
            assert [row[0] for row in kept.collect()] == expected, expr


def test_polars_expression_reads_same_rows(spark: SparkSession, table: Path) -> None:
    for expr in (
        pl.col("real") > 3,
        pl.col("single").is_nan() | (pl.col("money") < 0),
        pl.col("naive").is_null(),
    ):
        assert numbers(read_table(spark, table, where=expr)) == FRAME.filter(expr)[ROW].to_list()


@pytest.mark.parametrize(
    "expr",
    [
        *(
            pl.col("small") + 1 > 3,
            pl.col("small") == pl.col("whole"),
            pl.col("single") > 0.1,
            pl.col("money") > 0.5,
        ),
        *(pl.col("x.y").str.contains("a.c"), pl.col("moment").dt.year() == 2020, pl.col("nowhere") > 1),
        *(
            pl.col("flag").map_batches(lambda s: s),
            pl.col("small").cast(pl.String) == "1",
            pl.col("whole").sum() > 3,
        ),
        *(
            pl.when(pl.col("flag")).then(pl.lit(value=True)),
            pl.col("small"),
            pl.lit(5),
            pl.col("flag") ^ pl.col("flag"),
        ),
    ],
)
def test_expression_without_a_counterpart_raises(expr: pl.Expr) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=r"`?where|no equivalent in Spark"):
        parse_where(pl.col("flag") & expr, FRAME.schema)


def test_spark_column_is_applied_unchanged(spark: SparkSession, table: Path) -> None:
    texts = ["é'\\1", "é'\\2"]
    expected = FRAME.filter(pl.col("small") > 3, pl.col("x.y").is_in(texts))[ROW].to_list()
    condition = (f.col("SMALL") > 3) & f.col("`x.y`").isin(*texts)
    assert parse_where(condition, FRAME.schema) == (condition, None)
    assert numbers(read_table(spark, table, where=condition)) == expected
    assert numbers(read_table(spark, table, where=f.expr("small > 3") & f.col("flag"))) == (
        FRAME.filter(pl.col("small") > 3, pl.col("flag"))[ROW].to_list()
    )
