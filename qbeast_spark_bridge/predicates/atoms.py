"""The plain tests of one column, as Spark means them, in Polars: what SQL text and Columns have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.query.atoms import negate_op
from qbeast_core.query.nodes import Op
from qbeast_spark_bridge.predicates.column_tree import SqlLiteral
from qbeast_spark_bridge.predicates.compare import MOST_DIGITS, Translation, compare, join

# Comparisons as SQL spells them.
OPS: Final[dict[str, Op]] = {
    "=": "==",
    "==": "==",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}

_APPLIED: Final = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}

_KIND_OF: Final[Mapping[pl.DataType, str]] = {pl.String(): "string", pl.Boolean(): "bool", pl.Date(): "date"}


@dataclass(frozen=True, slots=True, eq=False)
class SqlColumn:
    """A column that a condition names."""

    expr: pl.Expr
    dtype: pl.DataType


# Columns by their names in small letters: one part, or two where the first is what another table is called.
Columns: TypeAlias = Mapping[tuple[str, ...], SqlColumn]


def columns_of(schema: pl.Schema, *, source_name: str | None = None) -> Columns:
    """Return what a condition may name.

    >>> schema = pl.Schema({"Price": pl.Int64, "source": pl.Struct({"price": pl.Int64})})
    >>> list(columns_of(schema, source_name="source"))
    [('price',), ('source', 'price')]
    """
    found: dict[tuple[str, ...], SqlColumn] = {}
    for name, dtype in schema.items():
        if name == source_name and isinstance(dtype, pl.Struct):
            fields = pl.Schema(dtype)
            for field in dtype.fields:
                value = SqlColumn(pl.col(name).struct.field(field.name), fields[field.name])
                found[name.lower(), field.name.lower()] = value
        elif not _is_pattern(name):
            found[(name.lower(),)] = SqlColumn(pl.col(name), dtype)
    return found


def compared(
    column: SqlColumn, op: Op, right: SqlLiteral | SqlColumn | None, *, negated: bool
) -> Translation | None:
    """Compare a column with a literal, or with a column of the same type; None where that is not plain."""
    sign = negate_op(op) if negated else op
    match right:
        case None:
            return None
        case SqlLiteral():
            return compare(column.expr, column.dtype, sign, right)
        case SqlColumn():
            if right.dtype != column.dtype or column.dtype.is_nested():
                return None
            return Translation(_APPLIED[sign](column.expr, right.expr))


def is_null(column: SqlColumn, *, negated: bool) -> Translation:
    """Test for null."""
    return Translation(column.expr.is_not_null() if negated else column.expr.is_null())


def same_as(column: SqlColumn, right: SqlLiteral | SqlColumn | None, *, negated: bool) -> Translation | None:
    """Compare with null as a value like any other."""
    if isinstance(right, SqlColumn):
        if right.dtype != column.dtype or column.dtype.is_nested():
            return None
        pair = column.expr, right.expr
        return Translation(pair[0].ne_missing(pair[1]) if negated else pair[0].eq_missing(pair[1]))
    if right is not None and right.kind == "null":
        return is_null(column, negated=negated)
    found = compared(column, "==", right, negated=negated)
    return (
        join([found, Translation(column.expr.is_null())], every=False)
        if found is not None and negated
        else found
    )


def in_list(column: SqlColumn, values: Sequence[SqlLiteral | None], *, negated: bool) -> Translation | None:
    """Look for a column's value in a list of literals of one type; those of several Spark compares as another."""
    literals = [value for value in values if value is not None]
    if len(literals) < len(values) or not _is_plain_list(literals, column.dtype):
        return None
    found = [compared(column, "==", literal, negated=negated) for literal in literals]
    known = [one for one in found if one is not None]
    return join(known, every=negated) if known and len(known) == len(found) else None


def _is_plain_list(literals: list[SqlLiteral], dtype: pl.DataType) -> bool:
    """Tell whether Spark, which looks for one type for column and list, takes the column's."""
    literals = [literal for literal in literals if literal.kind != "null"]  # which has every type
    kinds = {literal.kind for literal in literals}
    match dtype:
        case pl.Float64() | pl.Float32():
            return kinds <= {"int", "decimal", "double"}
        case pl.Decimal():
            digits = [Decimal(str(literal.value)).as_tuple() for literal in literals if kinds <= {"decimal"}]
            whole = [dtype.precision - dtype.scale, *(len(d.digits) + int(d.exponent) for d in digits)]
            scales = [dtype.scale, *(-int(d.exponent) for d in digits)]
            return kinds == {"int"} or (bool(digits) and max(whole) + max(scales) <= MOST_DIGITS)
        case pl.Datetime():
            return kinds == {"naive" if dtype.time_zone is None else "instant"}
        case _:
            return kinds == {_KIND_OF.get(dtype, "int")}


def _is_pattern(name: str) -> bool:
    """Tell whether Polars takes a name for a pattern."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))
