"""Conditions on rows: what Spark applies, and what of it chooses files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.predicates.atoms import columns_of
from qbeast_spark_bridge.predicates.from_sql import parse_sql
from qbeast_spark_bridge.predicates.sql_tokens import SUBSTITUTED
from qbeast_spark_bridge.predicates.to_sql import to_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Where", "from_sql", "keep_where", "understand"]

_NAME: Final = re.compile(r"`(?:[^`]|``)*`")


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """A condition, seen by Spark and by the index.

    Attributes
    ----------
    condition : str, Column or None
        For ``DataFrame.where``; None keeps all rows. Text means the same in every kind of session.
    predicate : polars.Expr or None
        True for every row that the condition keeps, and perhaps for more; None: for all. To choose files only,
        unless `exact`.
    exact : bool
        Whether the predicate keeps the very rows that the condition keeps.
    """

    condition: str | Column | None
    predicate: pl.Expr | None
    exact: bool


def understand(where: str | Column | pl.Expr | None, schema: pl.Schema) -> Where:
    """Take a condition in any of its forms.

    Parameters
    ----------
    where : str, Column, polars.Expr or None
        SQL text and Columns are Spark's own; of text the plain comparisons are understood, of a Column nothing,
        as it does not tell names from values. A Polars expression is translated.
    schema : polars.Schema
        The table's columns, without those that Spark compares in another way (collations).

    Raises
    ------
    InvalidInputError
        If a part of a Polars expression has no exact counterpart in Spark, or `where` is nothing of these.
    """
    if where is None:
        return Where(None, None, exact=True)
    if isinstance(where, pl.Expr):
        return Where(to_sql(where, schema), where, exact=True)
    if isinstance(where, str):
        found = parse_sql(where, columns_of(schema))
        return Where(where, found.predicate, found.exact)
    kind = type(where)
    # Sessions of each kind have Columns of their own, some of which are no subclass of the public one.
    if kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql"):
        return Where(where, None, exact=False)
    msg = f"where must be SQL text, a Spark Column or a Polars expression, not {kind.__module__}.{kind.__name__}"
    raise InvalidInputError(msg, argument="where")


def from_sql(text: str, schema: pl.Schema) -> pl.Expr:
    """Translate a condition in Spark's SQL to Polars, exactly.

    Parameters
    ----------
    text : str
        Comparisons, ``IN``, ``BETWEEN``, ``LIKE 'abc%'``, ``IS [NOT] NULL`` and ``<=>`` of a column with
        literals of its type, joined by ``AND``, ``OR`` and ``NOT``.
    schema : polars.Schema
        The table's columns.

    Raises
    ------
    InvalidInputError
        If a part of the text has no exact counterpart. It is named.

    Examples
    --------
    >>> schema = pl.Schema({"x": pl.Int64, "d": pl.Date})
    >>> str(from_sql("X > 5 AND NOT d < DATE'2024-01-01'", schema))
    '[([(col("x")) > (5)]) & ([(col("d")) >= (2024-01-01)])]'
    """
    found = parse_sql(text, columns_of(schema))
    if found.exact and found.predicate is not None:
        return found.predicate
    msg = (
        f"cannot say {found.unsupported!r} of {text!r} in Polars with the same meaning as in Spark. Compare a column "
        "with literals of its own type (DATE'2024-01-31', TIMESTAMP'2024-01-31 12:00:00Z'), or filter the DataFrame."
    )
    raise InvalidInputError(msg, argument="where")


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
    if not any(SUBSTITUTED in name for name in names):
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
