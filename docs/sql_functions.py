"""Write docs/sql-functions.md: each function of SQL texts with an example, whose result is computed here.

python docs/sql_functions.py

A block between `<!-- functions: group -->` and `<!-- end -->` has the examples of a group of functions of a row;
`<!-- aggregates -->` those of aggregates, with what `Table.sql` and `estimate` do with them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

import qbeast
from qbeast_core.sql.aggregates import sql_list
from qbeast_core.sql.select import selected

PAGE = Path(__file__).parent / "sql-functions.md"
NOW = datetime(2026, 11, 5, 8, 30, tzinfo=UTC)
ROW = pl.DataFrame(
    {
        "n": [7],
        "x": [-2.5],
        "price": pl.Series([Decimal("19.90")], dtype=pl.Decimal(9, 2)),
        "name": ["Ann Lee"],
        "flag": [True],
        "day": [date(2026, 1, 31)],
        "ts": [datetime(2026, 1, 31, 12, 30, 45)],  # noqa: DTZ001 - of DuckDB, without a zone
        "tags": [["a", "b"]],
        "place": [{"city": "Rome"}],
        "nothing": pl.Series([None], dtype=pl.Int64),
    }
)
"""The row of the examples."""
VALUES = pl.DataFrame({"id": range(8), "v": [1, 2, 2, 3, 4, 6, None, None], "b": [True, False] * 4})
"""The rows of the examples of aggregates."""

FUNCTIONS: dict[str, list[tuple[str, ...]]] = {
    "comparisons": [
        ("n = 7",),
        ("n == 7",),
        ("n <> 7",),
        ("n != 7",),
        ("n < 8 AND x <= 0",),
        ("n > 8 OR x >= 0",),
        ("NOT flag",),
        ("n BETWEEN 1 AND 9",),
        ("n NOT BETWEEN 1 AND 9",),
        ("name IN ('Ann Lee', 'Bo')",),
        ("n NOT IN (1, 2)",),
        ("nothing IS NULL",),
        ("n IS NOT NULL",),
        ("flag IS TRUE",),
        ("flag IS NOT FALSE",),
        ("nothing IS DISTINCT FROM 7",),
        ("n IS NOT DISTINCT FROM 7",),
        ("name LIKE 'A%'",),
        ("name NOT LIKE '_nn%'",),
        ("name ILIKE 'ann%'",),
        ("'50%' LIKE '%!%' ESCAPE '!'",),
        ("name ~ 'A.*e'",),
        ("name !~ 'A.*e'",),
        ("nothing = 7",),
    ],
    "cases": [
        ("CASE WHEN n > 5 THEN 'many' ELSE 'few' END",),
        ("CASE n WHEN 7 THEN 'seven' END",),
        ("if(n > 5, 'many', 'few')", "if"),
        ("coalesce(nothing, n, 0)", "coalesce"),
        ("ifnull(nothing, 0)", "ifnull"),
        ("nullif(n, 7)", "nullif"),
        ("greatest(n, 3, 9)", "greatest"),
        ("least(n, 3, 9)", "least"),
    ],
    "numbers": [
        ("n + 1 - 2 * 3",),
        ("n / 2",),
        ("n // 2",),
        ("-7 // 2",),
        ("n % 4", "mod"),
        ("-7 % 2",),
        ("n ^ 2", "pow", "power"),
        ("price * 2",),
        ("0.1 + 0.2 = 0.3",),
        ("abs(x)", "abs"),
        ("sign(x)", "sign"),
        ("floor(x)", "floor"),
        ("ceil(x)", "ceil", "ceiling"),
        ("round(x)", "round"),
        ("round(price, 1)",),
        ("trunc(x)", "trunc"),
        ("sqrt(n + 2)", "sqrt"),
        ("exp(0)", "exp"),
        ("ln(1)", "ln"),
        ("log(100)", "log", "log10"),
        ("log(2, 8)", "log2"),
        ("isnan(x)", "isnan"),
    ],
    "texts": [
        ("name || '!'",),
        ("concat(name, n)", "concat"),
        ("lower(name)", "lower", "lcase"),
        ("upper(name)", "upper", "ucase"),
        ("length(name)", "length", "len", "char_length", "character_length"),
        ("trim('  a ')", "trim"),
        ("ltrim('  a')", "ltrim"),
        ("rtrim('a  ')", "rtrim"),
        ("trim('xax', 'x')",),
        ("substring(name, 1, 3)", "substring", "substr"),
        ("left(name, 3)", "left"),
        ("right(name, 3)", "right"),
        ("replace(name, 'Lee', 'Kim')", "replace"),
        ("strpos(name, 'L')", "strpos", "instr", "position"),
        ("starts_with(name, 'Ann')", "starts_with", "prefix"),
        ("ends_with(name, 'Lee')", "ends_with", "suffix"),
        ("contains(name, 'n L')", "contains"),
        ("regexp_matches(name, '^A')", "regexp_matches"),
    ],
    "times": [
        ("day >= '2026-01-01'",),
        ("day = DATE '2026-01-31'",),
        ("ts < TIMESTAMP '2026-02-01 00:00:00'",),
        ("day + 1",),
        ("day + INTERVAL 3 DAY",),
        ("ts - INTERVAL '1 month'",),
        ("day - DATE '2026-01-01'",),
        ("current_date", "current_date", "today"),
        ("now()", "now", "current_timestamp"),
        ("year(day)", "year"),
        ("quarter(day)", "quarter"),
        ("month(day)", "month"),
        ("week(day)", "week"),
        ("day(ts)", "day"),
        ("dayofweek(day)", "dayofweek"),
        ("isodow(day)", "isodow"),
        ("dayofyear(day)", "dayofyear"),
        ("hour(ts)", "hour"),
        ("minute(ts)", "minute"),
        ("second(ts)", "second"),
        ("epoch(ts)", "epoch"),
        ("extract(YEAR FROM day)", "extract"),
        ("date_part('month', day)", "date_part", "datepart"),
        ("date_trunc('month', ts)", "date_trunc", "datetrunc"),
        ("date(ts)", "date"),
        ("strftime(ts, '%Y-%m')", "strftime"),
    ],
    "nested": [
        ("place.city",),
        ("tags[1]",),
        ("length(tags)",),
        ("list_contains(tags, 'b')", "list_contains", "list_has", "array_contains", "array_has"),
    ],
    "types": [
        ("CAST(x AS INTEGER)",),
        ("n::DOUBLE",),
        ("CAST(n AS DECIMAL(9, 2))",),
        ("CAST(n AS VARCHAR)",),
        ("CAST('2026-01-31' AS DATE)",),
        ("CAST(day AS TIMESTAMP)",),
        ("TRY_CAST(n AS TINYINT)",),
        ("CAST(flag AS INTEGER)",),
        ("1e3",),
        ("1.50",),
    ],
}
"""Examples by group, each with the names of the function."""

AGGREGATES: list[tuple[str, ...]] = [
    ("count(*)", "count"),
    ("count(v)",),
    ("count(DISTINCT v)",),
    ("count_if(v > 2)", "count_if", "countif"),
    ("sum(v)", "sum"),
    ("sum(v) FILTER (WHERE v > 2)",),
    ("avg(v)", "avg", "mean"),
    ("sum(v) / count(*)",),
    ("stddev(v)", "stddev", "stddev_samp"),
    ("stddev_pop(v)", "stddev_pop"),
    ("variance(v)", "variance", "var_samp"),
    ("var_pop(v)", "var_pop"),
    ("sqrt(avg(v * v))",),
    ("median(v)", "median"),
    ("quantile_cont(v, 0.3)", "quantile_cont"),
    ("quantile_disc(v, 0.3)", "quantile_disc", "quantile"),
    ("min(v)", "min"),
    ("max(v)", "max"),
    ("first(v)", "first"),
    ("last(v)", "last"),
    ("round(avg(v), 1)",),
    ("sum(DISTINCT v)",),
]
_BLOCK = re.compile(r"(<!-- (functions|aggregates)(?:: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def names() -> set[str]:
    """Return the names of functions that the page has."""
    rows = [row for rows in (*FUNCTIONS.values(), AGGREGATES) for row in rows]
    return {name for _, *others in rows for name in others}


def with_tables(text: str) -> str:
    """Return the text of the page with its tables as the code makes them now."""
    return _BLOCK.sub(
        lambda found: (
            found[1]
            + (aggregate_table() if found[2] == "aggregates" else function_table(found[3]))
            + found[4]
        ),
        text,
    )


def function_table(group: str) -> str:
    """A table of the functions of a row."""
    rows = [
        [_code(example), _code(shown(result(example))), _list(also)] for example, *also in FUNCTIONS[group]
    ]
    if any(names for *_, names in rows):
        return _markdown(["SQL", "result", "names"], rows)
    return _markdown(["SQL", "result"], [row[:2] for row in rows])


def aggregate_table() -> str:
    """A table of aggregates, and of where they are computed."""
    with tempfile.TemporaryDirectory() as folder:
        qbeast.write_table(VALUES, f"{folder}/t", columns=["id"])
        rows = [
            [_code(example), _code(shown(total(example))), _estimated(example, f"{folder}/t"), _list(also)]
            for example, *also in AGGREGATES
        ]
    return _markdown(["SQL", "result", "`estimate`", "names"], rows)


def result(example: str) -> Any:
    """Return the value of an expression for the row of the examples."""
    (expr,) = sql_list(example, ROW.schema, aggregates=False, clock=lambda: NOW).values()
    return ROW.select(expr).item()


def total(example: str) -> Any:
    """Return the value of an aggregate, as `Table.sql` computes it."""
    rows = selected(f"SELECT {example} FROM self", VALUES.lazy(), "self")  # noqa: S608 - our own text
    assert rows is not None, example
    return rows.collect().item()


def _estimated(example: str, path: str) -> str:
    try:
        qbeast.estimate(path, f"{example} AS answer")
    except qbeast.QbeastError:
        return "no"
    return "yes"


def shown(value: Any) -> str:
    """Return a value as SQL writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return str(round(value, 4))
    return f"'{value}'" if isinstance(value, str) else str(value)


def _code(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`{text}`"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts))


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
