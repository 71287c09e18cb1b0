"""SQL texts of aggregates mean what Polars' SQL means by them; what is none is refused with a reason."""

from __future__ import annotations

import polars as pl
import pytest

from qbeast_core.query.sql_aggregates import sql_aggregate
from qbeast_core.query.sql_tokens import SqlRefused

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


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_means_what_polars_says(text: str) -> None:
    query = f"SELECT {text} AS found FROM rows"  # noqa: S608 - texts of this file
    context = pl.SQLContext(rows=ROWS, eager=True)
    expected = context.execute(query).select(pl.col("found").cast(pl.Float64)).item()
    assert ROWS.select(sql_aggregate(text, ROWS.columns).cast(pl.Float64)).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("stddev_pop(a)", pl.col("a").std(ddof=0)),
        ("var_pop(a)", pl.col("a").var(ddof=0)),
        ("count_if(b > 1)", (pl.col("b") > 1).sum()),
        ("count_if(b > 1) FILTER (WHERE a > 0)", ((pl.col("b") > 1) & (pl.col("a") > 0)).sum()),
        ("percentile(a, 0.5)", pl.col("a").quantile(0.5, "linear")),
        ("avg(a) FILTER (WHERE b > 1)", pl.col("a").filter(pl.col("b") > 1).mean()),
    ],
)
def test_words_of_other_engines(text: str, expr: pl.Expr) -> None:
    assert ROWS.select(sql_aggregate(text, ROWS.columns)).item() == ROWS.select(expr).item()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "stands in no aggregate"),
        ("sum(a) + b", "stands in no aggregate"),
        ("", "ends too early"),
        ("sum(a", "where \\) is due"),
        ("sum()", "ends too early"),
        ("sum(a))", "no use for"),
        ("sum(avg(a))", "looks at several columns or rows at once"),
        ("sum(a) OVER (PARTITION BY t)", "asks for a query"),
        ("array_agg(a)", "no aggregate that is known"),
        ("quantile_cont(a)", "needs what it is of and a level"),
        ("count(*) FILTER (a > 1)", "where WHERE is due"),
        ("count(*, a)", "no use for|column"),
        ("count(1 2)", "no use for|cannot"),
        ("sum(a); drop table x", "second statement"),
        ("(SELECT sum(a) FROM rows)", "stands in no aggregate"),
    ],
)
def test_what_is_no_aggregate_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlRefused, match=message):
        sql_aggregate(text, ROWS.columns)
