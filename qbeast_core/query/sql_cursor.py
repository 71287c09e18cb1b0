"""A walk along the tokens of an expression in SQL that goes neither too deep nor too high."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from qbeast_core.query.sql_tokens import SqlRefused, Token
from qbeast_core.query.sql_words import AGGREGATES, QUERIES

__all__ = ["Cursor", "refuse_query"]

_DEEPEST: Final = 30
"""Levels of parentheses and the like at most: Polars' parser refuses some expressions from about 48 on."""

_LONGEST: Final = 200
"""Operators besides AND and OR, one on the result of the other, at most: each is a call within a call for Polars."""


class Cursor:
    """A place among tokens. At each an operand or an operator is due, by which words are told from names.

    Parameters
    ----------
    tokens : sequence of Token
        All of them.
    columns : frozenset of str
        Words that are names of columns wherever they can be.

    Attributes
    ----------
    at : int
        The place.
    height : int
        Of the tree of what was read last: operators on the results of others.
    closings : dict of int to int
        Where parentheses close, by where they open.
    """

    def __init__(self, tokens: Sequence[Token], columns: frozenset[str]) -> None:
        self.tokens = tokens
        self.columns = columns
        self.closings = _closings(tokens)
        self.at = self.depth = self.conditions = self.height = 0

    @property
    def token(self) -> Token | None:
        """The token that is due."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def sees(self, *texts: str, further: int = 0) -> bool:
        """Tell whether one of these words or signs is due, or comes so many tokens later."""
        place = self.at + further
        return place < len(self.tokens) and self.tokens[place].upper in texts

    def takes(self, *texts: str) -> bool:
        """Go past one of these words or signs, if it is due."""
        found = self.sees(*texts)
        self.at += found
        return found

    def take(self, *texts: str) -> str:
        """Go past one of these words or signs, which has to be there."""
        if not self.takes(*texts):
            self.refuse(f", where {' or '.join(texts)} is due")
        return self.tokens[self.at - 1].upper

    def take_kind(self, *kinds: str) -> Token:
        """Go past a token of one of these kinds, which has to be there."""
        token = self.token
        if token is None or token.kind not in kinds:
            self.refuse(f", where a {' or '.join(kinds)} is due")
        self.at += 1
        return token

    def refuse(self, due: str = "") -> NoReturn:
        """Say what stands where it cannot."""
        token = self.token
        if token is None:
            raise SqlRefused(f"it ends too early{due}")  # noqa: EM102, TRY003 - the sentence is short
        if token.upper in QUERIES or (token.upper in AGGREGATES and self.sees("(", further=1)):
            refuse_query(token)
        raise SqlRefused(f"there is no use for {token.shown}{due}")  # noqa: EM102, TRY003 - the same

    def descend(self) -> None:
        """Go down a level, of which there are not too many."""
        self.depth += 1
        if self.depth > _DEEPEST:
            msg = f"it is nested deeper than {_DEEPEST} levels"
            raise SqlRefused(msg)

    def grow(self, highest: int, by: int) -> None:
        """Set the height of a tree over others."""
        self.height = highest + by
        if self.height > _LONGEST:
            msg = f"more than {_LONGEST} operators follow one upon the other"
            raise SqlRefused(msg)


def refuse_query(token: Token) -> NoReturn:
    """Say that a word is none of expressions on a row.

    Raises
    ------
    SqlRefused
        Always.
    """
    msg = (
        f"{token.shown} asks for a query, or looks at several columns or rows at once; an expression is made of the "
        "columns of one row, not of other rows, tables or files. Compute what it needs first and write it as a value, "
        f'as in a IN (1, 2, 3). A column of that name stands in double quotes: "{token.text}"'
    )
    raise SqlRefused(msg)


def _closings(tokens: Sequence[Token]) -> dict[int, int]:
    found: dict[int, int] = {}
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token.upper == "(":
            opened.append(place)
        elif token.upper == ")" and opened:
            found[opened.pop()] = place
    return found
