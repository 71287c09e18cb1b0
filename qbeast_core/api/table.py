"""The class `Table`: public methods of a table at one version; and a function that opens tables.

One class, so one file, and most of it docstrings: a method converts its arguments and calls the operation, which is in
its own package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Unpack, cast

import polars as pl

from qbeast_core.api.keywords import ChangeKeywords, CommitKeywords, ReadKeywords, Request
from qbeast_core.api.rows import Read
from qbeast_core.errors import (
    InvalidInputError,
    changing,
    check_whole_number,
    hints_methods,
    invalid_argument,
    without_attributes,
)
from qbeast_core.plan.weights import Sample, Share
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.support.frames import html_of
from qbeast_core.support.hints import item_hint, member_hint
from qbeast_core.support.process import (
    FORKED,
    ProgressLike,
    Resources,
    callback_of,
    checked_resources,
    is_forked,
    now_ms,
    shows_progress,
)
from qbeast_core.support.text import on_one_line, short_name
from qbeast_core.table.data.expressions import (
    Predicate,
    Value,
    Where,
    filter_of,
)
from qbeast_core.table.index.counts import counts_of, latest_revision, refuse_unindexed
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.snapshot.log_files import read_history
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, newest_snapshot, refresh

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from qbeast_core.io.location import Location
    from qbeast_core.log.schema import TypeLike
    from qbeast_core.results import MetadataResult
    from qbeast_core.table.advise.advise import Advice
    from qbeast_core.table.check.faults import CheckReport
    from qbeast_core.table.check.repair import RepairResult
    from qbeast_core.table.data.frames import SparkFrame
    from qbeast_core.table.dml.change import Change, ChangeOptions
    from qbeast_core.table.dml.merge_rules import (
        Clauses,
        Duplicates,
        WhenMatched,
        WhenNew,
        WhenNotMatchedBySource,
    )
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.engine.engine import CallEngine, Engine
    from qbeast_core.table.engine.local import LocalEngine
    from qbeast_core.table.engine.sources import RowsLike
    from qbeast_core.table.index.revision import IndexColumns
    from qbeast_core.table.inspect.metrics import Metrics, PlotKind
    from qbeast_core.table.maintenance.metadata import Copies, DialectResult, JvmRelease, UpgradeResult
    from qbeast_core.table.maintenance.reindex import ReindexResult
    from qbeast_core.table.maintenance.versions import RestoreResult, VacuumResult
    from qbeast_core.table.rewrite.optimize import Into, OptimizeResult

_ResultT = TypeVar("_ResultT")


@hints_methods
class Table:
    """A table at one version, opened by `qbeast.open_table`.

    Commits of others do not change the version of the object. `refresh` moves it to the newest version, and a change
    through this object moves it to the version of the change. Queries made before, such as a LazyFrame of `rows`, keep
    their version. `copy.copy` makes an independent object. Safe to share between threads.

    Methods share these parameters and errors:

    - `where` of a read: see `rows`; its other arguments: see `ReadKeywords`.
    - `dry_run`, `txn`, `commit_metadata` and `progress` of a change: see `ChangeKeywords`.
    - A change may raise CommitConflictError, CommitUnknownError and StorageError: see `qbeast.write_table`.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
    >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"])
    >>> table = qbeast.open_table("prices")
    >>> table.version, table.indexed_columns, table.rows().lazy().filter(pl.col("price") == 3).collect().height
    (0, ('id', 'price'), 11)
    """

    def __init__(self, snapshot: Snapshot, resources: Resources | None = None) -> None:
        if not isinstance(cast("object", snapshot), Snapshot):  # a path
            msg = f"Table cannot be called with {snapshot!r}. Call qbeast.open_table(path)."
            raise InvalidInputError(msg, argument="snapshot")
        self._planner, self._resources = Planner(snapshot), checked_resources(resources)
        # Reads the files of checks and estimates. None: threads of this process do.
        self._readers: Engine | None = None

    if not TYPE_CHECKING:  # type checkers report unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            hint = "" if name.startswith("_") else self._hint_of(name)
            msg = f"a table has no attribute {name!r}.{hint}"
            raise AttributeError(msg, name=name, obj=self)

        def _hint_of(self, name: str) -> str:
            known = [member for member in dir(type(self)) if not member.startswith("_")]
            return member_hint(
                name, known, read=Read, scan=pl.LazyFrame, frame=pl.DataFrame, columns=self.columns
            )

        def __getitem__(self, key: object) -> NoReturn:
            msg = f"a table is not subscriptable. {item_hint(key, self.columns)}"
            raise TypeError(msg)

    @property
    def _snapshot(self) -> Snapshot:
        """The current version. It is stored only in the planner, so that both change at once."""
        return self._planner.snapshot

    @property
    def uri(self) -> str:
        """Path or address of the table."""
        return self._snapshot.uri

    @property
    def version(self) -> int:
        """The Delta version, 0 or more."""
        return self._snapshot.version

    @property
    def snapshot(self) -> Snapshot:
        """The version, as operations and engines take it. It is subject to change."""
        return self._snapshot

    @property
    def planner(self) -> Planner:
        """Planner of reads of this version, for engines. It is subject to change."""
        return self._planner

    def _engine(self) -> AbstractContextManager[CallEngine]:
        """Return the engine of one call, for a `with` block."""
        from qbeast_core.table.engine.local import local_engine

        return local_engine(self._resources)

    def _condition(self, where: Any, argument: str = "where") -> Any:
        """Return a condition without the types of the engine."""
        del argument
        return where

    def _values(self, values: Any, argument: str) -> Any:
        """Return values of columns without the types of the engine."""
        del argument
        return values

    def _merge(self, source: Any, clauses: Clauses, engine: CallEngine) -> AbstractContextManager[Change]:
        """Return the merge that an engine runs, for a `with` block."""
        from qbeast_core.table.dml.merge import local_merge

        return local_merge(source, clauses, cast("LocalEngine", engine))

    def _moved(self, result: _ResultT, snapshot: Snapshot | None) -> _ResultT:
        """Move to the version of a change, by default the newest, and return its result.

        Reads that began before keep their version.
        """
        newest = snapshot or refresh(self._snapshot)
        if newest is not self._snapshot:
            self._planner = Planner(newest)
        return result

    def __repr__(self) -> str:
        if is_forked():  # counting rows would hang
            return f"Table {self.uri!r}, version {self.version}, cannot be used here: {FORKED}"
        columns = ", ".join(f"{name}:{kind}" for name, kind in self._kinds.items()) or "unknown columns"
        index = f"indexed by {on_one_line(columns)}" if self._snapshot.config.is_indexed else "without index"
        return (
            f"Table {self.uri!r}, version {self.version}: {self._snapshot.live_rows:,} rows "
            f"in {self._snapshot.file_count:,} files{self._partitioned()}, {index}{self._left()}"
        )

    def _partitioned(self) -> str:
        """Return by which columns the table is partitioned."""
        columns = ", ".join(self._snapshot.columns.partitions)
        return f", partitioned by {on_one_line(columns)}" if columns else ""

    def _left(self) -> str:
        """Return how many rows are indexed by other columns, after a reindex."""
        if not self._snapshot.config.has_other_columns:
            return ""
        from qbeast_core.table.index.live_index import file_index

        rows = file_index(self._snapshot).rows_of_other_columns
        return f"; {rows:,} rows by other columns, until optimize moves them" if rows else ""

    def _repr_html_(self) -> str:
        types = [str(dtype) for dtype in self.schema.dtypes()]
        partitions = self._snapshot.columns.partitions
        kinds = [
            " and ".join(
                [
                    *([kind] if (kind := self._kinds.get(name)) else []),
                    *(["partition"] * (name in partitions)),
                ]
            )
            for name in self.columns
        ]
        names = pl.DataFrame({"column": self.columns, "type": types, "indexed by": kinds})
        facts = {
            "version": f"{self.version}",
            "rows": f"{self._snapshot.live_rows:,}",
            "files": f"{self._snapshot.file_count:,}",
            "bytes": f"{self._snapshot.data_bytes:,}",
        }
        return html_of(f"Table {short_name(self.uri)}", facts, names)

    @property
    def _kinds(self) -> dict[str, str]:
        """How each indexed column is transformed."""
        latest = self._snapshot.config.latest
        return {} if latest is None else latest.transformer_kinds

    @property
    def schema(self) -> pl.Schema:
        """Columns and their Polars types."""
        return self._snapshot.schema

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """All revisions, oldest first. Revision 0 is for files without index."""
        return tuple(self._snapshot.config.revisions.values())

    @property
    def indexed_columns(self) -> tuple[str, ...]:
        """Columns that the newest revision indexes, in order. Empty without an index, or without a valid revision."""
        return self._snapshot.indexed

    @property
    def sample_by(self) -> tuple[str, ...]:
        """Sampling key: columns whose values decide whether a row is in a sample. Empty: the indexed columns do."""
        return self._snapshot.config.sample_by

    @property
    def cube_size(self) -> int:
        """Target number of rows per cube of the newest revision. Raises NotQbeastTableError without an index."""
        return latest_revision(self._snapshot).desired_cube_size

    @property
    def design_effect(self) -> float | None:
        """Variance of a sampled count, relative to a sample of independent rows.

        Rows with equal index keys enter a sample together (cluster sampling). With a design effect of 3.1 a sampled
        count varies 1.8 times as much (the square root) as with independent rows, and error bars are 1.8 times as wide.
        It is ``sum(m_k ** 2) / n`` over the index keys, if m_k of n rows have key k. It is computed from tags of the
        live files: exactly for a table of one file or of few keys, else to about 4 %. Deleted rows are counted. None if
        a live file has no such tag, because another writer made it or it is not indexed yet; `optimize` adds the tag.

        Above 2 a sample is clustered: index a column of many values as well. A table with a sampling key is clustered
        on purpose: the keys are those of the sampling key then, and writes warn only if one key has most of the rows.
        """
        return counts_of(self._snapshot).design_effect

    def refresh(self) -> Table:
        """Move this object to the newest version of the table, in place.

        Returns
        -------
        Table
            This object, so that calls can be chained: ``table.refresh().count()``.

        Raises
        ------
        TableNotFoundError
            The table does not exist any more. The object stays at its version.
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [1]}), "fed", columns=["id"])
        >>> table = qbeast.open_table("fed")
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [2]}), "fed", mode="append")
        >>> table.version, table.refresh().version, table.version
        (0, 1, 1)
        """
        return self._moved(self, None)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.schema)

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the table, without the settings of the index."""
        stored = self._snapshot.metadata.configuration
        return {key: text for key, text in stored.items() if not key.startswith("qbeast.")}

    def rows(self, where: Where | None = None, **keywords: Unpack[ReadKeywords]) -> Read:
        """Return rows of this version, of which nothing is read yet: a condition, columns and a sample.

        The methods of the result read, count, scan, explain, split, shuffle or estimate them.

        Parameters
        ----------
        where : polars.Expr or str, optional
            Rows to return, as in ``.filter``. A text is SQL, as in `delete`. A table of the bridge takes a Column too.
        **keywords
            `columns`, `sample`, `sample_by`, `rows`, `by`, `seed` and `expand`, see `ReadKeywords`.

        Returns
        -------
        Read
            The rows. They stay those of this version, whatever happens to the table.

        Raises
        ------
        InvalidInputError
            By the methods of the result, see `Read.lazy`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> few = qbeast.open_table("ids").rows("id < 10", columns=["id"])
        >>> few.count(), few.lazy().max().collect().item(), few.explain().rows_total
        (10, 9, 1000)
        """
        return Read(self._planner, Request(where=where, **keywords), self._resources)

    def read(self, where: Where | None = None, **keywords: Unpack[ReadKeywords]) -> pl.DataFrame:
        """Read the table into memory: ``rows(where, ...).read()``.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").read("id < 3")["id"].sort().to_list()
        [0, 1, 2]
        """
        return self.rows(where, **keywords).read()

    def count(self, where: Where | None = None, **keywords: Unpack[ReadKeywords]) -> int:
        """Count rows: ``rows(where, ...).count()``. Without arguments, only the log is read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> table = qbeast.open_table("ids")
        >>> table.count(), len(table), table.count("id < 10")
        (1000, 1000, 10)
        """
        return self.rows(where, **keywords).count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        """Return True, also for a table without rows."""
        return True

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow batches, each read when the consumer requests it."""
        return self.rows().__arrow_c_stream__(requested_schema)

    def sql(self, query: str) -> pl.LazyFrame:
        """Run a query in SQL, see `Read.sql`. The name of the table is ``self``.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").sql("SELECT count(*) AS n FROM self WHERE id < 10").collect().item()
        10
        """
        return self.rows().sql(query)

    def advise(self, queries: Sequence[Predicate], *, most: int = 4) -> Advice:
        """Return how to index the table so that filters open the fewest bytes.

        Tables with other columns, kinds and importances are simulated on a random sample of the rows, with their cubes,
        files and pages. Some rows are encoded to estimate bytes. Every filter is planned on each simulated table, and
        on this table. The sample has up to 131,072 rows and 128 MiB; files without index are read as a whole for it.

        If several indexes are equally good (within 5 %), the index of the table is kept, or else the one with fewer
        columns is chosen. An importance of columns is chosen only if the filters open at least a tenth less with it.

        Parameters
        ----------
        queries : sequence of polars.Expr or str
            Filters of later queries, at least one. Repeat one to give it more weight. A text is SQL, as in `delete`.
        most : int, default 4
            Maximum number of columns, from 1 to 8.

        Returns
        -------
        Advice
            Pass `.columns`, `.importance` and `.cube_size` to `reindex`, or to `qbeast.write_table` for a new table.

        Raises
        ------
        InvalidInputError
            The table has no rows, no query names a column that can be indexed, a query cannot be evaluated, or `most`
            is out of range.

        See Also
        --------
        qbeast.suggest_columns : The same for rows that are not in a table yet.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.select(id=pl.int_range(50_000)).with_columns(
        ...     price=pl.col("id") * 7919 % 10_007, day=pl.col("id") // 500)
        >>> _ = qbeast.write_table(rows, "sales", columns=["id"])
        >>> advice = qbeast.open_table("sales").advise(["price < 100", "price BETWEEN 900 AND 950"])
        >>> advice.columns, advice.keep, advice.bytes_opened < 0.5 * advice.bytes_opened_now
        (('price',), False, True)
        """
        from qbeast_core.table.advise.advise import advise

        return advise(self._planner, queries, max_columns=most)

    def blocks(self) -> pl.DataFrame:
        """Return one row per block (the rows of one cube in one file).

        Returns
        -------
        polars.DataFrame
            `path`, `revision_id`, `cube` (text form, the root is empty), `depth`, `min_weight`, `max_weight`,
            `element_count` (with rows that a deletion vector hides), `replicated`.
        """
        from qbeast_core.table.index.live_index import Index

        refuse_unindexed(self._snapshot)
        return Index(self._snapshot).listed()

    def history(self, limit: int | None = None) -> pl.DataFrame:
        """Return the commits up to this version, one row each, newest first.

        Parameters
        ----------
        limit : int, optional
            Maximum number of commits. By default all commits that the log still has.

        Returns
        -------
        polars.DataFrame
            `version`, `timestamp` (UTC), `operation`, `summary` (a text of the next numbers); `rows_written`,
            `rows_inserted`, `rows_updated`, `rows_deleted`, `files_added`, `files_removed`, `bytes_added`; `metrics`
            and `parameters`, structs with the entries of the Delta log; `metadata`, a struct with ``commit_metadata``
            and other entries; `engine`, `read_version`, `is_blind_append`, `isolation_level`, `txn_id`. Missing values
            are null. A struct without entries in all commits is a column of nulls. The frame prints the first four
            columns, one line for each commit.

        Raises
        ------
        InvalidInputError
            `limit` is not a whole number, 0 or more.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"], commit_metadata={"why": "first"})
        >>> history = qbeast.open_table("ids").history()
        >>> history.unnest("metadata").select("operation", "rows_written", "files_added", "why").rows()
        [('CREATE TABLE AS SELECT', 1000, 1, 'first')]
        """
        if limit is not None:
            check_whole_number("limit", limit, 0)
        from qbeast_core.table.inspect.history import history_frame

        return history_frame(read_history(self._snapshot.store, version=self.version, limit=limit))

    def versions(self) -> pl.DataFrame:
        """Return the versions up to this one that the log still has, newest first.

        Returns
        -------
        polars.DataFrame
            `version`, `timestamp` (UTC), `operation`, and `readable`: whether the log and all data files of the version
            exist. `vacuum` deletes files of old versions. No data file is opened; files at absolute paths count as
            existing.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000)})
        >>> for _ in range(2):
        ...     result = qbeast.write_table(rows, "ids", columns=["id"], mode="append")
        >>> table = qbeast.open_table("ids")
        >>> table.versions().select("version", "operation", "readable").rows()
        [(1, 'WRITE', True), (0, 'CREATE TABLE AS SELECT', True)]
        >>> _ = table.optimize(full=True)
        >>> _ = table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
        >>> table.versions()["readable"].to_list()
        [True, False, False]
        """
        from qbeast_core.table.inspect.history import readable_versions

        readable = pl.Series(sorted(readable_versions(self._snapshot)), dtype=pl.Int64)
        shown = self.history().select("version", "timestamp", "operation")
        return shown.with_columns(readable=pl.col("version").is_in(readable.implode()))

    def changes(self, since: int | str | date, until: int | str | date | None = None) -> pl.LazyFrame:
        """Return the rows that commits inserted, deleted and updated.

        Commits with files of the change data feed (``write_table(..., change_feed=True)``) are read from these files,
        with the rows before and after an update. For other commits, the rows come from the files that the commit added
        and removed, and from pairs of deletion vectors: an update is then a delete and an insert, and rows that only
        moved to another file cancel out. `explain_changes` returns which files are read.

        Parameters
        ----------
        since : int, date, datetime or str
            Version after which the changes begin, so a job passes the last version that it has seen; -1 begins with the
            first version. Or a time, for the newest version at this time, see `qbeast.open_table`. Spark's
            ``startingVersion`` is one more.
        until : int, date, datetime or str, optional
            Last version of the changes, or a time. By default the version of this table.

        Returns
        -------
        polars.LazyFrame
            The columns of this version of the table, `_change_type` (``"insert"``, ``"delete"``,
            ``"update_preimage"``, ``"update_postimage"``), `_commit_version` and `_commit_timestamp` (UTC), in the
            order of the commits. Columns that a commit did not have are null.

        Raises
        ------
        InvalidInputError
            A version is newer than this table, or the table has a column with the name of an added column.
        VersionNotFoundError
            The log does not have all of these versions any more.
        StorageError
            When rows are read: a file was removed by a vacuum.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [1, 2], "x": [0.5, 1.5]}), "log", columns=["id"])
        >>> table = qbeast.open_table("log")
        >>> result = table.delete("id = 1")
        >>> table.changes(since=0).select("id", "_change_type", "_commit_version").collect().rows()
        [(1, 'delete', 1)]
        """
        from qbeast_core.table.read.changes import changes_of, commits_between

        return changes_of(self.snapshot, commits_between(self.snapshot, since, until))

    def explain_changes(self, since: int | str | date, until: int | str | date | None = None) -> pl.DataFrame:
        """Return what `changes` reads, without reading it.

        Parameters
        ----------
        since, until : int, date, datetime or str
            See `changes`.

        Returns
        -------
        polars.DataFrame
            One row per commit: `version`, `timestamp` (UTC), `operation`, `source` (``"feed"``: files of the change
            data feed; ``"files"``: all rows of some files, or those of a pair of deletion vectors; ``"compared
            files"``: removed and added files, whose equal rows cancel out; ``"none"``: no row changed), `files` and
            `bytes`, the number and size of these files. Of feeds and of whole files, only the needed columns are read;
            of a pair of deletion vectors, only the pages with their rows.

        Raises
        ------
        InvalidInputError, VersionNotFoundError
            See `changes`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [1, 2]}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").explain_changes(since=-1).select("version", "source", "files").rows()
        [(0, 'files', 1)]
        """
        from qbeast_core.table.read.changes import commits_between, plan_frame

        return plan_frame(commits_between(self.snapshot, since, until))

    def diff(self, other: int | str | date, *, key: str | Sequence[str]) -> pl.LazyFrame:
        """Return the net changes from another version to this one, by a key.

        A row that changed several times is one update, and a row that was inserted and deleted in between is left out.
        Only files and commits in which the versions differ are read, whichever is less.

        Parameters
        ----------
        other : int, date, datetime or str
            The version to compare with, see `qbeast.open_table`. It may be newer.
        key : str or sequence of str
            Columns that identify a row.

        Returns
        -------
        polars.LazyFrame
            The columns of this version and `_change_type`: ``"insert"`` (only this version has the key), ``"delete"``
            (only the other one has it), ``"update_preimage"`` and ``"update_postimage"`` (the row in the other version
            and in this one). The changed rows are in memory when it is collected.

        Raises
        ------
        InvalidInputError
            `key` does not name columns of the table; or when rows are read, several changed rows have the same key.
        VersionNotFoundError
            The other version does not exist.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [1, 2], "x": [0.5, 1.5]}), "points", columns=["id"])
        >>> table = qbeast.open_table("points")
        >>> result = table.update("id = 2", {"x": "9.5"})
        >>> table.diff(0, key="id").sort("_change_type").select("id", "x", "_change_type").collect().rows()
        [(2, 9.5, 'update_postimage'), (2, 1.5, 'update_preimage')]
        """
        from qbeast_core.table.read.changes import diff_of
        from qbeast_core.table.snapshot.snapshot import load_snapshot

        return diff_of(load_snapshot(self.snapshot.location, version=other), self.snapshot, key)

    def metrics(self, *, revision: int | None = None) -> Metrics:
        """Return index metrics. They are computed from the log; no data file is opened.

        A table with ``columns=[]`` has one revision, 0, with the files without index.

        Parameters
        ----------
        revision : int, optional
            Return metrics of this revision only. 0: files without index. By default all revisions.

        Returns
        -------
        Metrics
            `.revisions` are values, `.frame` and `.levels` frames, `.to_json()` JSON. Deleted rows are counted. Copies
            of layouts before 0.6.0 are counted separately.

        Raises
        ------
        InvalidInputError
            The table does not have this revision.
        NotQbeastTableError
            The table was never converted.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(20_000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"], cube_size=5000)
        >>> found = qbeast.open_table("ids").metrics(revision=1).revisions[0]
        >>> found.rows, found.cubes, found.height, found.min_height, found.fan_out
        (20000, 7, 3, 3, 2.0)
        """
        from qbeast_core.table.index.live_index import Index
        from qbeast_core.table.inspect.metrics import build_metrics

        if not self._snapshot.config.is_left_unindexed:
            refuse_unindexed(self._snapshot)
        return build_metrics(Index(self._snapshot), revision)

    @shows_progress("checking")
    def check(self, *, data: bool = True, progress: ProgressLike = None) -> CheckReport:
        """Check that this version follows the format. Nothing is changed.

        In the log: checkpoints, and the hint to the newest one, are right; tags are valid, name revisions of the table
        and agree with statistics and page layouts; thresholds
        and weights are in order along every branch; files exist and have the right size. In the data: every row is in
        the cube of its block, within its weights, and in one block only; the hidden weight column and the pages are
        right; statistics enclose the values; copies of layouts before 0.6.0 have their originals. A wrong order along
        branches is a fault only in revisions that no other library wrote to.

        Parameters
        ----------
        data : bool, default True
            Whether to read all data files, in bounded memory (8 bytes per row in layouts before 0.6.0). Otherwise only
            the log is read, which is fast.
        progress : callable or bool, optional
            Called with a `Progress` (stage ``"read"``) after each data file.

        Returns
        -------
        CheckReport
            `.ok`, `.faults` (a frame with one row per fault), `.notes`.

        Raises
        ------
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").check()
        Check of ...ids, version 0 (log and data): 1 files, 1 blocks, 1,000 rows
          OK: no faults
        """
        from qbeast_core.table.check.check import check_table

        report = callback_of(progress)
        return check_table(self._snapshot, data=data, progress=report, engine=self._readers)[0]

    @changing
    @shows_progress("repairing")
    def repair(self, *, dry_run: bool = False, progress: ProgressLike = None) -> RepairResult:
        """Repair faults in the log, in one commit. Data files are not rewritten.

        The log and the data of the newest version are checked. Lost and wrong tags are restored from the copies in the
        files, if a check of all rows finds these right. Other wrong tags are removed: their files are read as a whole
        until `optimize` indexes them again. If only the pages are wrong, the page layout is removed. Wrong sizes are
        corrected, and wrong statistics are replaced by the number of rows. Broken checkpoints are deleted, which is no
        commit, and a new one is written. Invalid settings are removed, and the newest
        valid revision is used. Concurrent commits are kept. No row is lost or returned twice: files with copies of rows
        (format 11) keep their tags.

        Parameters
        ----------
        progress : callable or bool, optional
            Called with a `Progress` (stage ``"read"``) after each data file.

        Returns
        -------
        RepairResult
            `.repaired_files` lists the files and repairs, `.remaining` the remaining faults with advice.

        Raises
        ------
        UnsupportedTableError
            The table cannot be written.
        CommitConflictError
            Other writers committed first each time, or changed the tree of files whose tags are restored.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").repair(dry_run=True)
        Repair, version 0: 0 file(s) would be repaired
        """
        from qbeast_core.table.check.repair import repair_table

        before = refresh(self._snapshot)
        result, newest = repair_table(before, dry_run=dry_run, progress=callback_of(progress))
        return self._moved(result, newest) if result.committed else result

    def plot(
        self,
        kind: PlotKind = "tree",
        *,
        where: Predicate | None = None,
        columns: Sequence[str] | None = None,
        sample: Sample | None = None,
        revision: int | None = None,
        fractions: Sequence[float] | None = None,
        axes: Axes | None = None,
    ) -> Figure:
        """Draw the table with matplotlib. Of data files, only page directories are read.

        Parameters
        ----------
        kind : {"tree", "space", "fraction"}
            ``"tree"``: each cube above its children, one line per depth. ``"space"``: the boxes of the cubes along two
            indexed columns, with the cubes that a query opens. ``"fraction"``: the share of bytes that samples open.
        columns : sequence of str, optional
            For the space: two indexed columns, by default the first two. For the fraction: columns to return.
        where, sample
            Query for the space, see `qbeast.scan_table`. The fraction uses `where` only.
        revision : int, optional
            Revision of the tree or space. By default the newest revision with files.
        fractions : sequence of float, optional
            Samples to draw, in (0, 1]. By default ten from 0.5 % to 100 %.
        axes : matplotlib Axes, optional
            Axes to draw on. By default a new figure is made.

        Returns
        -------
        matplotlib Figure
            The figure, or the figure of `axes`. Save it with ``.savefig(path)``. Notebooks display it.

        Raises
        ------
        InvalidInputError
            A kind, column, revision or fraction is invalid.
        MissingDependencyError
            Matplotlib is not installed.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(20_000), "price": [i % 97 for i in range(20_000)]})
        >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"], cube_size=2000)
        >>> figure = qbeast.open_table("prices").plot("space", where="id < 3000")
        >>> figure.savefig("space.png")
        """
        from qbeast_core.table.inspect.metrics import plot_table

        refuse_unindexed(self._snapshot)
        return plot_table(
            self._planner,
            kind,
            columns=columns,
            predicate=filter_of(self._condition(where), self._snapshot.schema),
            sample=sample,
            revision=revision,
            fractions=fractions,
            axes=axes,
        )

    @without_attributes("compact", "z_order")
    @changing
    @shows_progress("optimizing")
    def optimize(
        self,
        *,
        files: Sequence[str | os.PathLike[str]] | None = None,
        revision: int | Literal["all"] | None = None,
        fraction: Share | None = None,
        full: bool = False,
        into: Into | None = None,
        purge: bool = False,
        dry_run: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> OptimizeResult:
        """Rewrite files to improve the index, in steps. The rows stay the same, and a table in shape is left alone.

        By default these files are rewritten, and their rows are indexed with the newest revision: files without index
        (``"staged"``); files of whose rows deletion vectors hide 10 % or more (``"deletion vector"``); files without
        the values of a sample column, and of the newest revision, files of another implementation (both
        ``"foreign layout"``). After a `reindex`, the oldest files of other columns are moved as well, up to a quarter
        of the table's bytes (``"older revision"``).

        Other files are written together (``"small file"``, ``"wide pages"``) if filters on 1/30 of the values of each
        column, and samples of 1 %, then open at least 12 % less in the geometric mean, weighted by importance. A write
        is joined with at least as many other rows, so a row is rewritten once per doubling. Neighbours along the
        column in which writes are narrowest, such as days, are joined, or writes of similar size. No column opens more
        than 1.6 times as much as before; what this leaves is for the next optimize. A few more files may be rewritten
        to keep the thresholds in order (``"order of weights"``). Rows outside of the newest revision begin a new one in
        the same commit.

        Full reads return the same rows before and after, and so do samples, except for rows that move to other columns.
        Concurrent appends are kept. In a table without index (``columns=[]``), small files and files with many
        hidden rows are rewritten. A file that is rewritten for any reason loses its hidden rows.

        Parameters
        ----------
        files : sequence of str or path-like, optional
            Rewrite these files, also those in good shape: paths as in `files()` or in the plan.
        revision : int or "all", optional
            Consider files of this revision only; 0: files without index. ``"all"``: all revisions, in one commit each.
            By default the newest revision and files without index. Rows stay in their revision.
        fraction : float or str, optional
            Consider only files that a sample of this fraction, in [0, 1], opens. Of files without index, consider the
            oldest up to this share of their bytes.
        full : bool, default False
            Write the rows of all considered files together, also of those in good shape; without `revision`, also of
            older revisions and of other columns.
        into : {"newest", "new"}, optional
            ``"newest"``: move rows of older revisions to the newest one, by default from all older revisions, or from
            `files` or `revision`. ``"new"``: rewrite the whole table into a new revision, whose ranges and quantiles
            come from its current rows, and drop all other revisions, so that the metadata does not contain values of
            deleted rows (see docs/personal-data.md). Columns keep their kinds; statistics of `column_stats` are
            dropped. It cannot be combined with `files`, `revision` and `fraction`.
        purge : bool, default False
            Rewrite all files with rows that deletion vectors hide, also those with few, or that another implementation
            clustered. Then no file of the new version has deleted rows; old versions have them until a `vacuum`, see
            docs/personal-data.md. It cannot be combined with `files`, `fraction` and one `revision`.
        dry_run : bool, default False
            Change nothing. The result lists the files that would be rewritten, and why.
        **keywords
            See `CommitKeywords`.

        Returns
        -------
        OptimizeResult
            `.plan` lists the files and the reasons; `.opened` and `.opened_after` have what a filter on each column
            opens.

        Raises
        ------
        InvalidInputError
            Options cannot be combined, or a revision or file does not exist.
        NotQbeastTableError
            The table was never converted, or has no index and an option needs one.
        UnsupportedTableError
            The table holds copies of rows (upgrade it first), or cannot be written.
        CommitConflictError
            Another writer replaced or deleted files that were being rewritten. Nothing was changed.

        Notes
        -----
        Rows of rewritten files are loaded into memory if three times their size fits in the memory of the table's
        `resources`. Larger rewrites read the rows twice and sort them through temporary files.

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
        >>> table.optimize().committed
        False
        """
        from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
        from qbeast_core.table.write.options import metadata_of

        options = OptimizeOptions(
            files=files,
            revision=revision,
            fraction=fraction,
            full=full,
            into=into,
            purge=purge,
            dry_run=dry_run,
            commit_metadata=metadata_of(keywords.get("commit_metadata")),
        )
        with self._engine() as engine:
            options = replace(options, progress=engine.report_progress(callback_of(keywords.get("progress"))))
            result, newest = optimize(self._snapshot, options, engine=engine)
            result = engine.report(result)
        return self._moved(result, newest) if result.committed else result

    @changing
    @shows_progress("reindexing")
    def reindex(
        self,
        columns: IndexColumns | None = None,
        *,
        cube_size: int | None = None,
        importance: Mapping[str, float] | None = None,
        full: bool = False,
        **keywords: Unpack[CommitKeywords],
    ) -> ReindexResult:
        """Index the table by other columns, or with another cube size, without rewriting it at once.

        One commit adds a revision, and no file is written. New rows are indexed with it; the files of older revisions
        stay as they are: reads skip files, cubes and pages by the columns of each. Each `optimize` without options
        moves up to a quarter of the table's bytes to the new columns, until no row is left under others.

        Until then, a row belongs to a sample by the columns of its file. Disjoint samples have no row in common, and
        together they have all rows of a version. But rows that move have other weights, so a sample is repeatable only
        within a version, and while the files of one write move in several steps, samples may have more or fewer rows
        than their fraction, unevenly. Versions of qbeast from before this method refuse the table.

        A table that was written without index (``columns=[]``) gets one, and the next `optimize` indexes its rows.

        Parameters
        ----------
        columns : sequence of str or mapping of str to str, optional
            Columns to index, in order, as in `qbeast.write_table`. Hashed columns stay hashed unless another kind is
            named. By default the columns stay.
        cube_size : int, optional
            Target number of rows per cube. By default it stays.
        importance : mapping of str to float, optional
            See `set_importance`. By default it stays.
        full : bool, default False
            Also move all rows now, as ``optimize(into="newest")``, in further commits. If this is interrupted, rows
            that have not moved stay readable, and the same call moves the rest.
        **keywords
            See `CommitKeywords`.

        Returns
        -------
        ReindexResult
            The newest revision, and the number of rows that moved and that are left under other columns. Nothing is
            committed if the table has these columns and this cube size.

        Raises
        ------
        InvalidColumnsError
            The columns are unknown, repeated, cannot be indexed or are too many.
        InvalidInputError
            The cube size is invalid, a column is the sample column, or the dialect of the table is ``"qbeast-spark"``.
        UnsupportedTableError
            The table cannot be written, or holds copies of rows.
        CommitConflictError
            Other writers committed first each time. Nothing was changed, or with ``full=True`` only the new revision
            was added: see `QbeastError.changed`.

        Notes
        -----
        The ranges of numbers come from the statistics in the log, and the quantiles from about a million rows. If the
        log has no ranges of a column, the columns are read once.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"day": [i % 365 for i in range(1000)], "price": [37 * i % 997 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "sales", columns=["price"])
        >>> table = qbeast.open_table("sales")
        >>> result = table.reindex(columns=["day", "price"])
        >>> result.columns, result.rows_left, table.indexed_columns
        (('day', 'price'), 1000, ('day', 'price'))
        >>> table.optimize().plan["reason"].to_list(), table.metrics().health.rows_of_other_columns
        (['older revision'], 0)
        """
        from qbeast_core.table.maintenance.reindex import reindex
        from qbeast_core.table.write.options import WriteOptions, metadata_of

        options = WriteOptions(
            columns=columns,
            cube_size=cube_size,
            importance=importance,
            commit_metadata=metadata_of(keywords.get("commit_metadata")),
        )
        with self._engine() as engine:
            options = replace(options, progress=engine.report_progress(callback_of(keywords.get("progress"))))
            result, newest = reindex(self._snapshot, options, full=full, engine=engine)
        return self._moved(result, newest)

    @changing
    @shows_progress("deleting")
    def delete(
        self,
        where: Where | Literal[True],
        **keywords: Unpack[ChangeKeywords],
    ) -> ChangeResult:
        """Delete rows, in one commit. The index is kept.

        Files without matching rows stay. Files in which all rows match are removed. Other files are rewritten without
        the matching rows; a few more files may be rewritten to keep the index in order. In a table with deletion
        vectors, files of which at most 30 % of the rows are hidden afterwards stay, and a vector hides the rows: they
        are on disk until ``optimize(purge=True)`` and `vacuum`, see docs/personal-data.md.

        The change applies to the newest version, not to the version of this object. If another writer commits first, it
        is applied to the new version.

        Parameters
        ----------
        where : polars.Expr, str or True
            Rows to delete: rows for which the condition is true, not null. A text is an SQL expression on the columns
            of a row, in the dialect of DuckDB, not a query. True: all rows.
        **keywords
            See `ChangeKeywords`.

        Returns
        -------
        ChangeResult
            `.plan` lists the files, and `.copies` counts the rows and bytes to copy. `.hint` names what copies less.

        Raises
        ------
        InvalidInputError
            `where` is not a condition on single rows of this table.
        UnsupportedTableError
            The table allows only appends, holds copies of rows (upgrade it first), or cannot be written.
        CommitConflictError
            Other writers committed first each time. Nothing was changed.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "cheap", columns=["id", "price"])
        >>> table = qbeast.open_table("cheap")
        >>> table.delete(pl.col("price") > 50, dry_run=True).rows_deleted
        460
        >>> table.delete("price > 50").rows_deleted, table.read().height, table.version
        (460, 540, 1)
        """
        from qbeast_core.table.dml.change import Delete, change_options

        options = change_options(**keywords)
        change = nullcontext(Delete(self._condition(where)))
        return self._run(lambda _: change, options)

    @changing
    @shows_progress("updating")
    def update(
        self,
        where: Where | Literal[True],
        set: Mapping[str, Value],  # noqa: A002 - the name in SQL
        **keywords: Unpack[ChangeKeywords],
    ) -> ChangeResult:
        """Set columns of some rows to new values, in one commit. The index is kept.

        Files without matching rows stay. Other files are rewritten; rows with new values in indexed columns move to
        other cubes. Rows with values outside of the index begin a new revision, as in an append; the others stay in
        their revision. Otherwise as `delete`.

        Parameters
        ----------
        where : polars.Expr, str or True
            Rows to update: rows for which the condition is true, not null. A text is SQL, as in `delete`. True: all
            rows.
        set : mapping of str to polars.Expr, str or a plain value
            New values by column, computed from the old row. A text is SQL; to store a text, write ``"'text'"`` or
            ``pl.lit("text")``. Numbers are cast to the type of the column, except fractions to whole numbers.
        **keywords
            See `ChangeKeywords`.

        Returns
        -------
        ChangeResult
            `.plan` lists the files, and `.copies` counts the rows and bytes to copy. `.hint` names what copies less.

        Raises
        ------
        InvalidInputError
            `where` is not a condition on single rows of this table, `set` contains an invalid value, or a value is too
            large for the type of the column.
        SchemaMismatchError
            A value has another type than the column, or is null in a column without nulls.
        UnsupportedTableError
            As for `delete`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "dear", columns=["id", "price"])
        >>> table = qbeast.open_table("dear")
        >>> table.update("price > 50", {"price": "price * 2", "id": -pl.col("id")}).rows_updated
        460
        >>> table.rows().lazy().filter(pl.col("price") > 50, pl.col("price") % 2 == 1).collect().height
        0
        """
        from qbeast_core.table.dml.change import Update, change_options

        options = change_options(**keywords)
        change = nullcontext(Update(self._condition(where), self._values(set, "set")))
        return self._run(lambda _: change, options)

    def _run(
        self,
        change_of: Callable[[CallEngine], AbstractContextManager[Change]],
        options: ChangeOptions,
    ) -> ChangeResult:
        from qbeast_core.table.dml.change import run_change

        with self._engine() as engine, change_of(engine) as change:
            options = replace(options, progress=engine.report_progress(options.progress))
            result, newest = run_change(self._snapshot, change, options, engine=engine)
            result = engine.report(result)
        return self._moved(result, newest) if result.committed else result

    @changing
    @shows_progress("merging")
    def merge(
        self,
        source: RowsLike | SparkFrame,
        on: str | Sequence[str],
        *,
        when_matched: WhenMatched = "update",
        matched_if: Where | None = None,
        delete_if: Where | None = None,
        update: Mapping[str, Value] | None = None,
        when_not_matched: WhenNew = "insert",
        not_matched_if: Where | None = None,
        insert: Mapping[str, Value] | None = None,
        duplicates: Duplicates = "error",
        when_not_matched_by_source: WhenNotMatchedBySource = "ignore",
        not_matched_by_source_if: Where | None = None,
        source_name: str = "source",
        schema_mode: Literal["merge"] | None = None,
        **keywords: Unpack[ChangeKeywords],
    ) -> ChangeResult:
        """Merge rows into the table, in one commit. By default matching rows are replaced, and others inserted.

        Rows match if all columns of `on` are equal; a null equals nothing. Files whose statistics or cubes exclude a
        match are not read. Files without a match stay. Rows with values outside of the index begin a new revision, as
        in an append. Otherwise as `delete`.

        In conditions and values, plain names are columns of the table, and ``source.price`` (in SQL) or
        ``pl.col("source").struct.field("price")`` is a column of the source. Values of new rows can use columns of the
        source only.

        Parameters
        ----------
        source : polars.DataFrame, polars.LazyFrame, iterator of frames or anything with ``__arrow_c_stream__``
            Rows to merge, of any type that `qbeast.write_table` accepts. Conditions and values can use columns that the
            table does not have. These columns are not stored, as in Delta, except with ``schema_mode="merge"``.
        on : str or sequence of str
            Columns to match by, in the table and in the source.
        when_matched : {"update", "delete", "ignore"}, default "update"
            What to do with rows of the table that have a match.
        matched_if : polars.Expr or str, optional
            Only for rows for which this is true.
        delete_if : polars.Expr or str, optional
            Matching rows to delete instead of updating them. Rows of the source without a match are inserted unless
            `not_matched_if` excludes them.
        update : mapping of str to polars.Expr, str or a plain value, optional
            New values of columns, as in `update`. By default each column gets the value of the source.
        when_not_matched : {"insert", "ignore"}, default "insert"
            What to do with rows of the source that have no match.
        not_matched_if : polars.Expr or str, optional
            Only for rows for which this is true.
        insert : mapping of str to polars.Expr, str or a plain value, optional
            Values of new rows; other columns are null, or computed by the table. By default the columns of the source.
        duplicates : {"error", "insert"}, default "error"
            What to do if rows of the source to insert have equal values in `on`. By default the merge is refused: the
            next merge of the same rows would fail, because several rows would change each of them. ``"insert"`` inserts
            all of them, as Spark and deltalake do. Nulls are not equal.
        when_not_matched_by_source : {"ignore", "delete"}, default "ignore"
            What to do with rows of the table that have no match.
        not_matched_by_source_if : polars.Expr or str, optional
            Only for rows for which this is true.
        source_name : str, default "source"
            Name of the source in conditions and values, for a table that has a column "source".
        schema_mode : {"merge"}, optional
            Schema evolution: add columns of the source that the table does not have, in the same commit. Columns that
            the source does not have keep their values in matching rows and are null in new rows. With `update` and
            `insert`, only the new columns that they name are added.
        **keywords
            See `ChangeKeywords`.

        Returns
        -------
        ChangeResult
            `.plan` lists the files, and `.copies` counts the rows and bytes to copy. `.hint` names what copies less.

        Raises
        ------
        InvalidInputError
            Several rows of the source would change the same row, or be inserted with equal keys; a condition or a
            value is invalid, or options cannot be combined.
        SchemaMismatchError
            Columns are missing in the source or have another type, or a value is null in a column without nulls.
        UnsupportedTableError
            As for `delete`. A table that allows only appends accepts merges that only insert.

        Notes
        -----
        A source of more than an eighth of the memory budget is read twice and matched in temporary files. A source that
        can be read only once is also stored there, compressed. Rows of the table need memory as in `optimize`.

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
        >>> sorted(table.read().rows())
        [(2, 15), (3, 33), (4, 40)]
        >>> noted = pl.DataFrame({"id": [4, 5], "note": ["last", "new"]})
        >>> _ = table.merge(noted, on="id", schema_mode="merge")
        >>> sorted(table.read().rows())
        [(2, 15, None), (3, 33, None), (4, 40, 'last'), (5, None, 'new')]
        """
        from qbeast_core.table.dml.change import change_options
        from qbeast_core.table.dml.merge_rules import Clauses

        clauses = Clauses(
            on=on,
            when_matched=when_matched,
            matched_if=matched_if,
            delete_if=delete_if,
            update=update,
            when_not_matched=when_not_matched,
            not_matched_if=not_matched_if,
            insert=insert,
            duplicates=duplicates,
            when_not_matched_by_source=when_not_matched_by_source,
            not_matched_by_source_if=not_matched_by_source_if,
            source_name=source_name,
            schema_mode=schema_mode,
        )
        options = change_options(**keywords)
        merge = partial(self._merge, source, clauses)
        return self._run(merge, options)

    @changing
    def vacuum(
        self,
        *,
        retention_hours: float | None = None,
        dry_run: bool = True,
        allow_short_retention: bool = False,
    ) -> VacuumResult:
        """Delete data files that the table does not need any more. By default they are only listed.

        These are files of old versions, and files of interrupted writes. Files of the newest version, their deletion
        vectors, and files that are not data files are never deleted. A deletion cannot be undone, and versions that
        need the files cannot be read afterwards.

        Parameters
        ----------
        retention_hours : float, optional
            Keep files that were removed from the table, or written, less than this number of hours ago. By default
            the property ``delta.deletedFileRetentionDuration`` of the table, or 168 (a week).
        dry_run : bool, default True
            Delete nothing. The result lists the files.
        allow_short_retention : bool, default False
            Allow a retention below that of the table. A running write, or a reader of an older version, can then lose
            files.

        Returns
        -------
        VacuumResult
            The files and their size.

        Raises
        ------
        InvalidInputError
            The retention is not a number of hours, or is too short.
        UnsupportedTableError, StorageError
            The table cannot be written, or the store failed.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"a": [1, 2]})
        >>> for _ in range(3):
        ...     result = qbeast.write_table(rows, "often", columns=["a"], mode="overwrite")
        >>> table = qbeast.open_table("often")
        >>> table.vacuum().files
        ()
        >>> len(table.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False).files)
        2
        """
        from qbeast_core.table.maintenance.versions import vacuum

        return vacuum(
            self._snapshot,
            retention_hours=retention_hours,
            dry_run=dry_run,
            allow_short=allow_short_retention,
            now_ms=now_ms(),
        )

    @changing
    def restore(self, version: int | str | date, *, dry_run: bool = False) -> RestoreResult:
        """Restore an older version: its rows, columns, properties and index.

        This is one commit without rewriting data. The versions in between stay in the history. Concurrent commits of
        others are undone too. Ids of later revisions are not used again.

        Parameters
        ----------
        version : int, date, datetime or str
            Version number or time, as in `qbeast.open_table`.

        Returns
        -------
        RestoreResult
            The new version, and the number of files added and removed.

        Raises
        ------
        VersionNotFoundError
            The version does not exist, or a vacuum deleted some of its files.
        NotQbeastTableError
            The version has no Qbeast index.
        UnsupportedTableError
            The table cannot be written, or allows only appends.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> for day in range(3):
        ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "log", columns=["day"], mode="append")
        >>> table = qbeast.open_table("log")
        >>> table.restore(0).version, table.read()["day"].to_list()
        (3, [0])
        """
        from qbeast_core.table.maintenance.versions import restore

        if cast("object", version) is None:
            invalid_argument("version", "must be a number or a time", value=version)
        newest = refresh(self._snapshot)
        old = load_snapshot(newest.location, version=version)
        result, made = restore(newest, old, dry_run=dry_run)
        return result if dry_run else self._moved(result, made)

    @changing
    def switch_dialect(self, dialect: BlocksDialect, *, jvm: JvmRelease = "0.7") -> DialectResult:
        """Convert the index in the log to another dialect, for readers that support only one.

        One commit changes tags only; no file is rewritten. qbeast always reads both dialects. Files in dialect
        ``"documented"`` have a column `_qbeast_weight` that is not in the schema of the table. An optimize by
        qbeast-spark 0.7 fails on it, or takes it for a new column. The result lists these files, a
        `HiddenColumnWarning` is raised, and ``optimize(full=True)`` removes the column.

        Parameters
        ----------
        dialect : {"documented", "qbeast-spark"}
            The dialect of the format documents, or of the JVM implementation.
        jvm : {"0.7", "0.8"}, default "0.7"
            Version of qbeast-spark that must read the table: its last release, which fails on quantiles and on columns
            with one value, or its main branch.

        Returns
        -------
        DialectResult
            The version, and the number of files with new tags.

        Raises
        ------
        InvalidColumnsError
            The JVM cannot read an index of these columns: of type byte, short or timestamp without zone, or, up to
            0.7, by quantiles.
        InvalidInputError, UnsupportedTableError
            The dialect is unknown, the JVM does not support a property of the table, such as partitions or deletion
            vectors, or the table cannot be written.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": range(9)}), "both", columns=["a"])
        >>> table = qbeast.open_table("both")
        >>> table.switch_dialect("qbeast-spark", jvm="0.8").retagged_files
        1
        """
        from qbeast_core.table.maintenance.metadata import switch_dialect

        result, outcome = switch_dialect(refresh(self._snapshot), dialect, jvm=jvm)
        return self._moved(result, outcome.snapshot)

    @changing
    def upgrade(self, *, replicated: Copies | None = None, dry_run: bool = False) -> UpgradeResult:
        """Upgrade a table that qbeast-spark wrote before its version 0.6.0, without rewriting data.

        One commit updates the tags of the data files. qbeast returns each row once before and after. A second upgrade,
        or an upgrade of a newer table, changes nothing.

        Such tables may hold files with *copies* of rows. qbeast skips the copies; other readers of Delta tables return
        these rows twice.

        Parameters
        ----------
        replicated : {"keep", "drop"}, optional
            Whether to keep files with copies (default, as in the format documents, with a warning if there are any), or
            to drop them, so that all readers return each row once. Files of copies that only some readers take for live
            are always dropped.
        dry_run : bool, default False
            Change nothing. The result has the numbers of an upgrade.

        Returns
        -------
        UpgradeResult
            Version, and number of files retagged, kept and dropped.

        Raises
        ------
        InvalidInputError
            `replicated` is invalid.
        NotQbeastTableError, UnsupportedTableError
            The table has no Qbeast index, or it has a feature that qbeast cannot write.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Warns
        -----
        QbeastWarning
            Copies are kept and `replicated` was not passed.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2]}), "new", columns=["a"])
        >>> qbeast.open_table("new").upgrade().committed
        False
        """
        from qbeast_core.table.maintenance.metadata import upgrade

        result = upgrade(self._snapshot.location, replicated=replicated, dry_run=dry_run)
        return self._moved(result, None) if result.committed else result

    @changing
    def set_properties(self, properties: Mapping[str, str | None]) -> MetadataResult:
        """Set or unset properties of the table, in one commit.

        Parameters
        ----------
        properties : mapping of str to str or None
            Values by name; None unsets a property. Names are your own, or properties of Delta that need nothing new of
            readers, such as ``delta.checkpointInterval`` or ``delta.appendOnly``. A change data feed
            (``{"delta.enableChangeDataFeed": "true"}``) needs writer version 4 or the feature ``changeDataFeed``: the
            commit raises the protocol, and writers that do not know the feature refuse the table then. Check
            constraints (``delta.constraints.<name>``) can be unset.

        Returns
        -------
        MetadataResult
            `.changed` lists the properties.

        Raises
        ------
        InvalidInputError
            A name is reserved for qbeast, a value is not a text, or is not valid for a property of Delta.
        UnsupportedTableError
            A property, or the table, needs a feature that qbeast does not support, or that readers of the table do not.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`. It is also a conflict if another writer set the same property.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "owned", columns=["a"])
        >>> table = qbeast.open_table("owned")
        >>> table.set_properties({"owner": "us"}).version, table.properties
        (1, {'owner': 'us'})
        """
        from qbeast_core.table.maintenance.metadata import set_properties

        return self._moved(*set_properties(refresh(self._snapshot), properties))

    @property
    def importance(self) -> dict[str, float]:
        """Importance of indexed columns by name, see `set_importance`; columns with importance 1 are left out."""
        columns = self._snapshot.columns
        return {columns.name(name): number for name, number in self._snapshot.config.importance.items()}

    @changing
    def set_importance(self, importance: Mapping[str, float]) -> MetadataResult:
        """Set how much narrower than others the pages of indexed columns are, in one commit.

        New files follow it, and files that `optimize` rewrites for another reason. ``optimize(full=True)`` rewrites
        all files. No row and no sample changes.

        Parameters
        ----------
        importance : mapping of str to float
            Numbers above 0 and up to 1000, by indexed column. Columns that are left out have 1. With ``{"ts": 3}``,
            pages extend over a third of the values of ``ts`` that they would extend over if it was like the others:
            filters on ``ts`` read less, filters on other columns more.

        Returns
        -------
        MetadataResult
            `.changed` names the property that holds the importance.

        Raises
        ------
        InvalidInputError
            A column is not indexed, or a number is invalid.
        UnsupportedTableError
            The table cannot be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"ts": range(1000), "price": [37 * i % 997 for i in range(1000)]})
        >>> _ = qbeast.write_table(rows, "ticks", columns=["ts", "price"])
        >>> table = qbeast.open_table("ticks")
        >>> table.set_importance({"ts": 3}).version, table.importance
        (1, {'ts': 3.0})
        """
        from qbeast_core.table.maintenance.metadata import set_importance

        return self._moved(*set_importance(refresh(self._snapshot), importance))

    @changing
    def add_constraint(self, name: str, expression: str) -> MetadataResult:
        """Add a check constraint, in one commit: all writers of Delta refuse rows that do not meet it.

        The rows of the table are read first. A writer without check constraints can no longer write to the table:
        it needs writer version 3, or the feature ``checkConstraints``.

        Parameters
        ----------
        name : str
            Name of the constraint. Upper and lower case do not differ.
        expression : str
            Condition over the columns of a row, in Spark SQL: texts are in single or double quotes, names of columns in
            backticks, and times are in UTC. A row for which it is false or null breaks the constraint, as in Spark and
            deltalake. Write ``price IS NULL OR price > 0`` to allow nulls.

        Returns
        -------
        MetadataResult
            `.changed` is the property that holds the constraint.

        Raises
        ------
        ConstraintViolationError
            Rows of the table break the constraint.
        InvalidInputError
            The name is taken, or the expression is not supported.
        UnsupportedTableError
            The table has a feature that qbeast does not support.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`. It is also a conflict if another writer adds rows that break the constraint.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"price": [1.5, 2.5]}), "priced", columns=["price"])
        >>> table = qbeast.open_table("priced")
        >>> table.add_constraint("positive", "price > 0").changed
        ('delta.constraints.positive',)
        >>> qbeast.write_table(pl.DataFrame({"price": [-1.0]}), "priced", mode="append")
        Traceback (most recent call last):
        ...
        qbeast_core.errors.ConstraintViolationError: 1 row(s) break the constraint 'positive', price > 0: for example...
        """
        from qbeast_core.table.maintenance.metadata import add_constraint

        return self._moved(*add_constraint(refresh(self._snapshot), name, expression))

    @changing
    def drop_constraint(self, name: str) -> MetadataResult:
        """Drop a check constraint, in one commit. The protocol of the table stays.

        Parameters
        ----------
        name : str
            Name of the constraint. Upper and lower case do not differ.

        Returns
        -------
        MetadataResult
            `.changed` is the property that held the constraint.

        Raises
        ------
        InvalidInputError
            The table has no such constraint.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"price": [1.5, 2.5]}), "goods", columns=["price"])
        >>> table = qbeast.open_table("goods")
        >>> _ = table.add_constraint("positive", "price > 0")
        >>> table.drop_constraint("positive").version
        2
        """
        from qbeast_core.table.maintenance.metadata import drop_constraint

        return self._moved(*drop_constraint(refresh(self._snapshot), name))

    @changing
    def add_columns(self, columns: Mapping[str, TypeLike] | pa.Schema) -> MetadataResult:
        """Add columns at the end of the schema, in one commit. Existing rows get nulls.

        Parameters
        ----------
        columns : mapping of str to type, or pyarrow.Schema
            New columns. Names must differ from the columns of the table by more than case. Types are types of Polars
            (``pl.Int64``), Python (``int``), Arrow (``pa.int64()``), `deltalake` or PySpark, or names of types in
            Delta, SQL or Polars (``"long"``, ``"bigint"``, ``"Int64"``, ``"decimal(9,2)"``).

        Returns
        -------
        MetadataResult
            `.changed` lists the columns.

        Raises
        ------
        SchemaMismatchError
            A column exists already.
        InvalidInputError
            Delta does not support a type.
        UnsupportedTableError
            The table cannot be written.

        Warns
        -----
        AddedColumnWarning
            qbeast-spark uses the table, and an optimize of its release 0.7.1 loses the values of such columns.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "wider", columns=["a"])
        >>> table = qbeast.open_table("wider")
        >>> table.add_columns({"note": pl.String, "count": "long"}).changed, table.read().rows()
        (('note', 'count'), [(1, None, None)])
        """
        from qbeast_core.table.maintenance.metadata import add_columns

        return self._moved(*add_columns(refresh(self._snapshot), columns))

    @changing
    def rename_column(self, column: str, name: str, *, upgrade_protocol: bool = False) -> MetadataResult:
        """Rename a column, or a field in a column. Data files and the index stay as they are.

        The table needs column mapping, a feature of Delta: files keep the names of columns, and the log maps them to
        the names in the table. Older versions of the table have the old name.

        The delta extension of DuckDB (1.5.5) returns null for partition columns that stand behind a renamed column.
        Daft refuses a table that got its column mapping after its first files, which have no field ids.

        Parameters
        ----------
        column : str
            Name of the column, or the path of a field: ``"address.street"``. Paths go through lists and maps by
            ``element``, ``key`` and ``value``: ``"items.element.price"``. If a text names two of them, put each name
            into backticks: the column ```a.b```, the field ```a`.`b```.
        name : str
            New name of the column, or of the field without its path. It must differ from the names beside it by more
            than case.
        upgrade_protocol : bool, default False
            Add column mapping to a table that does not have it, in the same commit. It cannot be removed, and readers
            and writers that do not support it refuse the table: the error without this argument lists them.

        Returns
        -------
        MetadataResult
            `.changed` is the new name, with its path.

        Raises
        ------
        InvalidInputError
            The column does not exist, the name is taken or invalid, or a constraint, an invariant or a generated column
            names the column.
        UnsupportedTableError
            The table does not have column mapping, it has the dialect ``"qbeast-spark"``, or it cannot be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`. After a change of columns or settings by another writer, the rename is checked
            again.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1], "b": [2]}), "renamed", columns=["a"])
        >>> table = qbeast.open_table("renamed")
        >>> table.rename_column("a", "id", upgrade_protocol=True).changed, table.columns, table.indexed_columns
        (('id',), ['id', 'b'], ('id',))
        """
        from qbeast_core.table.maintenance.columns import rename_column

        change = rename_column(self._snapshot, column, name, upgrade_protocol=upgrade_protocol)
        return self._moved(*change)

    @changing
    def drop_column(self, column: str, *, upgrade_protocol: bool = False) -> MetadataResult:
        """Drop a column, or a field in a column. Data files stay as they are, with its values.

        The values return with `restore`, but not with a new column of the same name. Files that are rewritten later
        do not have them. See `rename_column` for column mapping, which the table needs.

        Parameters
        ----------
        column : str
            Name of the column, or the path of a field, see `rename_column`.
        upgrade_protocol : bool, default False
            Add column mapping to a table that does not have it, see `rename_column`.

        Returns
        -------
        MetadataResult
            `.changed` is the column.

        Raises
        ------
        InvalidInputError
            The column does not exist, or the table needs it: it is a partition, clustering, indexed, identity or sample
            column, a constraint or an invariant names it, a generated column is computed from it, or it is the last
            one.
        UnsupportedTableError
            The table does not have column mapping, it has the dialect ``"qbeast-spark"``, or it cannot be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `rename_column`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1], "b": [2]}), "dropped", columns=["a"])
        >>> table = qbeast.open_table("dropped")
        >>> table.drop_column("b", upgrade_protocol=True).changed, table.columns
        (('b',), ['a'])
        >>> table.add_columns({"b": "long"}).version, table.read().rows()
        (2, [(1, None)])
        """
        from qbeast_core.table.maintenance.columns import drop_column

        return self._moved(*drop_column(self._snapshot, column, upgrade_protocol=upgrade_protocol))

    @changing
    def widen_columns(
        self, columns: Mapping[str, TypeLike], *, upgrade_protocol: bool = False
    ) -> MetadataResult:
        """Change columns to a wider type, in one commit.

        From Int8 or Int16 to at most Int32, no file is rewritten, and columns may be indexed. For other types, all
        files are rewritten with the new type, and rows stay in their cubes: tables with files of both types need the
        feature typeWidening of Delta. If it is enabled, only the schema changes.

        Parameters
        ----------
        columns : mapping of str to type
            New types, as in `add_columns`: wider integers for integers, Float64 for Float32 and for integers of at
            most 32 bits, decimals for integers, decimals of more digits for decimals (as many or more on both sides of
            the point), ``pl.Datetime("us")`` for dates, any type for columns of type void. For a nested column, the
            whole new type.
        upgrade_protocol : bool, default False
            Enable the feature typeWidening and rewrite no file. Readers that do not support it cannot read the
            table from then on: among others delta-rs (deltalake, up to 1.6), Polars, DuckDB and Spark with Delta
            before 4.0.

        Returns
        -------
        MetadataResult
            `.changed` lists the columns, `.rewritten_files` is the number of rewritten files.

        Raises
        ------
        InvalidInputError
            A column does not exist.
        UnsupportedTableError
            The change of type is not supported, the hashes of an indexed column would change, or the table cannot be
            written.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"a": [1], "n": [7]}, schema={"a": pl.Int64, "n": pl.Int8})
        >>> _ = qbeast.write_table(rows, "narrow", columns=["a"])
        >>> table = qbeast.open_table("narrow")
        >>> table.widen_columns({"n": pl.Int32}).rewritten_files, table.schema["n"]
        (0, Int32)
        >>> table.widen_columns({"n": pl.Int64}).rewritten_files, table.read().rows()
        (1, [(1, 7)])
        """
        from qbeast_core.table.maintenance.columns import widen_columns

        with self._engine() as engine:
            changed = widen_columns(self._snapshot, columns, upgrade_protocol=upgrade_protocol, engine=engine)
            return self._moved(*changed)

    @changing
    def add_sample_column(self, name: str = "sample") -> MetadataResult:
        """Add a column with which any engine reads samples: ``WHERE sample < 0.01`` returns the rows of a 1 % sample.

        The column is of type Float32 and holds the weight of each row as a multiple of 1/65536: a condition ``name <
        f`` returns the rows of ``sample=f``, with `f` rounded up to the next multiple. All files are rewritten with it
        in one commit, and rows stay in their cubes. Later writes compute the column; values in their rows are ignored.
        Rows that other engines append have values after the next `optimize`; so do rows of qbeast versions from before
        this column.

        Parameters
        ----------
        name : str, default "sample"
            Name of the column. It must differ from the columns of the table by more than case.

        Returns
        -------
        MetadataResult
            `.changed` is the name, `.rewritten_files` is the number of new files.

        Raises
        ------
        InvalidInputError
            The name is taken or invalid, the table has a sample column, or its dialect is ``"qbeast-spark"``.
        UnsupportedTableError
            The table cannot be written.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "visits", columns=["id"])
        >>> table = qbeast.open_table("visits")
        >>> table.add_sample_column().changed
        ('sample',)
        >>> pl.scan_delta("visits").filter(pl.col("sample") < 0.25).collect().height, table.read(sample=0.25).height
        (234, 234)
        """
        from qbeast_core.table.maintenance.columns import add_sample_column

        with self._engine() as engine:
            return self._moved(*add_sample_column(self._snapshot, name, engine=engine))


def open_version(
    path: str | os.PathLike[str] | Location,
    *,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
    resources: Resources | None = None,
) -> Table:
    """Return a table at a version, or its newest one; see `qbeast.open_table`."""
    load = newest_snapshot if version is None else partial(load_snapshot, version=version)
    snapshot = load(path, storage_options=storage_options, allow_absolute_paths=allow_absolute_paths)
    return Table(snapshot, resources)
