"""The page of SQL functions has what the code computes: every name, its results as in DuckDB, in each place."""

from __future__ import annotations

import contextlib
import logging
import re
import runpy
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import polars as pl
import pytest
from sqlglot.parsers.duckdb import DuckDBParser

import qbeast
from qbeast_core.sql import functions
from qbeast_core.sql.aggregates import sql_list
from qbeast_core.sql.select import selected
from qbeast_core.sql.values import InvalidSqlError
from tests.helpers.snippets import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "sql_functions.py"))
ROW, VALUES = SCRIPT["ROW"], SCRIPT["VALUES"]
EXAMPLES = [example for rows in SCRIPT["FUNCTIONS"].values() for example, *_ in rows]
TOTALS = [example for example, *_ in SCRIPT["AGGREGATES"]]
OF_THE_CLOCK = ("now()", "current_date")


@pytest.mark.sweep
def test_page_has_what_the_code_computes() -> None:
    text = SCRIPT["PAGE"].read_text()
    assert text == SCRIPT["with_tables"](text), "run: python docs/sql_functions.py"


def test_page_has_a_block_for_each_group() -> None:
    text = SCRIPT["PAGE"].read_text()
    assert text.count("<!-- functions: ") == len(SCRIPT["FUNCTIONS"])
    assert all(f"<!-- functions: {group} -->" in text for group in SCRIPT["FUNCTIONS"])
    assert all(f"| {SCRIPT['_code'](example)} |" in text for example in (*EXAMPLES, *TOTALS))


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example not in OF_THE_CLOCK])
def test_result_of_an_example_is_that_of_duckdb(example: str) -> None:
    row = ROW  # noqa: F841 - the query names it
    (expected,) = duckdb.sql(f"SELECT {example} FROM row").fetchall()[0]  # noqa: S608 - our own text
    assert SCRIPT["result"](example) == expected


@pytest.mark.parametrize("example", TOTALS)
def test_result_of_an_aggregate_is_that_of_duckdb(example: str) -> None:
    values = VALUES  # noqa: F841 - the query names it
    (expected,) = duckdb.sql(f"SELECT {example} FROM values").fetchall()[0]  # noqa: S608 - our own text
    assert SCRIPT["total"](example) == pytest.approx(expected)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_works_in_a_query(example: str) -> None:
    rows = query(example)
    assert rows is not None
    assert rows.collect().item() == SCRIPT["result"](example)


@pytest.mark.sweep
def test_each_example_is_a_condition_and_a_group(tmp_path: Any) -> None:
    qbeast.write_table(ROW, tmp_path / "t", columns=["n"])
    table = qbeast.open_table(tmp_path / "t")
    for example in EXAMPLES:
        assert table.count(f"({example}) IS NOT DISTINCT FROM ({example})") == 1, example
        words = set(re.findall(r"\w+", re.sub("'[^']*'", "", example)))
        if words.isdisjoint(ROW.columns):
            continue  # a constant is not a group
        answer = table.rows().estimate("count(*) AS rows", by=f"{example} AS answer")
        assert answer.frame["rows"].to_list() == [1], example


def query(expression: str) -> pl.LazyFrame | None:
    """Return an expression of the row as `Table.sql` computes it."""
    text = f"SELECT {expression} AS answer FROM self"  # noqa: S608 - our own text
    return selected(text, ROW.lazy(), "self", clock=lambda: SCRIPT["NOW"])


NAMES = {
    *DuckDBParser.FUNCTIONS,
    *DuckDBParser.FUNCTION_PARSERS,
    *functions.NAMED,
    "mean",
    "percentile",
}
ARGUMENTS = ("n", "name", "flag", "ts", "tags", "'year'", "0.5")


@pytest.mark.sweep
def test_page_has_every_name_that_the_code_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("sqlglot"), "disabled", True)
    of_duckdb = {
        name for (name,) in duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    }
    taken = {
        name.lower()
        for name in NAMES
        if name.lower() in of_duckdb and any(is_taken(call) for call in calls(name))
    }
    assert taken - SCRIPT["names"]() == set()
    assert len(taken) > 80


def calls(name: str) -> Iterator[str]:
    """Return calls of a function with up to two arguments of all types, and some of three."""
    yield f"{name}()"
    for count in (1, 2):
        yield from (f"{name}({', '.join(given)})" for given in product(ARGUMENTS, repeat=count))
    yield from (
        f"{name}({first}, {more})" for first in ("name", "flag") for more in ("1, 1", "'a', 'b'", "1, n")
    )


def is_taken(call: str) -> bool:
    """Return whether a call is a function of a row or an aggregate here."""
    try:
        (expr,) = sql_list(call, ROW.schema, aggregates=False, clock=lambda: SCRIPT["NOW"]).values()
        return isinstance(expr, pl.Expr)
    except InvalidSqlError:
        with contextlib.suppress(InvalidSqlError):
            return query(call) is not None
    return False
