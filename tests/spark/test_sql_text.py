"""One text means the same on Spark as in Polars: the same rows, or a refusal that names a part."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge import read_table
from qbeast_spark_bridge.predicates.conditions import parse_where
from tests.helpers.examples import examples
from tests.helpers.tables import small_files
from tests.spark.frames import INDEXED, every_type, numbers, to_spark
from tests.sql.texts import ROWS, conditions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
FRAME = every_type(300).drop("list")
SCHEMA = FRAME.schema
# A failing example is shown as it was found: each takes a job, shrinking would take minutes.
quick = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


SMALL_CACHES = {"parser_manageParserCaches": "true", "parser_parserDfaCacheFlushThreshold": "20000"}
"""Spark's parser remembers what it has seen of each text: of thousands that takes the whole memory."""


@contextmanager
def chosen(spark: SparkSession, **values: str) -> Generator[None]:
    """Choose settings for a while: `session_timeZone` is `spark.sql.session.timeZone`."""
    named = {f"spark.sql.{name.replace('_', '.')}": value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return to_spark(spark, ROWS, tmp_path_factory.mktemp("texts") / "rows", parts=1)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "t"
    with small_files(file_rows=40, page_rows=5):
        qbeast.write_table(FRAME, path, columns=INDEXED, cube_size=25)
    return path


def check_texts(rows: DataFrame, frame: pl.DataFrame, texts: Iterable[str]) -> int:
    """Compare the rows that each text keeps in Spark and in Polars; count those that are not refused."""
    key = frame.columns[0]
    written: list[tuple[str, str, list[int]]] = []
    for text in dict.fromkeys(texts):
        try:
            sql, predicate = parse_where(text, frame.schema)
            assert predicate is not None
            kept = frame.filter(predicate)[key].to_list()
        except (InvalidInputError, pl.exceptions.PolarsError):
            continue
        written.append((text, str(sql), kept))
    marks = [f"({sql}) AS p{number}" for number, (_, sql, _) in enumerate(written)]
    truths = pl.DataFrame(rows.selectExpr(key, *marks).toArrow()).sort(key)
    for number, (text, sql, kept) in enumerate(written):
        assert truths.filter(pl.col(f"p{number}"))[key].to_list() == kept, f"{text}\n{sql}"
    return len(written)


@pytest.mark.classic
@pytest.mark.timeout(1500)
@examples(1, sweep=20, parent=quick)
@given(
    texts=st.lists(conditions(), min_size=50, max_size=50),
    zone=st.sampled_from(["America/New_York", "Asia/Kathmandu"]),
    ansi=st.sampled_from(["true", "false"]),
)
def test_random_texts_match_polars(
    spark: SparkSession, rows: DataFrame, texts: list[str], zone: str, ansi: str
) -> None:
    with chosen(spark, ansi_enabled=ansi, session_timeZone=zone, **SMALL_CACHES):
        check_texts(rows, ROWS, texts)


TEXTS = (
    "left(`x.y`, 99999999999) = `x.y` OR right(`x.y`, 99999999999) > 'm'",
    "substring(`x.y`, 1, 99999999999) = `x.y` AND substring(`x.y`, 99999999999) = ''",
    "whole >= 0 AND small <> 3",
    "`x.y` = 'a b' OR \"x.y\" LIKE 'é%'",
    "real > 0 AND real BETWEEN -5 AND 1e1 AND NOT isnan(real)",
    "NOT (real <= 0 OR single IS NULL)",
    "single IN (0.5, -0.0, 1) OR single = 0.1",
    "small IN (1, 2.5, NULL) OR small < 16777217",
    "CAST(small AS INTEGER) NOT IN (1, 0.1) AND coalesce(CAST(small AS INTEGER), 1, 0.5) > 9",
    "small > 2.5 AND small + small > 127",
    "whole + whole > 9223372036854775807 OR whole * whole < 100",
    "whole // 2 = 1 OR whole % 7 = -3",
    "-whole > 0 AND abs(small) >= 100",
    "money < 1000.005 AND wide <> 5",
    "money * 2 + 0.5 > wide",
    "money < '1000.0050' AND length(`x.y`) > 4.5 AND coalesce(small, 300) + 1 < '200'",
    "real / small > 1",
    "small / 0 > 1e300",
    "\"`day`\" >= DATE '1900-01-01'",
    "\"`day`\" BETWEEN '1900-01-01' AND '2100-01-01'",
    "moment >= TIMESTAMPTZ '1900-01-01 00:00:00+02:00'",
    "moment >= '1900-01-01' AND naive >= '1500-06-01 12:00:00.5'",
    'extract(hour FROM moment) > 11 AND hour(naive) > 11 AND year("`day`") < 1900',
    "date_trunc('month', moment) = date_trunc('month', CAST(\"`day`\" AS TIMESTAMPTZ)) OR dayofweek(naive) = 0",
    "date_trunc('hour', naive) > TIMESTAMP '2000-01-01 00:00:00' + INTERVAL 90 DAY",
    "naive + INTERVAL 1 MONTH > '2000-03-01' AND moment - INTERVAL 36 HOUR < '2000-03-01'",
    "flag IS NOT TRUE",
    "flag IS NOT FALSE AND (small > 1) IS DISTINCT FROM flag",
    "whole IS DISTINCT FROM 7 AND NOT (small NOT BETWEEN 1 AND 100 AND small IS NOT NULL)",
    "`x.y` LIKE '%!_%' ESCAPE '!' OR `x.y` LIKE '%\\%'",
    "length(`x.y`) > 4 AND upper(`x.y`) > 'É' AND substring(`x.y`, 1, 1) || 'x' = 'éx'",
    "struct.n % 2 = 1 AND struct.s IS NULL",
    "CASE WHEN flag THEN small ELSE whole END > 5",
    "coalesce(small, 0) = 0 OR nullif(small, 3) IS NULL OR greatest(small, 100) > 100",
    "TRY_CAST(real AS INTEGER) = 2 OR CAST(small AS VARCHAR) = '-3'",
    "small = NULL OR flag",
    "money = '1.00005' OR whole + whole = '2.5' OR money > 1.000049",
    'round(real, nullif(1, 1)) > 1 OR NULL IN ("`day`", 1) OR NULL IS DISTINCT FROM struct',
    f"whole <> {'1' * 38} AND single * single = CAST(single AS DOUBLE) * single",
    "1 = 1",
)


@pytest.mark.parametrize(
    ("ansi", "zone"),
    [("true", "America/New_York"), pytest.param("false", "Asia/Kathmandu", marks=pytest.mark.sweep)],
)
def test_functions_and_types_match_polars(spark: SparkSession, table: Path, ansi: str, zone: str) -> None:
    with chosen(spark, ansi_enabled=ansi, session_timeZone=zone):
        assert check_texts(read_table(spark, table), FRAME, TEXTS) == len(TEXTS)


def test_between_with_a_float_matches_polars(rows: DataFrame) -> None:
    text = "m BETWEEN 0.10000000000000000005 AND sqrt(1000)"  # 0.1 is between these, as floats
    assert check_texts(rows, ROWS, [text]) == 1


@pytest.mark.sweep
def test_text_reads_rows_like_polars(spark: SparkSession, table: Path) -> None:
    actual = [numbers(read_table(spark, table, where=text)) for text in TEXTS]
    for text, kept in zip(TEXTS, actual, strict=True):
        assert kept == qbeast.read_table(table, where=text)["row"].sort().to_list(), text
    assert sum(map(len, actual)) > len(FRAME)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("flag AND regexp_matches(`x.y`, 'a')", "REGEXP_MATCHES"),
        ("flag OR real ^ 2 > 1", "POW"),
        ("ln(real) > 1", "LN"),
        ("round(real, 2) = 1.25", "ROUND"),
        ("money * money * money > 1", "money"),
        ("moment > naive", "naive"),
    ],
)
def test_conditions_spark_defines_differently_raise(text: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match="Filter the DataFrame") as caught:
        parse_where(text, SCHEMA)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "small >", "small > 1; DROP TABLE t", "(SELECT 1) > 0", "nowhere > 1", "small", "WHERE flag"]
)
def test_invalid_conditions_raise(text: str) -> None:
    with pytest.raises(InvalidInputError, match="where"):
        parse_where(text, SCHEMA)


def test_collated_column_is_compared_by_spark() -> None:
    with pytest.raises(InvalidInputError, match="collation"):
        parse_where("`x.y` = 'a'", SCHEMA, ["x.y"])
