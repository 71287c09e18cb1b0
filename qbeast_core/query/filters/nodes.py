"""Nodes of a parsed row filter: ANDs and ORs over atoms, which never exclude a matching row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

Op = Literal["<", "<=", "==", "!=", ">=", ">"]

_FEW: Final = 100  # values


@dataclass(frozen=True, slots=True)
class Operand:
    """A top-level column, possibly below casts that keep its order."""

    column: str
    dtype: pl.DataType
    # Types that it is cast to, innermost first. Every cast is monotone: `a <= b` implies `cast(a) <= cast(b)`
    # wherever both are not null.
    casts: tuple[pl.DataType, ...] = ()

    @property
    def result(self) -> pl.DataType:
        """The type that is compared: the type of the last cast, or of the column."""
        return self.casts[-1] if self.casts else self.dtype

    def apply(self, values: pl.Expr) -> pl.Expr:
        """Apply the casts to `values` of the column; values that do not fit become null."""
        for dtype in self.casts:
            values = values.cast(dtype, strict=False)
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """Rows where the comparison with a value is true; null never matches."""

    operand: Operand
    # As Polars compares: NaN equals NaN and is above every number, strings compare by UTF-8 bytes.
    op: Op
    # Right side: one value, not null, with the type it has in the filter.
    value: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class IsIn:
    """Rows where the operand equals one of `values` (at least one; not null, sorted, unique)."""

    operand: Operand
    values: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class StartsWith:
    """Rows where a string column starts with `prefix` (not empty)."""

    operand: Operand
    prefix: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Rows where the column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """Rows where the column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any row may match: an expression that prunes nothing."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row matches."""


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """Rows that match all children."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """Rows that match at least one child."""

    children: tuple[Node, ...]


Atom: TypeAlias = Compare | IsIn | StartsWith | IsNull | IsNotNull
Node: TypeAlias = And | Or | Atom | Unknown | Nothing


def all_of(nodes: Sequence[Node]) -> Node:
    """Return the node for rows that match all nodes; without nodes, any row.

    >>> all_of([Unknown(), IsNull("x")])
    IsNull(column='x')
    >>> all_of([Nothing(), IsNull("x")])
    Nothing()
    """
    return _joined(nodes, And, neutral=Unknown(), absorbing=Nothing())


def any_of(nodes: Sequence[Node]) -> Node:
    """Return the node for rows that match at least one node; without nodes, no row.

    >>> any_of([Nothing(), IsNull("x")])
    IsNull(column='x')
    >>> any_of([Unknown(), IsNull("x")])
    Unknown()
    """
    return _joined(nodes, Or, neutral=Nothing(), absorbing=Unknown())


def _joined(
    nodes: Sequence[Node], join: type[And | Or], *, neutral: Unknown | Nothing, absorbing: Unknown | Nothing
) -> Node:
    if absorbing in nodes:
        return absorbing
    kept = tuple(node for node in nodes if node != neutral)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else join(kept)


def matches_few(node: Node, constant: Collection[str]) -> bool:
    """Return whether all matching rows have one of few values, or one prefix, in a column that is not constant.

    >>> text = Operand("s", pl.String())
    >>> node = And((IsNull("x"), Or((StartsWith(text, "a"), IsIn(text, pl.Series(["b"]))))))
    >>> matches_few(node, []), matches_few(node, ["s"]), matches_few(Or((node, IsNull("x"))), [])
    (True, False, False)
    """
    match node:
        case And(children):
            return any(matches_few(child, constant) for child in children)
        case Or(children):
            return all(matches_few(child, constant) for child in children)
        case Compare(operand, "==", _):
            return operand.dtype != pl.Boolean() and operand.column not in constant
        case IsIn(operand, values):
            return len(values) <= _FEW and operand.column not in constant
        case StartsWith(operand, _):
            return operand.column not in constant
        case _:
            return False


def columns_in(node: Node) -> frozenset[str]:
    """Return the columns that a filter names."""
    if isinstance(node, (Unknown, Nothing)):
        return frozenset()
    if isinstance(node, (And, Or)):
        return frozenset().union(*map(columns_in, node.children))
    return frozenset({column_of(node)})


def column_of(atom: Atom) -> str:
    """Return the column of an atom.

    >>> column_of(IsNull("x"))
    'x'
    """
    return atom.column if isinstance(atom, IsNull | IsNotNull) else atom.operand.column


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
