"""The plain conditions of Spark's SQL as Polars predicates; what is not surely understood is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import polars as pl

from qbeast_core.query.atoms import mirror_op, negate_op
from qbeast_core.query.nodes import Op
from qbeast_spark_bridge.predicates.compare import (
    MOST_DIGITS,
    UNSURE,
    Translation,
    compare,
    join,
)
from qbeast_spark_bridge.predicates.sql_tokens import (
    SparkToken,
    SqlLiteral,
    read_literal,
    split,
    tokenize,
    without_parentheses,
)

__all__ = ["parse_sql"]


_CONNECTIVES: Final[tuple[Literal["AND", "OR"], ...]] = ("OR", "AND")

# Words that a column may be called and that part conditions: such a table is filtered by Spark alone.
_PARTING: Final = frozenset(
    {"and", "or", "not", "between", "case", "end", "in", "is", "like", "null", "true", "false"}
)

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

_KIND_OF: Final[Mapping[pl.DataType, str]] = {pl.String(): "string", pl.Boolean(): "bool", pl.Date(): "date"}

# Words that may be functions, whatever columns there are.
_FUNCTIONS: Final = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIME", "LOCALTIMESTAMP"}
    | {"SESSION_USER", "USER"}
)


def parse_sql(text: str, schema: pl.Schema) -> Translation:
    """Understand a condition as far as it is plain.

    Parts that are not understood keep every row: of an AND the other parts still choose, an OR with such a part
    chooses nothing. Whether the text is right at all, Spark's own parser judges.

    Parameters
    ----------
    text : str
        A condition in Spark's SQL.
    schema : polars.Schema
        The table's columns. Names are found whatever their case.

    Examples
    --------
    >>> schema = pl.Schema({"x": pl.Int64, "s": pl.String})
    >>> str(parse_sql("x BETWEEN 1 AND 3 AND upper(s) = 'A'", schema).predicate)
    '[([(col("x")) >= (1)]) & ([(col("x")) <= (3)])]'
    """
    columns = {name.lower(): (name, dtype) for name, dtype in schema.items() if not _is_pattern(name)}
    tokens = tokenize(text)
    if tokens is None or _PARTING & columns.keys():
        return Translation(None, unsupported=text)
    try:
        return _parse(tokens, columns, negated=False)
    except RecursionError:
        return Translation(None, unsupported=text)


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


def _is_pattern(name: str) -> bool:
    """Tell whether Polars takes a name for a pattern."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _translate(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation:
    """Understand a part without AND, OR and NOT, or its negation."""
    found = _translate_atom(tokens, columns, negated=negated)
    text = " ".join(token.text for token in tokens)
    if found is None:
        return Translation(None, unsupported=text)
    return replace(found, unsupported=text) if found.unsupported == UNSURE else found


def _translate_atom(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation | None:
    found = _column(tokens[0], columns) if tokens else None
    if found is None:
        return _mirrored(tokens, columns, negated=negated)
    name, dtype = found
    parsed: Translation | None
    match tokens[1:]:
        case [] if isinstance(dtype, pl.Boolean):
            parsed = Translation(~pl.col(name) if negated else pl.col(name))
        case [SparkToken("word", "IS"), SparkToken("word", "NOT"), *rest]:
            parsed = _translate_is(name, dtype, rest, negated=not negated)
        case [SparkToken("word", "IS"), *rest]:
            parsed = _translate_is(name, dtype, rest, negated=negated)
        case [SparkToken("word", "NOT"), *rest]:
            parsed = _translate_range(name, dtype, rest, negated=not negated)
        case [SparkToken("op", "<=>"), *rest]:
            parsed = _translate_same(name, dtype, read_literal(rest), negated=negated)
        case [SparkToken("op", sign), *rest]:
            parsed = _compared(name, dtype, _OPS[sign], read_literal(rest), negated=negated)
        case rest:
            parsed = _translate_range(name, dtype, rest, negated=negated)
    return parsed


def _column(token: SparkToken, columns: Columns) -> tuple[str, pl.DataType] | None:
    if token.kind == "quoted":
        return columns.get(token.text[1:-1].replace("``", "`").lower())
    return columns.get(token.text.lower()) if token.kind == "word" and token.text not in _FUNCTIONS else None


def _compared(
    name: str, dtype: pl.DataType, op: Op, literal: SqlLiteral | None, *, negated: bool
) -> Translation | None:
    return None if literal is None else compare(name, dtype, negate_op(op) if negated else op, literal)


def _mirrored(tokens: list[SparkToken], columns: Columns, *, negated: bool) -> Translation | None:
    """Understand a literal before a column, and a literal alone."""
    found = _column(tokens[-1], columns) if len(tokens) > 2 else None
    if found is not None and tokens[-2].kind == "op" and tokens[-2].text in _OPS:
        op = mirror_op(_OPS[tokens[-2].text])
        return _compared(*found, op, read_literal(tokens[:-2]), negated=negated)
    literal = read_literal(tokens)
    if literal is None or literal.kind not in ("bool", "null"):
        return None
    return Translation(pl.lit(literal.kind == "bool" and literal.value is not negated))


def _translate_is(
    name: str, dtype: pl.DataType, rest: list[SparkToken], *, negated: bool
) -> Translation | None:
    """Understand what follows IS, or IS NOT."""
    match rest:
        case [SparkToken("word", "NULL")]:
            return Translation(pl.col(name).is_not_null() if negated else pl.col(name).is_null())
        case [SparkToken("word", "DISTINCT"), SparkToken("word", "FROM"), *value]:
            return _translate_same(name, dtype, read_literal(value), negated=not negated)
        case [SparkToken("word", "TRUE" | "FALSE")] if isinstance(dtype, pl.Boolean):
            return _translate_same(name, dtype, read_literal(rest), negated=negated)
        case _:
            return None


def _translate_same(
    name: str, dtype: pl.DataType, literal: SqlLiteral | None, *, negated: bool
) -> Translation | None:
    """Compare with null as a value like any other."""
    column = pl.col(name)
    if literal is not None and literal.kind == "null":
        return Translation(column.is_not_null() if negated else column.is_null())
    found = _compared(name, dtype, "==", literal, negated=negated)
    return (
        join([found, Translation(column.is_null())], every=False) if found is not None and negated else found
    )


def _translate_range(
    name: str, dtype: pl.DataType, rest: list[SparkToken], *, negated: bool
) -> Translation | None:
    """Understand BETWEEN, IN and LIKE."""
    match rest:
        case [SparkToken("word", "BETWEEN"), *bounds]:
            return _translate_between(name, dtype, bounds, negated=negated)
        case [SparkToken("word", "IN"), SparkToken("mark", "("), *values, SparkToken("mark", ")")]:
            return _translate_in(name, dtype, values, negated=negated)
        case [SparkToken("word", "LIKE"), SparkToken("string") as pattern] if isinstance(dtype, pl.String):
            return None if negated else _translate_like(name, pattern)
        case _:
            return None


def _translate_between(
    name: str, dtype: pl.DataType, bounds: list[SparkToken], *, negated: bool
) -> Translation | None:
    middle = next((place for place, token in enumerate(bounds) if token.is_("AND")), len(bounds))
    least = _compared(name, dtype, ">=", read_literal(bounds[:middle]), negated=negated)
    most = _compared(name, dtype, "<=", read_literal(bounds[middle + 1 :]), negated=negated)
    if least is None or most is None:
        return None
    return join([least, most], every=not negated)


def _translate_in(
    name: str, dtype: pl.DataType, tokens: list[SparkToken], *, negated: bool
) -> Translation | None:
    """Understand a list of literals of one type: Spark compares those of several as something else."""
    lists: list[list[SparkToken]] = [[]]
    for token in tokens:
        if token.is_(","):
            lists.append([])
        else:
            lists[-1].append(token)
    literals = [read_literal(one) for one in lists]
    if not _is_plain_list([literal for literal in literals if literal is not None], dtype):
        return None
    found = [_compared(name, dtype, "==", literal, negated=negated) for literal in literals]
    known = [one for one in found if one is not None]
    return join(known, every=negated) if len(known) == len(found) else None


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


def _translate_like(name: str, pattern: SparkToken) -> Translation | None:
    text = pattern.text[1:-1]
    found = re.search(r"[%_\\]", text)
    if found is None:
        return Translation(pl.col(name) == pl.lit(text))
    prefix = text[: found.start()]
    if not prefix or found[0] == "\\":
        return None
    exact = text == f"{prefix}%"
    return Translation(pl.col(name).str.starts_with(prefix), unsupported="" if exact else UNSURE)
