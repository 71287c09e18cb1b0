"""Patterns of SQL on texts: LIKE, ILIKE and regular expressions."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from qbeast_core.query.sql.tokens import invalid_sql
from qbeast_core.query.sql.values import Value, boolean, shown, truth

_ANY: Final = object()
_ONE: Final = object()


def matches(value: Value, pattern: Value) -> Value:
    """Lower ``~`` and regexp_matches: whether a regular expression occurs in a text."""
    if value.const is None or pattern.const is None:
        return truth(None)
    regex = _constant(pattern)
    try:
        pl.select(pl.lit("").str.contains(regex))
    except pl.exceptions.PolarsError as error:
        invalid_sql(f"{regex[:60]!r} is not a valid regular expression", error)
    return boolean(_subject(value).str.contains(regex))


def like(value: Value, pattern: Value, *, escape: str = "", fold: bool = False) -> Value:
    """Lower LIKE and ILIKE: a prefix, suffix or substring test if possible, else a regular expression."""
    if value.const is None or pattern.const is None:
        return truth(None)
    subject, pattern_text = _subject(value), _constant(pattern)
    if fold:
        subject, pattern_text = subject.str.to_lowercase(), pattern_text.lower()
    return boolean(_matched(subject, _pieces(pattern_text, escape)))


def _matched(subject: pl.Expr, pieces: list[object]) -> pl.Expr:
    match pieces:
        case []:
            expr = subject == ""
        case [str(fragment)]:
            expr = subject == fragment
        case [str(fragment), last] if last is _ANY:
            expr = subject.str.starts_with(fragment)
        case [first, str(fragment)] if first is _ANY:
            expr = subject.str.ends_with(fragment)
        case [first, str(fragment), last] if first is _ANY and last is _ANY:
            expr = subject.str.contains(fragment, literal=True)
        case _:
            regex = "".join({_ANY: ".*", _ONE: "."}.get(piece) or re.escape(str(piece)) for piece in pieces)
            expr = subject.str.contains(f"(?s)^{regex}$")
            if isinstance(pieces[0], str):  # the index skips files by the prefix
                expr = subject.str.starts_with(pieces[0]) & expr
    return expr


def _pieces(pattern: str, escape: str) -> list[object]:
    """Split a pattern into texts and wildcards."""
    pieces: list[object] = []
    letters = iter(pattern)
    for letter in letters:
        piece: object = {"%": _ANY, "_": _ONE}.get(letter, letter)
        if escape and letter == escape:
            piece = next(letters, None)
            if piece is None:
                invalid_sql("a LIKE pattern must not end with the escape character")
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif not (piece is _ANY and pieces and pieces[-1] is _ANY):
            pieces.append(piece)
    return pieces


def _subject(value: Value) -> pl.Expr:
    if not isinstance(value.dtype, pl.String):
        invalid_sql(f"a pattern is not defined for {shown(value.dtype)}")
    return value.expr


def _constant(pattern: Value) -> str:
    if not isinstance(pattern.const, str):
        invalid_sql("a pattern must be a text, not an expression")
    return pattern.const
