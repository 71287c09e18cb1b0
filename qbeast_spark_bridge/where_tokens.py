"""Spark's SQL cut into words, as far as cutting it is safe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, cast

__all__ = ["SUBSTITUTED", "Kind", "Token", "split", "tokenize", "without_parentheses"]

Kind = Literal["string", "quoted", "double", "number", "word", "op", "mark"]

SUBSTITUTED: Final = "${"
"""How a part of SQL begins that Spark replaces by a setting or a variable of the environment, even inside quotes."""

_TOKEN: Final = re.compile(
    r"""(?:
    (?P<string>'(?:[^'\\]|\\.)*')
  | (?P<double>"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[LSYDF]|BD)?(?![\w'"`]))
  | (?P<word>[a-z_]\w*)
  | (?P<op><=>|<=|>=|<>|!=|==|=|<|>)
  | (?P<mark>[()\[\],.+\-*/%&^~!])
    )""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)
_SPACE: Final = re.compile(r"\s*")
_LONGEST: Final = 1_000_000
# Comments, pipes, lambdas, and operators that begin like those above.
_STRANGE: Final = re.compile(r"--|/\*|\|>|->|=>|!>|!<|<<|>>")
# Whoever writes one of these asks for more than a condition on the row.
_QUERIES: Final = frozenset(
    {"SELECT", "FROM", "VALUES", "TABLE", "WITH", "EXISTS", "WHERE", "MAP", "REDUCE", "LATERAL"}
)
_PARTING: Final = frozenset({"AND", "OR", "NOT", "BETWEEN", "CASE", "END"})
_CLOSING: Final = {"(": ")", "[": "]", "CASE": "END"}


@dataclass(frozen=True, slots=True)
class Token:
    """A word, sign or literal.

    Attributes
    ----------
    kind : str
        What it is; ``quoted`` is a name in backquotes, ``double`` a text in double quotes.
    text : str
        As it was written; words in capitals.
    """

    kind: Kind
    text: str

    def is_(self, *texts: str) -> bool:
        """Tell whether it is one of these words or signs."""
        return self.kind in ("word", "op", "mark") and self.text in texts


def tokenize(text: str) -> list[Token] | None:
    """Cut a condition into tokens; None where its parts cannot be told apart for sure.

    So it is where Spark would put something else in the place of a part, as of ``${env:HOME}``.

    Parameters
    ----------
    text : str
        A condition in Spark's SQL.

    Examples
    --------
    >>> [token.text for token in tokenize("price>=1.5 AND s = 'it is'")]
    ['PRICE', '>=', '1.5', 'AND', 'S', '=', "'it is'"]
    """
    if SUBSTITUTED in text or len(text) > _LONGEST:
        return None
    tokens: list[Token] = []
    end, last = 0, len(text.rstrip())
    while end < last:
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr] # it matches everywhere
        found = None if _STRANGE.match(text, end) else _TOKEN.match(text, end)
        if found is None:
            return None
        token = _token(found)
        if token.kind in ("string", "double") and tokens and tokens[-1].is_("R") and text[end - 1] in "rR":
            return None  # a raw string ends elsewhere
        tokens.append(token)
        end = found.end()
    return tokens if _is_condition(tokens) else None


def split(tokens: Sequence[Token], word: Literal["AND", "OR"]) -> list[Sequence[Token]]:
    """Cut at a connective outside of parentheses; the AND of a BETWEEN is none.

    Parameters
    ----------
    tokens : sequence of Token
        As `tokenize` gave them, or a part of that with all its parentheses closed.
    word : {"AND", "OR"}
        Where to cut.
    """
    cuts = [-1]
    depth = between = 0
    for place, token in enumerate(tokens):
        if token.is_(*_CLOSING):
            depth += 1
        elif token.is_(*_CLOSING.values()):
            depth -= 1
        elif depth == 0 and token.is_("BETWEEN"):
            between += 1
        elif depth == 0 and between and token.is_("AND"):
            between -= 1
        elif depth == 0 and token.is_(word):
            cuts.append(place)
    cuts.append(len(tokens))
    return [tokens[start + 1 : end] for start, end in pairwise(cuts)]


def without_parentheses(tokens: Sequence[Token]) -> Sequence[Token]:
    """Take away the parentheses around the whole, if there are any.

    Parameters
    ----------
    tokens : sequence of Token
        With all parentheses closed.
    """
    while len(tokens) > 2 and tokens[0].is_("(") and _closes_last(tokens):
        tokens = tokens[1:-1]
    return tokens


def _token(found: re.Match[str]) -> Token:
    kind = cast("Kind", found.lastgroup)  # groups are called by kinds
    text = found[0]
    return Token(kind, text.upper() if kind == "word" else text)


def _is_condition(tokens: Sequence[Token]) -> bool:
    """Tell whether all that is open is closed in turn, and nothing queries or hides behind a dot."""
    open_: list[str] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else None
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.is_(*_PARTING) and any(near is not None and near.is_(".") for near in (before, after)):
            return False  # a field of that name
        if token.is_(*_QUERIES) and not (token.is_("FROM") and before is not None and before.is_("DISTINCT")):
            return False
        if token.is_(*_CLOSING):
            open_.append(_CLOSING[token.text])
        elif token.is_(*_CLOSING.values()) and (not open_ or open_.pop() != token.text):
            return False
    return bool(tokens) and not open_


def _closes_last(tokens: Sequence[Token]) -> bool:
    depth = 0
    for place, token in enumerate(tokens):
        depth += token.is_("(") - token.is_(")")
        if depth == 0:
            return place == len(tokens) - 1
    return False
