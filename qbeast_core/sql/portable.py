"""Conditions that engines evaluate alike: Polars expressions as trees, and literals that are compared by value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import numpy as np
import orjson
import polars as pl

from qbeast_core.plan.nodes import BOUNDS, COMPARISONS, MIRRORED, Term
from qbeast_core.sql.values import (
    MAX_DIGITS,
    NoEquivalentError,
    Value,
    boolean,
    converted,
    number,
    of_type,
    scale_of,
    text,
    truth,
)

# Digits of decimals that all engines convert to the nearest float.
_EXACT_DIGITS: Final = 15
_PLAIN: Final = (pl.String, pl.Binary, pl.Boolean, pl.Date, pl.Datetime)
_CONNECTIVES: Final = {"And": "and", "LogicalAnd": "and", "Or": "or", "LogicalOr": "or"}
_TEXT_TESTS: Final = {"StartsWith": "startswith", "EndsWith": "endswith", "Contains": "contains"}
_INFINITIES: Final = tuple(Value(pl.lit(number), pl.Float64(), number) for number in (-math.inf, math.inf))
_NAN: Final = Value(pl.lit(math.nan), pl.Float64(), math.nan)
_SIGNS: Final = {"==": "=", "!=": "<>"}


def portable(expr: pl.Expr, schema: pl.Schema) -> Value:
    """Return the tree of a Polars condition; raise for a part that other engines may evaluate differently.

    >>> tree = portable((pl.col("x") > 5) & pl.col("s").is_null(), pl.Schema({"x": pl.Int64, "s": pl.String}))
    >>> tree.function, [part.function for part in tree.arguments]
    ('and', ['>', 'null'])
    """
    try:
        term = Term.of(expr, schema)
    except (pl.exceptions.PolarsError, orjson.JSONDecodeError):  # a Python function, or nested too deep
        raise NoEquivalentError(expr) from None
    return _condition(term)


def _refuse(term: Term) -> NoReturn:
    raise NoEquivalentError(term.expr)


def _condition(term: Term) -> Value:
    if term.is_constant:
        value = term.evaluate_one()
        if value is None or value.dtype not in (pl.Boolean(), pl.Null()):
            _refuse(term)
        return truth(value.item())
    children = term.children
    match term.kind:
        case "Column" if isinstance(term.schema.get(term.body), pl.Boolean):
            return _column(term, term)
        case "Alias" if children:
            return _condition(children[0])
        case "BinaryExpr" if children:
            return _binary(term, *children)
        case "Function" if children:
            group, name, _ = term.function
            rule = _RULES.get(name) if group in ("Boolean", "StringExpr") else None
            return _refuse(term) if rule is None else rule(term, children)
        case _:
            _refuse(term)


def _binary(term: Term, left: Term, right: Term) -> Value:
    op = str(term.body["op"])
    if op in _CONNECTIVES:
        return boolean(term.expr, _CONNECTIVES[op], *map(_condition, term.chained(op)))
    if op in ("EqValidity", "NotEqValidity"):
        sides = (right, left) if left.is_constant else (left, right)
        same = _compared(term, *sides, "<=>")
        return same if op == "EqValidity" else boolean(term.expr, "not", same)
    if op not in COMPARISONS:
        _refuse(term)
    sign = COMPARISONS[op]
    if left.is_constant:
        left, right, sign = right, left, MIRRORED[sign]
    return _compared(term, left, right, sign)


def _compared(term: Term, left: Term, right: Term, sign: str) -> Value:
    column = _column(term, left)
    if not right.is_constant:
        sides = comparable(column, _column(term, right))
    else:
        value = right.evaluate_one()
        if value is not None and value.null_count():
            # Spark compares no maps, not even with null. All other comparisons with null are null.
            return boolean(term.expr, "null", column) if sign == "<=>" else truth(None)
        sides = None if value is None else comparable(column, [value])
    column, (other,) = sides or _refuse(term)
    return boolean(term.expr, _SIGNS.get(sign, sign), column, other)


def _column(term: Term, part: Term) -> Value:
    """Return a bare column."""
    while part.kind == "Alias" and part.children:
        part = part.children[0]
    dtype = term.schema.get(part.body) if part.kind == "Column" else None
    if dtype is None:
        _refuse(term)
    return of_type(pl.col(part.body), dtype, "column", part.body)


def _between(term: Term, children: list[Term]) -> Value:
    bounds = BOUNDS.get(str(term.function[2]["closed"]))
    if bounds is None:
        _refuse(term)
    sides = zip(bounds, children[1:], strict=True)
    return boolean(term.expr, "and", *(_compared(term, children[0], side, sign) for sign, side in sides))


def _text_test(term: Term, children: list[Term]) -> Value:
    _, name, options = term.function
    column, value = _column(term, children[0]), children[1].evaluate_one()
    literal = (
        None if value is None or not isinstance(column.dtype, pl.String) else comparable(column, [value])
    )
    is_plain = name != "Contains" or (isinstance(options, dict) and options.get("literal"))
    if literal is None or not is_plain:
        _refuse(term)
    return boolean(term.expr, _TEXT_TESTS[name], column, *literal[1])


def _is_in(term: Term, children: list[Term]) -> Value:
    column, values = _column(term, children[0]), children[1].evaluate_list()
    if values is None or values.dtype.is_nested():
        _refuse(term)
    is_null = boolean(term.expr, "null", column)
    items = values.drop_nulls()
    test = boolean(term.expr, "case", is_null, truth(None), truth(value=False))
    if len(items):
        sides = comparable(column, [items[at : at + 1] for at in range(len(items))])
        subject, literals = sides or _refuse(term)
        test = boolean(term.expr, "in", subject, *literals)
    if not term.function[2]["nulls_equal"]:
        return test
    if values.null_count():
        return boolean(term.expr, "or", is_null, test)
    return boolean(term.expr, "and", boolean(term.expr, "not", is_null), test)


def _float_test(term: Term, children: list[Term]) -> Value:
    column, name = _column(term, children[0]), term.function[1]
    if not column.dtype.is_float():
        _refuse(term)
    # Comparisons, not isnan(): null stays null. NaN is above the infinities for Spark as for Polars.
    if name in ("IsNan", "IsNotNan"):
        return boolean(term.expr, "=" if name == "IsNan" else "<>", column, _NAN)
    infinite = boolean(term.expr, "in", column, *_INFINITIES)
    if name == "IsInfinite":
        return infinite
    return boolean(
        term.expr, "and", boolean(term.expr, "<>", column, _NAN), boolean(term.expr, "not", infinite)
    )


def _null_test(term: Term, children: list[Term]) -> Value:
    is_null = boolean(term.expr, "null", _column(term, children[0]))
    return is_null if term.function[1] == "IsNull" else boolean(term.expr, "not", is_null)


def _joined(term: Term, children: list[Term]) -> Value:
    function = "and" if term.function[1] == "AllHorizontal" else "or"
    return boolean(term.expr, function, *map(_condition, children))


_RULES: Final[dict[str, Callable[[Term, list[Term]], Value]]] = {
    **dict.fromkeys(("AllHorizontal", "AnyHorizontal"), _joined),
    **dict.fromkeys(("IsNull", "IsNotNull"), _null_test),
    **dict.fromkeys(("IsNan", "IsNotNan", "IsFinite", "IsInfinite"), _float_test),
    **dict.fromkeys(_TEXT_TESTS, _text_test),
    "IsBetween": _between,
    "IsIn": _is_in,
    "Not": lambda term, children: boolean(term.expr, "not", _condition(children[0])),
}


def comparable(column: Value, values: Sequence[pl.Series] | Value) -> tuple[Value, list[Value]] | None:
    """Return a column and literals, or another column, in types that all engines compare by value; None if some do not.

    >>> column, literals = comparable(of_type(pl.col("x"), pl.Int32()), [pl.Series([0.5])])
    >>> column.dtype, literals[0].const
    (Float64, 0.5)
    >>> comparable(of_type(pl.col("x"), pl.Int32()), [pl.Series(["5"])]) is None
    True
    """
    if isinstance(values, Value):
        is_same = values.dtype == column.dtype and not column.dtype.is_nested()
        return (column, [values]) if is_same else None
    rule = _number_literal if column.dtype.is_numeric() else _plain_literal
    literals = [literal for value in values if (literal := rule(value, column.dtype)) is not None]
    sides = [column, *literals]
    if len(literals) < len(values) or len({literal.dtype.is_float() for literal in literals}) != 1:
        return None
    if any(side.dtype.is_decimal() for side in sides):
        dtype = pl.Decimal(MAX_DIGITS, max(scale_of(side.dtype) for side in sides))
        if len(str(max(side.bound for side in sides))) + dtype.scale > MAX_DIGITS:
            return None
        column, *literals = (converted(side, dtype, side.expr) for side in sides)
    elif column.dtype.is_integer() and literals[0].dtype.is_float():
        column = converted(column, pl.Float64(), column.expr.cast(pl.Float64))
    return column, literals


def _number_literal(value: pl.Series, dtype: pl.DataType) -> Value | None:
    item, source = value.item(), value.dtype
    if item is None or not source.is_numeric():
        return None
    if not (dtype.is_float() or source.is_float()):
        is_long = source.is_decimal() or -(2**63) <= item < 2**63
        if not is_long or not source.is_integer():
            return number(item) if is_long else None
        fits = dtype.is_integer() and value.cast(dtype, strict=False).null_count() == 0
        return Value(pl.lit(item), dtype if fits else pl.Int64(), item, abs(item))
    single = isinstance(dtype, pl.Float32)
    if source.is_decimal() and len(item.as_tuple().digits) > _EXACT_DIGITS:
        return None
    with np.errstate(over="ignore"):  # whether Polars rounds it to the column's type depends on its origin
        rounded = single and math.isfinite(item) and float(np.float32(item)) != item
    if rounded or dtype.is_decimal() or (dtype.is_integer() and source != pl.Float64()):
        return None
    return Value(pl.lit(float(item)), dtype if dtype.is_float() else pl.Float64(), float(item))


def _plain_literal(value: pl.Series, dtype: pl.DataType) -> Value | None:
    if isinstance(dtype, pl.Datetime) and isinstance(value.dtype, pl.Datetime):
        micros = value.cast(pl.Datetime("us", value.dtype.time_zone))
        is_whole = micros.cast(value.dtype).to_physical().equals(value.to_physical())
        is_zoned = value.dtype.time_zone is not None, dtype.time_zone is not None
        value = micros.cast(dtype) if is_whole and len(set(is_zoned)) == 1 else value
    if value.null_count() or value.dtype != dtype or not isinstance(dtype, _PLAIN):
        return None
    try:
        item = value.item()
    except (ValueError, OverflowError):  # a year outside of Python's range
        return Value(pl.lit(value).first(), dtype)
    return text(item) if isinstance(item, str) else Value(pl.lit(item, dtype=dtype), dtype)
