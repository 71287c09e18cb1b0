"""A table at one version, opened: what it is, what it holds, and what reads of it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.spec.revision import Revision
from qbeast_core.table.block_frame import block_frame
from qbeast_core.table.design import table_design_effect
from qbeast_core.table.dml_terms import Predicate
from qbeast_core.table.explain import Plan, explain
from qbeast_core.table.log_reader import read_history
from qbeast_core.table.reader import Sample
from qbeast_core.table.result import transformers_of
from qbeast_core.table.scan import scan
from qbeast_core.table.snapshot import refresh
from qbeast_core.table.table_admin import Administered
from qbeast_core.table.table_insight import Insight
from qbeast_core.table.table_merge import Merged
from qbeast_core.table.table_optimize import Optimized

__all__ = ["Table"]


class Table(Administered, Merged, Optimized, Insight):
    """A table pinned at one version; made by `qbeast.open_table`.

    What others commit later is not seen, see `refresh`; changes made through this object move it to the
    version they made. Safe to share between threads.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
    >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"])
    >>> table = qbeast.open_table("prices")
    >>> table.version, table.indexed_columns, table.scan().filter(pl.col("price") == 3).collect().height
    (0, ('id', 'price'), 11)
    """

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}:{kind}" for name, kind in transformers_of(self._reader.latest).items())
        files = self._snapshot.files
        return (
            f"Table {self.uri!r}, version {self.version}: {int(files['num_records'].fill_null(0).sum()):,} rows "
            f"in {files.height:,} files, indexed by {columns}"
        )

    @property
    def schema(self) -> pl.Schema:
        """Columns and their Polars types."""
        return self._snapshot.schema

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """All revisions, oldest first; revision 0 owns the files without index."""
        return tuple(self._snapshot.config.revisions.values())

    @property
    def indexed_columns(self) -> tuple[str, ...]:
        """Names of the indexed columns, in order."""
        return self._reader.indexed

    @property
    def cube_size(self) -> int:
        """Rows a cube of the newest revision aims to hold."""
        return self._reader.latest.desired_cube_size

    @property
    def design_effect(self) -> float | None:
        """How many times the variance of a sampled count is that of rows drawn independently of each other.

        Rows with equal index keys enter a sample together (cluster sampling): with a design effect of 3.1 a
        sampled count varies 1.8 times as much (the square root) as with independent rows, and error bars are that
        much wider. It is ``sum(m_k ** 2) / n`` over the index keys, m_k of n rows having key k. Told by tags of
        the live files: exactly for a table of one file or of few keys, else to about 4 %. Rows that deletion
        vectors hide are counted. None where a live file does not tell: it is of another writer, or not indexed
        yet; `optimize` makes it tell.

        Above 2 a sample is clustered: index a column of many values as well.
        """
        return table_design_effect(self._snapshot)

    def refresh(self) -> Table:
        """Return the table's newest version; this very object if there is none newer, which is cheap."""
        newest = refresh(self._snapshot)
        return self if newest is self._snapshot else Table(newest, pages=self._reader.pages)

    def scan(self, *, sample: Sample | None = None) -> pl.LazyFrame:
        """Return the table as a Polars LazyFrame; see `qbeast.scan_table`."""
        return scan(self._reader, sample)

    def explain(
        self,
        predicate: Predicate | None = None,
        sample: Sample | None = None,
        columns: Sequence[str] | None = None,
    ) -> Plan:
        """Tell what a read would open, named to the byte, and why the rest stays closed.

        Parameters
        ----------
        predicate : polars.Expr or str, optional
            Rows to keep. A text is SQL, as in `delete`.
        sample : float or tuple of float, optional
            A fraction in [0, 1], or ``(from, to)``.
        columns : sequence of str, optional
            Columns to return; all by default. Those of the filter, and for a sample the indexed ones, are
            read besides.

        Returns
        -------
        Plan
            Prints well; `.files` is a frame, `.bytes_opened`, `.bytes_total`, `.rows_opened`,
            `.rows_total` and `.share` are numbers.

        Raises
        ------
        InvalidInputError
            If the sample is no fraction, a column is not in the table, or the predicate is no condition on the rows.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"])
        >>> plan = qbeast.open_table("ids").explain("id < 1000")
        >>> plan.rows_total, plan.share < 0.3
        (100000, True)
        """
        unknown = [name for name in columns or [] if name not in self.schema]
        if unknown:
            msg = f"no such column(s): {unknown}; the table has {list(self.schema)}"
            raise InvalidInputError(msg, argument="columns")
        return explain(self._reader, predicate, sample, None if columns is None else list(columns))

    def files(self, predicate: Predicate | None = None, sample: Sample | None = None) -> pl.DataFrame:
        """Return the data files that a read opens: a list that any engine can take.

        Parameters
        ----------
        predicate : polars.Expr or str, optional
            Rows to keep. A text is SQL, as in `delete`.
        sample : float or tuple of float, optional
            A fraction in [0, 1], or ``(from, to)``.

        Returns
        -------
        polars.DataFrame
            `path` (where the file lies, decoded), `size_bytes`, `num_records`, `revision_id` (null: not
            indexed), `ranges` (byte ranges of the column data wanted; null: all of it). Filter and sample
            still have to be applied to the rows.

        Raises
        ------
        UnsupportedTableError
            If one of them lies outside the table, see `qbeast.open_table`.
        """
        plan = self.explain(predicate, sample)
        files, locate = self._snapshot.files, self._reader.store.locate
        listed = pl.DataFrame(
            {
                "path": self._reader.paths,
                "size_bytes": files["size_bytes"],
                "num_records": files["num_records"],
                "revision_id": files["revision"],
                "ranges": plan.files["ranges"],
            },
            schema_overrides={"path": pl.String},
        ).filter(plan.files["opened"])
        return listed.with_columns(pl.Series("path", map(locate, listed["path"]), pl.String))

    def blocks(self) -> pl.DataFrame:
        """Return one row per block (the rows of one cube in one file).

        Returns
        -------
        polars.DataFrame
            `path`, `revision_id`, `cube` (text form, the root is empty), `depth`, `min_weight`, `max_weight`,
            `element_count`, `replicated`.
        """
        return block_frame(self._snapshot)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return what was committed up to this version, newest first, as the Delta log tells it.

        Parameters
        ----------
        limit : int, optional
            Commits at most; all that the log still has by default.

        Returns
        -------
        list of dict
            The commit's own words (`operation`, `timestamp` in milliseconds since 1970 UTC ...) and `version`.
        """
        return read_history(self._reader.store, version=self.version, limit=limit)
