"""Expressions of Spark SQL: values that Spark 4 returns for them, written down by hand from its documentation."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from qbeast_core.sql.lower import spark_expression
from qbeast_core.sql.values import InvalidSqlError, UnknownColumnError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROWS = pl.DataFrame(
    {
        "Id": [7, None],
        "x": [-2.7, None],
        "d": [Decimal("1.50"), None],
        "s": ["Spark SQL", None],
        "ts": [datetime(2026, 3, 1, 23, 30, 15, tzinfo=UTC), None],  # a Sunday
        "day": [date(2024, 12, 30), None],  # a Monday, in the first week of 2025
        "user": ["u", None],
        "st": [{"Inner": 3}, None],
        "items": [[1, 2], None],
    },
    schema_overrides={"ts": pl.Datetime("us", "UTC"), "d": pl.Decimal(10, 2)},
)
NULL_IF_NULL: dict[str, object] = {
    "id + 1": 8,
    "ID div 2": 3,
    "id / 2": 3.5,
    "-id % 4": -3,
    "CAST(x AS INT)": -2,
    "CAST(d AS BIGINT)": 1,
    "int(x)": -2,
    "floor(x)": -3,
    "ceil(x)": -2,
    "round(x)": -3.0,
    "abs(x)": 2.7,
    "year(ts)": 2026,
    "month(ts)": 3,
    "day(ts)": 1,
    "dayofmonth(ts)": 1,
    "hour(ts)": 23,
    "minute(ts)": 30,
    "second(ts)": 15,
    "dayofweek(ts)": 1,
    "weekday(ts)": 6,
    "weekofyear(day)": 1,
    "dayofyear(day)": 365,
    "quarter(day)": 4,
    "extract(YEAR FROM ts)": 2026,
    "CAST(ts AS DATE)": date(2026, 3, 1),
    "date(ts)": date(2026, 3, 1),
    "to_date(ts)": date(2026, 3, 1),
    "date_add(day, 3)": date(2025, 1, 2),
    "date_sub(day, 3)": date(2024, 12, 27),
    "datediff(ts, day)": 426,
    "trunc(ts, 'MM')": date(2026, 3, 1),
    "trunc(day, 'year')": date(2024, 1, 1),
    "date_trunc('HOUR', ts)": datetime(2026, 3, 1, 23, tzinfo=UTC),
    "date_format(ts, 'yyyy-MM-dd HH:mm:ss')": "2026-03-01 23:30:15",
    "date_format(day, 'yyyyMM')": "202412",
    "ts + INTERVAL 1 DAY": datetime(2026, 3, 2, 23, 30, 15, tzinfo=UTC),
    "substring(s, 1, 5)": "Spark",
    "SUBSTRING(s FROM 0 FOR 5)": "Spark",
    "substr(s, 7)": "SQL",
    "left(s, 2)": "Sp",
    "upper(s)": "SPARK SQL",
    "lower(s)": "spark sql",
    "length(s)": 9,
    "char_length(s)": 9,
    "trim(s)": "Spark SQL",
    "replace(s, 'SQL', '')": "Spark ",
    "concat(s, '-', id)": "Spark SQL-7",
    "s || '!'": "Spark SQL!",
    "CAST(id AS STRING)": "7",
    's = "Spark SQL"': True,
    "s LIKE 'Spark%'": True,
    "s RLIKE '^S.*L$'": True,
    "startswith(s, 'Sp')": True,
    "`Id` BETWEEN 1 AND 7": True,
    "id IN (1, 7L, 9)": True,
    "user = 'u'": True,
    "ST.inner": 3,
    "st.Inner + 1": 4,
    "items[1]": 2,
    "ts > '2026-03-01'": True,
    "day < DATE '2025-01-01'": True,
    "id == 7": True,
    "id != 7": False,
    "nullif(id, 7)": None,
    "id / 0": None,
}
NEVER_NULL: dict[str, list[object]] = {
    "coalesce(id, 0)": [7, 0],
    "nvl(id, -1)": [7, -1],
    "ifnull(id, -1)": [7, -1],
    "isnull(id)": [False, True],
    "isnotnull(id)": [True, False],
    "id <=> NULL": [False, True],
    "id IS NOT NULL AND x < 0": [True, False],
    "CASE WHEN id > 5 THEN 'big' WHEN id IS NULL THEN 'none' ELSE 'small' END": ["big", "none"],
    "if(id > 5, 1, 2)": [1, 2],
    "concat(coalesce(s, ''), '')": ["Spark SQL", ""],
}


@pytest.mark.parametrize("text", NULL_IF_NULL)
def test_functions_have_the_values_of_spark(text: str) -> None:
    values = ROWS.select(spark_expression(text, ROWS.schema, clock=lambda: NOW).alias("value"))["value"]
    assert values.to_list() == [NULL_IF_NULL[text], None]


@pytest.mark.parametrize("text", NEVER_NULL)
def test_null_tests_have_the_values_of_spark(text: str) -> None:
    values = ROWS.select(spark_expression(text, ROWS.schema).alias("value"))["value"]
    assert values.to_list() == NEVER_NULL[text]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CAST(now() AS DATE)", NOW.date()),
        ("current_date()", NOW.date()),
        ("current_timestamp()", NOW),
        ("16", 16),
        ("'it'", "it"),
        ("CAST('7' AS INT) + 1", 8),
        ("1.5", Decimal("1.5")),
        ("NULL", None),
    ],
)
def test_constants_have_the_values_of_spark(text: str, value: object) -> None:
    assert pl.select(spark_expression(text, pl.Schema(), clock=lambda: NOW)).item() == value


@pytest.mark.parametrize(
    "text",
    [
        *("uuid()", "rand()", "hash(id)", "pmod(id, 2)", "sum(id)", "max(id) > 1", "no_such_function(id)"),
        *("", "id >", "id > 0; DROP TABLE t", "(SELECT 1)", "EXISTS (SELECT 1)", ":a > 1", "id > ?"),
        *(
            "date_format(ts, 'M')",
            "date_format(ts, 'EEE')",
            "extract(DOW FROM ts)",
            "extract(SECOND FROM ts)",
        ),
        *(
            "to_date(s, 'yyyy')",
            "substring(s, -2)",
            "s LIKE 'a\\\\\\\\_'",
            "element_at(items, 1)",
            "trunc(day, 'DAYS')",
        ),
        *("id > s", "NOT id", "id AND x", "CAST(x AS STRING)", "CAST(id AS BINARY)", "INTERVAL 1 DAY"),
        *("size(items)", "transform(items, i -> i + 1)", "row_number() OVER (ORDER BY id)"),
        "(" * 40 + "id" + ")" * 40,
    ],
)
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(InvalidSqlError):
        spark_expression(text, ROWS.schema, clock=lambda: NOW)


def test_unknown_columns_are_named() -> None:
    with pytest.raises(UnknownColumnError, match="absent"):
        spark_expression("absent > 1", ROWS.schema)
