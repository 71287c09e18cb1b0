"""Limit the tokens of an SQL text, and quote keywords that are column names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

# Enough for an IN list of a hundred thousand values.
MAX_CHARACTERS: Final = 1_000_000

# Levels of parentheses, brackets and CASE; sqlglot needs some 25 Python frames for each.
MAX_LEVELS: Final = 30


# Characters of a number, and of the text of an interval.
MAX_NUMBER: Final = 1_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPENING: Final = frozenset({"(", "[", "{", "CASE"})
_CLOSING: Final = frozenset({")", "]", "}", "END"})
_PREFIXES: Final = frozenset({"NOT", "-", "+", "~", "!", "@", "INTERVAL", "CASE"})
# Words and signs after which an operand is expected.
BEFORE_OPERANDS: Final = _words(
    """
    ( , [ = == <> != < <= > >= <=> + - * / // % || AND OR NOT WHEN THEN ELSE BETWEEN IN LIKE ILIKE CASE FROM DISTINCT
    SELECT WHERE BY
    """
) | {"GROUP BY"}
_NEVER_NAMES: Final = frozenset({"NOT", "CASE"})
_PLAIN: Final = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR)
_NUMBERS: Final = (TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING)
_VALUES: Final = frozenset({"NULL", "TRUE", "FALSE"})


class InvalidSqlError(Exception):
    """Reason why a text is not supported; callers convert it to a public error."""


def invalid_sql(why: str, cause: BaseException | None = None) -> NoReturn:
    """Raise `InvalidSqlError`."""
    raise InvalidSqlError(why) from cause


def bounded(text: str, tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """Split a text into tokens; reject texts that are too long or too deeply nested to parse."""
    if len(text) > MAX_CHARACTERS:
        invalid_sql(f"it has more than {MAX_CHARACTERS:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        invalid_sql("it has half of a surrogate pair, which is not a character", error)
    tokens = tokenize(text)
    level = run = 0
    for before, token in zip((None, *tokens), tokens, strict=False):
        _check_length(token, before)
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            run = 0
            continue
        word = token.text.upper()
        level += (word in _OPENING) - (word in _CLOSING)
        run = run + 1 if word in _PREFIXES else 0
        if max(level, run) > MAX_LEVELS:
            invalid_sql(f"it nests more than {MAX_LEVELS} levels of parentheses or prefix operators")
    return tokens


def _check_length(token: Token, before: Token | None) -> None:
    """Reject numbers that Python does not read, and texts of intervals, for which sqlglot takes quadratic time."""
    is_interval = before is not None and before.text.upper() == "INTERVAL"
    if len(token.text) > MAX_NUMBER and (is_interval or token.token_type in _NUMBERS):
        invalid_sql(f"a number has more than {MAX_NUMBER:,} characters: {token.text[:20]}…")


def with_columns_quoted(tokens: Sequence[Token], columns: frozenset[str]) -> list[Token]:
    """Quote words that equal a column name where an operand is expected: ``user = 42``."""
    quoted = list(tokens)
    for index, token in enumerate(tokens):
        if token.text not in columns or token.token_type in _PLAIN:
            continue
        word = token.text.upper()
        if word in _VALUES:
            invalid_sql(f"{token.text!r} is a value and a column; put the column's name into double quotes")
        expects_operand = index == 0 or tokens[index - 1].text.upper() in BEFORE_OPERANDS
        next_token = tokens[index + 1] if index + 1 < len(tokens) else None
        # A word before a parenthesis or a literal is a function or a type: ``date '2026-11-05'``.
        starts_value = next_token is not None and (
            next_token.text == "(" or next_token.token_type in (TokenType.STRING, TokenType.NUMBER)
        )
        if expects_operand and word not in _NEVER_NAMES and not starts_value:
            place = token.line, token.col, token.start, token.end
            quoted[index] = Token(TokenType.IDENTIFIER, token.text, *place, token.comments)
    return quoted
