"""Literals of Spark's SQL whose value no setting changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from qbeast_spark_bridge.where_tokens import Token

__all__ = ["Kind", "SqlLiteral", "read_literal"]

Kind: TypeAlias = Literal[
    "int", "decimal", "double", "string", "bool", "null", "date", "instant", "local", "naive"
]
_Value: TypeAlias = int | float | str | bool | Decimal | date | datetime | None

_WORDS: Final[dict[str, tuple[Kind, _Value]]] = {
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

    kind: Kind
    value: _Value
    typed: bool = True

    def moment(self) -> SqlLiteral | None:
        """Read a text as the date or timestamp it would be cast to; None if that is not plain."""
        if self.kind != "string":
            return self if self.kind in ("date", "instant", "local", "naive") else None
        text = str(self.value)
        found = _date(text) or _timestamp(text)
        return None if found is None else SqlLiteral(found.kind, found.value, typed=False)


def read_literal(tokens: Sequence[Token]) -> SqlLiteral | None:
    """Read a literal; None for anything else, and where a setting could change its value.

    Parameters
    ----------
    tokens : sequence of Token
        All of it.

    Examples
    --------
    >>> from qbeast_spark_bridge.where_tokens import tokenize
    >>> read_literal(tokenize("- 1.50")).value, read_literal(tokenize("DATE'2024-01-31'")).value
    (Decimal('-1.50'), datetime.date(2024, 1, 31))
    """
    match tokens:
        case [Token("string") as only]:
            text = _text(only)
            return None if text is None else SqlLiteral("string", text)
        case [Token("number") as only]:
            return _number(only.text, sign=1)
        case [Token("mark", "-" | "+") as sign, Token("number") as only]:
            return _number(only.text, sign=-1 if sign.text == "-" else 1)
        case [Token("word", "TRUE" | "FALSE" | "NULL") as only]:
            return SqlLiteral(*_WORDS[only.text])
        case [Token("word", name), Token("string") as only]:
            text = _text(only)
            return None if text is None else _typed(name, text)
        case _:
            return None


def _text(token: Token) -> str | None:
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
