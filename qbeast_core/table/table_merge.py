"""The part of a table's interface that merges rows into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbeast_core.table.dml_result import ChangeResult
from qbeast_core.table.dml_run import ChangeOptions
from qbeast_core.table.dml_terms import Predicate, Value
from qbeast_core.table.frames import FrameLike, to_frame
from qbeast_core.table.merge import Merge
from qbeast_core.table.merge_clauses import Clauses, WhenLonely, WhenMatched, WhenNew
from qbeast_core.table.progress import ProgressCallback
from qbeast_core.table.table_dml import Changed
from qbeast_core.table.write_options import metadata_of

__all__ = ["Merged"]


class Merged(Changed):
    """`Table.merge`."""

    def merge(
        self,
        source: FrameLike,
        on: str | Sequence[str],
        *,
        when_matched: WhenMatched = "update",
        matched_if: Predicate | None = None,
        delete_if: Predicate | None = None,
        update: Mapping[str, Value] | None = None,
        when_not_matched: WhenNew = "insert",
        not_matched_if: Predicate | None = None,
        insert: Mapping[str, Value] | None = None,
        when_not_matched_by_source: WhenLonely = "ignore",
        not_matched_by_source_if: Predicate | None = None,
        source_name: str = "source",
        dry_run: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Merge rows into the table, in one commit: by default replace those that it has and insert the others.

        Rows are partners where all columns of `on` are equal; a null equals nothing. Files that can hold no
        partner, by their statistics or their cubes, are not read; files that hold none stay as they are. Rows
        that change or come are put into the cubes where they belong; values beyond the space of the index begin
        a new revision, as they do in an append. Otherwise as `delete`.

        In conditions and values, plain names are columns of the table, and ``source.price`` (in SQL) or
        ``pl.col("source").struct.field("price")`` is a column of the source. Of a new row there is the source
        alone.

        Parameters
        ----------
        source : polars.DataFrame, polars.LazyFrame or anything with ``__arrow_c_stream__``
            Rows to merge. Columns that the table does not have are for conditions and values alone.
        on : str or sequence of str
            Columns to match by, in the table and in the source.
        when_matched : {"update", "delete", "ignore"}, default "update"
            What becomes of rows of the table that have a partner.
        matched_if : polars.Expr or str, optional
            Only of those for which this is true.
        delete_if : polars.Expr or str, optional
            Of rows with a partner, those to delete instead of updating them. What is marked so and has no partner
            is inserted all the same, unless `not_matched_if` says otherwise.
        update : mapping of str to polars.Expr, str or a plain value, optional
            What columns are set to, as in `update`; by default every column to that of the source.
        when_not_matched : {"insert", "ignore"}, default "insert"
            What becomes of rows of the source that have no partner.
        not_matched_if : polars.Expr or str, optional
            Only of those for which this is true.
        insert : mapping of str to polars.Expr, str or a plain value, optional
            What new rows consist of, other columns are null; by default the columns of the source.
        when_not_matched_by_source : {"ignore", "delete"}, default "ignore"
            What becomes of rows of the table that have no partner.
        not_matched_by_source_if : polars.Expr or str, optional
            Only of those for which this is true.
        source_name : str, default "source"
            What the source is called in conditions and values, where the table has a column of that name.
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
            Several rows of the source would change the same row, a condition or a value cannot be understood, or
            options cannot be meant together.
        SchemaMismatchError
            The source lacks columns of the table, or has them in another type, or a null where there may be none.
        UnsupportedTableError
            As for `delete`; a table that allows appends only takes merges that insert and nothing else.
        CommitConflictError, CommitUnknownError, StorageError
            See `delete`.

        Notes
        -----
        The source is held in memory, the table's rows as `optimize` holds them.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> stock = pl.DataFrame({"id": [1, 2, 3], "left": [10, 20, 30]})
        >>> _ = qbeast.write_table(stock, "stock", columns=["id"])
        >>> table = qbeast.open_table("stock")
        >>> result = table.merge(pl.DataFrame({"id": [3, 4], "left": [33, 40]}), on="id")
        >>> result.rows_updated, result.rows_inserted
        (1, 1)
        >>> sold = pl.DataFrame({"id": [1, 2], "sold": [10, 5]})
        >>> _ = table.merge(sold, on="id", update={"left": "left - source.sold"}, when_not_matched="ignore",
        ...     delete_if=pl.col("left") <= pl.col("source").struct.field("sold"))
        >>> sorted(table.scan().collect().rows())
        [(2, 15), (3, 33), (4, 40)]
        """
        clauses = Clauses(
            on=on,
            when_matched=when_matched,
            matched_if=matched_if,
            delete_if=delete_if,
            update=update,
            when_not_matched=when_not_matched,
            not_matched_if=not_matched_if,
            insert=insert,
            when_not_matched_by_source=when_not_matched_by_source,
            not_matched_by_source_if=not_matched_by_source_if,
            source_name=source_name,
        )
        options = ChangeOptions(
            dry_run=dry_run, commit_metadata=metadata_of(commit_metadata), progress=progress
        )
        return self._run(Merge(to_frame(source), clauses), options)
