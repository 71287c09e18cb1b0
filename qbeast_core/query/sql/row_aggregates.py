"""Lower aggregates of SQL for rows that are all read, with the results of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias

import polars as pl
from sqlglot import exp

from qbeast_core.plan.nodes import named_columns
from qbeast_core.query.sql.clauses import named_aggregate
from qbeast_core.query.sql.lower import Lowering
from qbeast_core.query.sql.parse import checked_part, sql_of, without_parentheses
from qbeast_core.query.sql.values import INTEGERS, MAX_DIGITS, Value, invalid_sql, shown

Aggregate: TypeAlias = Callable[[pl.Expr], pl.Expr]

# On numbers, as DOUBLE.
DOUBLES: Final[Mapping[type[exp.Expr], Aggregate]] = {
    exp.Avg: lambda values: values.mean(),
    exp.Median: lambda values: values.median(),
    exp.Stddev: lambda values: values.std(),
    exp.StddevSamp: lambda values: values.std(),
    exp.StddevPop: lambda values: values.std(ddof=0),
    exp.Variance: lambda values: values.var(),
    exp.VariancePop: lambda values: values.var(ddof=0),
}
# Of all types.
SINGLE: Final[Mapping[type[exp.Expr], Aggregate]] = {
    exp.Min: lambda values: values.min(),
    exp.Max: lambda values: values.max(),
    exp.First: lambda values: values.first(),
    exp.Last: lambda values: values.last(),
}
_LEVELS: Final = (exp.Quantile, exp.PercentileCont, exp.PercentileDisc)


def row_aggregate(node: exp.Expr, lowering: Lowering) -> pl.Expr:
    """Return the expression of an aggregate, perhaps with FILTER.

    >>> from qbeast_core.query.sql.parse import parse_list
    >>> (node,) = parse_list("sum(x) FILTER (WHERE x > 1)", ["x"])
    >>> pl.select(x=pl.Series([1, 2, 3])).select(row_aggregate(node, Lowering(pl.Schema({"x": pl.Int64})))).item()
    5
    """
    where: pl.Expr | None = None
    if isinstance(node, exp.Filter):
        where = lowering.condition(checked_part(node.expression.this, aggregates=False))
        node = node.this
    node = named_aggregate(node)
    if isinstance(node, exp.Count):
        return _count(node, lowering, where).cast(pl.Int64)
    if isinstance(node, exp.CountIf):
        condition = lowering.condition(checked_part(node.this, aggregates=False))
        return _filtered(condition, where).sum().cast(pl.Int64)
    if node.this is None:
        invalid_sql(f"{sql_of(node)} takes a column")
    is_distinct = isinstance(node.this, exp.Distinct)
    if is_distinct and (len(node.this.expressions) != 1 or isinstance(node.this.expressions[0], exp.Tuple)):
        invalid_sql(f"{sql_of(node)} takes one column")
    argument = node.this.expressions[0] if is_distinct else node.this
    value = lowering.value(checked_part(argument, aggregates=False))
    values = _filtered(value.expr, where)
    return _aggregate(node, value, values.drop_nulls().unique() if is_distinct else values)


def _filtered(values: pl.Expr, where: pl.Expr | None) -> pl.Expr:
    return values if where is None else values.filter(where)


def _aggregate(node: exp.Expr, value: Value, values: pl.Expr) -> pl.Expr:
    kind, dtype = type(node), value.dtype
    _by_row(node, value.expr)
    if kind is exp.Sum:
        return _sum(node, dtype, values)
    if kind in DOUBLES:
        return DOUBLES[kind](_doubles(node, dtype, values))
    if kind in _LEVELS:
        return _quantile(node, dtype, values)
    if kind not in SINGLE or dtype.is_nested():
        invalid_sql(f"{sql_of(node)} is not an aggregate of {shown(dtype)}")
    # NaN is larger than all numbers.
    return values.nan_max() if kind is exp.Max and dtype.is_float() else SINGLE[kind](values)


def _quantile(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    level = _level(node)
    if not isinstance(node, exp.PercentileDisc):
        return _doubles(node, dtype, values).quantile(level, "linear")
    present = values.drop_nulls().sort()
    place = (present.len() * level).ceil().cast(pl.Int64) - 1
    return present.get(pl.max_horizontal(place, pl.lit(0)), null_on_oob=True)


def _by_row(node: exp.Expr, values: pl.Expr) -> pl.Expr:
    """Refuse an aggregate of a constant, which Polars computes for one row."""
    if not named_columns(values):
        invalid_sql(f"{sql_of(node)} names no column")
    return values


def _sum(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    """Return a sum that does not wrap around; the sum of no values is null."""
    wide: pl.DataType = pl.Float64()
    if isinstance(dtype, (pl.Boolean, *INTEGERS)):
        # Fewer than 2**32 values of 32 bits fit in 64.
        wide = pl.Int128() if isinstance(dtype, (pl.Int64, pl.Int128)) else pl.Int64()
    elif isinstance(dtype, pl.Decimal):
        wide = pl.Decimal(MAX_DIGITS, dtype.scale)
    elif not dtype.is_float():
        _refuse(node, dtype)
    return pl.when(values.count() > 0).then(values.cast(wide).sum())


def _doubles(node: exp.Expr, dtype: pl.DataType, values: pl.Expr) -> pl.Expr:
    if not dtype.is_numeric():
        _refuse(node, dtype)
    return values.cast(pl.Float64)


def _refuse(node: exp.Expr, dtype: pl.DataType) -> NoReturn:
    invalid_sql(f"{sql_of(node)} takes numbers, not {shown(dtype)}; quantile_disc takes other types")


def _level(node: exp.Expr) -> float:
    level = node.args.get("quantile", node.args.get("expression"))
    if not isinstance(level, exp.Literal) or level.is_string or not 0 <= float(level.this) <= 1:
        invalid_sql("a quantile takes a column and a level from 0 to 1, as in quantile_cont(price, 0.9)")
    return float(level.this)


def _count(node: exp.Count, lowering: Lowering, where: pl.Expr | None) -> pl.Expr:
    counted = node.this
    if counted is None or isinstance(counted, (exp.Star, exp.Literal)):
        return pl.len() if where is None else where.sum()
    if not isinstance(counted, exp.Distinct):
        value = lowering.value(checked_part(counted, aggregates=False)).expr
        return _filtered(_by_row(counted, value), where).count()
    if len(counted.expressions) != 1:
        invalid_sql("count(DISTINCT ...) takes one column, or several in parentheses: count(DISTINCT (a, b))")
    (inner,) = counted.expressions
    if not isinstance(without_parentheses(inner), exp.Tuple):
        value = lowering.value(checked_part(inner, aggregates=False)).expr
        return _filtered(_by_row(counted, value), where).drop_nulls().n_unique()
    parts = [lowering.value(checked_part(part, aggregates=False)).expr for part in inner.expressions]
    row = pl.struct(part.alias(str(number)) for number, part in enumerate(parts))
    return _filtered(row, where).n_unique()
