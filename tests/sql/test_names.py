"""DuckDB is the oracle: a name in quotes is one name, and a dot between names goes into a struct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

import qbeast
from qbeast_core.errors import InvalidInputError
from qbeast_core.sql.lower import spark_expression
from qbeast_core.table.data.expressions import condition_of, value_of
from qbeast_spark_bridge.predicates.conditions import parse_where

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [{"b": 100 + n, "b.c": 200 + n, "in": {"d": {"e": {"f": n % 3}}}} for n in range(8)]
ROWS = pl.DataFrame(
    {
        "id": range(8),
        "a.b": range(8),
        "a.b.c": range(50, 58),
        "a": FIELDS,
        "x.y": range(20, 28),
        "x": range(8),
    }
)
TEXTS = {
    *("a.b = {}", 'a."b" = {}', '"a"."b" = {}', '"a".b = {}', "(a).b = {}", "((a)).b = {}", "a['b'] = {}"),
    *('"a.b" = {}', '("a.b") = {}', 'a."b.c" = {}', '"a.b.c" = {}', '"x.y" = {}', 'x + "x.y" = {}'),
    *('a."in"."d".e.f + 100 = {}', '(a."in").d.e.f + 200 = {}', 'a."in".d.e."f" = {}', '("a"."in").d."e".f = {}'),
}  # fmt: skip
INVALID = (
    "x.y = 1",
    'a."b.d" = 1',
    '"a.b".c = 1',
    "a.b.c = 1",
    '"a.in".d = 1',
    'a."in.d".e.f = 1',
    'q."a.b" = 1',
)


def counts(text: str) -> list[int]:
    """Return how many rows DuckDB finds for the numbers that occur."""
    with duckdb.connect() as connection:
        connection.register("rows", ROWS.to_arrow())
        return [
            connection.execute(f"SELECT count(*) FROM rows WHERE {text.format(n)}").fetchall()[0][0]  # noqa: S608 - texts of this file
            for n in (1, 24, 51, 101, 201)
        ]


@pytest.mark.parametrize("text", sorted(TEXTS))
def test_names_mean_the_columns_of_duckdb(text: str) -> None:
    ours, spark = [], []
    for number in (1, 24, 51, 101, 201):
        condition = text.format(number)
        ours.append(ROWS.filter(condition_of(condition, ROWS.schema).expr).height)
        in_spark = spark_expression(condition.replace('"', "`").upper(), ROWS.schema)
        spark.append(ROWS.filter(in_spark).height if "[" not in condition else ours[-1])
    assert ours == spark == counts(text)
    assert any(ours)


@pytest.mark.parametrize("text", INVALID)
def test_parts_of_names_are_never_joined(text: str) -> None:
    with pytest.raises(duckdb.Error):
        counts(text)
    with pytest.raises(InvalidInputError, match=r"(field|column) .* does not exist|no such column"):
        condition_of(text, ROWS.schema)


def test_bridge_quotes_each_part_of_a_name() -> None:
    texts = {'"a.b" = 1': "`a.b`", "a.b = 1": "`a`.`b`", '(a)."b.c" = 1': "`a`.`b.c`", "x = 1": "`x`"}
    for text, name in texts.items():
        assert str(parse_where(text, ROWS.schema)[0]).startswith(f"({name} = "), text


def test_every_call_takes_the_field(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    assert table.read("a.b = 101")["id"].to_list() == table.read(where='"a.b" = 1')["id"].to_list() == [1]
    assert table.sql("SELECT id FROM self WHERE a.b = 103").collect()["id"].to_list() == [3]
    for by in ("a.b", 'a."b"', '"a"."b"'):
        query = f"SELECT a.b AS k, sum(id) AS n FROM self GROUP BY {by}"  # noqa: S608 - texts of this file
        of_query = table.rows(sample=1.0).estimate(query)
        of_call = table.rows(sample=1.0).estimate({"n": "sum(id)"}, by={"k": by})
        assert all(sorted(e.frame["k"]) == list(range(100, 108)) for e in (of_query, of_call)), by
    assert table.delete("a.b = 1", dry_run=True).rows_deleted == 0
    assert table.update('"a.b" = 7', {"x": 'a.b + "a.b"'}).rows_updated == 1
    assert table.read("x > 7")["x"].to_list() == [114]
    table.add_constraint("field", "a.b >= 100 AND `a.b` < 100")
    with pytest.raises(qbeast.ConstraintViolationError):
        qbeast.write_table(ROWS.with_columns(pl.col("a.b") + 100), tmp_path, mode="append")


def test_values_take_the_field() -> None:
    for text, value in {"a.b": 101, '"a.b"': 1, 'a."b.c" - "a.b.c"': 150}.items():
        expr = value_of(text, ROWS.schema, pl.Int64(), column="x")
        assert ROWS.select(expr)["x"][1] == value
