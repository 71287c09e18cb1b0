"""HAVING, ORDER BY and LIMIT of an estimate: tests and terms over its answers and the columns of its groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import polars as pl

# Ends the names of answers that only HAVING and ORDER BY use: names of columns cannot hold NUL.
HIDDEN: Final = "\0"


@dataclass(frozen=True, slots=True)
class Compared:
    """An answer compared with a number."""

    answer: str
    sign: Literal["=", "<>", "<", "<=", ">", ">="]
    number: float

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        yield self.answer


@dataclass(frozen=True, slots=True)
class Missing:
    """An answer that is null."""

    answer: str

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        yield self.answer


@dataclass(frozen=True, slots=True, eq=False)
class OfGroup:
    """A condition on the columns of a group."""

    condition: pl.Expr

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        yield from ()


@dataclass(frozen=True, slots=True, eq=False)
class Connected:
    """Tests joined by AND or by OR."""

    parts: tuple[Test, ...]
    is_and: bool

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        for part in self.parts:
            yield from part.names


@dataclass(frozen=True, slots=True, eq=False)
class Opposite:
    """A test with NOT."""

    part: Test

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        return self.part.names


Test: TypeAlias = "Compared | Missing | OfGroup | Connected | Opposite"


@dataclass(frozen=True, slots=True, eq=False)
class SortTerm:
    """A term of an order: the name of an answer, or an expression on the columns of a group."""

    term: str | pl.Expr
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Which groups of an answer stay, and their order."""

    having: Test | None
    order: tuple[SortTerm, ...]
    limit: int | None

    @property
    def drops(self) -> bool:
        """Whether groups may be dropped."""
        return self.having is not None or self.limit is not None

    @property
    def names(self) -> frozenset[str]:
        """Names of the answers that decide which groups stay, and their order."""
        tested = () if self.having is None else self.having.names
        return frozenset((*tested, *(item.term for item in self.order if isinstance(item.term, str))))

    @property
    def chooses(self) -> bool:
        """Whether answers decide which groups stay."""
        return bool((self if self.limit is not None else replace(self, order=())).names)
