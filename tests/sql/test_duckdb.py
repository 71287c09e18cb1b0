"""DuckDB is the oracle: a condition keeps the rows there that it keeps here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, event, example, given, settings

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.data.expressions import condition_of
from tests.helpers.examples import examples
from tests.sql.oracle import sql_expression, with_rows
from tests.sql.texts import NULLS, ROWS, conditions

if TYPE_CHECKING:
    from collections.abc import Iterator

HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
tries = examples(2, sweep=20_000, parent=settings(suppress_health_check=HEALTH, deadline=None))


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with with_rows(ROWS) as connection:
        yield connection


def expected(oracle: duckdb.DuckDBPyConnection, text: str) -> list[bool | None] | None:
    """Return the value of a condition for each row; None where DuckDB fails."""
    try:
        actual = oracle.execute(f"SELECT ({text}) FROM rows ORDER BY id").fetchall()  # noqa: S608 - texts of this file
    except duckdb.Error:
        return None
    return [value for (value,) in actual]


@tries
@given(conditions())
@example("i IS DISTINCT FROM 0 AND NOT c")
@example("(x > 1) <> (i > 1)")
@example("c IS NOT TRUE")
@example("0.3 = 0.1 + 0.2")
@example("s BETWEEN 'a' AND NULL")
@example("c = (i = NULL) OR (x = NULL) IS NULL")
@example("i IS DISTINCT FROM abs(3000000000)")
@example("b * b > 0 OR i = 2")
@example("i % 3 = -2 OR b // -2 = 3")
@example("z >= '2024-05-01'")
@example("FALSE IS DISTINCT FROM CASE WHEN concat(s, 'x') IS NOT NULL THEN FALSE END")
@example("i IN (x, 1.00000000000000000005)")
@example("t IS NULL OR 1.00000000000000000005 BETWEEN x AND t OR b BETWEEN x AND 0.99999999999999999999")
@example(
    "CAST(floor(m) AS VARCHAR) = '1' OR CAST(round(m, 1) AS VARCHAR) = '0.1' OR CAST(ceil(m) AS VARCHAR) = '1'"
)
@example("t IN (t, t, (1.00000000000000000005 * trunc(1.00000000000000000005)))")
@example("abs(0.1) = nullif(2, t) OR nullif(2, 3) < nullif(0.1, n)")
@example("nullif(30, 30) <= CAST(2.5 AS INTEGER) OR nullif(30, 30) <= nullif(3, b)")
def test_conditions_have_the_values_of_duckdb(oracle: duckdb.DuckDBPyConnection, text: str) -> None:
    rows = expected(oracle, text)
    if rows is None:
        event("DuckDB fails")
        return
    try:
        expr = condition_of(text, ROWS.schema).expr
    except InvalidInputError as error:
        assert re.search("128 bits|has no value: a date or time is out of range", str(error))  # noqa: PT017 - most texts raise nothing
        event("refused")
        return
    assert ROWS.select("id", expr.alias("value"))["value"].to_list() == rows
    assert ROWS.lazy().filter(expr).collect()["id"].to_list() == [
        at for at, value in enumerate(rows) if value
    ]


def check_nulls(oracle: duckdb.DuckDBPyConnection, calls: list[str]) -> None:
    """Compare calls in one frame and in frames of one row: a function of Polars may treat them differently."""
    for call in calls:
        for text in (
            f"({call}) IS NULL",
            f"coalesce(({call}) = ({call}), FALSE)",
            f"CAST(({call}) AS VARCHAR) = 'x'",
        ):
            rows = expected(oracle, text)
            try:
                expr = condition_of(text, ROWS.schema).expr
            except InvalidInputError as error:
                is_known = re.search("expression|a cast of|is not a value|must be|takes", str(error))
                assert rows is None or is_known, text
                continue
            if rows is not None:
                parts = [ROWS, *(ROWS[number : number + 1] for number in range(ROWS.height))]
                values = [part.select("id", expr.alias("value"))["value"].to_list() for part in parts]
                assert values == [rows, *([value] for value in rows)], text


def test_nulls_in_any_position_give_the_values_of_duckdb(oracle: duckdb.DuckDBPyConnection) -> None:
    check_nulls(
        oracle,
        ["replace(s, 'x', u)", "replace('x', 'x', u)", "replace(s, '', u)", *NULLS[:: len(NULLS) // 9]],
    )


@pytest.mark.sweep
def test_all_nulls_give_the_values_of_duckdb(oracle: duckdb.DuckDBPyConnection) -> None:
    check_nulls(oracle, NULLS)


def test_replacement_is_taken_as_it_is() -> None:
    rows = pl.DataFrame({"s": ["abc", "b", "b"], "new": ["$0", "\\1", None]})
    for part in (rows, rows[:1], rows[1:2], rows[2:]):
        actual = part.select(sql_expression("replace(s, 'b', new)", rows.schema).alias("s"))
        assert actual["s"].to_list() == [
            None if new is None else s.replace("b", new) for s, new in part.iter_rows()
        ]


@pytest.mark.sweep
def test_few_texts_are_outside_the_comparison(oracle: duckdb.DuckDBPyConnection) -> None:
    failed = []

    @settings(
        max_examples=200,
        database=None,
        suppress_health_check=HEALTH,
        deadline=None,
        derandomize=True,
    )
    @given(conditions())
    def count(text: str) -> None:
        failed.append(expected(oracle, text) is None)

    count()
    assert sum(failed) < len(failed) / 2
