"""The filters that the JVM was asked, from their SQL text to Polars: comparisons, IN, IS NULL, AND, OR."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import sqlglot
from sqlglot import exp

__all__ = ["to_polars"]

_BINARY = {
    exp.EQ: operator.eq,
    exp.LT: operator.lt,
    exp.GT: operator.gt,
    exp.LTE: operator.le,
    exp.GTE: operator.ge,
    exp.And: operator.and_,
    exp.Or: operator.or_,
}


def to_polars(sql: str) -> pl.Expr:
    """Return the filter; text of another shape is an error, never a guess."""
    return _filter(sqlglot.parse_one(sql, dialect="spark"))


def _filter(node: exp.Expression) -> pl.Expr:
    match node:
        case exp.Paren():
            return _filter(node.this)
        case exp.Column():
            return pl.col(node.name)
        case exp.Is(expression=exp.Null()):
            return _filter(node.this).is_null()
        case exp.In():
            return _filter(node.this).is_in([_value(item) for item in node.expressions])
        case exp.Literal() | exp.Neg() | exp.Cast():
            value = _value(node)
            # As Spark does: a double literal takes a float column to double.
            return pl.lit(value, dtype=pl.Float64) if isinstance(value, float) else pl.lit(value)
    return _BINARY[type(node)](_filter(node.this), _filter(node.expression))


def _value(node: exp.Expression) -> object:
    if isinstance(node, exp.Neg):
        return -_value(node.this)  # type: ignore[operator]
    if isinstance(node, exp.Literal):
        return node.to_py()
    assert isinstance(node, exp.Cast)
    text = node.name
    match node.to.this:
        case exp.DType.DATE:
            return date.fromisoformat(text)
        case exp.DType.TIMESTAMPTZ:
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        case exp.DType.DECIMAL:
            return Decimal(text)
    return {exp.DType.DOUBLE: float, exp.DType.BIGINT: int}[node.to.this](text)
