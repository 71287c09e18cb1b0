"""Conditions made here, applied by Spark to columns of any names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qbeast_spark_bridge.predicates.sql_tokens import SUBSTITUTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["keep_where", "with_names"]

_NAME: Final = re.compile(r"`(?:[^`]|``)*`")


def keep_where(rows: DataFrame, sql: str) -> DataFrame:
    """Return the rows for which a condition is true.

    Spark replaces ``${env:HOME}`` and the like in every text of SQL before it parses it, in quoted names too. Columns
    of such names are called otherwise meanwhile.

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
    return rows.toDF(*plain.values()).where(with_names(sql, plain)).toDF(*names)


def with_names(sql: str, names: dict[str, str]) -> str:
    """Return a condition on columns that are called otherwise.

    Parameters
    ----------
    sql : str
        Names in backquotes, and no backquote elsewhere.
    names : dict of str to str
        What columns are called, by what the condition calls them.

    Examples
    --------
    >>> with_names("`a``b` > 1 AND `b` = 'b'", {"a`b": "c0", "b": "c1"})
    "`c0` > 1 AND `c1` = 'b'"
    """
    return _NAME.sub(lambda found: f"`{names[found[0][1:-1].replace('``', '`')]}`", sql)
