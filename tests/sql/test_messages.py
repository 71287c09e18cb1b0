"""Messages about texts: they quote the start of a text, name the columns of the table, and say what to do."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import qbeast
from qbeast_core.errors import QbeastError
from qbeast_core.sql.values import MAX_NUMBER, InvalidSqlError
from qbeast_spark_bridge.predicates.conditions import parse_where
from tests.sql.oracle import sql_expression

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pl.DataFrame(
    {
        "id": range(9),
        "ts": [datetime(2022, 1, 1, hour, tzinfo=UTC) for hour in range(9)],
        "d": [date(2022, 1, 1)] * 9,
        "s": ["a"] * 9,
        "m": pl.Series(range(9)).cast(pl.Decimal(8, 2)),
        "l": [[1]] * 9,
    }
)
DIGITS = "9" * 5_000
NUMBERS = [
    *("id = {}", "id = -{}", "m = 0.{}", "m = {}.5", "id = 1e{}", "id IN (1, {})", "id = '{}'", "m = '1e{}'"),
    *("d = DATE '{}'", "d + INTERVAL {} DAY > d", "d + INTERVAL '{}' DAY > d", "d + {} > d", "{} * {} = 1"),
    *("ts > TIMESTAMP '{}'", "m = CAST(1 AS DECIMAL({}, 2))", "m = CAST('{}' AS DECIMAL(8, 2))"),
]  # fmt: skip
LONG = {
    "words": lambda table: table.count("id = 1 OR " * 900),
    "sign": lambda table: table.count("`" * 100_000),
    "name": lambda table: table.count("x" * 100_000 + " = 1"),
    "unit": lambda table: table.count(f"date_trunc('{'y' * 100_000}', d) = d"),
    "number": lambda table: table.count(f"id = {DIGITS}"),
    "aggregates": lambda table: table.rows(sample=0.1).estimate({"n": f"sum({'id, ' * 2_000}id)"}),
    "by": lambda table: table.rows(sample=0.1).estimate({"n": "sum(id)"}, by="y + " * 2_000 + "y"),
    "value": lambda table: table.update("id = 1", {"s": "id + " * 1_500 + "x"}),
    "expression": lambda table: table.delete(pl.any_horizontal([pl.col(f"x{n}") > n for n in range(2_000)])),
    "constraint": lambda table: table.add_constraint("c", " AND ".join(["id < 5"] * 400)),
    "query": lambda table: table.sql(f"SELECT {'id, ' * 2_000} nope FROM self"),  # noqa: S608 - texts of this file
    "path": lambda table: qbeast.open_table(f"{table.uri}/{'p' * 200}/" * 15),
    "option": lambda table: table.set_properties({"o" * 100_000: 5}),
    "columns": lambda table: table.read(columns=["c" * 100_000]),
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("messages")
    qbeast.write_table(ROWS, path, columns=["id"])
    return qbeast.open_table(path)


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_of_any_length_are_refused(text: str) -> None:
    reasons = re.compile(r"number|not a value|does not fit|longer|digits")
    for digits in (DIGITS, "1" * MAX_NUMBER):
        with pytest.raises(InvalidSqlError, match=reasons) as caught:
            sql_expression(text.replace("{}", digits), ROWS.schema)
        assert len(str(caught.value)) < 300


def test_longest_numbers_are_compared_exactly(table: qbeast.Table) -> None:
    assert table.count(f"id < {'9' * 38}") == table.count(f"id > -{'9' * 38}") == 9
    assert table.count(f"id = {'0' * 900}7") == table.count("id = 7") == 1
    digits = "9" * 38
    assert (
        table.count(f"left(s, {digits}) = 'a' AND substring(s, 1, {digits}) = 'a' AND l[{digits}] IS NULL")
        == 9
    )
    with pytest.raises(QbeastError, match="no equivalent in Spark"):
        parse_where(f"m = 0.{'1' * 36}", ROWS.schema)
    with pytest.raises(InvalidSqlError, match="not a number"):
        sql_expression("id = .5e", ROWS.schema)


@pytest.mark.parametrize("name", LONG)
def test_messages_quote_the_start_of_a_text(table: qbeast.Table, name: str) -> None:
    call: Callable[[qbeast.Table], object] = LONG[name]
    with pytest.raises(QbeastError) as caught:
        call(table)
    message = str(caught.value)
    assert len(message) < (4_100 if name == "expression" else 1_800)
    assert "…" in message


CHICAGO = datetime(2022, 1, 1, tzinfo=ZoneInfo("America/Chicago"))
ZONES = {
    "zone": pl.col("ts") == CHICAGO,
    "none": pl.col("ts") >= CHICAGO.replace(tzinfo=None),
    "between": pl.col("ts").is_between(CHICAGO, CHICAGO),
    "missing": pl.col("ts").eq_missing(CHICAGO),
    "both": (pl.col("id") > 2) & (pl.col("ts") == CHICAGO),
}


@pytest.mark.parametrize("name", ZONES)
def test_comparison_with_another_zone_names_the_column(table: qbeast.Table, name: str) -> None:
    with pytest.raises(pl.exceptions.SchemaError) as plain:
        ROWS.lazy().filter(ZONES[name]).collect()
    with pytest.raises(pl.exceptions.SchemaError) as caught:
        table.rows().lazy().filter(ZONES[name]).collect()
    assert str(caught.value).splitlines()[0] == str(plain.value).splitlines()[0]
    with pytest.raises(qbeast.InvalidInputError, match=r"'ts'.*convert_time_zone\('UTC'\)") as refused:
        table.read(ZONES[name])
    assert "in SQL write" not in str(refused.value)


def test_query_with_another_zone_names_the_column(table: qbeast.Table) -> None:
    query = (
        "SELECT *, row_number() OVER (ORDER BY id) AS n FROM self WHERE ts > TIMESTAMP '2022-01-01 00:00:00'"
    )
    with pytest.raises(pl.exceptions.SchemaError, match="series 'ts'"):
        table.sql(query).collect()
    query = "SELECT * FROM self WHERE ts > TIMESTAMP '2022-01-01 00:00:00'"
    assert table.sql(query).collect().height == 8


def test_literals_have_no_column_in_messages(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="failed for 1 out of 1") as caught:
        table.update("id = 1", {"m": "9999999.995"})
    assert "literal" not in str(caught.value)


CLAUSES = {
    "SELECT sum(id) FROM self JOIN other USING (id)": r"must name the table 'other'.*join=\{'other': table\}",
    "SELECT sum(id) FROM self, other": "JOIN without ON or USING is not supported",
    "SELECT d, sum(id) FROM self GROUP BY d LIMIT 3 OFFSET 1": "OFFSET is not supported.*slice the result",
    "SELECT DISTINCT d, sum(id) FROM self GROUP BY d": "DISTINCT is not supported.*group by the columns",
    "SELECT sum(m) FROM (SELECT id, sum(m) AS m FROM self GROUP BY id LIMIT 3)": "LIMIT is not.*limit the outer query",
    "SELECT d FROM self GROUP BY d ORDER BY count(*)": "at least one aggregate",
    "WITH other AS (SELECT 1) SELECT sum(id) FROM other": "WITH is not supported",
    "SELECT max(id), sum(m) FROM self ORDER BY max(id)": "depends on single rows",
}


@pytest.mark.parametrize("query", CLAUSES)
def test_other_clauses_are_refused_with_a_cure(table: qbeast.Table, query: str) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=CLAUSES[query]) as caught:
        table.rows(sample=0.5).estimate(query)
    assert not re.search(r"Identifier|\x00|\\x00", str(caught.value))


TREES = (
    "SELECT {'a': id} FROM self",
    "SELECT sum(x -> x + 1) FROM self",
    "SELECT ? FROM self",
    "SELECT id[id] FROM self",
)


@pytest.mark.parametrize("query", TREES)
def test_messages_of_queries_have_no_trees(table: qbeast.Table, query: str) -> None:
    with pytest.raises(qbeast.InvalidInputError) as caught:
        table.sql(query)
    assert not re.search(r"Span|Ident|Location|Placeholder|\x00", str(caught.value))
