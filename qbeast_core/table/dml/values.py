"""New values of columns: understood once, put into rows as often as needed, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.table.data.expressions import Value, value_of
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["Assignments", "assignments_of", "required_columns"]


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Values for columns of a table.

    Attributes
    ----------
    values : tuple of polars.Expr
        Of the columns' types, named as they are.
    required : frozenset of str
        Columns among them that may hold no nulls.
    argument : str
        How the caller calls them.
    """

    values: tuple[pl.Expr, ...]
    required: frozenset[str]
    argument: str

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [value.meta.output_name() for value in self.values]

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with these values, and their other columns as they are.

        Raises
        ------
        InvalidInputError
            A value cannot be computed, or is too large for the column's type.
        SchemaMismatchError
            A null where there may be none.
        """
        try:
            changed = rows.with_columns(*self.values)
        except pl.exceptions.PolarsError as error:
            told = str(error).partition("\n")[0]
            msg = f"{self.argument} cannot be computed for every row: {told}; nothing was changed"
            raise InvalidInputError(msg, argument=self.argument) from error
        nulls = [f"column {name!r} may hold no nulls" for name in self.required if changed[name].null_count()]
        if nulls:
            msg = f"{self.argument} do not fit the table: {'; '.join(sorted(nulls))}. Nothing was changed."
            raise SchemaMismatchError(msg, problems=nulls)
        return changed


def assignments_of(
    given: Mapping[str, Value], snapshot: Snapshot, seen: pl.Schema, *, argument: str = "assignments"
) -> Assignments:
    """Understand values for columns, or refuse them before anything is read.

    Parameters
    ----------
    given : mapping of str to polars.Expr, str or a plain value
        By column.
    snapshot : Snapshot
        The table.
    seen : polars.Schema
        Columns that the values may name.
    argument : str
        How the caller calls them, for messages.

    Raises
    ------
    InvalidInputError, SchemaMismatchError
        See `qbeast_core.table.data.expressions.value_of`; a column that is not in the table, or no columns.
    """
    if not isinstance(cast("object", given), Mapping) or not given:
        msg = f"{argument} must map columns to values, at least one; nothing was changed"
        raise InvalidInputError(msg, argument=argument)
    schema = snapshot.schema
    unknown = [name for name in given if name not in schema]
    if unknown:
        msg = f"{argument} name column(s) {unknown} that the table does not have: {list(schema)}. Nothing was changed."
        raise InvalidInputError(msg, argument=argument)
    values = [
        value_of(value, seen, schema[name], column=name, argument=argument) for name, value in given.items()
    ]
    return Assignments(tuple(values), required_columns(snapshot) & frozenset(given), argument)


def required_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of a table that may hold no nulls."""
    fields = orjson.loads(snapshot.schema_json)["fields"]
    return frozenset(field["name"] for field in fields if not field.get("nullable", True))
