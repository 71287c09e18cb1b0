"""Conditions and values of a change of rows as they were given to Spark, in Polars: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.predicates.atoms import Columns, SqlColumn, columns_of
from qbeast_spark_bridge.predicates.column_tree import Bound, ColumnNode, Name, SqlText, is_column, tree_of
from qbeast_spark_bridge.predicates.from_column import column_named, parse_column
from qbeast_spark_bridge.predicates.from_sql import parse_name, parse_sql
from qbeast_spark_bridge.predicates.sql_tokens import SqlLiteral, read_literal, tokenize

__all__ = ["Given"]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Understands what names the columns of a table, and of the source of a merge.

    Attributes
    ----------
    columns : Columns
        What may be named.
    """

    columns: Columns

    @staticmethod
    def of(schema: pl.Schema, *, source_name: str | None = None) -> Given:
        """Return what understands the columns of a schema; see `columns_of`."""
        return Given(columns_of(schema, source_name=source_name))

    def condition(self, given: object, argument: str) -> pl.Expr | None:
        """Return a condition in Polars.

        Parameters
        ----------
        given : polars.Expr, str, Column or None
            A Polars expression stays as it is; None: every row.
        argument : str
            How the caller calls it, for messages.

        Raises
        ------
        InvalidInputError
            Spark means something by it that cannot be said in Polars with the same meaning for every row.

        Examples
        --------
        >>> given = Given.of(pl.Schema({"price": pl.Float64, "brand": pl.String}))
        >>> str(given.condition("price < 10 AND brand = 'x'", "where"))
        '[([(col("price")) < (10.0)]) & ([(col("brand")) == ("x")])]'
        """
        if given is None or isinstance(given, pl.Expr):
            return given
        if isinstance(given, str):
            found = parse_sql(given, self.columns)
        elif is_column(given):
            found = parse_column(tree_of(given), self.columns, argument=argument)
        else:
            kind = type(given)
            msg = (
                f"{argument} must be SQL text, a Spark Column or a Polars expression, not "
                f"{kind.__module__}.{kind.__name__}; nothing was changed"
            )
            raise InvalidInputError(msg, argument=argument)
        if found.exact and found.predicate is not None:
            return found.predicate
        raise self._unsupported(
            argument, found.unsupported, "tests of one column by literals or columns of its own type"
        )

    def values(self, given: object, argument: str) -> Mapping[str, Any] | None:
        """Return values of columns in Polars.

        Parameters
        ----------
        given : mapping of str to polars.Expr, str, Column or a plain value, or None
            Text is SQL: a literal, or a column.
        argument : str
            How the caller calls it, for messages.

        Raises
        ------
        InvalidInputError
            Spark means something by a value that cannot be said in Polars with the same meaning for every row.
        """
        if not isinstance(given, Mapping):
            return given  # type: ignore[return-value] # None, or what is refused below
        return {name: self._value(value, argument) for name, value in given.items()}

    def _value(self, given: object, argument: str) -> Any:
        if isinstance(given, str):
            node: ColumnNode = SqlText(given)
        elif is_column(given):
            node = tree_of(given)
        else:
            return given
        found: SqlLiteral | SqlColumn | None = None
        match node:
            case SqlLiteral():
                found = node
            case Name(parts):
                found = column_named(parts, self.columns, argument)
            case SqlText(text):
                tokens = tokenize(text) or []
                found = read_literal(tokens) or parse_name(tokens, self.columns)
            case Bound():
                parse_column(node, self.columns, argument=argument)  # refuses it
            case _:
                pass  # refused below
        if isinstance(found, SqlColumn):
            return found.expr
        if found is not None and found.kind != "local":  # what that means, the session's zone says
            return pl.lit(found.value)
        raise self._unsupported(
            argument, str(given), "literals and columns; for all else give a Polars expression"
        )

    def _unsupported(self, argument: str, what: str, understood: str) -> InvalidInputError:
        known = [".".join(name) for name in self.columns]
        msg = (
            f"cannot say {what!r} of {argument} in Polars, which changes the rows, with the same meaning as in Spark; "
            f"nothing was changed. Understood are {understood} (DATE'2024-01-31', TIMESTAMP'2024-01-31 12:00:00Z'). "
            f"There are the columns {known}."
        )
        return InvalidInputError(msg, argument=argument)
