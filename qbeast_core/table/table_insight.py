"""What a table tells about itself: metrics of its index, and whether it is sound."""

from __future__ import annotations

from qbeast_core.table.check import check_table
from qbeast_core.table.check_report import CheckReport
from qbeast_core.table.metrics import Metrics
from qbeast_core.table.metrics_build import build_metrics
from qbeast_core.table.table_base import TableBase

__all__ = ["Insight"]


class Insight(TableBase):
    """The part of `Table` that looks at the table and its index."""

    def metrics(self, *, revision: int | None = None) -> Metrics:
        """Return index metrics, counted from the log alone: no data file is opened.

        Parameters
        ----------
        revision : int, optional
            This revision alone; all of them by default. 0 is staging.

        Returns
        -------
        Metrics
            Prints as tables; `.revisions` are values, `.frame` and `.levels` frames, `.to_json()` JSON. Rows hidden
            by deletion vectors count, copies of layouts before 0.6.0 are counted apart.

        Raises
        ------
        InvalidInputError
            If the table has no such revision.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(20_000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"], cube_size=5000)
        >>> found = qbeast.open_table("ids").metrics(revision=1).revisions[0]
        >>> found.rows, found.cubes, found.height, found.min_height, found.fan_out
        (20000, 7, 3, 3, 2.0)
        """
        return build_metrics(self._snapshot, revision)

    def check(self, *, data: bool = True) -> CheckReport:
        """Verify this version against the format; nothing is changed.

        On the log: tags can be read, name known revisions and agree with statistics and page layouts, thresholds
        and weights keep their order along every branch, files are there and have their size. On data besides:
        every row lies in the cube of its block, within its weights and in one block alone, the hidden weight
        column and the pages are right, statistics enclose the values, copies of layouts before 0.6.0 have their
        originals. The order along branches is a fault only in revisions that this library alone wrote to.

        Parameters
        ----------
        data : bool, default True
            Whether to read the data files, all of them; memory stays bounded (8 bytes a row in layouts before
            0.6.0). Else the log is enough, which is fast.

        Returns
        -------
        CheckReport
            Prints well; `.ok`, `.faults` (a frame, one row a fault), `.notes`.

        Raises
        ------
        StorageError
            If the store refuses.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").check()
        Check of ids, version 0 (log and data): 1 files, 1 blocks, 1,000 rows
          sound: no fault
        """
        return check_table(self._reader, data=data)
