"""What a filter leaves out: every row that it does not keep, with three-valued logic, or it is not understood."""

from __future__ import annotations

import math

import polars as pl
import pytest

from qbeast_core.plan.nodes import (
    And,
    IsIn,
    IsNotNull,
    IsNull,
    Node,
    Nothing,
    Or,
    StartsWith,
    Unknown,
)
from qbeast_core.plan.predicate import parse_complement

ROWS = pl.DataFrame(
    {
        "i": [None, -3, 0, 4, 7, 9],
        "f": [1.5, None, math.nan, math.inf, -2.0, 4.0],
        "s": ["ab", "b", None, "", "abc", "z"],
        "b": [True, False, None, True, None, False],
    }
)
i, f, s, b = (pl.col(name) for name in ROWS.columns)
UNDERSTOOD = {
    "comparison": i > 3,
    "NaN": f < 2,
    "and": (i > 0) & (f > 1),
    "or": (i > 0) | (s == "b"),
    "not": ~(i > 0) & (f > 1),
    "between": i.is_between(0, 7),
    "null": i.is_null() | (f > 0),
    "not null": i.is_not_null() & (f < 3),
    "Boolean": b & (i > 0),
    "cast": i.cast(pl.Float64) >= 4,
    "all": pl.all_horizontal(i > -1, f > 0),
    "any": pl.any_horizontal(i > 5, s.is_null()),
    "SQL": pl.sql_expr("i >= 0 AND NOT (f > 2)"),
}
ROUGHLY = {"not of both": ~((i > 0) & (f > 1)), "not of either": ~((i > 0) | b)}
NOT_UNDERSTOOD = {
    "makes nulls": i.cast(pl.String).cast(pl.Int64, strict=False) > 3,
    "when": pl.when(i > 3).then(pl.lit(value=True)),
    "arithmetic": i // 0 > 1,
    "is in": i.is_in([4, None]),
    "Python": i.map_batches(lambda column: column > 3, return_dtype=pl.Boolean),
}


def true_of(node: Node) -> pl.Expr:
    """What the tree says, by Polars; null counts as false."""
    if isinstance(node, And | Or):
        parts = [true_of(child) for child in node.children]
        return pl.all_horizontal(parts) if isinstance(node, And) else pl.any_horizontal(parts)
    if isinstance(node, Unknown | Nothing):
        return pl.lit(value=isinstance(node, Unknown))
    if isinstance(node, IsNull | IsNotNull):
        column = pl.col(node.column)
        return column.is_null() if isinstance(node, IsNull) else column.is_not_null()
    values = node.operand.apply(pl.col(node.operand.column))
    if isinstance(node, IsIn | StartsWith):
        actual = values.is_in(node.values) if isinstance(node, IsIn) else values.str.starts_with(node.prefix)
        return actual.fill_null(value=False)
    value = pl.lit(node.value).first()
    compared = {"<": values < value, "<=": values <= value, "==": values == value, "!=": values != value}
    compared |= {">": values > value, ">=": values >= value}
    return compared[node.op].fill_null(value=False)


@pytest.mark.parametrize("name", UNDERSTOOD | ROUGHLY | NOT_UNDERSTOOD)
def test_rest_covers_all_rows_not_kept(name: str) -> None:
    request = (UNDERSTOOD | ROUGHLY | NOT_UNDERSTOOD)[name]
    actual = parse_complement(request, ROWS.schema)
    report = ROWS.select(kept=request.fill_null(value=False), rest=true_of(actual))
    assert not report.filter(~pl.col("kept") & ~pl.col("rest")).height
    if name in UNDERSTOOD:
        assert report["rest"].to_list() == [not item for item in report["kept"]]
    elif name in NOT_UNDERSTOOD:
        assert isinstance(actual, Unknown)
