"""Build atoms that never exclude a matching row: check types and allow for rounded literals."""

from __future__ import annotations

import polars as pl

from qbeast_core.query.filters.nodes import (
    Compare,
    IsIn,
    IsNull,
    Node,
    Nothing,
    Op,
    Operand,
    Unknown,
    all_of,
    any_of,
)

# The comparison that is true where another is false; both are null on null.
NEGATED: dict[Op, Op] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}

# The equivalent comparison with the sides swapped.
MIRRORED: dict[Op, Op] = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">=": "<=", ">": "<"}

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128)
FLAT_ZONES = (None, "UTC")


def keeps_order(source: pl.DataType, target: pl.DataType) -> bool:
    """Return whether a cast never swaps two values; it may merge values or return null.

    >>> keeps_order(pl.Int32(), pl.Int64()), keeps_order(pl.Int64(), pl.Int32())
    (True, False)
    """
    if isinstance(source, _INTEGERS):
        return _integer_keeps_order(source, target)
    if isinstance(source, pl.Datetime):
        to_date = isinstance(target, pl.Date) and source.time_zone in FLAT_ZONES
        return to_date or isinstance(target, pl.Datetime)
    if isinstance(source, pl.Decimal) and isinstance(target, pl.Decimal):
        return target.scale >= source.scale
    to_double = isinstance(source, (pl.Float32, pl.Decimal)) and isinstance(target, pl.Float64)
    to_time = isinstance(source, pl.Date) and isinstance(target, pl.Datetime)
    return to_double or to_time or source == target


def _integer_keeps_order(source: pl.DataType, target: pl.DataType) -> bool:
    if isinstance(target, _INTEGERS):
        return _INTEGERS.index(type(source)) <= _INTEGERS.index(type(target))
    exact = isinstance(source, (pl.Int8, pl.Int16)) and isinstance(target, pl.Float32)
    return exact or isinstance(target, (pl.Float64, pl.Decimal))


def compare(operand: Operand, op: Op, value: pl.Series) -> Node:
    """Return the node for ``operand op value``."""
    if value.null_count():
        return Nothing()
    if not _comparable(operand.result, value.dtype):
        return Unknown()
    if isinstance(operand.result, pl.Float32) and not isinstance(value.dtype, pl.Float32):
        return _compare_float32(operand, op, value)
    return Compare(operand, op, value)


def is_in(operand: Operand, values: pl.Series, *, nulls_equal: bool) -> Node:
    """Return the node for rows whose operand is one of `values`."""
    finite = values.drop_nulls()
    null_node: Node = Nothing()
    if nulls_equal and len(finite) < len(values):
        null_node = Unknown() if operand.casts else IsNull(operand.column)
    if not len(finite):
        return null_node
    if not _comparable(operand.result, values.dtype):
        return Unknown()
    if isinstance(operand.result, pl.Float32):  # the engine may round values to the type of the column
        doubles = finite.cast(pl.Float64)
        finite = pl.concat([doubles, doubles.cast(pl.Float32).cast(pl.Float64)])
    return any_of([IsIn(operand, finite.unique().sort()), null_node])


def _comparable(left: pl.DataType, right: pl.DataType) -> bool:
    """Return whether the engine compares two types by value, in an order that bounds follow."""
    if left.is_numeric():
        return right.is_numeric()
    if isinstance(left, pl.Datetime) and isinstance(right, pl.Datetime):
        return left.time_zone == right.time_zone  # else the engine raises, and names the column
    if isinstance(left, (pl.Date, pl.Datetime)):
        return isinstance(right, (pl.Date, pl.Datetime))
    return isinstance(left, (pl.String, pl.Boolean)) and left == right


def _compare_float32(operand: Operand, op: Op, value: pl.Series) -> Node:
    """Allow for the literal and its float32 rounding: which one the engine uses depends on the literal's type."""
    double = value.cast(pl.Float64)
    rounded = double.cast(pl.Float32).cast(pl.Float64)
    if (double.eq_missing(rounded)).all():
        return Compare(operand, op, double)
    both = pl.concat([double, rounded]).sort()
    low, high = both[:1], both[1:]
    if op in ("<", "<="):
        return Compare(operand, "<=", high)
    if op in (">", ">="):
        return Compare(operand, ">=", low)
    if op == "==":
        return all_of([Compare(operand, ">=", low), Compare(operand, "<=", high)])
    return Unknown()
