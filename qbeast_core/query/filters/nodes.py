"""Nodes of a parsed row filter: ANDs and ORs over simple atoms; NOTs are pushed into the atoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

Op = Literal["<", "<=", "==", "!=", ">=", ">"]


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


def column_of(atom: Atom) -> str:
    """Return the column of an atom.

    >>> column_of(IsNull("x"))
    'x'
    """
    return atom.column if isinstance(atom, IsNull | IsNotNull) else atom.operand.column
