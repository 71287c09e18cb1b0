"""The tree of an SQL text in Spark's SQL: it keeps the rows that Polars keeps, or a part of it is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import polars as pl
from sqlglot import exp

from qbeast_core.query.sql.casts import type_of
from qbeast_core.query.sql.functions import function_arguments
from qbeast_core.query.sql.lower import Lowering, names_of
from qbeast_core.query.sql.parse import operands, parse_condition, without_parentheses
from qbeast_core.query.sql.values import MAX_DIGITS, Interval
from qbeast_spark_bridge.predicates.text_functions import FUNCTIONS, cast, moved
from qbeast_spark_bridge.predicates.typed_sql import Typed, align, refuse, typed_literal
from qbeast_spark_bridge.schema import quoted

_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ESCAPES: Final = "!#~^|@+;:?"
_TRUTH: Final = (pl.Boolean(), pl.Null())


def text_to_sql(text: str, schema: pl.Schema) -> str:
    """Write a condition of SQL, as this library reads it, in Spark's SQL.

    >>> text_to_sql("x > 5 AND s IS NOT NULL", pl.Schema({"x": pl.Int64, "s": pl.String}))
    "((`x` > CAST('5' AS BIGINT)) AND (NOT (`s` IS NULL)))"
    """
    return _Tree(schema).truth(parse_condition(text, schema.names())).sql


class _Tree:
    """Writes nodes over the columns of one schema."""

    def __init__(self, schema: pl.Schema) -> None:
        self._lowering = Lowering(schema, partial(datetime.now, UTC))

    def truth(self, node: exp.Expr) -> Typed:
        """Write a condition."""
        found = self.part(node)
        if found.dtype not in _TRUTH:
            refuse(node)
        return Typed("CAST(NULL AS BOOLEAN)", pl.Boolean()) if found.dtype == pl.Null() else found

    def part(self, node: exp.Expr) -> Typed:
        """Write an expression; what names no column is computed here, as it is for Polars."""
        node = without_parentheses(node)
        if node.find(exp.Column, exp.Dot) is None:
            return self.constant(node)
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        written = FUNCTIONS.get(type(node))
        if written is None:
            refuse(node)
        return written(node, *map(self.part, function_arguments(node)))

    def constant(self, node: exp.Expr) -> Typed:
        """Write a value."""
        found = self._lowering.value(node)
        if isinstance(found.const, Interval):
            refuse(node)
        try:
            value: Any = found.const if found.is_number_const else pl.select(found.expr).item()
        except pl.exceptions.PolarsError:
            refuse(node)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return _number(value) if is_number else typed_literal(value, found.dtype)

    def interval(self, node: exp.Expr) -> Interval | None:
        """Return the interval that a literal is."""
        found = None if node.find(exp.Column) else self._lowering.value(node).const
        return found if isinstance(found, Interval) else None

    def column(self, node: exp.Expr) -> Typed:
        """Write the name of a column, or of a field of one."""
        found = self._lowering.value(node)
        dtype = next(iter(pl.Schema({"": found.dtype}).values()))
        (name,) = found.expr.meta.root_names()
        path = names_of(node)
        fields = path[len(name.split(".")) :] if len(path) > 1 else []
        if any("${" in field for field in fields):  # which Spark would replace
            refuse(node)
        return Typed(".".join(map(quoted, (name, *fields))), dtype)


def _chain(tree: _Tree, node: exp.Expr) -> Typed:
    word = " AND " if isinstance(node, exp.And) else " OR "
    return Typed(f"({word.join(tree.truth(one).sql for one in operands(node))})", pl.Boolean())


def _not(tree: _Tree, node: exp.Expr) -> Typed:
    return Typed(f"(NOT {tree.truth(node.this).sql})", pl.Boolean())


def _compare(tree: _Tree, node: exp.Expr) -> Typed:
    return _compared(_SIGNS[type(node)], tree.part(node.this), tree.part(node.expression), node)


def _compared(sign: str, left: Typed, right: Typed, node: exp.Expr) -> Typed:
    (one, other), dtype = align([left, right], node)
    if dtype.is_nested():
        refuse(node)
    return Typed(f"({one.sql} {sign} {other.sql})", pl.Boolean())


def _distinct(tree: _Tree, node: exp.Expr) -> Typed:
    same = _compared("<=>", tree.part(node.this), tree.part(node.expression), node)
    return Typed(f"(NOT {same.sql})", pl.Boolean())


def _is(tree: _Tree, node: exp.Expr) -> Typed:
    if isinstance(node.expression, exp.Null):
        return Typed(f"({tree.part(node.this).sql} IS NULL)", pl.Boolean())
    value = "TRUE" if node.expression.this else "FALSE"
    return Typed(f"({tree.truth(node.this).sql} <=> {value})", pl.Boolean())


def _between(tree: _Tree, node: exp.Expr) -> Typed:
    value, low, high = (tree.part(node.args[name]) for name in ("this", "low", "high"))
    sides = _compared(">=", value, low, node).sql, _compared("<=", value, high, node).sql
    return Typed(f"({' AND '.join(sides)})", pl.Boolean())


def _in(tree: _Tree, node: exp.Expr) -> Typed:
    value, *items = align([tree.part(one) for one in (node.this, *node.expressions)], node.this)[0]
    if value.dtype == pl.Null():
        return tree.truth(exp.Null())
    if value.dtype.is_nested():
        refuse(node)
    return Typed(f"({value.sql} IN ({', '.join(item.sql for item in items)}))", pl.Boolean())


def _like(tree: _Tree, node: exp.Expr) -> Typed:
    escape = ""
    if isinstance(node, exp.Escape):
        node, escape = without_parentheses(node.this), str(node.expression.this)
    value, pattern = tree.part(node.this), tree.part(node.expression)
    if value.dtype != pl.String() or not isinstance(pattern.value, str):
        refuse(node)
    folds = isinstance(node, exp.ILike)
    text, own = _pattern(pattern.value.lower() if folds else pattern.value, escape, node)
    side = f"LOWER({value.sql})" if folds else value.sql
    found = f"({side} LIKE {typed_literal(text, pl.String()).sql} ESCAPE '{own}')"
    return Typed(f"(NOT {found})" if node.args.get("negate") else found, pl.Boolean())


def _pattern(given: str, escape: str, node: exp.Expr) -> tuple[str, str]:
    """Return a pattern with an escape character of its own: Spark takes a backslash for one where none is named."""
    own = next((sign for sign in _ESCAPES if sign not in given), None) or refuse(node)
    letters, found = iter(given), ""
    for letter in letters:
        if escape and letter == escape:
            plain = next(letters, "")
            found += own + plain if plain in ("%", "_") else plain
        else:
            found += letter
    return found, own


def _case(tree: _Tree, node: exp.Expr) -> Typed:
    branches = node.args.get("ifs") or [node]
    default = node.args.get("default") or node.args.get("false") or exp.Null()
    values = [tree.part(one) for one in (*(branch.args["true"] for branch in branches), default)]
    (*given, last), dtype = align(values, node)
    tests = [
        tree.truth(exp.EQ(this=node.this, expression=one.this) if node.this and one is not node else one.this)
        for one in branches
    ]
    whens = " ".join(f"WHEN {test.sql} THEN {one.sql}" for test, one in zip(tests, given, strict=True))
    return Typed(f"(CASE {whens} ELSE {last.sql} END)", dtype)


def _number(value: int | Decimal) -> Typed:
    """Return a number as it was written: an integer, or a decimal where it has a point."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return typed_literal(value, pl.Int32() if -(2**31) <= value < 2**31 else pl.Int64())
    exact = Decimal(value)
    exponent = int(exact.as_tuple().exponent)
    digits = max(len(exact.as_tuple().digits) + max(exponent, 0), -exponent)
    if digits > MAX_DIGITS:
        refuse(value)
    return typed_literal(exact, pl.Decimal(digits, max(-exponent, 0)))


def _moved(tree: _Tree, node: exp.Expr) -> Typed:
    """Add or subtract an interval, or numbers."""
    sides = [node.expression, node.this] if isinstance(node, exp.Add) else [node.expression]
    for side in sides:
        by = None if side.find(exp.Interval) is None else tree.interval(side)
        if by is not None:
            other = node.this if side is node.expression else node.expression
            return moved(tree.part(other), by if isinstance(node, exp.Add) else -by, node)
    return FUNCTIONS[type(node)](node, tree.part(node.this), tree.part(node.expression))


def _cast(tree: _Tree, node: exp.Expr) -> Typed:
    dtype = type_of(node.args["to"]) if "to" in node.args else pl.Date()
    return cast(tree.part(node.this), dtype, node)


_RULES: Final[dict[type[exp.Expr], Callable[[_Tree, exp.Expr], Typed]]] = {
    **dict.fromkeys((exp.And, exp.Or), _chain),
    **dict.fromkeys(_SIGNS, _compare),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _like),
    **dict.fromkeys((exp.Case, exp.If), _case),
    **dict.fromkeys((exp.Column, exp.Dot), _Tree.column),
    **dict.fromkeys((exp.Cast, exp.TryCast, exp.Date), _cast),
    **dict.fromkeys((exp.Add, exp.Sub), _moved),
    exp.Not: _not,
    exp.NullSafeNEQ: _distinct,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
}
