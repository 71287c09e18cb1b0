"""Conditions and values of a change of rows: Columns of Spark in Polars, exactly or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.predicates.atoms import Columns, columns_of
from qbeast_spark_bridge.predicates.column_tree import Bound, Name, SqlLiteral, is_column, tree_of
from qbeast_spark_bridge.predicates.from_column import column_named, parse_column


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Understands what names the columns of a table, and of the source of a merge."""

    columns: Columns

    @staticmethod
    def of(schema: pl.Schema, *, source_name: str | None = None) -> Given:
        """Return what understands the columns of a schema; see `columns_of`."""
        return Given(columns_of(schema, source_name=source_name))

    def condition(self, given: object, argument: str) -> Any:
        """Return a condition as `Table.delete` takes it: a Column becomes a Polars expression, all else stays."""
        if not is_column(given):
            return given
        found = parse_column(tree_of(given), self.columns, argument=argument)
        if found.exact and found.predicate is not None:
            return found.predicate
        raise self._unsupported(
            argument, found.unsupported, "tests of one column by literals or columns of its own type"
        )

    def values(self, given: object, argument: str) -> Any:
        """Return values of columns as `Table.update` takes them; see `condition`."""
        if not isinstance(given, Mapping):
            return given
        return {name: self._value(value, argument) for name, value in given.items()}

    def _value(self, given: object, argument: str) -> Any:
        if not is_column(given):
            return given
        match tree_of(given):
            case SqlLiteral(_, value):
                return pl.lit(value)
            case Name(parts):
                return column_named(parts, self.columns, argument).expr
            case Bound() as node:
                parse_column(node, self.columns, argument=argument)  # refuses it
            case _:
                pass
        raise self._unsupported(argument, str(given), "literals and columns")

    def _unsupported(self, argument: str, what: str, understood: str) -> InvalidInputError:
        known = [".".join(name) for name in self.columns]
        msg = (
            f"the Column {what!r} of {argument} has no equal in Polars, which changes the rows; nothing was changed. "
            f"Columns may be {understood}. Give SQL text or a Polars expression. There are the columns {known}."
        )
        return InvalidInputError(msg, argument=argument)
