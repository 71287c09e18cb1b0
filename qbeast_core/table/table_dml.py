"""The part of a table's interface that changes rows."""

from __future__ import annotations

from collections.abc import Mapping

from qbeast_core.table.delete import Delete
from qbeast_core.table.dml_result import ChangeResult
from qbeast_core.table.dml_run import Change, ChangeOptions, run_change
from qbeast_core.table.dml_terms import Predicate, Value
from qbeast_core.table.progress import ProgressCallback
from qbeast_core.table.table_base import TableBase
from qbeast_core.table.update import Update
from qbeast_core.table.world import WORLD
from qbeast_core.table.write_options import metadata_of

__all__ = ["Changed"]


class Changed(TableBase):
    """`Table.delete` and `Table.update`."""

    def delete(
        self,
        predicate: Predicate | None = None,
        *,
        dry_run: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Delete rows, in one commit; the index is kept.

        Files that hold no such row, by the index or when they are looked into, stay as they are. Files that hold
        nothing else are dropped without being read whole. The rows left of the others are put back into their
        cubes; a few more files may go with them so that the index stays in order. Rows that deletion vectors
        of other writers hide stay deleted.

        The newest version is changed, whatever version is open; where other writers were faster the change is
        made to what they left, as if it had begun later.

        Parameters
        ----------
        predicate : polars.Expr or str, optional
            Rows to delete: those for which it is true, not those for which it is null. A text is an expression in
            SQL on the columns of a row, as `polars.sql_expr` understands it: never a query, nothing is read for it.
            By default all rows.
        dry_run : bool, default False
            Change nothing and say which files and rows would go.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable, optional
            Called with a `Progress` at every step.

        Returns
        -------
        ChangeResult
            What was done; `.plan` names the files.

        Raises
        ------
        InvalidInputError
            The predicate is no condition on single rows of this table.
        UnsupportedTableError
            The table allows appends only, keeps a feed of changes, holds copies of rows (upgrade it first), or
            must not be written.
        CommitConflictError
            Other writers were faster every time; nothing was changed.
        CommitUnknownError
            The store failed and nobody can tell whether the commit landed.
        StorageError
            The store refused a read or a write.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "cheap", columns=["id", "price"])
        >>> table = qbeast.open_table("cheap")
        >>> table.delete(pl.col("price") > 50, dry_run=True).rows_deleted
        460
        >>> table.delete("price > 50").rows_deleted, table.scan().collect().height, table.version
        (460, 540, 1)
        """
        options = ChangeOptions(
            dry_run=dry_run, commit_metadata=metadata_of(commit_metadata), progress=progress
        )
        return self._run(Delete(predicate), options)

    def update(
        self,
        predicate: Predicate | None,
        assignments: Mapping[str, Value],
        *,
        dry_run: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Give columns of some rows other values, in one commit; the index is kept.

        Files that hold no such row stay as they are. The rows of the others are put back, those with other
        values in indexed columns into the cubes where they belong now; rows with values beyond the space of the
        index go into a new revision, as they do in an append, and the others stay in theirs. Otherwise as `delete`.

        Parameters
        ----------
        predicate : polars.Expr or str, or None
            Rows to update: those for which it is true, not those for which it is null. A text is SQL, as in `delete`.
            None: all rows.
        assignments : mapping of str to polars.Expr, str or a plain value
            New values by column, made of the row as it was. A text is SQL, so a text to store is written
            ``"'text'"`` or ``pl.lit("text")``. Numbers are brought to the column's type; fractions do not go
            into columns of whole numbers without a cast of your own.
        dry_run : bool, default False
            Change nothing and say which files and rows would change.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable, optional
            Called with a `Progress` at every step.

        Returns
        -------
        ChangeResult
            What was done; `.plan` names the files.

        Raises
        ------
        InvalidInputError
            The predicate is no condition on single rows of this table, an assignment is no value for a column
            of it, or a value is too large for the column's type.
        SchemaMismatchError
            A value of another type than the column's, or a null where there may be none.
        UnsupportedTableError, CommitConflictError, CommitUnknownError, StorageError
            See `delete`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "dear", columns=["id", "price"])
        >>> table = qbeast.open_table("dear")
        >>> table.update("price > 50", {"price": "price * 2", "id": -pl.col("id")}).rows_updated
        460
        >>> table.scan().filter(pl.col("price") > 50, pl.col("price") % 2 == 1).collect().height
        0
        """
        options = ChangeOptions(
            dry_run=dry_run, commit_metadata=metadata_of(commit_metadata), progress=progress
        )
        return self._run(Update(predicate, assignments), options)

    def _run(self, change: Change, options: ChangeOptions) -> ChangeResult:
        result, newest = run_change(self._reader, change, options, WORLD)
        if result.changed:
            self._move_to(newest)
        return result
