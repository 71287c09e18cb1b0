"""SQL texts of aggregates have the values that Polars SQL has; other texts are refused with a reason."""

from __future__ import annotations

import polars as pl
import pytest

from qbeast_core.sql.aggregates import sql_list, sql_query
from qbeast_core.sql.values import InvalidSqlError

ROWS = pl.DataFrame(
    {"a": [1.5, None, -4.0, 8.25, 2.0], "b": [2, 3, None, -5, 7], "sum": [1, 2, 3, 4, 5], "t": list("xyxyx")}
)
TEXTS = [
    "count(*)",
    "COUNT(1)",
    "count(a)",
    "sum(a)",
    "avg(a)",
    "sum(a * b)",
    "sum(a) / count(*)",
    "2 * sum(a) - avg(b) / (1 + count(*))",
    "-sum(a)",
    "sqrt(sum(a))",
    "stddev(a)",
    "variance(a)",
    "median(a)",
    "quantile_cont(a, 0.25)",
    "quantile_disc(a, 0.75)",
    "count(*) FILTER (WHERE a > 1)",
    "sum(a) FILTER (WHERE t = 'x' AND b > 1)",
    'sum("sum")',
    "avg(CASE WHEN t IN ('x', 'z') THEN a ELSE 0 END)",
    "min(a)",
    "count(DISTINCT t)",
]


def sql_aggregate(text: str) -> pl.Expr:
    (actual,) = sql_list(text, ROWS.schema, aggregates=True).values()
    return actual


@pytest.mark.parametrize("text", TEXTS)
def test_text_equals_polars_expression(text: str) -> None:
    query = f"SELECT {text} AS found FROM rows"  # noqa: S608 - texts of this file
    context = pl.SQLContext(rows=ROWS, eager=True)
    expected = context.execute(query).select(pl.col("found").cast(pl.Float64)).item()
    assert ROWS.select(sql_aggregate(text).cast(pl.Float64)).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("stddev_pop(a)", pl.col("a").std(ddof=0)),
        ("var_pop(a)", pl.col("a").var(ddof=0)),
        ("count_if(b > 1)", (pl.col("b") > 1).sum()),
        ("count_if(b > 1) FILTER (WHERE a > 0)", ((pl.col("b") > 1) & (pl.col("a") > 0)).sum()),
        ("avg(a) FILTER (WHERE b > 1)", pl.col("a").filter(pl.col("b") > 1).mean()),
    ],
)
def test_synonyms_of_other_engines_work(text: str, expr: pl.Expr) -> None:
    assert ROWS.select(sql_aggregate(text)).item() == ROWS.select(expr).item()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "not an aggregate"),
        ("sum(a) + b", "not an aggregate"),
        ("", "ends too early"),
        ("sum(a", "unexpected|ends too early"),
        ("sum()", "unexpected"),
        ("sum(a))", "unexpected"),
        ("sum(avg(a))", "several columns or rows at once"),
        ("sum(a) OVER (PARTITION BY t)", "several columns or rows at once"),
        ("array_agg(a)", "several columns or rows at once"),
        ("quantile_cont(a)", "a column and a level"),
        ("quantile_cont(a, 2)", "a column and a level"),
        ("count(*, a)", "not supported"),
        ("count(1 2)", "unexpected"),
        ("sum(a); sum(b)", "second statement"),
        ("(SELECT sum(a) FROM rows)", "is a query"),
        ("- " * 1500 + "sum(a)", "30 levels"),
        ("count_if(a)", "not a condition"),
    ],
)
def test_other_texts_raise(text: str, message: str) -> None:
    with pytest.raises(InvalidSqlError, match=message):
        sql_aggregate(text)


def test_query_has_keys_aggregates_and_condition() -> None:
    query = sql_query(
        "SELECT t, b > 0 AS positive, sum(a) AS total, count(*) FROM self WHERE a > -10 GROUP BY t, 2",
        ROWS.schema,
    )
    assert list(query.by) == ["t", "positive"]
    assert list(query.aggregates) == ["total", "count(*)"]
    assert query.where is not None
    actual = (
        ROWS.filter(query.where).group_by(*(e.alias(n) for n, e in query.by.items())).agg(**query.aggregates)
    )
    context = pl.SQLContext({"self": ROWS}, eager=True)
    expected = context.execute(
        "SELECT t, b > 0 AS positive, sum(a) AS total, count(*) AS n FROM self WHERE a > -10 GROUP BY t, b > 0"
    )
    order = ["t", "positive"]
    assert actual.sort(order).rows() == expected.sort(order).rows()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT sum(a) FROM x ORDER BY 2", "not the position"),
        ("SELECT sum(a) FROM x ORDER BY ALL", "list the columns"),
        ("SELECT sum(a) FROM x ORDER BY b", "neither a column of GROUP BY"),
        ("SELECT sum(a) FROM x LIMIT 1 + 1", "whole number"),
        ("SELECT sum(a) FROM x LIMIT 10 PERCENT", "whole number"),
        ("SELECT sum(a) FROM x LIMIT 1 OFFSET 1", "OFFSET is not supported"),
        ("SELECT sum(a) FROM x HAVING b > 1", "neither a column of GROUP BY"),
        ("SELECT sum(a) FROM x HAVING sum(a)", "compare aggregates with numbers"),
        ("SELECT sum(a) FROM x HAVING sum(a) > 'b'", "with numbers"),
        ("SELECT sum(a) FROM x JOIN y ON x.a > y.a", "equal names"),
        ("SELECT sum(a) FROM x JOIN y ON x.a = y.b", "equal names"),
        ("SELECT sum(a) FROM x JOIN y", "without ON or USING"),
        ("SELECT sum(a) FROM x FULL JOIN y USING (a)", "FULL JOIN is not supported"),
        ("SELECT sum(a) FROM x NATURAL JOIN y", "NATURAL JOIN is not supported"),
        ("SELECT sum(a) FROM x LEFT JOIN y USING (a) WHERE y.a IS NULL", "its column is the same"),
        ("SELECT sum(a) FROM x SEMI JOIN y USING (a) WHERE y.b = 1", "adds no columns"),
        ("SELECT sum(a) OVER (PARTITION BY t) FROM x", "window functions"),
        ("SELECT sum(a) FROM x WHERE a IN (SELECT a FROM x)", "inside of an expression"),
        ("SELECT sum(a) FROM x UNION SELECT sum(b) FROM x", "UNION is not supported"),
        ("WITH y AS (SELECT 1) SELECT sum(a) FROM x", "WITH is not supported"),
        ("SELECT DISTINCT ON (t) sum(a) FROM x", "DISTINCT ON is not supported"),
        ("SELECT sum(a) FROM x QUALIFY true", "QUALIFY is not supported"),
        ("SELECT sum(a" + " + 1" * 40 + ") AS y FROM x ORDER BY y" + " + y" * 600, "too often"),
        ("SELECT DISTINCT sum(a) FROM x", "not supported"),
        ("SELECT t, sum(a) FROM x", "not an aggregate"),
        ("SELECT sum(a) FROM x GROUP BY 7", "not the position"),
        ("SELECT sum(a) FROM x GROUP BY ROLLUP (t)", "not supported"),
        ("SELECT sum(a), sum(a) FROM x", "two columns"),
        ("DELETE FROM x", "not a SELECT|unexpected"),
    ],
)
def test_other_queries_raise(text: str, message: str) -> None:
    with pytest.raises(InvalidSqlError, match=message):
        sql_query(text, ROWS.schema)


def test_aggregates_are_named_by_text_or_alias() -> None:
    text = "avg(a), count(*) AS n, sum(b) FILTER (WHERE a > 1)  , min( a ) least"
    names = ["avg(a)", "n", "sum(b) FILTER (WHERE a > 1)", "least"]
    assert list(sql_list(text, ROWS.schema, aggregates=True)) == names
    assert list(sql_list('t, "sum", a > 1', ROWS.schema, aggregates=False)) == ["t", "sum", "a > 1"]
    assert list(sql_query("SELECT t, avg( a ) FROM self GROUP BY t", ROWS.schema).aggregates) == ["avg( a )"]


@pytest.mark.parametrize(
    "source",
    ["(SELECT * FROM t)", "self AS other(x)", "a.b", "self, other", "self TABLESAMPLE 10%", "read_csv('x')"],
)
def test_query_reads_only_self(source: str) -> None:
    with pytest.raises(InvalidSqlError, match="not supported"):
        sql_query(f"SELECT count(*) FROM {source}", ROWS.schema)  # noqa: S608 - texts of this file
