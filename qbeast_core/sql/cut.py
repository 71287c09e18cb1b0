"""HAVING, ORDER BY and LIMIT of an estimate: tests and terms over its answers and the columns of its groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import polars as pl

# Ends the names of answers that only HAVING and ORDER BY use: names of columns cannot hold NUL.
HIDDEN: Final = "\0"


@dataclass(frozen=True, slots=True, eq=False)
class Having:
    """A condition of HAVING: a comparison of an answer with a number, whether one is null, or tests that are joined."""

    # "group": a condition on the columns of a group.
    function: Literal["=", "<>", "<", "<=", ">", ">=", "null", "group", "and", "or", "not"]
    answer: str = ""
    number: float = 0.0
    condition: pl.Expr | None = None
    parts: tuple[Having, ...] = ()

    @property
    def names(self) -> Iterator[str]:
        """Names of answers."""
        if self.answer:
            yield self.answer
        for part in self.parts:
            yield from part.names


@dataclass(frozen=True, slots=True, eq=False)
class SortTerm:
    """A term of an order: the name of an answer, or an expression on the columns of a group, perhaps as parsed."""

    term: Any
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Which groups of an answer stay, and their order."""

    having: Having | None
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
