"""Expressions in SQL cut into words; what is no part of an expression on a row is refused before any parser sees it."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, cast

__all__ = ["SqlRefused", "Token", "TokenKind", "tokenize"]

TokenKind = Literal["string", "bytes", "name", "number", "word", "op", "mark"]

_LONGEST: Final = 1_000_000
"""Characters of a text at most: room for a hundred thousand values of an ``IN``."""

_TOKEN: Final = re.compile(
    r"""
    (?P<bytes>[xX]'[0-9a-fA-F]*')
  | (?P<string>'(?:[^']|'')*')
  | (?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
  | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.'"`]))
  | (?P<word>[@\#]?[^\W\d][\w@\#$]*)
  | (?P<op><=>|!~~\*|!~~|!~\*|!~|~~\*|~~|~\*|~|->>|->|<=|>=|<>|!=|==|=|<|>|\|\||::|//|\^@|[+\-*/%&|])
  | (?P<mark>[()\[\],.])
    """,
    re.VERBOSE,
)
_WORDS: Final = frozenset({"word", "op", "mark"})
_SPACE: Final = re.compile(r"\s*")
_STRANGE: Final = (
    ("--", "a comment"),
    ("/*", "a comment"),
    (";", "a second statement"),
    ("'", "a text in quotes that does not end"),
    ('"', "a name in quotes that does not end"),
    ("`", "a name in quotes that does not end"),
)


class SqlRefused(Exception):  # noqa: N818 - it never leaves the library
    """Why a text is no expression that is understood; callers turn it into an error of the public tree."""


class Token(NamedTuple):
    """A word, sign or literal.

    Attributes
    ----------
    kind : str
        ``name`` is a name in quotes, ``bytes`` is ``X'00ff'``.
    text : str
        As it was written; names without their quotes.
    upper : str
        The text in capitals where it may be a word of SQL or a sign; else empty.
    place : int
        Where it begins in the text, counted from 1.
    """

    kind: TokenKind
    text: str
    upper: str
    place: int

    @property
    def shown(self) -> str:
        """The text and its place, for messages."""
        return f"{self.text[:40]!r} at character {self.place}"


def tokenize(text: str) -> list[Token]:
    """Cut an expression into tokens.

    Parameters
    ----------
    text : str
        In SQL as Polars writes it: texts in single quotes, names in double quotes or backquotes.

    Raises
    ------
    SqlRefused
        The text is too long, or holds a comment, several statements, placeholders or other signs that an expression
        does not have.

    Examples
    --------
    >>> [token.text for token in tokenize("price>=1.5 AND `it is` = 'it''s'")]
    ['price', '>=', '1.5', 'AND', 'it is', '=', "'it''s'"]
    """
    if len(text) > _LONGEST:
        msg = f"it is longer than {_LONGEST:,} characters"
        raise SqlRefused(msg)
    tokens: list[Token] = []
    end = _SPACE.match(text).end()  # type: ignore[union-attr] # it matches everywhere
    while end < len(text):
        found = None if text.startswith(("--", "/*"), end) else _TOKEN.match(text, end)
        if found is None:
            raise SqlRefused(_strange(text, end))
        tokens.append(_token(found))
        end = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
    return tokens


def _token(found: re.Match[str]) -> Token:
    kind, text, place = (
        cast("TokenKind", found.lastgroup),
        found[0],
        found.start() + 1,
    )  # groups are called by kinds
    if kind == "name":
        quote = text[0]
        return Token(kind, text[1:-1].replace(quote * 2, quote), "", place)
    return Token(kind, text, text.upper() if kind in _WORDS else "", place)


def _strange(text: str, place: int) -> str:
    for start, what in _STRANGE:
        if text.startswith(start, place):
            return f"{what} begins at character {place + 1}"
    shown = text[place : place + 1]
    if shown.isdecimal():
        return (
            f"no number ends the way the one at character {place + 1} does; a name that begins with a digit stands in "
            'double quotes: "2020_sales"'
        )
    return f"there is no use for {shown!r} at character {place + 1}"
