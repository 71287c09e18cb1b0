"""What an optimize did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

__all__ = ["OptimizeResult"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OptimizeResult:
    """What an optimize did; prints as a few lines.

    Attributes
    ----------
    version : int
        The version it made; the table's newest if it made none.
    optimized : bool
        Whether it changed the table. False: all was in shape, or it was a dry run.
    dry_run : bool
        Whether it was only asked what it would do.
    plan : polars.DataFrame
        The files that are, or would be, taken out: `path` (decoded), `rows`, `bytes`, `revision_id` (null:
        not indexed), `reason`: ``"asked for"``, ``"staged"``, ``"older revision"``, ``"deletion vector"``,
        ``"foreign layout"``, ``"small file"``, ``"overfull cubes"``, or ``"order of weights"`` for files that
        had to go with the others (known only once it is done).
    rows : int
        Rows put back.
    files, bytes : int
        Written.
    cubes : int
        Cubes that hold the rows.
    revision_id : int
        Of the files written last; the newest of the table if there are none.
    new_revision : bool
        Whether rows needed a new one.
    commits, attempts : int
        Versions made, and tried.
    """

    version: int
    optimized: bool
    dry_run: bool
    plan: pl.DataFrame = field(repr=False)
    rows: int
    files: int
    bytes: int
    cubes: int
    revision_id: int
    new_revision: bool
    commits: int
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
        if self.optimized and not self.plan.height:
            return f"OptimizeResult: version {self.version} begins revision {self.revision_id}; there are no rows"
        if not self.plan.height:
            return f"OptimizeResult: version {self.version} is in shape; nothing was changed"
        counts = self.plan.group_by("reason", maintain_order=True).agg(
            pl.len(), pl.col("rows").sum(), pl.col("bytes").sum()
        )
        lines = [
            f"  {reason}: {files:,} files, {rows:,} rows, {size:,} bytes"
            for reason, files, rows, size in counts.iter_rows()
        ]
        if self.dry_run:
            return "\n".join([f"OptimizeResult: a dry run on version {self.version} would rewrite", *lines])
        if not self.optimized:
            head = (
                f"OptimizeResult: version {self.version} would gain nothing; nothing was changed. Looked at"
            )
            return "\n".join([head, *lines])
        head = f"OptimizeResult: version {self.version}, {self.files:,} files of {self.bytes:,} bytes in place of"
        return "\n".join([head, *lines])
