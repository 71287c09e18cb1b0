"""Values at the edges of their types: the results of DuckDB, or an error; nothing wraps around."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import qbeast
from qbeast_core.sql.values import InvalidSqlError
from tests.sql.oracle import sql_expression, with_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
EPOCH, LEAP = datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)
ROWS = pl.DataFrame(
    {
        "id": range(6),
        "d": [date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1), date(2024, 2, 29), date(2024, 1, 31)],
        "z": pl.Series([FIRST, LAST, None, EPOCH, LEAP, EPOCH - MICROSECOND], dtype=pl.Datetime("us", "UTC")),
        "t": pl.Series([127, -128, None, 0, 1, -1], dtype=pl.Int8),
        "i": pl.Series([2**31 - 1, -(2**31), None, 0, 1, -1], dtype=pl.Int32),
        "b": pl.Series([2**63 - 1, -(2**63), None, 0, 10**12, -7], dtype=pl.Int64),
        "m": pl.Series(["999999.99", "-999999.99", None, "0", "0.05", "-0.05"]).cast(pl.Decimal(8, 2)),
        "h": pl.Series(["9" * 38, "-" + "9" * 38, None, "0", "1", "-1"]).cast(pl.Decimal(38, 0)),
        "x": [1e308, -1e308, None, float("nan"), 9.3e18, 2147483647.5],
    }
)  # fmt: skip
DAYS = ["1", "-1", "3000000", "2147483647", "9223372036854775807", "i", "b", "i * 1000000000"]
COUNTS = ["0", "1", "13", "3000", "290000", "2000000000", "9000000000000000"]
UNITS = ["DAY", "MONTH", "YEAR", "HOUR", "SECOND", "MICROSECOND"]
SPANS = [f"INTERVAL {count} {unit}" for count, unit in product(COUNTS, UNITS)]
PLURALS = [
    text for unit in [*UNITS, "week", "Quarter"] for text in (f"INTERVAL '13 {unit}s'", f"INTERVAL 3 {unit}S")
]
FUNCTIONS = ["abs", "-", "sign", "floor", "ceil", "round", "trunc"]
NUMBERS = ["t", "i", "b", "m", "h", "x", "2147483647", "9223372036854775807", "-9223372036854775808", "-1"]
TYPES = [
    "TINYINT",
    "INTEGER",
    "BIGINT",
    "FLOAT",
    "DECIMAL(5, 2)",
    "DECIMAL(38, 10)",
    "DATE",
    "TIMESTAMP",
    "BOOLEAN",
]
TEXTS = [
    *(f"d {sign} {days}" for sign, days in product("+-", DAYS)),
    *(f"{time} {sign} {span}" for time, sign, span in product("dz", "+-", SPANS)),
    *(f"{time} - {span}" for time, span in product("dz", PLURALS)),
    *(f"{left} {sign} {right}" for left, sign, right in product(NUMBERS, "+-*", NUMBERS)),
    *(f"{name}({number})" for name, number in product(FUNCTIONS, NUMBERS)),
    *(f"{name}({value} AS {kind})" for name, value, kind in product(("CAST", "TRY_CAST"), [*NUMBERS, "d", "z"], TYPES)),
    *(f"{name}({time})" for name, time in product(("year", "month", "week", "dayofyear"), ("d", "z", "d + 3000000"))),
    *("d - d", "d - DATE '2024-01-01'", "(d + 90000000) - (d - 90000000)", "m * m * m", "h * 10", "h * m"),
]  # fmt: skip
USUAL = [
    *TEXTS[::97],
    "d + i * 1000000000",
    "d + INTERVAL 9999 YEAR",
    "d - INTERVAL '90 days'",
    "CAST(x AS FLOAT)",
    "abs(b)",
    "b - 1",
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with with_rows(ROWS) as connection:
        yield connection


def ours(expr: pl.Expr, number: int) -> Any:
    """Return a value, times in microseconds; None if it cannot be computed."""
    try:
        value = ROWS[number : number + 1].select("id", expr.alias("value"))["value"]
    except pl.exceptions.PolarsError:
        return None
    if isinstance(value.dtype, (pl.Date, pl.Datetime)):
        return value.to_physical().cast(pl.Int64).item(), isinstance(value.dtype, pl.Date)
    return value.item()


def differs(oracle: duckdb.DuckDBPyConnection, text: str, expr: pl.Expr, number: int) -> bool:
    """Return whether a value is not the one of DuckDB, or there is one where DuckDB fails."""
    actual = ours(expr, number)
    is_time = isinstance(actual, tuple)
    wanted = f"epoch_us({text})" if is_time else text
    try:
        (expected,) = oracle.execute(f"SELECT {wanted} FROM rows WHERE id = {number}").fetchall()[0]  # noqa: S608 - texts of this file
    except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:  # larger types are documented
        is_wider = isinstance(actual, int | Decimal) and "Overflow" in str(error)
        return not (actual is None or is_wider or (is_time and actual[0] is None))
    except (
        OverflowError,
        ValueError,
        duckdb.BinderException,
    ):  # Python has no such time, or DuckDB no such sum
        return False
    if is_time:
        days, is_date = actual
        return expected != (days if days is None or not is_date else days * 86_400_000_000)
    if isinstance(actual, float) or isinstance(expected, float):
        return actual != pytest.approx(
            float("nan") if expected is None else float(expected), rel=1e-12, nan_ok=True
        )
    return actual is not None and actual != expected


def check(oracle: duckdb.DuckDBPyConnection, texts: list[str]) -> None:
    wrong = []
    for text in texts:
        try:
            expr = sql_expression(text, ROWS.schema)
        except InvalidSqlError:
            continue
        wrong += [
            (text, number, ours(expr, number)) for number in range(6) if differs(oracle, text, expr, number)
        ]
    assert not wrong


def test_values_at_edges_are_those_of_duckdb(oracle: duckdb.DuckDBPyConnection) -> None:
    check(oracle, USUAL)


@pytest.mark.sweep
def test_all_values_at_edges_are_those_of_duckdb(oracle: duckdb.DuckDBPyConnection) -> None:
    check(oracle, TEXTS)


def test_times_out_of_range_match_no_row(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(6), "day": [date(2020, 1, 1)] * 6}).with_columns(
        ts=pl.col("day").cast(pl.Datetime("us"))
    )
    qbeast.write_table(rows, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="Nothing was changed"):
        table.delete("day + id * 1000000000 < day")
    for text in ("ts + INTERVAL 106000000 DAY < ts", "ts + INTERVAL 262000 YEAR < ts"):
        with pytest.raises(qbeast.InvalidInputError, match="`where`"):
            table.count(text)
    with pytest.raises(qbeast.InvalidInputError, match="set cannot be computed"):
        table.update("id >= 0", {"day": "day + id * 1000000000"})
    assert table.read("ts + INTERVAL 1 DAY > '2020-01-01' AND day + id > '2020-01-03'").height == 3


def test_sums_of_keys_do_not_wrap_around(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": [1, 1, 2, 2], "b": [2**62] * 4})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    estimate = qbeast.open_table(tmp_path).rows(sample=1.0).estimate
    per_key = "SELECT avg(n) AS m FROM (SELECT id, sum(b) AS n FROM self GROUP BY id)"
    assert estimate(per_key).frame["m"].item() == 2.0**63
    assert estimate({"m": "sum(b * b)"}).frame["m"].item() == 2.0**126


def test_difference_of_times_is_exact() -> None:
    rows = pl.DataFrame(
        {"a": [datetime(9999, 12, 31, tzinfo=UTC)], "b": [datetime(1, 1, 1, tzinfo=UTC)]},
        schema_overrides=dict.fromkeys("ab", pl.Datetime("us", "UTC")),
    )
    assert rows.select(sql_expression("a - b", rows.schema)).item() == timedelta(days=3_652_058)
    far = sql_expression("(a + INTERVAL 250000 YEAR) - (b - INTERVAL 250000 YEAR)", rows.schema)
    with pytest.raises(pl.exceptions.InvalidOperationError):
        rows.select(far)


SINGLES = pl.DataFrame({"id": range(4), "s": pl.Series([0.1, 0.2, None, 16777216.0], dtype=pl.Float32)})


@pytest.mark.parametrize(
    "text",
    [
        *("s > 1e-1", "s = 1e-1", "s = 0.1", "0.1 >= s", "s BETWEEN 1e-1 AND 5", "s BETWEEN 0.1 AND 5"),
        *("s IN (1e-1)", "s IN (0.1, 0.2)", "s IS DISTINCT FROM 0.1", "s + 1e-1 > 2e-1", "s = 16777216"),
    ],
)
def test_single_precision_is_compared_as_in_duckdb(text: str) -> None:
    with with_rows(SINGLES) as connection:
        rows = connection.execute(f"SELECT id FROM rows WHERE {text} ORDER BY id").fetchall()  # noqa: S608 - texts of this file
    assert SINGLES.filter(sql_expression(text, SINGLES.schema))["id"].to_list() == [row[0] for row in rows]
