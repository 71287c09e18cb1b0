"""The rows that are merged into a table, in its types, and which of its files can hold partners of them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.query.atoms import is_in
from qbeast_core.query.nodes import Node, Operand, all_of
from qbeast_core.table.merge_clauses import Clauses
from qbeast_core.table.schema_match import fit_frame
from qbeast_core.table.snapshot import Snapshot

__all__ = ["SOURCE_ROW", "Source", "source_of"]

SOURCE_ROW = "__qbeast_source_row"
"""Name of a column that numbers the rows of the source."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows to merge.

    Attributes
    ----------
    frame : polars.DataFrame
        Columns that the table has too are of its types.
    keys : tuple of str
        Columns to match by.
    name : str
        What the row as a whole is called in expressions.
    """

    frame: pl.DataFrame
    keys: tuple[str, ...]
    name: str

    def partners(self, *, whole: bool) -> pl.DataFrame:
        """Return keys and row numbers to join with; the row as a whole as well, if it is looked at."""
        row = [pl.struct(pl.all()).alias(self.name)] if whole else []
        return self.frame.select(*self.keys, *row).with_row_index(SOURCE_ROW)

    def node(self, schema: pl.Schema) -> Node:
        """Return what is true for every row of a table of this schema that has a partner."""
        return all_of(
            [is_in(Operand(name, schema[name]), self.frame[name], nulls_equal=False) for name in self.keys]
        )


def source_of(frame: pl.DataFrame, clauses: Clauses, snapshot: Snapshot) -> Source:
    """Bring rows to the types of a table.

    Parameters
    ----------
    frame : polars.DataFrame
        As `qbeast_core.table.frames.to_frame` gives it.
    clauses : Clauses
        What becomes of them.
    snapshot : Snapshot
        The table.

    Raises
    ------
    InvalidInputError
        A key is missing.
    SchemaMismatchError
        Columns that are needed are missing, or of another type; all of them are listed.
    """
    missing = [name for name in clauses.keys if name not in frame.columns]
    if missing:
        msg = f"the source has no column(s) {missing} to match by, only {frame.columns}; nothing was changed"
        raise InvalidInputError(msg, argument="on")
    names = list(snapshot.schema) if clauses.needs_every_column else list(clauses.keys)
    wanted = pl.Schema({name: snapshot.schema[name] for name in names})
    known = frozenset(frame.columns)
    given = frame.select([name for name in names if name in known])
    try:
        fitted = fit_frame(given, snapshot.schema_json, wanted, merge=False)
    except SchemaMismatchError as error:
        msg = (
            f"the source does not fit the table: {'; '.join(error.problems)}. Nothing was changed. Where it has other "
            "columns, say with `update` and `insert` what is set to what."
        )
        raise SchemaMismatchError(msg, problems=error.problems) from error
    return Source(frame.with_columns(fitted.get_columns()), clauses.keys, clauses.source_name)
