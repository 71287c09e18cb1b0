"""What a table tells about itself: metrics, pictures, whether it is sound, and what can be mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbeast_core.table.check import check_table
from qbeast_core.table.check_report import CheckReport
from qbeast_core.table.dml_terms import Predicate, filter_of
from qbeast_core.table.metrics import Metrics
from qbeast_core.table.metrics_build import build_metrics
from qbeast_core.table.plot import PlotKind, PlotOptions, plot_table
from qbeast_core.table.progress import ProgressCallback
from qbeast_core.table.reader import Reader, Sample
from qbeast_core.table.repair import RepairResult, repair_table
from qbeast_core.table.table_base import TableBase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    def check(self, *, data: bool = True, progress: ProgressCallback | None = None) -> CheckReport:
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
        progress : callable, optional
            Called with a `Progress` (stage ``"read"``) after every data file.

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
        Check of ...ids, version 0 (log and data): 1 files, 1 blocks, 1,000 rows
          sound: no fault
        """
        return check_table(self._reader, data=data, progress=progress)

    def repair(self, *, dry_run: bool = False, progress: ProgressCallback | None = None) -> RepairResult:
        """Mend what can be mended without touching a row: in one commit, of the log alone.

        The newest version is checked, log and data. Files whose tags are wrong lose them and become staging: they
        are read whole, and `optimize` indexes them again. Where pages alone are wrong, only the page layout goes;
        wrong sizes are set right, and wrong statistics replaced by the number of rows. Everything else of a file,
        and every other file, stays as it is; what others commit meanwhile is kept. No row is lost or returned
        twice: files with copies of rows (format 11) keep their tags.

        Parameters
        ----------
        dry_run : bool, default False
            Change nothing and say what would be done.
        progress : callable, optional
            Called with a `Progress` (stage ``"read"``) after every data file that is checked.

        Returns
        -------
        RepairResult
            Prints well; `.mended` names the files and what was done, `.left` the faults that stay, with advice.

        Raises
        ------
        UnsupportedTableError
            The table must not be written.
        CommitConflictError
            There was always another writer.
        CommitUnknownError
            The store failed and nobody can tell whether the commit landed.
        StorageError
            The store refused a read or a write.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").repair(dry_run=True)
        Repair, version 0: 0 file(s) would be mended
        """
        newest = self._newest()
        reader = self._reader if newest is self._snapshot else Reader(newest, pages=self._reader.pages)
        result, made = repair_table(reader, dry_run=dry_run, progress=progress)
        if result.repaired:
            self._move_to(made)
        return result

    def plot(
        self,
        kind: PlotKind = "tree",
        *,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        sample: Sample | None = None,
        revision: int | None = None,
        fractions: Sequence[float] | None = None,
        axes: Axes | None = None,
    ) -> Figure:
        """Draw the table; needs matplotlib. No data is read but page directories.

        Parameters
        ----------
        kind : {"tree", "space", "fraction"}
            ``"tree"``: every cube over its children, a row per depth, with the rows they hold. ``"space"``: the
            boxes of the cubes along two indexed columns, those that a query opens filled. ``"fraction"``: the
            share of bytes that samples open.
        columns : sequence of str, optional
            Of the space: two indexed columns, the first two by default. Of the fraction: columns to return.
        predicate : polars.Expr or str, optional
            The query, for space and fraction. A text is SQL, as in `Table.delete`.
        sample : float or tuple of float, optional
            The query's sample, for the space.
        revision : int, optional
            Which tree or space; the newest one that files are indexed with by default.
        fractions : sequence of float, optional
            Samples to price, in (0, 1]; ten from 0.5 % to all by default.
        axes : matplotlib Axes, optional
            Draw there instead of into a figure of its own.

        Returns
        -------
        matplotlib Figure
            Save it with ``.savefig(path)``. As the last value of a cell a notebook shows it, without any magic; of
            `axes` given, it is the figure that they belong to.

        Raises
        ------
        InvalidInputError
            An unknown kind, column, revision or fraction.
        MissingDependencyError
            Matplotlib is not installed.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(20_000), "price": [i % 97 for i in range(20_000)]})
        >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"], cube_size=2000)
        >>> figure = qbeast.open_table("prices").plot("space", predicate=pl.col("id") < 3000)
        >>> figure.savefig("space.png")
        """
        options = PlotOptions(
            columns=columns,
            predicate=filter_of(predicate, self._snapshot.schema),
            sample=sample,
            revision=revision,
            fractions=fractions,
            axes=axes,
        )
        return plot_table(self._reader, kind, options)
