"""Parse Polars filters and their complements into trees of atoms; what cannot be parsed becomes `Unknown`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import orjson
import polars as pl

from qbeast_core.plan.nodes import (
    BOUNDS,
    COMPARISONS,
    MIRRORED,
    NEGATED,
    IsNotNull,
    IsNull,
    Node,
    Nothing,
    Op,
    Operand,
    StartsWith,
    Term,
    Unknown,
    all_of,
    any_of,
    compare,
    is_in,
    preimage,
)

_CONNECTIVES = {"And": True, "LogicalAnd": True, "Or": False, "LogicalOr": False}
_COMPARING: Final = {*_CONNECTIVES, *COMPARISONS}
_MAX_ALTERNATIVES: Final = 50
_NAN = pl.Series([float("nan")])
_INFINITIES = pl.Series([float("-inf"), float("inf")])


def parse_predicate(predicate: pl.Expr, schema: pl.Schema) -> Node:
    """Parse a row filter; expressions that cannot be parsed become `Unknown`.

    >>> schema = pl.Schema({"x": pl.Int64, "s": pl.String})
    >>> parse_predicate(~pl.col("x").is_null() & (pl.col("s").str.len_chars() > 3), schema)
    IsNotNull(column='x')
    >>> parse_predicate(pl.col("x") > pl.lit(None, dtype=pl.Int64), schema)
    Nothing()
    """
    return understand(predicate, schema)[0]


def understand(predicate: pl.Expr, schema: pl.Schema) -> tuple[Node, bool]:
    """Parse a row filter, and return whether it only compares columns with values.

    Polars may skip row groups that match any other filter: it computes with bounds in the type of the column, where
    127 + 1 is -128 for Int8.

    >>> schema = pl.Schema({"a": pl.Int8, "s": pl.String})
    >>> understand(pl.col("a").is_in([1, 2]) | pl.col("s").is_null(), schema)[1]
    True
    >>> understand(pl.col("a") + 1 > 2, schema)[1]
    False
    """
    try:
        term = Term.of(predicate, schema)
    except pl.exceptions.PolarsError:  # holds a Python function
        return _split(predicate, schema), False
    except orjson.JSONDecodeError:  # nested deeper than its limit
        return Unknown(), False
    try:
        return _parse(term, negated=False), _compares(term.tree)
    except RecursionError:
        return Unknown(), False


def _compares(tree: object) -> bool:
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case {"Column": str()} | {"Literal": _}:
                pass
            case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _COMPARING:
                waiting += (left, right)
            case {"Function": {"input": list(inputs), "function": {"Boolean": _}}}:
                waiting += inputs
            case _:
                return False
    return True


def conjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """Split a filter at its outermost ANDs.

    >>> [str(part) for part in conjuncts((pl.col("a") > 1) & (pl.col("b") | pl.col("c")) & pl.col("d"))]
    ['[(col("a")) > (dyn int: 1)]', '[(col("b")) | (col("c"))]', 'col("d")']
    """
    return _parts(predicate, operator.and_)


def disjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """Split a filter at its outermost ORs.

    >>> [str(part) for part in disjuncts(pl.col("b") | (pl.col("c") & pl.col("d")))]
    ['col("b")', '[(col("c")) & (col("d"))]']
    """
    return _parts(predicate, operator.or_)


def _parts(predicate: pl.Expr, join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> list[pl.Expr]:
    parts: list[pl.Expr] = []
    waiting = [predicate]
    while waiting:
        expr = waiting.pop()
        operands = expr.meta.pop()[::-1]
        if len(operands) == 2 and join(*operands).meta.eq(expr):
            waiting += reversed(operands)
        else:
            parts.append(expr)
    return parts


def _split(predicate: pl.Expr, schema: pl.Schema) -> Node:
    """Parse the parts of an AND or OR that cannot be serialised as a whole."""
    for parts, join in ((conjuncts(predicate), all_of), (disjuncts(predicate), any_of)):
        if len(parts) > 1:
            return join([parse_predicate(part, schema) for part in parts])
    return Unknown()


def _parse(term: Term, *, negated: bool) -> Node:
    """Parse a boolean expression, or its negation."""
    if term.is_constant:
        value = term.evaluate_one()
        keeps = value is None or (not value.null_count() and bool(value.item()) is not negated)
        return Unknown() if keeps else Nothing()
    if term.kind == "Column":
        return _compare(term, "==", pl.Series([not negated]))
    children = term.children
    parser = _PARSERS.get(term.function[:2] if term.kind == "Function" else term.kind)
    return parser(term, children, negated=negated) if parser is not None and children else Unknown()


def _parse_inner(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    """Parse an alias or a NOT."""
    return _parse(children[0], negated=negated if term.kind == "Alias" else not negated)


def _parse_ternary(_: Term, children: Sequence[Term], *, negated: bool) -> Node:
    truthy, falsy, condition = children
    when = _parse(condition, negated=False)
    return any_of([all_of([when, _parse(truthy, negated=negated)]), _parse(falsy, negated=negated)])


def _parse_binary(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    op = str(term.body["op"])
    if op in _CONNECTIVES:
        join = all_of if _CONNECTIVES[op] is not negated else any_of
        return join([_parse(part, negated=negated) for part in term.chained(op)])
    if op in ("EqValidity", "NotEqValidity"):
        return _parse_missing(children, equal=(op == "EqValidity") is not negated)
    if op not in COMPARISONS:
        return Unknown()
    return _compare(*_sides(children, op, negated=negated))


def _sides(children: Sequence[Term], name: str, *, negated: bool) -> tuple[Term, Op, pl.Series | None]:
    """Return a comparison with its constant, if any, on the right."""
    left, right = children
    op = COMPARISONS[name]
    if left.is_constant:
        left, right, op = right, left, MIRRORED[op]
    return left, NEGATED[op] if negated else op, right.evaluate_one()


def _parse_missing(children: Sequence[Term], *, equal: bool) -> Node:
    """Parse a comparison that treats null as a value."""
    left, right = children
    if left.is_constant:
        left, right = right, left
    operand, value = left.operand(), right.evaluate_one()
    if operand is None and equal and value is not None and isinstance(value.dtype, pl.Boolean):
        # IS TRUE, IS FALSE
        return Unknown() if value.null_count() else _parse(left, negated=not value.item())
    if operand is None or operand.casts or value is None:
        return Unknown()
    if value.null_count():
        return IsNull(operand.column) if equal else IsNotNull(operand.column)
    if equal:
        return compare(operand, "==", value)
    return any_of([compare(operand, "!=", value), IsNull(operand.column)])


def _parse_sql_binary(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    name = term.function[2]
    if name not in COMPARISONS:
        return Unknown()
    left, op, value = _sides(children, name, negated=negated)
    operand = left.operand()
    if operand is None or value is None:
        return _compare(left, op, value)
    return compare(operand, op, _as_float(operand, value))


def _as_float(operand: Operand, values: pl.Series) -> pl.Series:
    """Cast decimals that are compared with floats to floats, as the functions of this group do."""
    decimal = isinstance(values.dtype, pl.Decimal) and operand.result.is_float()
    return values.cast(pl.Float64) if decimal else values


def _parse_cast(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    """Parse a cast of a boolean to boolean, which SQL adds before a NOT."""
    is_boolean = term.dtype == children[0].dtype == pl.Boolean()
    return _parse(children[0], negated=negated) if is_boolean else Unknown()


def _parse_horizontal(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    join = all_of if (term.function[1] == "AllHorizontal") is not negated else any_of
    return join([_parse(child, negated=negated) for child in children])


def _parse_is_null(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    operand = children[0].operand()
    null = (term.function[1] == "IsNull") is not negated
    if operand is None or (null and operand.casts):  # a cast may make nulls
        return Unknown()
    return IsNull(operand.column) if null else IsNotNull(operand.column)


def _parse_between(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    bounds = BOUNDS.get(str(term.function[2]["closed"]))
    if bounds is None:
        return Unknown()
    sides = [
        _compare(children[0], NEGATED[op] if negated else op, limit.evaluate_one())
        for op, limit in zip(bounds, children[1:], strict=True)
    ]
    return any_of(sides) if negated else all_of(sides)


def _parse_is_in(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    operand, values = children[0].operand(), children[1].evaluate_list()
    if negated or values is None:
        return Unknown()
    nulls_equal = bool(term.function[2]["nulls_equal"])
    if operand is None:
        return Unknown() if nulls_equal and values.null_count() else _is_one_of(children[0], values)
    if term.function[0] == "Sql":
        values = _as_float(operand, values)
    return is_in(operand, values, nulls_equal=nulls_equal)


def _is_one_of(term: Term, values: pl.Series) -> Node:
    """Parse IS IN for a function of a column; many values become a range."""
    candidates = values.drop_nulls().unique().sort()
    if len(candidates) > _MAX_ALTERNATIVES:
        return all_of([_compare(term, ">=", candidates[:1]), _compare(term, "<=", candidates[-1:])])
    return any_of(
        [_compare(term, "==", candidates[number : number + 1]) for number in range(len(candidates))]
    )


def _parse_float_test(term: Term, children: Sequence[Term], *, negated: bool) -> Node:
    operand, name = children[0].operand(), term.function[1]
    if operand is None or not operand.result.is_float():
        return Unknown()
    if name in ("IsNan", "IsNotNan"):
        return compare(operand, ">=" if (name == "IsNan") is not negated else "<", _NAN)
    if negated:
        return Unknown()
    if name == "IsInfinite":
        return is_in(operand, _INFINITIES, nulls_equal=False)
    return all_of([compare(operand, ">", _INFINITIES[:1]), compare(operand, "<", _INFINITIES[1:])])


def _parse_starts_with(_: Term, children: Sequence[Term], *, negated: bool) -> Node:
    operand, value = children[0].operand(), children[1].evaluate_one()
    if negated or operand is None or value is None or not isinstance(operand.result, pl.String):
        return Unknown()
    if value.null_count():
        return Nothing()
    prefix = str(value.item())
    return StartsWith(operand, prefix) if prefix else IsNotNull(operand.column)


def _compare(term: Term, op: Op, value: pl.Series | None) -> Node:
    """Parse a comparison of a column, or of a function of a column, with a constant."""
    if value is None:
        return Unknown()
    operand = term.operand()
    if operand is not None:
        return compare(operand, op, value)
    if op == "!=":
        return any_of([_compare(term, "<", value), _compare(term, ">", value)])
    implied = None if value.null_count() else preimage(term, op, value)
    if implied is None:
        return Unknown()
    inner, alternatives = implied
    return any_of(
        [all_of([_compare(inner, *comparison) for comparison in comparisons]) for comparisons in alternatives]
    )


class _Parser(Protocol):
    def __call__(self, term: Term, children: Sequence[Term], /, *, negated: bool) -> Node: ...


# By kind, or by group and name of a function. `polars.sql_expr` uses the group "Sql" for fractions and IN.
_PARSERS: dict[str | tuple[str, str], _Parser] = {
    "Alias": _parse_inner,
    "BinaryExpr": _parse_binary,
    "Cast": _parse_cast,
    "Ternary": _parse_ternary,
    ("Boolean", "AllHorizontal"): _parse_horizontal,
    ("Boolean", "AnyHorizontal"): _parse_horizontal,
    ("Boolean", "IsBetween"): _parse_between,
    ("Boolean", "IsFinite"): _parse_float_test,
    ("Boolean", "IsIn"): _parse_is_in,
    ("Boolean", "IsInfinite"): _parse_float_test,
    ("Boolean", "IsNan"): _parse_float_test,
    ("Boolean", "IsNotNan"): _parse_float_test,
    ("Boolean", "IsNotNull"): _parse_is_null,
    ("Boolean", "IsNull"): _parse_is_null,
    ("Boolean", "Not"): _parse_inner,
    ("Sql", "Binary"): _parse_sql_binary,
    ("Sql", "IsIn"): _parse_is_in,
    ("StringExpr", "StartsWith"): _parse_starts_with,
}


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


def parse_complement(predicate: pl.Expr, schema: pl.Schema) -> Node:
    """Parse which rows a filter drops; parts that cannot be parsed become `Unknown`.

    >>> parse_complement(pl.col("x").is_null() | (pl.col("x") > 3), pl.Schema({"x": pl.Int64})).children[0]
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
