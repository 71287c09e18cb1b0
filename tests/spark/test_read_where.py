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
from qbeast_spark_bridge.predicates.predicates import from_sql, understand
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.strategies import ROW
from tests.helpers.tables import small_files
from tests.spark.frames import INDEXED, every_type, numbers
from tests.spark.sql_conditions import conditions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.connect, pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")]
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
        found = plain.selectExpr(
            ROW, *(f"({text}) AS p{number}" for number, text in enumerate(texts))
        ).toArrow()
    except (PySparkException, Py4JError):
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return [*truths(plain, texts[:half]), *truths(plain, texts[half:])]
    frame = pl.DataFrame(found).sort(ROW)
    return [frame.filter(pl.col(f"p{number}"))[ROW].to_list() for number in range(len(texts))]


def check_text(spark: SparkSession, table: Path, plain: DataFrame, texts: list[str], *, read: int) -> int:
    """Compare what was understood with what Spark says, for all texts, and what is read, for some."""
    understood = 0
    for text, wanted in zip(texts, truths(plain, texts), strict=True):
        told = understand(text, FRAME.schema)
        if wanted is None:
            continue
        if told.predicate is not None:
            understood += 1
            kept = FRAME.lazy().filter(told.predicate).collect()[ROW].to_list()
            assert set(wanted) <= set(kept), text
            assert not told.exact or wanted == kept, text
        if read > 0 and told.predicate is not None:
            read -= 1
            assert numbers(read_table(spark, table, where=text)) == wanted, text
    return understood


@settings(quick, max_examples=2)
@given(texts=st.lists(conditions(FRAME), min_size=12, max_size=12))
def test_sql_text_keeps_the_rows_of_spark(
    spark: SparkSession, table: Path, plain: DataFrame, texts: list[str]
) -> None:
    check_text(spark, table, plain, texts, read=2)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("ansi", [False, True])
@settings(quick, max_examples=12)
@given(
    texts=st.lists(conditions(FRAME), min_size=20, max_size=20),
    zone=st.sampled_from(["UTC", "Asia/Kathmandu"]),
)
def test_sql_text_keeps_the_rows_of_spark_under_every_setting(
    spark: SparkSession,
    table: Path,
    plain: DataFrame,
    texts: list[str],
    zone: str,
    *,
    ansi: bool,
    legacy: bool,
) -> None:
    values = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.ansi.enabled": str(ansi).lower(),
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled": str(legacy).lower(),
    }
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        check_text(spark, table, plain, texts, read=5)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


UNDERSTOOD = (
    "WHOLE >= 0 AND Small <> 3",
    "`x.y` = 'a b' OR `x.y` LIKE 'é%'",
    "real > 0 AND real BETWEEN -5 AND 1e1",
    "NOT (real <= 0 OR single IS NULL)",
    "single IN (0.5, -0.0, 1)",
    "small IN (1, NULL)",
    "money < 1000.005 AND wide <> 5",
    "```day``` >= DATE'1900-01-01'",
    "```day``` BETWEEN '1900-01-01' AND '2100-01-01'",
    "moment >= TIMESTAMP'1900-01-01 00:00:00+02:00'",
    "moment >= TIMESTAMP'1900-01-01 00:00:00'",
    "moment < '1900-01-01' AND naive > TIMESTAMP_NTZ'1500-06-01 12:00:00.5'",
    "naive <=> NULL AND flag IS NOT FALSE",
    "flag AND NOT small IN (1, 2, 3)",
    "5 < small",
    "small > 2.5",
    "small = 2.5",
    "small < 16777217 AND small != -9999999999",
    "whole IS DISTINCT FROM 7",
    "small > 1 AND length(`x.y`) > 3 AND rand() >= 0",
    "NOT (small NOT BETWEEN 1 AND 100 AND small IS NOT NULL)",
)


def test_plain_conditions_are_understood(spark: SparkSession, table: Path, plain: DataFrame) -> None:
    assert check_text(spark, table, plain, list(UNDERSTOOD), read=3) == len(UNDERSTOOD)


@pytest.mark.parametrize(
    "text",
    [
        "small > 1 -- it's a comment\n AND small < 5",
        "small > 1 /* AND */ AND small < 5",
        "(SELECT max(small) FROM t WHERE x > 5 AND small < 3) > 2",
        "EXISTS (SELECT 1) AND small > 3",
        "`x.y` = r'\\' OR small = 3 AND `x.y` = 'a'",
        "small > 1 AND small < 5 END",
        "transform(array(small), x -> x > 1 AND small > 2)[0] AND small > 3",
        "small > (1 AND small",
        "small > :p AND small < 5",
        "struct.end > 1 AND small < 3",
        "small !< 5 AND small > 3",
        "",
    ],
)
def test_what_hides_its_parts_prunes_nothing(text: str) -> None:
    found = understand(text, FRAME.schema)
    assert (found.predicate, found.condition, found.exact) == (None, text, False)


@pytest.mark.parametrize(
    "part",
    [
        *(
            "small > '5'",
            "small + 1 > 5",
            "real > 0.5F",
            "single > 0.1",
            "`x.y` > 5",
            '`x.y` = "a"',
            "nowhere > 1",
        ),
        *(
            "`x.y` = 'a\\nb'",
            "`x.y` = 'a' 'b'",
            "small IN (1, 2.5)",
        ),
        *(
            "user = 'me'",
            "small.x > 1",
            "small > ALL (1)",
            "CASE WHEN flag THEN small > 1 END",
            "small > 1 IS NULL",
        ),
        *(
            "`x.y` LIKE 'a\\_%'",
            "bytes > X'00'",
            "small = -small",
            "wide > 1e3",
            "money = 0.1D",
        ),
    ],
)
def test_parts_that_settings_or_casts_decide_prune_nothing(part: str) -> None:
    schema = pl.Schema({**FRAME.schema, "user": pl.String()})
    assert understand(part, schema).predicate is None
    assert str(understand(f"flag AND {part}", schema).predicate) == str(pl.col("flag"))
    assert understand(f"flag OR {part}", schema).predicate is None
    assert understand(f"flag OR NOT ({part})", schema).predicate is None
    with pytest.raises(qbeast.InvalidInputError, match="cannot say"):
        from_sql(f"flag AND {part}", schema)


def test_columns_named_like_keywords_prune_nothing() -> None:
    for name in ("case", "End", "BETWEEN", "and"):
        assert understand("x > 5", pl.Schema({"x": pl.Int64(), name: pl.Int64()})).predicate is None


def check_expressions(plain: DataFrame, exprs: list[pl.Expr]) -> int:
    """Compare what is said in SQL with what Polars keeps; count what is said."""
    said: list[str] = []
    wanted: list[list[int]] = []
    for expr in exprs:
        kept = kept_rows(FRAME, expr)
        try:
            text = understand(expr, FRAME.schema).condition
        except qbeast.InvalidInputError:
            continue
        if kept is not None:
            said.append(str(text))
            wanted.append(kept[ROW].to_list())
    for text, rows, found in zip(said, wanted, truths(plain, said), strict=True):
        assert found == rows, text
    return len(said)


@settings(quick, max_examples=2)
@given(exprs=st.lists(filters(FRAME), min_size=40, max_size=40))
def test_a_polars_expression_is_refused_or_means_the_same(plain: DataFrame, exprs: list[pl.Expr]) -> None:
    check_expressions(plain, exprs)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@settings(quick, max_examples=60)
@given(exprs=st.lists(filters(FRAME), min_size=60, max_size=60))
def test_many_polars_expressions_are_refused_or_mean_the_same(plain: DataFrame, exprs: list[pl.Expr]) -> None:
    check_expressions(plain, exprs)


def values_of_columns() -> list[pl.Expr]:
    """Every column compared, in all ways, with values that it holds."""
    exprs: list[pl.Expr] = []
    for name, dtype in FRAME.schema.items():
        held = FRAME[name].drop_nulls()
        column, value = pl.col(name), pl.lit(held[7], dtype=dtype)
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
        exprs += [column.is_in(held[:15].implode()), ~column.is_in(held[:2].implode(), nulls_equal=True)]
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


@pytest.mark.parametrize("ansi", [False, True])
def test_comparisons_with_values_are_said_for_every_type(
    spark: SparkSession, plain: DataFrame, *, ansi: bool
) -> None:
    exprs = values_of_columns()
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        assert check_expressions(plain, exprs) == len(exprs)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_a_polars_expression_reads_the_rows_of_polars(spark: SparkSession, table: Path) -> None:
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
def test_an_expression_without_a_counterpart_is_refused(expr: pl.Expr) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="cannot say"):
        understand(pl.col("flag") & expr, FRAME.schema)


def test_a_column_is_applied_as_it_is(spark: SparkSession, table: Path) -> None:
    texts = ["é'\\1", "é'\\2"]
    wanted = FRAME.filter(pl.col("small") > 3, pl.col("x.y").is_in(texts))[ROW].to_list()
    condition = (f.col("SMALL") > 3) & f.col("`x.y`").isin(*texts)
    told = understand(condition, FRAME.schema)
    assert (told.predicate, told.exact) == (None, False)
    assert numbers(read_table(spark, table, where=condition)) == wanted
    assert numbers(read_table(spark, table, where=f.expr("small > 3") & f.col("flag"))) == (
        FRAME.filter(pl.col("small") > 3, pl.col("flag"))[ROW].to_list()
    )
