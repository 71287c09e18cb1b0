"""Parse the complement of a filter: the rows for which it is false or null."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import polars as pl

from qbeast_core.query.filters.nodes import IsNull, Node, Nothing, Unknown, all_of, any_of
from qbeast_core.query.filters.predicate import parse_predicate
from qbeast_core.query.filters.terms import COMPARISONS, Term

_AND, _OR = ("And", "LogicalAnd"), ("Or", "LogicalOr")
_NEVER_NULL = ("IsNull", "IsNotNull")
_NULL_WITH_ALL = {
    "Boolean": (
        *("AllHorizontal", "AnyHorizontal", "IsBetween", "Not"),
        *("IsFinite", "IsInfinite", "IsNan", "IsNotNan"),
    ),
    "TemporalExpr": ("Date", "Truncate", "Year"),
}
_ARITHMETIC = ("Plus", "Minus", "Multiply", "TrueDivide")


def parse_rest(predicate: pl.Expr, schema: pl.Schema) -> Node:
    """Parse which rows a filter drops; parts that cannot be parsed become `Unknown`.

    >>> parse_rest(pl.col("x").is_null() | (pl.col("x") > 3), pl.Schema({"x": pl.Int64})).children[0]
    IsNotNull(column='x')
    """
    try:
        return _rest(Term.of(predicate, schema))
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError, RecursionError):
        return Unknown()  # a Python function, or a very deep expression


def _rest(term: Term) -> Node:
    """Parse where a term is not true: for an AND any part, for an OR all parts."""
    op = str(term.body["op"]) if term.kind == "BinaryExpr" else ""
    name = term.function[1] if term.kind == "Function" else ""
    if op in _AND:
        return any_of([_rest(part) for part in term.chained(op)])
    if op in _OR:
        return all_of([_rest(part) for part in term.chained(op)])
    if name in ("AllHorizontal", "AnyHorizontal") and term.children:
        parts = [_rest(part) for part in term.children]
        return any_of(parts) if name == "AllHorizontal" else all_of(parts)
    return any_of([parse_predicate(~term.expr, term.schema), _nulls(term)])


def _nulls(term: Term) -> Node:
    """Parse where a term is null; `Unknown` if it may return null for other values."""
    if term.kind == "Column":
        return IsNull(str(term.body)) if term.body in term.schema else Unknown()
    if term.is_constant:
        values = term.evaluate()
        return Nothing() if values is not None and not values.null_count() else Unknown()
    children = term.children
    if children and _is_null_with_parts(term, children):
        return any_of([_nulls(child) for child in children])
    return _nulls_of_function(term, children) if term.kind == "Function" and children else Unknown()


def _is_null_with_parts(term: Term, children: Sequence[Term]) -> bool:
    """Return whether a term can be null only where one of its parts is null."""
    if term.kind == "BinaryExpr":
        op = str(term.body["op"])
        exact = op in _ARITHMETIC and not isinstance(term.dtype, pl.Decimal)
        return exact or op in (*COMPARISONS, *_AND, *_OR)
    if term.kind == "Function":
        group, name, options = term.function
        compared = (group, name) == ("Sql", "Binary") and options in COMPARISONS
        return compared or group == "Negate" or name in _NULL_WITH_ALL.get(group, ())
    return term.kind == "Alias" or (term.kind == "Cast" and _keeps_values(children[0].dtype, term.dtype))


def _nulls_of_function(term: Term, children: Sequence[Term]) -> Node:
    group, name, _ = term.function
    if name == "IsIn" and group in ("Boolean", "Sql"):
        values = children[1].evaluate_list()
        return _nulls(children[0]) if values is not None and not values.null_count() else Unknown()
    return Nothing() if group == "Boolean" and name in _NEVER_NULL else Unknown()


def _keeps_values(source: pl.DataType | None, target: pl.DataType | None) -> bool:
    """Return whether a cast never returns null for a value."""
    if source is None or target is None:
        return False
    if source == target:
        return True
    return source.is_numeric() and isinstance(target, pl.Float64)
