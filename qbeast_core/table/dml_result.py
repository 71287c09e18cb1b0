"""What a delete, an update or a merge did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import polars as pl

__all__ = ["ChangeResult", "ChangedBy"]

ChangedBy: TypeAlias = Literal["DELETE", "UPDATE", "MERGE"]
"""Names of the operations in the history of a Delta table."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ChangeResult:
    """What a change of rows did; prints as a few lines.

    Attributes
    ----------
    operation : {"DELETE", "UPDATE", "MERGE"}
        As the history calls it.
    version : int
        The version it made; the table's newest if it made none.
    changed : bool
        Whether it changed the table. False: no row was meant, or it was a dry run.
    dry_run : bool
        Whether it was only asked what it would do.
    rows_deleted, rows_updated, rows_inserted : int
        Rows that went, that got other values, that came.
    rows_copied : int
        Rows that were written again as they were, because they shared a file with others. Of a dry run the
        least number.
    plan : polars.DataFrame
        The files that are, or would be, taken out: `path` (decoded), `rows` and `bytes` in the file (rows are
        null where the log does not tell), `matched` rows of it that are changed or deleted, `action`: ``"drop"``
        (all rows go, the file is not read), ``"rewrite"``, or ``"order of weights"`` for files that had to go
        with the others so that the index stays in order (known only once it is done).
    files, bytes : int
        Written.
    revision_id : int
        Of the files written; the newest of the table if there are none.
    new_revision : bool
        Whether rows needed a new one.
    attempts : int
        Versions tried.
    """

    operation: ChangedBy
    version: int
    changed: bool
    dry_run: bool
    rows_deleted: int
    rows_updated: int
    rows_inserted: int
    rows_copied: int
    plan: pl.DataFrame = field(repr=False)
    files: int
    bytes: int
    revision_id: int
    new_revision: bool
    attempts: int

    @property
    def files_removed(self) -> int:
        """Files taken out, or that would be."""
        return self.plan.height

    @property
    def bytes_removed(self) -> int:
        """Their bytes."""
        return int(self.plan["bytes"].sum())

    def __repr__(self) -> str:
        """Say it in a few lines."""
        counts = [
            (self.rows_deleted, "deleted"),
            (self.rows_updated, "updated"),
            (self.rows_inserted, "inserted"),
        ]
        told = [f"{count:,} rows {what}" for count, what in counts if count]
        head = f"ChangeResult: {self.operation} of version {self.version}"
        if not told:
            return f"{head}: no row was meant; nothing was changed"
        by_action = self.plan.group_by("action", maintain_order=True).agg(pl.len(), pl.col("bytes").sum())
        lines = [
            f"  {action}: {files:,} files, {size:,} bytes" for action, files, size in by_action.iter_rows()
        ]
        if self.dry_run:
            return "\n".join([f"{head}, a dry run: {', '.join(told)}", *lines])
        written = f"  written: {self.files:,} files, {self.bytes:,} bytes, {self.rows_copied:,} rows copied"
        return "\n".join([f"{head}: {', '.join(told)}", *lines, written])
