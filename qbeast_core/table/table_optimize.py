"""The part of a table's interface that keeps it in shape."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from qbeast_core.table.optimize import OptimizeOptions, optimize
from qbeast_core.table.optimize_result import OptimizeResult
from qbeast_core.table.progress import ProgressCallback
from qbeast_core.table.table_base import TableBase
from qbeast_core.table.world import WORLD
from qbeast_core.table.write_options import metadata_of

__all__ = ["Optimized"]


class Optimized(TableBase):
    """`Table.optimize`."""

    def optimize(
        self,
        *,
        revision: int | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        fraction: float | None = None,
        all_revisions: bool = False,
        full: bool = False,
        fold: bool = False,
        redraw: bool = False,
        dry_run: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> OptimizeResult:
        """Bring what is out of shape back into shape, in one commit a revision; the rows stay the same.

        Without options these files are rewritten and no others, their rows indexed with the newest revision:
        files without index (``"staged"``), files with deletion vectors (``"deletion vector"``), files much smaller
        than the rest, as far as there are enough of them to join (``"small file"``); and of the newest revision,
        files of another implementation (``"foreign layout"``) and those whose cubes hold many times the rows
        they should, in many blocks (``"overfull cubes"``). A few more may go with them so that thresholds stay
        in order (``"order of weights"``). Rows that the newest revision has no place for begin a new one in the
        same commit. A table in shape is left alone.

        Full reads and samples return the same rows before and after. Appends that land meanwhile stay.

        Parameters
        ----------
        revision : int, optional
            Look at this revision alone; its rows stay in it. 0 means the files without index.
        files : sequence of str or path-like, optional
            Rewrite these, whatever their shape: paths as in `files()` or as in the plan.
        fraction : float, optional
            Only files with a block that begins at or below this fraction of the weights, in [0, 1]: what
            small samples read. Of files without index the oldest, up to this share of their bytes.
        all_revisions : bool, default False
            Look at every revision, one after the other, one commit each.
        full : bool, default False
            Rewrite every file looked at, whatever its shape, into a fresh tree.
        fold : bool, default False
            Take the files of older revisions as well, and index their rows with the newest.
        redraw : bool, default False
            Rewrite every file, of all revisions and those without index, under a new revision whose ranges and
            quantiles are drawn from the rows there are now, and drop revisions that no file needs any more:
            values of deleted rows leave the metadata (see docs/personal-data.md). Columns keep their kinds;
            statistics given by `column_stats` are forgotten.
        dry_run : bool, default False
            Change nothing and say what would be rewritten, and why.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable, optional
            Called with a `Progress` at every step; files are counted anew for each group of rows.

        Returns
        -------
        OptimizeResult
            What was done; `.plan` names the files and the reasons.

        Raises
        ------
        InvalidInputError
            Options that cannot be meant together, a revision or a file that is not there.
        UnsupportedTableError
            The table holds copies of rows (upgrade it first), or must not be written.
        CommitConflictError
            Another writer replaced or deleted files that were being rewritten; nothing was changed.
        CommitUnknownError
            The store failed and nobody can tell whether the commit landed.
        StorageError
            The store refused a read or a write.

        Notes
        -----
        The rows of the rewritten files are held in memory up to about 2 GiB: 8 bytes a number, 48 a text, or what
        the files hold uncompressed where that is more. Of more rows the indexed columns alone are held, with some
        30 bytes a row besides, and the files are read again for every 2 GiB that are written. While files are
        written, memory is up to twice that of the rows held.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> for day in range(5):
        ...     rows = pl.DataFrame({"day": day, "visits": [(37 * i + day) % 101 for i in range(101)]})
        ...     _ = qbeast.write_table(rows, "visits", columns=["day", "visits"], mode="append")
        >>> table = qbeast.open_table("visits")
        >>> table.optimize(dry_run=True).plan["reason"].unique().to_list()
        ['small file']
        >>> result = table.optimize()
        >>> result.files_removed, result.files, table.version == result.version
        (5, 1, True)
        >>> table.optimize().optimized
        False
        """
        options = OptimizeOptions(
            revision=revision,
            files=files,
            fraction=fraction,
            all_revisions=all_revisions,
            full=full,
            fold=fold,
            redraw=redraw,
            dry_run=dry_run,
            commit_metadata=metadata_of(commit_metadata),
            progress=progress,
        )
        result, newest = optimize(self._reader, options, WORLD)
        if result.optimized:
            self._move_to(newest)
        return result
