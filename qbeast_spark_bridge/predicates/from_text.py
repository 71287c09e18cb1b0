"""Translate an SQL condition to Spark's SQL: it keeps the same rows as in Polars, or an error names the part."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.sql.functions import function_arguments
from qbeast_core.sql.lower import COMPARISON_SIGNS, Lowering, names_of, type_of
from qbeast_core.sql.operators import ANY, ONE, compares_floats, pattern_pieces
from qbeast_core.sql.parse import case_parts, operands, without_parentheses
from qbeast_core.sql.values import INTEGERS, MAX_DIGITS, Period, largest
from qbeast_spark_bridge.predicates.text_functions import FUNCTIONS, cast, moved
from qbeast_spark_bridge.predicates.typed_sql import SqlPart, align, refuse, typed_literal
from qbeast_spark_bridge.spark_schema import quoted

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {**COMPARISON_SIGNS, exp.NullSafeEQ: "<=>"}
_WILDCARDS: Final[dict[object, str]] = {ANY: "%", ONE: "_"}
_ESCAPES: Final = "!#~^|@+;:?"
_TRUTH: Final = (pl.Boolean(), pl.Null())


def tree_to_sql(tree: exp.Expr, schema: pl.Schema) -> str:
    """Translate a condition in this library's SQL to Spark's SQL.

    >>> from qbeast_core.sql.parse import parse_condition
    >>> tree = parse_condition("x > 5 AND s IS NOT NULL", ["x", "s"])
    >>> tree_to_sql(tree, pl.Schema({"x": pl.Int64, "s": pl.String}))
    "((`x` > CAST('5' AS BIGINT)) AND (NOT (`s` IS NULL)))"
    """
    return _Translator(schema).truth(tree).expr


class _Translator:
    """Translates nodes over the columns of a schema."""

    def __init__(self, schema: pl.Schema) -> None:
        self.lowering = Lowering(schema, partial(datetime.now, UTC))

    def truth(self, node: exp.Expr) -> SqlPart:
        """Translate a condition."""
        part = self.part(node)
        if part.dtype not in _TRUTH:
            refuse(node)
        return SqlPart("CAST(NULL AS BOOLEAN)", pl.Boolean()) if part.dtype == pl.Null() else part

    def part(self, node: exp.Expr) -> SqlPart:
        """Translate an expression; constants are computed here, as for Polars."""
        node = without_parentheses(node)
        if node.find(exp.Column, exp.Dot) is None:
            return self.constant(node)
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        function = FUNCTIONS.get(type(node))
        if function is None:
            refuse(node)
        return function(node, *map(self.part, function_arguments(node)))

    def constant(self, node: exp.Expr) -> SqlPart:
        """Translate a constant."""
        constant = self.lowering.value(node)
        if isinstance(constant.const, Period):
            refuse(node)
        try:
            value: Any = constant.const if constant.is_number_const else pl.select(constant.expr).item()
        except pl.exceptions.PolarsError:
            refuse(node)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return _number(value) if is_number else typed_literal(value, constant.dtype)

    def column(self, node: exp.Expr) -> SqlPart:
        """Translate the name of a column or field."""
        column = self.lowering.value(node)
        dtype = next(iter(pl.Schema({"": column.dtype}).values()))
        path = names_of(node)
        if any("${" in field for field in path[1:]):  # Spark would substitute it
            refuse(node)
        return SqlPart(".".join(map(quoted, path)), dtype)


def _chain(translator: _Translator, node: exp.Expr) -> SqlPart:
    word = " AND " if isinstance(node, exp.And) else " OR "
    return SqlPart(
        f"({word.join(translator.truth(operand).expr for operand in operands(node))})", pl.Boolean()
    )


def _not(translator: _Translator, node: exp.Expr) -> SqlPart:
    return SqlPart(f"(NOT {translator.truth(node.this).expr})", pl.Boolean())


def _compare(translator: _Translator, node: exp.Expr) -> SqlPart:
    return _compared(
        _COMPARISONS[type(node)], translator.part(node.this), translator.part(node.expression), node
    )


def _compared(sign: str, left: SqlPart, right: SqlPart, node: exp.Expr) -> SqlPart:
    (left, right), dtype = align([left, right], node)
    if dtype.is_nested():
        refuse(node)
    return SqlPart(f"({left.expr} {sign} {right.expr})", pl.Boolean())


def _distinct(translator: _Translator, node: exp.Expr) -> SqlPart:
    same = _compared("<=>", translator.part(node.this), translator.part(node.expression), node)
    return SqlPart(f"(NOT {same.expr})", pl.Boolean())


def _is(translator: _Translator, node: exp.Expr) -> SqlPart:
    if isinstance(node.expression, exp.Null):
        return SqlPart(f"({translator.part(node.this).expr} IS NULL)", pl.Boolean())
    value = "TRUE" if node.expression.this else "FALSE"
    return SqlPart(f"({translator.truth(node.this).expr} <=> {value})", pl.Boolean())


def _between(translator: _Translator, node: exp.Expr) -> SqlPart:
    sides = [node.args[name] for name in ("this", "low", "high")]
    parts = [translator.part(side) for side in sides]
    if compares_floats([translator.lowering.value(side) for side in sides]):
        parts = align(parts, node)[0]
    value, low, high = parts
    above, below = _compared(">=", value, low, node), _compared("<=", value, high, node)
    return SqlPart(f"({above.expr} AND {below.expr})", pl.Boolean())


def _in(translator: _Translator, node: exp.Expr) -> SqlPart:
    value, *items = align([translator.part(item) for item in (node.this, *node.expressions)], node.this)[0]
    if value.dtype == pl.Null():
        return translator.truth(exp.Null())
    if value.dtype.is_nested():
        refuse(node)
    return SqlPart(f"({value.expr} IN ({', '.join(item.expr for item in items)}))", pl.Boolean())


def _like(translator: _Translator, node: exp.Expr) -> SqlPart:
    escape = ""
    if isinstance(node, exp.Escape):
        node, escape = without_parentheses(node.this), str(node.expression.this)
    value, pattern = translator.part(node.this), translator.part(node.expression)
    if value.dtype != pl.String() or not pattern.is_text_const:
        refuse(node)
    folds = isinstance(node, exp.ILike)
    letters = pattern.const.lower() if folds else pattern.const
    # By default, Spark treats a backslash as the escape character.
    mark = next((sign for sign in _ESCAPES if sign not in letters), None) or refuse(node)
    pieces = pattern_pieces(letters, escape)
    text = "".join(_WILDCARDS.get(piece) or re.sub("[%_]", rf"{mark}\g<0>", str(piece)) for piece in pieces)
    side = f"LOWER({value.expr})" if folds else value.expr
    test = f"({side} LIKE {typed_literal(text, pl.String()).expr} ESCAPE '{mark}')"
    return SqlPart(f"(NOT {test})" if node.args.get("negate") else test, pl.Boolean())


def _case(translator: _Translator, node: exp.Expr) -> SqlPart:
    tests, values = case_parts(node)
    (*results, last), dtype = align([translator.part(value) for value in values], node)
    pairs = zip(tests, results, strict=True)
    whens = " ".join(f"WHEN {translator.truth(test).expr} THEN {result.expr}" for test, result in pairs)
    return SqlPart(f"(CASE {whens} ELSE {last.expr} END)", dtype)


def _number(value: int | Decimal) -> SqlPart:
    """Return a number as an integer, or as a decimal if it has a decimal point."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return typed_literal(
            value, next(kind() for kind in INTEGERS if max(value, -value - 1) <= largest(kind()))
        )
    exact = Decimal(value)
    exponent = int(exact.as_tuple().exponent)
    digits = max(len(exact.as_tuple().digits) + max(exponent, 0), -exponent)
    if digits > MAX_DIGITS:
        refuse(value)
    return typed_literal(exact, pl.Decimal(digits, max(-exponent, 0)))


def _moved_node(translator: _Translator, node: exp.Expr) -> SqlPart:
    """Add or subtract an interval, or numbers."""
    sides = [(node.this, node.expression), (node.expression, node.this)]
    for other, side in sides if isinstance(node, exp.Add) else sides[:1]:
        is_constant = side.find(exp.Interval) is not None and side.find(exp.Column) is None
        by = translator.lowering.value(side).const if is_constant else None
        if isinstance(by, Period):
            return moved(translator.part(other), by if isinstance(node, exp.Add) else -by, node)
    return FUNCTIONS[type(node)](node, translator.part(node.this), translator.part(node.expression))


def _cast_node(translator: _Translator, node: exp.Expr) -> SqlPart:
    dtype = type_of(node.args["to"]) if "to" in node.args else pl.Date()
    return cast(translator.part(node.this), dtype, node)


_RULES: Final[dict[type[exp.Expr], Callable[[_Translator, exp.Expr], SqlPart]]] = {
    **dict.fromkeys((exp.And, exp.Or), _chain),
    **dict.fromkeys(_COMPARISONS, _compare),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _like),
    **dict.fromkeys((exp.Case, exp.If), _case),
    **dict.fromkeys((exp.Column, exp.Dot), _Translator.column),
    **dict.fromkeys((exp.Cast, exp.TryCast, exp.Date), _cast_node),
    **dict.fromkeys((exp.Add, exp.Sub), _moved_node),
    exp.Not: _not,
    exp.NullSafeNEQ: _distinct,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
}
