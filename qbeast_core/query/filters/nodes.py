"""What a row filter becomes: a tree of ANDs and ORs over simple atoms, with every NOT pushed into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import polars as pl

Op = Literal["<", "<=", "==", "!=", ">=", ">"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A top-level column, possibly seen through casts that keep its order."""

    column: str
    dtype: pl.DataType
    # Types it is cast to, in that order. Every cast is monotone: `a <= b` implies `cast(a) <= cast(b)`
    # wherever both are not null.
    casts: tuple[pl.DataType, ...] = ()

    @property
    def result(self) -> pl.DataType:
        """The type that is compared: that of the last cast, or the column's own."""
        return self.casts[-1] if self.casts else self.dtype

    def apply(self, values: pl.Expr) -> pl.Expr:
        """Put `values` of the column through the same casts; what does not fit becomes null."""
        for dtype in self.casts:
            values = values.cast(dtype, strict=False)
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """Rows where the operand compares so with a value; never a row where it is null."""

    operand: Operand
    # As Polars compares: NaN equals NaN and is above every number, strings go by their UTF-8 bytes.
    op: Op
    # Right side: one value, not null, of the type the filter gave it.
    value: pl.Series


@dataclass(frozen=True, slots=True, eq=False)
class IsIn:
    """Rows where the operand equals one of `values` (not null, sorted, each once, at least one)."""

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
    """Rows that match every child."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """Rows that match at least one child."""

    children: tuple[Node, ...]


Atom: TypeAlias = Compare | IsIn | StartsWith | IsNull | IsNotNull
Node: TypeAlias = And | Or | Atom | Unknown | Nothing


def all_of(nodes: Sequence[Node]) -> Node:
    """Rows that match every node; none given: any row.

    >>> all_of([Unknown(), IsNull("x")])
    IsNull(column='x')
    >>> all_of([Nothing(), IsNull("x")])
    Nothing()
    """
    if any(isinstance(node, Nothing) for node in nodes):
        return Nothing()
    kept = tuple(node for node in nodes if not isinstance(node, Unknown))
    if not kept:
        return Unknown()
    return kept[0] if len(kept) == 1 else And(kept)


def any_of(nodes: Sequence[Node]) -> Node:
    """Rows that match at least one node; none given: no row.

    >>> any_of([Nothing(), IsNull("x")])
    IsNull(column='x')
    >>> any_of([Unknown(), IsNull("x")])
    Unknown()
    """
    if any(isinstance(node, Unknown) for node in nodes):
        return Unknown()
    kept = tuple(node for node in nodes if not isinstance(node, Nothing))
    if not kept:
        return Nothing()
    return kept[0] if len(kept) == 1 else Or(kept)


def column_of(atom: Atom) -> str:
    """Return the column that an atom is about.

    >>> column_of(IsNull("x"))
    'x'
    """
    return atom.column if isinstance(atom, IsNull | IsNotNull) else atom.operand.column
