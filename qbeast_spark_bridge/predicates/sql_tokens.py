"""Spark's SQL cut into words, as far as cutting it is safe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Final, Literal, TypeAlias, cast

__all__ = [
    "SUBSTITUTED",
    "Kind",
    "LiteralKind",
    "SparkToken",
    "SqlLiteral",
    "read_literal",
    "split",
    "tokenize",
    "without_parentheses",
]


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

LiteralKind: TypeAlias = Literal[
    "int", "decimal", "double", "string", "bool", "null", "date", "instant", "local", "naive"
]

_Value: TypeAlias = int | float | str | bool | Decimal | date | datetime | None

_WORDS: Final[dict[str, tuple[LiteralKind, _Value]]] = {
    "TRUE": ("bool", True),
    "FALSE": ("bool", False),
    "NULL": ("null", None),
}

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)

_SUFFIX: Final = re.compile(r"(?<=\d|\.)(L|S|Y|D|F|BD)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SparkToken:
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


def tokenize(text: str) -> list[SparkToken] | None:
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
    tokens: list[SparkToken] = []
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


def split(tokens: Sequence[SparkToken], word: Literal["AND", "OR"]) -> list[Sequence[SparkToken]]:
    """Cut at a connective outside of parentheses; the AND of a BETWEEN is none.

    Parameters
    ----------
    tokens : sequence of SparkToken
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


def without_parentheses(tokens: Sequence[SparkToken]) -> Sequence[SparkToken]:
    """Take away the parentheses around the whole, if there are any.

    Parameters
    ----------
    tokens : sequence of SparkToken
        With all parentheses closed.
    """
    while len(tokens) > 2 and tokens[0].is_("(") and _closes_last(tokens):
        tokens = tokens[1:-1]
    return tokens


def _token(found: re.Match[str]) -> SparkToken:
    kind = cast("Kind", found.lastgroup)  # groups are called by kinds
    text = found[0]
    return SparkToken(kind, text.upper() if kind == "word" else text)


def _is_condition(tokens: Sequence[SparkToken]) -> bool:
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


def _closes_last(tokens: Sequence[SparkToken]) -> bool:
    depth = 0
    for place, token in enumerate(tokens):
        depth += token.is_("(") - token.is_(")")
        if depth == 0:
            return place == len(tokens) - 1
    return False


@dataclass(frozen=True, slots=True)
class SqlLiteral:
    """A literal.

    Attributes
    ----------
    kind : str
        ``instant`` is a timestamp with a zone, ``naive`` one that has none, ``local`` one without that may mean an
        instant of the session's zone.
    value : object
        As Python has it; decimals as `Decimal`, instants in UTC.
    typed : bool
        Whether the type was written: not so for a date in plain quotes.
    """

    kind: LiteralKind
    value: _Value
    typed: bool = True

    def moment(self) -> SqlLiteral | None:
        """Read a text as the date or timestamp it would be cast to; None if that is not plain."""
        if self.kind != "string":
            return self if self.kind in ("date", "instant", "local", "naive") else None
        text = str(self.value)
        found = _date(text) or _timestamp(text)
        return None if found is None else SqlLiteral(found.kind, found.value, typed=False)


def read_literal(tokens: Sequence[SparkToken]) -> SqlLiteral | None:
    """Read a literal; None for anything else, and where a setting could change its value.

    Parameters
    ----------
    tokens : sequence of SparkToken
        All of it.

    Examples
    --------
    >>> from qbeast_spark_bridge.predicates.sql_tokens import tokenize
    >>> read_literal(tokenize("- 1.50")).value, read_literal(tokenize("DATE'2024-01-31'")).value
    (Decimal('-1.50'), datetime.date(2024, 1, 31))
    """
    match tokens:
        case [SparkToken("string") as only]:
            text = _text(only)
            return None if text is None else SqlLiteral("string", text)
        case [SparkToken("number") as only]:
            return _number(only.text, sign=1)
        case [SparkToken("mark", "-" | "+") as sign, SparkToken("number") as only]:
            return _number(only.text, sign=-1 if sign.text == "-" else 1)
        case [SparkToken("word", "TRUE" | "FALSE" | "NULL") as only]:
            return SqlLiteral(*_WORDS[only.text])
        case [SparkToken("word", name), SparkToken("string") as only]:
            text = _text(only)
            return None if text is None else _typed(name, text)
        case _:
            return None


def _text(token: SparkToken) -> str | None:
    """Return what quotes hold; a backslash means what a setting says."""
    return None if "\\" in token.text else token.text[1:-1]


def _number(text: str, *, sign: int) -> SqlLiteral | None:
    found = _SUFFIX.search(text)
    suffix, digits = ("", text) if found is None else (found[1].upper(), text[: found.start()])
    if suffix == "F":  # rounded to single precision
        return None
    if suffix == "D" or (not suffix and "e" in digits.lower()):
        return SqlLiteral("double", sign * float(digits))
    if suffix in ("L", "S", "Y") or (not suffix and digits.isdigit()):
        return SqlLiteral("int", sign * int(digits)) if digits.isdigit() else None
    return SqlLiteral("decimal", sign * Decimal(digits))


def _typed(name: str, text: str) -> SqlLiteral | None:
    if name == "DATE":
        return _date(text)
    found = _timestamp(text) if name in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ") else None
    if found is None or name != "TIMESTAMP_NTZ":
        return found
    return SqlLiteral("naive", found.value) if found.kind == "local" else None


def _date(text: str) -> SqlLiteral | None:
    try:
        return SqlLiteral("date", date.fromisoformat(text)) if _DATE.fullmatch(text) else None
    except ValueError:  # no such day
        return None


def _timestamp(text: str) -> SqlLiteral | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(
            f"{day}T{time or '00:00:00'}.{(fraction or '').ljust(6, '0')}{zone or ''}"
        )
        return SqlLiteral("local", moment) if zone is None else SqlLiteral("instant", moment.astimezone(UTC))
    except (ValueError, OverflowError):  # no such day or hour, or out of Python's years
        return None
