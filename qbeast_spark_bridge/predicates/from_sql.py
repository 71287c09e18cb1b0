"""The plain conditions of Spark's SQL as Polars predicates; what is not surely understood is left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import polars as pl

from qbeast_core.query.atoms import mirror_op
from qbeast_spark_bridge.predicates.atoms import (
    OPS,
    Columns,
    SqlColumn,
    compared,
    in_list,
    is_null,
    same_as,
)
from qbeast_spark_bridge.predicates.compare import UNSURE, Translation, join
from qbeast_spark_bridge.predicates.sql_tokens import (
    SparkToken,
    SqlLiteral,
    read_literal,
    split,
    tokenize,
    without_parentheses,
)

__all__ = ["parse_name", "parse_sql"]


_CONNECTIVES: Final[tuple[Literal["AND", "OR"], ...]] = ("OR", "AND")

# Words that a column may be called and that part conditions: such a table is filtered by Spark alone.
_PARTING: Final = frozenset(
    {"and", "or", "not", "between", "case", "end", "in", "is", "like", "null", "true", "false"}
)

# Words that may be functions, whatever columns there are.
_FUNCTIONS: Final = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIME", "LOCALTIMESTAMP"}
    | {"SESSION_USER", "USER"}
)


def parse_sql(text: str, columns: Columns, *, negated: bool = False) -> Translation:
    """Understand a condition as far as it is plain.

    Parts that are not understood keep every row: of an AND the other parts still choose, an OR with such a part
    chooses nothing. Whether the text is right at all, Spark's own parser judges.

    Parameters
    ----------
    text : str
        A condition in Spark's SQL.
    columns : Columns
        What it may name, whatever the case.
    negated : bool
        Whether its negation is asked for.

    Examples
    --------
    >>> from qbeast_spark_bridge.predicates.atoms import columns_of
    >>> columns = columns_of(pl.Schema({"x": pl.Int64, "s": pl.String}))
    >>> str(parse_sql("x BETWEEN 1 AND 3 AND upper(s) = 'A'", columns).predicate)
    '[([(col("x")) >= (1)]) & ([(col("x")) <= (3)])]'
    """
    tokens = tokenize(text)
    if tokens is None or _PARTING & {part for parts in columns for part in parts}:
        return Translation(None, unsupported=text)
    try:
        return _parse(tokens, columns, negated=negated)
    except RecursionError:
        return Translation(None, unsupported=text)


def parse_name(tokens: Sequence[SparkToken], columns: Columns) -> SqlColumn | None:
    """Understand a column's name and nothing more; None for all else."""
    column, rest = _leading_column(tokens, columns)
    return None if rest else column


def _parse(tokens: Sequence[SparkToken], columns: Columns, *, negated: bool) -> Translation:
    """Understand a condition or its negation: a NOT goes down to the comparisons, three-valued logic allows it."""
    tokens = without_parentheses(tokens)
    for word in _CONNECTIVES:
        parts = split(tokens, word)
        if len(parts) > 1:
            found = [_parse(part, columns, negated=negated) for part in parts]
            return join(found, every=(word == "AND") is not negated)
    if len(tokens) > 1 and tokens[0].is_("NOT", "!"):
        return _parse(tokens[1:], columns, negated=not negated)
    return _translate(list(tokens), columns, negated=negated)


def _translate(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation:
    """Understand a part without AND, OR and NOT, or its negation."""
    found = _translate_atom(tokens, columns, negated=negated)
    text = " ".join(token.text for token in tokens)
    if found is None:
        return Translation(None, unsupported=text)
    return replace(found, unsupported=text) if found.unsupported == UNSURE else found


def _translate_atom(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation | None:
    column, rest = _leading_column(tokens, columns)
    if column is None:
        return _mirrored(tokens, columns, negated=negated)
    parsed: Translation | None
    match rest:
        case [] if isinstance(column.dtype, pl.Boolean):
            parsed = Translation(~column.expr if negated else column.expr)
        case [SparkToken("word", "IS"), SparkToken("word", "NOT"), *rest]:
            parsed = _translate_is(column, rest, columns, negated=not negated)
        case [SparkToken("word", "IS"), *rest]:
            parsed = _translate_is(column, rest, columns, negated=negated)
        case [SparkToken("word", "NOT"), *rest]:
            parsed = _translate_range(column, rest, columns, negated=not negated)
        case [SparkToken("op", "<=>"), *rest]:
            parsed = same_as(column, _right(rest, columns), negated=negated)
        case [SparkToken("op", sign), *rest]:
            parsed = compared(column, OPS[sign], _right(rest, columns), negated=negated)
        case rest:
            parsed = _translate_range(column, rest, columns, negated=negated)
    return parsed


def _leading_column(
    tokens: Sequence[SparkToken], columns: Columns
) -> tuple[SqlColumn | None, list[SparkToken]]:
    """Return the column that comes first, and what follows it."""
    parts = [_name(token) for token in tokens[:1]]
    place = 1
    while len(tokens) > place + 1 and tokens[place].is_("."):
        parts.append(_name(tokens[place + 1]))
        place += 2
    is_function = place == 1 and tokens[:1] and tokens[0].is_(*_FUNCTIONS)
    column = None if is_function else columns.get(tuple(part or "" for part in parts))
    return column, list(tokens[place:])


def _name(token: SparkToken) -> str | None:
    if token.kind == "quoted":
        return token.text[1:-1].replace("``", "`").lower()
    return token.text.lower() if token.kind == "word" else None


def _right(tokens: Sequence[SparkToken], columns: Columns) -> SqlLiteral | SqlColumn | None:
    """Understand the right side of a comparison: a literal, or a column and nothing more."""
    return read_literal(tokens) or parse_name(tokens, columns)


def _mirrored(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation | None:
    """Understand a literal before a column, and a literal alone."""
    place = next(
        (place for place, token in enumerate(tokens) if token.kind == "op" and token.text in OPS), None
    )
    if place is not None:
        column, rest = _leading_column(tokens[place + 1 :], columns)
        if column is None or rest:
            return None
        return compared(
            column, mirror_op(OPS[tokens[place].text]), read_literal(tokens[:place]), negated=negated
        )
    literal = read_literal(tokens)
    if literal is None or literal.kind not in ("bool", "null"):
        return None
    return Translation(pl.lit(literal.kind == "bool" and literal.value is not negated))


def _translate_is(
    column: SqlColumn, rest: list[SparkToken], columns: Columns, *, negated: bool
) -> Translation | None:
    """Understand what follows IS, or IS NOT."""
    match rest:
        case [SparkToken("word", "NULL")]:
            return is_null(column, negated=negated)
        case [SparkToken("word", "DISTINCT"), SparkToken("word", "FROM"), *value]:
            return same_as(column, _right(value, columns), negated=not negated)
        case [SparkToken("word", "TRUE" | "FALSE")] if isinstance(column.dtype, pl.Boolean):
            return same_as(column, read_literal(rest), negated=negated)
        case _:
            return None


def _translate_range(
    column: SqlColumn, rest: list[SparkToken], columns: Columns, *, negated: bool
) -> Translation | None:
    """Understand BETWEEN, IN and LIKE."""
    match rest:
        case [SparkToken("word", "BETWEEN"), *bounds]:
            return _translate_between(column, bounds, columns, negated=negated)
        case [SparkToken("word", "IN"), SparkToken("mark", "("), *values, SparkToken("mark", ")")]:
            return in_list(column, _literals(values), negated=negated)
        case [SparkToken("word", "LIKE"), SparkToken("string") as pattern] if isinstance(
            column.dtype, pl.String
        ):
            return None if negated else _translate_like(column, pattern)
        case _:
            return None


def _translate_between(
    column: SqlColumn, bounds: list[SparkToken], columns: Columns, *, negated: bool
) -> Translation | None:
    middle = next((place for place, token in enumerate(bounds) if token.is_("AND")), len(bounds))
    least = compared(column, ">=", _right(bounds[:middle], columns), negated=negated)
    most = compared(column, "<=", _right(bounds[middle + 1 :], columns), negated=negated)
    if least is None or most is None:
        return None
    return join([least, most], every=not negated)


def _literals(tokens: list[SparkToken]) -> list[SqlLiteral | None]:
    """Read a list of literals with commas between."""
    lists: list[list[SparkToken]] = [[]]
    for token in tokens:
        if token.is_(","):
            lists.append([])
        else:
            lists[-1].append(token)
    return [read_literal(one) for one in lists]


def _translate_like(column: SqlColumn, pattern: SparkToken) -> Translation | None:
    text = pattern.text[1:-1]
    found = re.search(r"[%_\\]", text)
    if found is None:
        return Translation(column.expr == pl.lit(text))
    prefix = text[: found.start()]
    if not prefix or found[0] == "\\":
        return None
    exact = text == f"{prefix}%"
    return Translation(column.expr.str.starts_with(prefix), unsupported="" if exact else UNSURE)
