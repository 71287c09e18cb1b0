"""What a table tells about itself: metrics of its index."""

from __future__ import annotations

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
