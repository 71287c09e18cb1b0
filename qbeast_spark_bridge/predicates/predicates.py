"""Conditions on rows: what Spark applies, and what chooses files."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.table.data.expressions import filter_of
from qbeast_spark_bridge.predicates.column_tree import is_column
from qbeast_spark_bridge.predicates.to_sql import to_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Where", "keep_where", "polars_filter", "understand"]

_NAME: Final = re.compile(r"(?<!\.)`(?:[^`]|``)*`")  # not a field of a column

_SUBSTITUTED: Final = "${"
"""How a part of SQL begins that Spark replaces by a setting or a variable of the environment, even inside quotes."""


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """A condition, seen by Spark and by the index.

    Attributes
    ----------
    condition : str, Column or None
        SQL of Spark for `keep_where`, or the caller's own Column; None keeps all rows.
    predicate : polars.Expr or None
        True for the rows that the condition keeps; None: nothing is known of them.
    """

    condition: str | Column | None
    predicate: pl.Expr | None


def understand(
    where: str | Column | pl.Expr | None, schema: pl.Schema, collated: Collection[str] = ()
) -> Where:
    """Take a condition in any of its forms.

    Parameters
    ----------
    where : str, Column, polars.Expr or None
        SQL text and Polars expressions are translated. Of a Column nothing is known, as it does not tell names from
        values.
    schema : polars.Schema
        The table's columns.
    collated : collection of str
        Those that Spark compares in another way.

    Raises
    ------
    InvalidInputError
        If a part of a text or an expression has no exact counterpart in Spark, or `where` is nothing of these.
    """
    if where is None or is_column(where):
        return Where(where, None)  # type: ignore[arg-type] # a Column
    predicate = polars_filter(where, schema, collated)
    if isinstance(where, str):
        from qbeast_spark_bridge.predicates.from_text import text_to_sql  # noqa: PLC0415 -- sqlglot takes 0.1 s to load

        return Where(text_to_sql(where, schema), predicate)
    return Where(to_sql(where, schema), predicate)  # type: ignore[arg-type] # an expression


def polars_filter(where: object, schema: pl.Schema, collated: Collection[str] = ()) -> pl.Expr | None:
    """Return a condition in Polars, unless it names a column with a collation.

    Parameters
    ----------
    where, schema, collated
        As for `understand`, but for Columns.

    Raises
    ------
    InvalidInputError
        It is not a condition on the rows of the table.
    """
    found = filter_of(where, schema)  # type: ignore[arg-type] # it refuses all else
    compared = [] if found is None else [name for name in found.meta.root_names() if name in collated]
    if compared:
        msg = (
            f"columns {compared} have a collation, by which Spark compares them and Polars does not; nothing was read. "
            "Filter the DataFrame by a condition of Spark."
        )
        raise InvalidInputError(msg, argument="where")
    return found


def keep_where(rows: DataFrame, sql: str) -> DataFrame:
    """Return the rows for which a condition is true.

    Spark replaces ``${env:HOME}`` and the like in every text of SQL before it parses it, in quoted names too.
    Columns of such names are called otherwise meanwhile.

    Parameters
    ----------
    rows : DataFrame
        To be filtered.
    sql : str
        Names in backquotes, and no backquote elsewhere.
    """
    names = rows.columns
    if not any(_SUBSTITUTED in name for name in names):
        return rows.where(sql)
    plain = {name: f"c{number}" for number, name in enumerate(names)}
    return rows.toDF(*plain.values()).where(_with_names(sql, plain)).toDF(*names)


def _with_names(sql: str, names: dict[str, str]) -> str:
    """Return a condition on columns that are called otherwise.

    Examples
    --------
    >>> _with_names("`a``b` > 1 AND `b` = 'b'", {"a`b": "c0", "b": "c1"})
    "`c0` > 1 AND `c1` = 'b'"
    """
    return _NAME.sub(lambda found: f"`{names[found[0][1:-1].replace('``', '`')]}`", sql)
