"""Conditions on rows, for Spark to apply and for the index to skip files."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NoReturn

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.nodes import named_columns
from qbeast_core.sql.portable import portable
from qbeast_core.sql.values import NoEquivalentError
from qbeast_core.support.text import excerpt
from qbeast_core.table.data.expressions import filter_of, text_filter
from qbeast_spark_bridge.predicates.columns import is_column
from qbeast_spark_bridge.predicates.spark_sql import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_NAME: Final = re.compile(r"(?<!\.)`(?:[^`]|``)*`")  # not a field of a column

# Spark substitutes settings and environment variables that start like this, even inside quotes.
_SUBSTITUTED: Final = "${"


def parse_where(
    where: str | Column | pl.Expr | None, schema: pl.Schema, collated: Collection[str] = ()
) -> tuple[str | Column | None, pl.Expr | None]:
    """Parse a condition of any form, for Spark and for the index.

    The first is Spark SQL for `keep_where`, or the caller's Column, and None to keep all rows. The second is true for
    the rows to keep, and None for a Column.
    """
    if where is None or is_column(where):
        return where, None  # type: ignore[return-value] # a Column
    try:
        if isinstance(where, str):
            tree = text_filter(where, schema)
            _refuse_collations(tree.expr, collated)
            return spark_sql(tree), tree.expr
        predicate = polars_filter(where, schema, collated)
        return spark_sql(portable(where, schema)), predicate  # type: ignore[arg-type] # an expression
    except NoEquivalentError as error:
        _refuse(where if error.part is None else error.part)


def _refuse(part: Any) -> NoReturn:
    if isinstance(part, pl.Expr):
        what = f"{excerpt(part)!r} has no equivalent in Spark for all rows"
        cure = "Give the condition as SQL text or as a Spark Column, or compare a column with values of its own type."
    else:
        text = part if isinstance(part, str) else part.sql("duckdb")
        what = f"{text[:100]!r} has no equivalent in Spark, which would keep other rows"
        cure = (
            "Filter the DataFrame by a condition of Spark, or read with "
            'spark.read.format("qbeast").option("where", ...).'
        )
    msg = f"{what}. {cure}"
    raise InvalidInputError(msg, argument="where")


def polars_filter(where: object, schema: pl.Schema, collated: Collection[str] = ()) -> pl.Expr | None:
    """Return a condition in Polars; raise if it uses a column with a collation."""
    predicate = filter_of(where, schema)  # type: ignore[arg-type] # it raises for other values
    _refuse_collations(predicate, collated)
    return predicate


def _refuse_collations(predicate: pl.Expr | None, collated: Collection[str]) -> None:
    compared = [name for name in named_columns(predicate) if name in collated]
    if compared:
        msg = (
            f"columns {compared} have a collation, which only Spark applies in comparisons. "
            "Filter the DataFrame by a condition of Spark."
        )
        raise InvalidInputError(msg, argument="where")


def keep_where(rows: DataFrame, sql: str) -> DataFrame:
    """Return the rows for which a condition is true.

    Spark substitutes ``${env:HOME}`` and the like in SQL before parsing it, even in quoted names. Columns with such
    names are renamed for the condition.
    """
    names = rows.columns
    if not any(_SUBSTITUTED in name for name in names):
        return rows.where(sql)
    plain = {name: f"c{number}" for number, name in enumerate(names)}
    return rows.toDF(*plain.values()).where(_with_names(sql, plain)).toDF(*names)


def _with_names(sql: str, names: dict[str, str]) -> str:
    """Return a condition with other names of columns.

    >>> _with_names("`a``b` > 1 AND `b` = 'b'", {"a`b": "c0", "b": "c1"})
    "`c0` > 1 AND `c1` = 'b'"
    """
    return _NAME.sub(lambda match: f"`{names[match[0][1:-1].replace('``', '`')]}`", sql)
