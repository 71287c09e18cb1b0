"""The plain conditions of Spark's SQL as Polars predicates; what is not surely understood is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl

from qbeast_spark_bridge.where_atoms import Columns, tell_atom
from qbeast_spark_bridge.where_compare import Told, all_told, any_told
from qbeast_spark_bridge.where_tokens import Token, split, tokenize, without_parentheses

__all__ = ["parse_sql"]

_CONNECTIVES: Final[tuple[tuple[Literal["AND", "OR"], str], ...]] = (("OR", "AND"), ("AND", "OR"))
# Words that a column may be called and that part conditions: such a table is filtered by Spark alone.
_PARTING: Final = frozenset(
    {"and", "or", "not", "between", "case", "end", "in", "is", "like", "null", "true", "false"}
)


def parse_sql(text: str, schema: pl.Schema) -> Told:
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
        return Told(None, obstacle=text)
    try:
        return _parse(tokens, columns, negated=False)
    except RecursionError:
        return Told(None, obstacle=text)


def _parse(tokens: Sequence[Token], columns: Columns, *, negated: bool) -> Told:
    """Understand a condition or its negation: a NOT goes down to the comparisons, three-valued logic allows it."""
    tokens = without_parentheses(tokens)
    joins = {"OR": any_told, "AND": all_told}
    for word, other in _CONNECTIVES:
        parts = split(tokens, word)
        if len(parts) > 1:
            return joins[other if negated else word](
                [_parse(part, columns, negated=negated) for part in parts]
            )
    if len(tokens) > 1 and tokens[0].is_("NOT", "!"):
        return _parse(tokens[1:], columns, negated=not negated)
    return tell_atom(tokens, columns, negated=negated)


def _is_pattern(name: str) -> bool:
    """Tell whether Polars takes a name for a pattern."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))
