"""The smallest parts of a condition: a column and its literals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.query.atoms import negate_op
from qbeast_core.query.nodes import Op
from qbeast_spark_bridge.where_compare import MOST_DIGITS, UNSURE, Told, all_told, any_told, compare
from qbeast_spark_bridge.where_literals import SqlLiteral, read_literal
from qbeast_spark_bridge.where_tokens import Token

__all__ = ["Columns", "tell_atom"]

Columns: TypeAlias = Mapping[str, tuple[str, pl.DataType]]
"""Names and types of the columns, by their names in small letters."""

_OPS: Final[dict[str, Op]] = {
    "=": "==",
    "==": "==",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MIRRORED: Final[dict[Op, Op]] = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">=": "<=", ">": "<"}
_KIND_OF: Final[Mapping[pl.DataType, str]] = {pl.String(): "string", pl.Boolean(): "bool", pl.Date(): "date"}
# Words that may be functions, whatever columns there are.
_FUNCTIONS: Final = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIME", "LOCALTIMESTAMP"}
    | {"SESSION_USER", "USER"}
)


def tell_atom(tokens: Sequence[Token], columns: Columns, *, negated: bool) -> Told:
    """Understand a part without AND, OR and NOT, or its negation.

    Parameters
    ----------
    tokens : sequence of Token
        The part.
    columns : mapping
        The table's columns.
    negated : bool
        Whether the rows wanted are those for which the part is false.
    """
    told = _tell(list(tokens), columns, negated=negated)
    said = " ".join(token.text for token in tokens)
    if told is None:
        return Told(None, obstacle=said)
    return replace(told, obstacle=said) if told.obstacle == UNSURE else told


def _tell(tokens: list[Token], columns: Columns, *, negated: bool) -> Told | None:
    found = _column(tokens[0], columns) if tokens else None
    if found is None:
        return _mirrored(tokens, columns, negated=negated)
    name, dtype = found
    told: Told | None = None
    match tokens[1:]:
        case [] if isinstance(dtype, pl.Boolean):
            told = Told(~pl.col(name) if negated else pl.col(name))
        case [Token("word", "IS"), Token("word", "NOT"), *rest]:
            told = _tell_is(name, dtype, rest, negated=not negated)
        case [Token("word", "IS"), *rest]:
            told = _tell_is(name, dtype, rest, negated=negated)
        case [Token("word", "NOT"), *rest]:
            told = _tell_range(name, dtype, rest, negated=not negated)
        case [Token("op", "<=>"), *rest]:
            told = _tell_same(name, dtype, read_literal(rest), negated=negated)
        case [Token("op", sign), *rest]:
            told = _compared(name, dtype, _OPS[sign], read_literal(rest), negated=negated)
        case rest:
            told = _tell_range(name, dtype, rest, negated=negated)
    return told


def _column(token: Token, columns: Columns) -> tuple[str, pl.DataType] | None:
    if token.kind == "quoted":
        return columns.get(token.text[1:-1].replace("``", "`").lower())
    return columns.get(token.text.lower()) if token.kind == "word" and token.text not in _FUNCTIONS else None


def _compared(
    name: str, dtype: pl.DataType, op: Op, literal: SqlLiteral | None, *, negated: bool
) -> Told | None:
    return None if literal is None else compare(name, dtype, negate_op(op) if negated else op, literal)


def _mirrored(tokens: list[Token], columns: Columns, *, negated: bool) -> Told | None:
    """Understand a literal before a column, and a literal alone."""
    found = _column(tokens[-1], columns) if len(tokens) > 2 else None
    if found is not None and tokens[-2].kind == "op" and tokens[-2].text in _OPS:
        op = _MIRRORED[_OPS[tokens[-2].text]]
        return _compared(*found, op, read_literal(tokens[:-2]), negated=negated)
    literal = read_literal(tokens)
    if literal is None or literal.kind not in ("bool", "null"):
        return None
    return Told(pl.lit(literal.kind == "bool" and literal.value is not negated))


def _tell_is(name: str, dtype: pl.DataType, rest: list[Token], *, negated: bool) -> Told | None:
    """Understand what follows IS, or IS NOT."""
    match rest:
        case [Token("word", "NULL")]:
            return Told(pl.col(name).is_not_null() if negated else pl.col(name).is_null())
        case [Token("word", "DISTINCT"), Token("word", "FROM"), *value]:
            return _tell_same(name, dtype, read_literal(value), negated=not negated)
        case [Token("word", "TRUE" | "FALSE")] if isinstance(dtype, pl.Boolean):
            return _tell_same(name, dtype, read_literal(rest), negated=negated)
        case _:
            return None


def _tell_same(name: str, dtype: pl.DataType, literal: SqlLiteral | None, *, negated: bool) -> Told | None:
    """Compare with null as a value like any other."""
    column = pl.col(name)
    if literal is not None and literal.kind == "null":
        return Told(column.is_not_null() if negated else column.is_null())
    told = _compared(name, dtype, "==", literal, negated=negated)
    return any_told([told, Told(column.is_null())]) if told is not None and negated else told


def _tell_range(name: str, dtype: pl.DataType, rest: list[Token], *, negated: bool) -> Told | None:
    """Understand BETWEEN, IN and LIKE."""
    match rest:
        case [Token("word", "BETWEEN"), *bounds]:
            return _tell_between(name, dtype, bounds, negated=negated)
        case [Token("word", "IN"), Token("mark", "("), *values, Token("mark", ")")]:
            return _tell_in(name, dtype, values, negated=negated)
        case [Token("word", "LIKE"), Token("string") as pattern] if isinstance(dtype, pl.String):
            return None if negated else _tell_like(name, pattern)
        case _:
            return None


def _tell_between(name: str, dtype: pl.DataType, bounds: list[Token], *, negated: bool) -> Told | None:
    middle = next((place for place, token in enumerate(bounds) if token.is_("AND")), len(bounds))
    least = _compared(name, dtype, ">=", read_literal(bounds[:middle]), negated=negated)
    most = _compared(name, dtype, "<=", read_literal(bounds[middle + 1 :]), negated=negated)
    if least is None or most is None:
        return None
    return any_told([least, most]) if negated else all_told([least, most])


def _tell_in(name: str, dtype: pl.DataType, tokens: list[Token], *, negated: bool) -> Told | None:
    """Understand a list of literals of one type: Spark compares those of several as something else."""
    lists: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_(","):
            lists.append([])
        else:
            lists[-1].append(token)
    literals = [read_literal(one) for one in lists]
    if not _is_plain_list([literal for literal in literals if literal is not None], dtype):
        return None
    told = [_compared(name, dtype, "==", literal, negated=negated) for literal in literals]
    known = [one for one in told if one is not None]
    if len(known) < len(told):
        return None
    return all_told(known) if negated else any_told(known)


def _is_plain_list(literals: list[SqlLiteral], dtype: pl.DataType) -> bool:
    """Tell whether Spark, which looks for one type for column and list, takes the column's."""
    kinds = {literal.kind for literal in literals}
    match dtype:
        case pl.Float64() | pl.Float32():
            return kinds <= {"int", "decimal", "double"}
        case pl.Decimal():
            digits = [Decimal(str(literal.value)).as_tuple() for literal in literals if kinds <= {"decimal"}]
            whole = [dtype.precision - dtype.scale, *(len(d.digits) + int(d.exponent) for d in digits)]
            scales = [dtype.scale, *(-int(d.exponent) for d in digits)]
            return kinds == {"int"} or (bool(digits) and max(whole) + max(scales) <= MOST_DIGITS)
        case pl.Datetime():
            return kinds == {"naive" if dtype.time_zone is None else "instant"}
        case _:
            return kinds == {_KIND_OF.get(dtype, "int")}


def _tell_like(name: str, pattern: Token) -> Told | None:
    text = pattern.text[1:-1]
    found = re.search(r"[%_\\]", text)
    if found is None:
        return Told(pl.col(name) == pl.lit(text))
    prefix = text[: found.start()]
    if not prefix or found[0] == "\\":
        return None
    exact = text == f"{prefix}%"
    return Told(pl.col(name).str.starts_with(prefix), obstacle="" if exact else UNSURE)
