"""A column against one literal, as Spark compares them, in Polars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.query.nodes import Op
from qbeast_spark_bridge.predicates.column_tree import SqlLiteral

_APPLY: Final = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}
_SINGLE: Final = 2.0**127  # below the largest of single precision

# Of a decimal in Spark.
MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """What is known of a condition."""

    # True for every row that the condition keeps; None: for all.
    predicate: pl.Expr | None
    # The part that was not understood exactly; empty if the predicate keeps no other rows.
    unsupported: str = ""

    @property
    def exact(self) -> bool:
        """Whether the predicate keeps the very rows that the condition keeps."""
        return self.predicate is not None and not self.unsupported


def join(parts: Sequence[Translation], *, every: bool) -> Translation:
    """Translate an AND of parts (`every`), or an OR; of an OR with a part of which nothing is known, nothing is."""
    known = [part.predicate for part in parts if part.predicate is not None]
    usable = bool(known) if every else len(known) == len(parts)
    unsupported = next((part.unsupported for part in parts if part.unsupported), "")
    return Translation(reduce(and_ if every else or_, known) if usable else None, unsupported)


def compare(column: pl.Expr, dtype: pl.DataType, op: Op, literal: SqlLiteral) -> Translation | None:
    """Compare a column with a literal."""
    if literal.kind == "null":
        return Translation(pl.lit(value=False))
    rule = next((rule for kind, rule in _RULES if isinstance(dtype, kind)), None)
    return None if rule is None else rule(column, op, literal, dtype)


def _apply(column: pl.Expr, op: Op, value: Any, dtype: pl.DataType) -> Translation:
    return Translation(_APPLY[op](column, pl.lit(value, dtype=dtype)))


def _compare_plain(column: pl.Expr, op: Op, literal: SqlLiteral, dtype: pl.DataType) -> Translation | None:
    same = literal.kind == ("string" if isinstance(dtype, pl.String) else "bool")
    ordered = isinstance(dtype, pl.String) or op in ("==", "!=")
    return _apply(column, op, literal.value, dtype) if same and ordered else None


def _compare_exact(column: pl.Expr, op: Op, literal: SqlLiteral, dtype: pl.DataType) -> Translation | None:
    """Compare integers and decimals; the literal may lie between two values of the column's type."""
    if literal.kind not in ("int", "decimal"):
        return None
    like = dtype if isinstance(dtype, pl.Decimal) else pl.Decimal(19, 0)
    dtype = (
        dtype if isinstance(dtype, pl.Decimal) else pl.Int64()
    )  # literals beyond a small type are literals too
    value, precision, scale = Decimal(str(literal.value)), like.precision or MOST_DIGITS, like.scale
    digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
    whole = 20 if literal.kind == "int" else max(digits + exponent, 0)
    if max(precision - scale, whole) + max(scale, -exponent) > MOST_DIGITS:
        return None  # Spark rounds one of the two
    with localcontext(prec=2 * MOST_DIGITS):
        units = value.scaleb(scale)
        low, high = (units.to_integral_value(how) for how in (ROUND_FLOOR, ROUND_CEILING))
        most = Decimal(10**precision if isinstance(dtype, pl.Decimal) else 2**63)
        if not -most < low <= high < most:
            return None
        bounds = [bound.scaleb(-scale) for bound in (low, high)]
    below, above = bounds if isinstance(dtype, pl.Decimal) else map(int, bounds)
    return _between(column, op, below, above, dtype)


def _between(column: pl.Expr, op: Op, below: Any, above: Any, dtype: pl.DataType) -> Translation:
    """Compare with a value from `below` to `above`, between which the column has none."""
    if below == above:
        return _apply(column, op, below, dtype)
    if op in ("==", "!="):
        return Translation(pl.lit(value=False) if op == "==" else column.is_not_null())
    return _apply(column, ">=", above, dtype) if op in (">", ">=") else _apply(column, "<=", below, dtype)


def _compare_floats(column: pl.Expr, op: Op, literal: SqlLiteral, dtype: pl.DataType) -> Translation | None:
    if literal.kind not in ("int", "decimal", "double"):
        return None
    exact = Decimal(literal.value) if isinstance(literal.value, float) else Decimal(str(literal.value))
    value = float(exact)
    if isinstance(dtype, pl.Float32) and not (
        abs(value) < _SINGLE and Decimal(float(np.float32(value))) == exact
    ):
        return None  # whether Spark rounds it to single precision, a setting says
    return _apply(column, op, value, dtype)


def _compare_dates(column: pl.Expr, op: Op, literal: SqlLiteral, dtype: pl.DataType) -> Translation | None:
    return _apply(column, op, literal.value, dtype) if literal.kind == "date" else None


def _compare_times(column: pl.Expr, op: Op, literal: SqlLiteral, dtype: pl.DataType) -> Translation | None:
    """Compare timestamps; with all else the session's zone decides."""
    kind = "naive" if dtype == pl.Datetime("us") else "instant"
    return _apply(column, op, literal.value, dtype) if literal.kind == kind else None


_Rule: TypeAlias = Callable[[pl.Expr, Op, SqlLiteral, pl.DataType], Translation | None]
_RULES: Final[tuple[tuple[tuple[type[pl.DataType], ...], _Rule], ...]] = (
    ((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Decimal), _compare_exact),
    ((pl.Float32, pl.Float64), _compare_floats),
    ((pl.String, pl.Boolean), _compare_plain),
    ((pl.Date,), _compare_dates),
    ((pl.Datetime,), _compare_times),
)
