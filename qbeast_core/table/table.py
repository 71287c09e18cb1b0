"""A table at one version, opened: what it is, what it holds, and what reads of it cost.

One class, so one file, and most of it docstrings: a method understands its arguments, and calls the operation, which
stands in a room of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import polars as pl

from qbeast_core.errors import InvalidInputError, refuse
from qbeast_core.forked import FORKED, is_forked, refuse_forked
from qbeast_core.hints import Message, did_you_mean, named
from qbeast_core.html import html_of
from qbeast_core.io.pages import PageReader
from qbeast_core.optional import require
from qbeast_core.plain_text import first_line, on_one_line
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.fractions import Sample, Share
from qbeast_core.query.sql.statement import refuse_statement
from qbeast_core.renamed import renamed
from qbeast_core.runtime import now_ms
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.expressions import Predicate, Value, evaluating, filter_of
from qbeast_core.table.data.frames import FrameLike
from qbeast_core.table.index.carried import counts_of
from qbeast_core.table.read.arrow_stream import arrow_stream
from qbeast_core.table.read.explain import Plan, explain
from qbeast_core.table.read.heights import known_rows
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.read.scan import scan, warn_if_empty
from qbeast_core.table.read.scan_task import ScanTask
from qbeast_core.table.read.some_rows import sample_of_rows
from qbeast_core.table.read.split_scan import TASK_BYTES, scan_tasks
from qbeast_core.table.snapshot.log_files import read_history
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh, travel

_UNREAD: Final = "nothing was changed"


class Table:
    """A table pinned at one version; made by `qbeast.open_table`.

    The object stays at its version, whatever others commit, until `refresh` or a change through this object moves it:
    in place, to the newest version or to the one that the change made. A query made before, such as a LazyFrame of
    `scan`, keeps the version it was made of; `copy.copy` makes a second object that moves by itself. Safe to share
    between threads.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]})
    >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"])
    >>> table = qbeast.open_table("prices")
    >>> table.version, table.indexed_columns, table.scan().filter(pl.col("price") == 3).collect().height
    (0, ('id', 'price'), 11)
    """

    def __init__(self, snapshot: Snapshot, *, pages: PageReader | None = None) -> None:
        _refuse_all_but_snapshots(snapshot)
        self._reader = Reader(snapshot, pages=pages)

    @property
    def _snapshot(self) -> Snapshot:
        """The version that this object is at: that of its reader, so that both move at once."""
        return self._reader.snapshot

    @property
    def uri(self) -> str:
        """Path or address of the table."""
        return self._snapshot.uri

    @property
    def version(self) -> int:
        """The Delta version, 0 or more."""
        return self._snapshot.version

    @property
    def reader(self) -> Reader:
        """What plans reads of this version: for engines, and subject to change."""
        return self._reader

    def _newest(self) -> Snapshot:
        """Return the newest version, which a change starts from."""
        return refresh(self._snapshot)

    def _move_to(self, snapshot: Snapshot | None) -> None:
        """Show the version that a change of ours made; reads begun before keep theirs."""
        self._reader = self._reader.renewed() if snapshot is None else self._reader.at(snapshot)

    def __repr__(self) -> str:
        if is_forked():  # counting would wait for ever
            return f"Table {self.uri!r}, version {self.version}, cannot be used here: {FORKED}"
        latest = self._snapshot.config.latest
        kinds = {} if latest is None else latest.transformer_kinds
        columns = (
            on_one_line(", ".join(f"{name}:{kind}" for name, kind in kinds.items()))
            or "columns that cannot be told"
        )
        files = self._snapshot.files
        return (
            f"Table {self.uri!r}, version {self.version}: {self._snapshot.counted_rows:,} rows "
            f"in {files.height:,} files, indexed by {on_one_line(columns)}"
        )

    def _repr_html_(self) -> str:
        latest = self._snapshot.config.latest
        kinds = {} if latest is None else latest.transformer_kinds
        names = pl.DataFrame(
            {
                "column": self.columns,
                "type": [str(dtype) for dtype in self.schema.dtypes()],
                "indexed by": [kinds.get(name, "") for name in self.columns],
            }
        )
        files = self._snapshot.files
        facts = {
            "version": f"{self.version}",
            "rows": f"{self._snapshot.counted_rows:,}",
            "files": f"{files.height:,}",
            "bytes": f"{int(files['size_bytes'].sum()):,}",
        }
        return html_of(f"Table {self.uri}", facts, names)

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
        """Names of the indexed columns, in order; none where no revision can be read."""
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
        return counts_of(self._snapshot).design_effect

    def refresh(self) -> Table:
        """Move this object to the table's newest version, in place, and return it; cheap where there is none newer.

        Returns
        -------
        Table
            This very object, so that calls can go on: ``table.refresh().count()``.

        Raises
        ------
        TableNotFoundError, NotQbeastTableError
            The table, or its index, is gone; the object stays at its version.
        StorageError
            The store refused.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [1]}), "fed", columns=["id"])
        >>> table = qbeast.open_table("fed")
        >>> _ = qbeast.write_table(pl.DataFrame({"id": [2]}), "fed", mode="append")
        >>> table.version, table.refresh().version, table.version
        (0, 1, 1)
        """
        self._move_to(None)
        return self

    def scan(
        self,
        *,
        where: Predicate | None = None,
        sample: Sample | None = None,
        rows: int | None = None,
        expand: bool = False,
    ) -> pl.LazyFrame:
        """Return the table as a Polars LazyFrame; see `qbeast.scan_table`."""
        refuse_forked(self.uri)
        kept = filter_of(where, self.schema)
        scanned = scan(self._reader, sample_of_rows(self._reader, rows, sample, where), expand=expand)
        return scanned if kept is None else scanned.filter(kept)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.schema)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        """Tell that there is a table, whatever it holds."""
        return True

    def count(self, where: Predicate | None = None, *, sample: Sample | None = None) -> int:
        """Count rows; all of them by the log alone, which reads no data file.

        Parameters
        ----------
        where : polars.Expr or str, optional
            Rows to count. A text is SQL, as in `delete`.
        sample : float, str or tuple of float, optional
            Count those of a sample.

        Raises
        ------
        InvalidInputError
            `where` is no condition on the rows, or cannot be evaluated for one; the sample is no fraction.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> table = qbeast.open_table("ids")
        >>> table.count(), len(table), table.count("id < 10")
        (1000, 1000, 10)
        """
        known = known_rows(self._reader) if where is None and sample is None else None
        if known is not None:
            return known
        with evaluating(where, "where", _UNREAD):
            return int(self._rows(None, where, sample).select(pl.len()).collect().item())

    def head(
        self,
        rows: int = 10,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        sample: Sample | None = None,
    ) -> pl.DataFrame:
        """Return some rows, in no particular order; no more is read than that takes.

        Parameters
        ----------
        rows : int, default 10
            How many, at most.
        columns : sequence of str, optional
            Columns to return; all by default.
        where : polars.Expr or str, optional
            Rows to take from. A text is SQL, as in `delete`.
        sample : float, str or tuple of float, optional
            Take from the rows of a sample.

        Raises
        ------
        InvalidInputError
            A column is not in the table; else as for `count`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").head(3, where="id >= 998")["id"].sort().to_list()
        [998, 999]
        """
        if isinstance(rows, bool) or not isinstance(cast("object", rows), int) or rows < 0:
            refuse("rows", "must be a whole number, 0 or more", _UNREAD, given=rows)
        with evaluating(where, "where", _UNREAD):
            return self._rows(columns, where, sample).head(rows).collect()

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        sample: Sample | None = None,
    ) -> pa.Table:
        """Return rows as a pyarrow Table, in memory; options as for `head`.

        Whatever takes an Arrow stream takes the table itself, batch by batch:
        ``pyarrow.RecordBatchReader.from_stream(table)``.

        Raises
        ------
        InvalidInputError
            As for `head`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").to_arrow(where="id < 3").num_rows
        3
        """
        with evaluating(where, "where", _UNREAD):
            return arrow_stream(self._rows(columns, where, sample)).read_all()

    def to_pandas(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        sample: Sample | None = None,
    ) -> Any:
        """Return rows as a pandas DataFrame, in memory; options as for `head`.

        Raises
        ------
        MissingDependencyError
            pandas is not installed.
        InvalidInputError
            As for `head`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").to_pandas(where="id < 3")["id"].sum()
        np.int64(3)
        """
        require("pandas", "to_pandas")
        with evaluating(where, "where", _UNREAD):
            return self._rows(columns, where, sample).collect().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand all rows to another library, as Arrow batches that are read when they are asked for."""
        return arrow_stream(self.scan()).__arrow_c_stream__(requested_schema)

    def sql(self, query: str, *, sample: Sample | None = None) -> pl.LazyFrame:
        """Ask in Polars' own SQL; the table is called ``self``.

        Filters, columns and limits of the query decide what is read, as in `scan`. Types and rules are those of Polars,
        and not those of conditions in `where`, which are SQL of DuckDB. The text is a whole query, which may name files
        of its own: do not take it from people who are not to read them.

        Parameters
        ----------
        query : str
            ``"SELECT ... FROM self ..."``.
        sample : float, str or tuple of float, optional
            Ask a sample.

        Raises
        ------
        InvalidInputError
            It is no query that Polars understands.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").sql("SELECT count(*) AS n FROM self WHERE id < 10").collect().item()
        10
        """
        refuse_statement(query)
        try:
            answer = self.scan(sample=sample).sql(query)
            answer.collect_schema()
        except (pl.exceptions.PolarsError, TypeError) as error:
            why = first_line(str(error)).rstrip(".")
            taken = [name for name in self.columns if why.endswith(f"unsupported function {name!r}")]
            why += "".join(f'. The column stands in double quotes: "{name}"' for name in taken)
            msg = f"{query!r} is no query that Polars understands: {why}. The table is called self. Nothing was read."
            raise InvalidInputError(msg, argument="query") from error
        return answer

    def _rows(
        self, columns: Sequence[str] | None, where: Predicate | None, sample: Sample | None
    ) -> pl.LazyFrame:
        """Return what is asked for of the rows as a query."""
        rows = self.scan(where=where, sample=sample)
        return rows if columns is None else rows.select(self._reader.names_of(columns))

    @renamed(predicate="where")
    def explain(
        self,
        where: Predicate | None = None,
        sample: Sample | None = None,
        columns: Sequence[str] | None = None,
    ) -> Plan:
        """Tell what a read would open, named to the byte, and why the rest stays closed.

        Parameters
        ----------
        where : polars.Expr or str, optional
            Rows to keep. A text is SQL, as in `delete`.
        sample : float, str or tuple of float, optional
            A fraction in [0, 1], ``(from, to)``, or a text such as ``"1%"``, as for `qbeast.scan_table`.
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
            If the sample is no fraction, a column is not in the table, or `where` is no condition on the rows.

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
            what = (
                f" names no such column(s): {unknown}; the table has {list(self.schema)}; nothing was read."
            )
            told = Message(named("columns", unknown, self.schema), what + did_you_mean(unknown, self.schema))
            raise InvalidInputError(told, argument="columns")
        return explain(self._reader, where, sample, None if columns is None else list(columns))

    def estimate(
        self,
        aggregates: Expressions,
        *,
        by: Expressions | None = None,
        where: Predicate | None = None,
        join: tuple[FrameLike, str | Sequence[str]] | None = None,
        error: Share | None = None,
        absolute: Mapping[str, float] | None = None,
        confidence: Share = 0.95,
        sample: Sample | None = None,
        simultaneous: bool = False,
        max_fraction: Share = 1.0,
        max_bytes: int | None = None,
        min_group_rows: int = 0,
        memory_bytes: int | None = None,
    ) -> Estimate:
        """Answer aggregates to a promised error, from as small a sample as that takes.

        A pilot of about 20,000 rows tells how much answers vary; then the fraction is read that the error asks for,
        and looked at again. What cannot be promised from a sample is read to the end, and is exact then.

        Parameters
        ----------
        aggregates : polars.Expr or str, or a sequence or mapping of these
            ``len``, ``count``, ``sum``, ``mean``, ``var``, ``std``, ``median``, ``quantile`` and ``null_count`` of
            expressions on a row, perhaps with ``filter`` within, and sums, differences, products and ratios of these.
            Texts are SQL: ``"avg(delay)"``, several with commas, each perhaps with ``AS name``. A mapping names the
            answers; else expressions have their own names, and texts stand for themselves. A text alone may also be
            ``"SELECT ... FROM self WHERE ... GROUP BY ..."``, without `by` and `where`.
        by : str or polars.Expr, or a sequence or mapping of these, optional
            What rows are grouped by: columns, expressions on a row such as ``pl.col("ts").dt.truncate("1mo")``, or
            SQL; named as aggregates are. Null is a group. A group that no sampled row belongs to is not listed, see
            `Estimate.complete`.
        where : polars.Expr or str, optional
            Rows that count. A text is SQL.
        join : tuple of frame and column names, optional
            A frame with each value of these columns once, joined to the rows (those without a partner get nulls)
            before anything else: `by`, `where` and `aggregates` may use its columns.
        error : float or str, optional
            How far an answer may be off, as a fraction of it, in (0, 1]: 0.02 or ``"2%"``.
        absolute : mapping of str to float, optional
            Instead, for answers of these names, in their own unit: for what may be near zero.
        confidence : float or str, default 0.95
            How often an answer has to be that near, in (0, 1): 0.99 or ``"99%"``.
        sample : float, str or tuple of float, optional
            Instead of an error: read just this, and tell intervals.
        simultaneous : bool, default False
            Whether all answers of all groups are to be near at once, and not each by itself.
        max_fraction : float or str, default 1.0
            Read no more of the keys, even if the error is not reached: `Estimate.met` tells.
        max_bytes : int, optional
            The same for bytes of data files.
        min_group_rows : int, default 0
            Groups that seem to have fewer rows are listed with their intervals, but not read on for.
        memory_bytes : int, optional
            Memory for the sums of sampled keys, 4 MiB or more; by default the environment's ``QBEAST_MEMORY_BYTES``,
            or half of what the machine or its cgroup has. Where they would take more, everything is read instead,
            which holds groups alone (and for quantiles, values of rows). Where these do not fit either, or the keys
            of a `sample`, that is an error.

        Returns
        -------
        Estimate
            Prints well; `.frame` holds answers and intervals.

        Raises
        ------
        InvalidInputError
            An argument cannot be used, such as an aggregate that a sample says nothing of (``max``); nothing was read.
            Or what has to be held to answer at all takes more than `memory_bytes`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(200_000)})
        >>> rows = rows.with_columns(price=pl.col("id") * 7919 % 1000, kind=pl.col("id") % 3)
        >>> _ = qbeast.write_table(rows, "sales", columns=["id", "price"])
        >>> found = qbeast.open_table("sales").estimate({"mean": pl.col("price").mean()}, by="kind", error=0.02)
        >>> found.met, found.fraction < 0.5
        (True, True)
        >>> abs(found.frame["mean"] / 499.5 - 1).max() < 0.02
        True
        """
        from qbeast_core.table.estimate.question import Asked, question_of
        from qbeast_core.table.estimate.rounds import rounds

        asked = Asked(
            aggregates=aggregates,
            by=by,
            where=where,
            join=join,
            error=error,
            absolute=absolute,
            confidence=confidence,
            sample=sample,
            simultaneous=simultaneous,
            max_fraction=max_fraction,
            max_bytes=max_bytes,
            min_group_rows=min_group_rows,
            memory_bytes=memory_bytes,
        )
        return list(rounds(self._reader, question_of(asked, self.schema)))[-1]

    def estimates(
        self,
        aggregates: Expressions,
        *,
        by: Expressions | None = None,
        where: Predicate | None = None,
        join: tuple[FrameLike, str | Sequence[str]] | None = None,
        error: Share | None = None,
        absolute: Mapping[str, float] | None = None,
        confidence: Share = 0.95,
        simultaneous: bool = False,
        max_fraction: Share = 1.0,
        max_bytes: int | None = None,
        min_group_rows: int = 0,
        memory_bytes: int | None = None,
    ) -> Iterator[Estimate]:
        """Answer aggregates better and better, for those who watch: see `estimate`, which takes the same arguments.

        Yields
        ------
        Estimate
            One a round; each round reads only the rows between two fractions, at most as many again as were read
            before. The last one is the answer that `estimate` promises. Where that needs everything, as rare groups
            do, all is read anew after at most half of it: `min_group_rows` leaves such groups out.

        Raises
        ------
        InvalidInputError
            As `estimate` does, before anything is read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(300_000)}).with_columns(price=pl.col("id") * 7919 % 1000)
        >>> _ = qbeast.write_table(rows, "watched", columns=["id"])
        >>> table = qbeast.open_table("watched")
        >>> steps = list(table.estimates({"sum": pl.col("price").sum()}, where="price < 100", error=0.03))
        >>> [step.met for step in steps][-1], len(steps) > 1
        (True, True)
        """
        from qbeast_core.table.estimate.question import Asked, question_of
        from qbeast_core.table.estimate.rounds import rounds

        asked = Asked(
            aggregates=aggregates,
            by=by,
            where=where,
            join=join,
            error=error,
            absolute=absolute,
            confidence=confidence,
            simultaneous=simultaneous,
            max_fraction=max_fraction,
            max_bytes=max_bytes,
            min_group_rows=min_group_rows,
            memory_bytes=memory_bytes,
        )
        return rounds(self._reader, question_of(asked, self.schema), progressive=True)

    @renamed(predicate="where")
    def scan_tasks(
        self,
        where: Predicate | None = None,
        sample: Sample | None = None,
        columns: Sequence[str] | None = None,
        *,
        task_bytes: int = TASK_BYTES,
    ) -> list[ScanTask]:
        """Cut a read of this version into tasks that any process can do, each without a look at the log.

        Together they return every row that filter and sample keep exactly once. They pickle, for a pool of
        processes or another machine that reaches the files; their pickles hold the storage options.

        Parameters
        ----------
        where, sample
            Rows to keep, exactly, as for `explain`.
        columns : sequence of str, optional
            Columns to return, in order, at least one; all by default.
        task_bytes : int, default 64 MiB
            Stored bytes that a task aims at; larger files are cut between pages where their pages are known.

        Returns
        -------
        list of ScanTask
            Each has `.read()`, which yields frames of bounded size, `.schema` and `.paths`. Empty if no file can
            hold a wanted row.

        Raises
        ------
        InvalidInputError
            If the sample is no fraction, the columns are not different ones of the table, `where` is no
            condition on the rows, or `task_bytes` is no positive integer.
        UnsupportedTableError
            If a file to open lies outside the table, see `qbeast.open_table`.

        Warns
        -----
        EmptySampleWarning
            If the sample holds no row where many were to be expected.

        Examples
        --------
        >>> import pickle, polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000), "half": [i / 2 for i in range(100_000)]})
        >>> _ = qbeast.write_table(rows, "halves", columns=["id"])
        >>> tasks = qbeast.open_table("halves").scan_tasks("id < 70000", columns=["half"], task_bytes=100_000)
        >>> sent = [pickle.dumps(task) for task in tasks]  # say to the processes of a pool
        >>> sum(frame.height for task in sent for frame in pickle.loads(task).read())
        70000
        """
        asked = filter_of(where, self.schema)
        plan = self._reader.plan(asked, sample)
        warn_if_empty(self._reader, sample, plan if asked is None else None)
        return scan_tasks(self._reader, plan, columns, task_bytes=task_bytes)

    @renamed(predicate="where")
    def files(self, where: Predicate | None = None, sample: Sample | None = None) -> pl.DataFrame:
        """Return the data files that a read opens: a list that any engine can take.

        Parameters
        ----------
        where, sample
            Rows to keep, as for `explain`.

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
        plan = self.explain(where, sample)
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
        return self._reader.index_state.listed()

    def history(self, limit: int | None = None) -> pl.DataFrame:
        """Return what was committed up to this version, a row a commit, newest first.

        Parameters
        ----------
        limit : int, optional
            Commits at most; all that the log still has by default.

        Returns
        -------
        polars.DataFrame
            `version`, `timestamp` (UTC), `operation`, `summary` (rows and files that came, changed and went, in words);
            `metrics` and `parameters`, structs with the names that the Delta log has for them, numbers where all of a
            metric's are; `metadata`, a struct with the writer's ``commit_metadata`` and what else a commit holds;
            `engine`, `read_version`, `is_blind_append`, `isolation_level`, `txn_id`. Null: the
            commit does not say. A struct that no commit has anything for is a column of nulls.

        Raises
        ------
        InvalidInputError
            If `limit` is no whole number, 0 or more.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(1000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"], commit_metadata={"why": "first"})
        >>> told = qbeast.open_table("ids").history().select("operation", "metrics", "metadata")
        >>> told.unnest("metrics", "metadata").select("operation", "numOutputRows", "why").rows()
        [('CREATE TABLE AS SELECT', 1000, 'first')]
        """
        if type(limit) not in {int, type(None)} or (limit is not None and limit < 0):
            msg = f"limit must be a whole number, 0 or more, not {limit!r}; nothing was read"
            raise InvalidInputError(msg, argument="limit")
        from qbeast_core.table.inspect.history import history_frame

        return history_frame(read_history(self._reader.store, version=self.version, limit=limit))

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
        from qbeast_core.table.inspect.metrics import build_metrics

        return build_metrics(self._reader.index_state, revision)

    @shows_progress("checking")
    def check(self, *, data: bool = True, progress: ProgressLike = None) -> CheckReport:
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
        progress : callable or bool, optional
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
        from qbeast_core.table.check.check import check_table

        return check_table(self._reader, data=data, progress=callback_of(progress))

    @shows_progress("repairing")
    def repair(self, *, dry_run: bool = False, progress: ProgressLike = None) -> RepairResult:
        """Mend what can be mended without touching a row: in one commit, of the log alone.

        The newest version is checked, log and data. Files whose tags are wrong lose them and become staging: they
        are read whole, and `optimize` indexes them again. Where pages alone are wrong, only the page layout goes;
        wrong sizes are set right, and wrong statistics replaced by the number of rows. Settings of the table that
        cannot be read go, and it goes on with the newest revision that can; files of others are staged. Everything
        else of a file, and every other file, stays as it is; what others commit meanwhile is kept. No row is lost
        or returned twice: files with copies of rows (format 11) keep their tags.

        Parameters
        ----------
        dry_run : bool, default False
            Change nothing and say what would be done.
        progress : callable or bool, optional
            Called with a `Progress` (stage ``"read"``) after every data file that is checked.

        Returns
        -------
        RepairResult
            Prints well; `.repaired_files` names the files and what was done, `.remaining` the faults that stay,
            with advice.

        Raises
        ------
        UnsupportedTableError
            The table must not be written.
        CommitConflictError
            There was always another writer.
        CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").repair(dry_run=True)
        Repair, version 0: 0 file(s) would be mended
        """
        from qbeast_core.table.check.repair import repair_table

        newest = self._newest()
        reader = self._reader.at(newest)
        result, made = repair_table(reader, dry_run=dry_run, progress=callback_of(progress))
        if result.committed:
            self._move_to(made)
        return result

    @renamed(predicate="where")
    def plot(
        self,
        kind: PlotKind = "tree",
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
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
        where : polars.Expr or str, optional
            The query, for space and fraction. A text is SQL, as in `Table.delete`.
        sample : float, str or tuple of float, optional
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
        >>> figure = qbeast.open_table("prices").plot("space", where="id < 3000")
        >>> figure.savefig("space.png")
        """
        from qbeast_core.table.inspect.plot import PlotOptions, plot_table

        options = PlotOptions(
            columns=columns,
            predicate=filter_of(where, self._snapshot.schema),
            sample=sample,
            revision=revision,
            fractions=fractions,
            axes=axes,
        )
        return plot_table(self._reader, kind, options)

    @shows_progress("optimizing")
    def optimize(
        self,
        *,
        revision: int | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        fraction: Share | None = None,
        all_revisions: bool = False,
        full: bool = False,
        fold: bool = False,
        redraw: bool = False,
        dry_run: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressLike = None,
        engine: EngineName = "auto",
        memory_bytes: int | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
    ) -> OptimizeResult:
        """Bring what is out of shape back into shape; the rows stay the same, and a second optimize does nothing.

        Without options these files are rewritten and no others, their rows indexed with the newest revision:
        files without index (``"staged"``), files with deletion vectors (``"deletion vector"``), files much smaller
        than the rest, as far as there are enough of them to join (``"small file"``); and of the newest revision,
        files of another implementation (``"foreign layout"``) and those of which most rows would go deeper into
        a tree of the table as it is now (``"overfull cubes"``). A few more may go with them so that thresholds stay
        in order (``"order of weights"``). Rows that the newest revision has no place for begin a new one in the
        same commit. Where joined files make others small, these follow in another commit. A table in shape is
        left alone.

        Full reads and samples return the same rows before and after. Appends that land meanwhile stay.

        Parameters
        ----------
        revision : int, optional
            Look at this revision alone; its rows stay in it. 0 means the files without index.
        files : sequence of str or path-like, optional
            Rewrite these, whatever their shape: paths as in `files()` or as in the plan.
        fraction : float or str, optional
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
        progress : callable or bool, optional
            Called with a `Progress` at every step; files are counted anew for each group of rows.
        engine, memory_bytes, spill_dir
            Where rows are moved, in how much memory: as for `qbeast.write_table`.

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
        CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Notes
        -----
        The rows of the rewritten files are held in memory while three times as much fits `memory_bytes`; larger
        rewrites read the rows twice and sort them by temporary files.

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
        from qbeast_core.table.engine.choice import EngineChoice
        from qbeast_core.table.rewrite.optimize import OptimizeOptions, optimize
        from qbeast_core.table.write.options import metadata_of

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
        )
        with EngineChoice(engine, memory_bytes, spill_dir).opened() as local:
            options = replace(options, progress=local.report_progress(callback_of(progress)))
            result, newest = optimize(self._reader, options, engine=local)
            result = local.report(result)
        if result.committed:
            self._move_to(newest)
        return result

    @renamed(predicate="where")
    @shows_progress("deleting")
    def delete(
        self,
        where: Predicate | Literal[True],
        *,
        dry_run: bool = False,
        txn: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressLike = None,
        engine: EngineName = "auto",
        memory_bytes: int | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
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
        where : polars.Expr, str or True
            Rows to delete: those for which it is true, not those for which it is null. A text is an expression in
            SQL on the columns of a row, in the dialect of DuckDB: never a query, nothing is read for it.
            True: all rows.
        dry_run : bool, default False
            Change nothing and say which files and rows would go.
        txn : tuple of str and int, optional
            See `qbeast.write_table`: a change that the table holds already is not made again.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable or bool, optional
            See `qbeast.write_table`.
        engine, memory_bytes, spill_dir
            Where rows are moved, in how much memory: as for `qbeast.write_table`.

        Returns
        -------
        ChangeResult
            What was done; `.plan` names the files.

        Raises
        ------
        InvalidInputError
            `where` is no condition on single rows of this table.
        UnsupportedTableError
            The table allows appends only, keeps a feed of changes, holds copies of rows (upgrade it first), or
            must not be written.
        CommitConflictError
            Other writers were faster every time; nothing was changed.
        CommitUnknownError, StorageError
            See `qbeast.write_table`.

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
        from qbeast_core.table.dml.delete import Delete
        from qbeast_core.table.engine.choice import EngineChoice

        options = _options(dry_run, txn, commit_metadata, progress)
        return self._run(Delete(where), EngineChoice(engine, memory_bytes, spill_dir), options)

    @renamed(predicate="where")
    @shows_progress("updating")
    def update(
        self,
        where: Predicate | Literal[True],
        assignments: Mapping[str, Value],
        *,
        dry_run: bool = False,
        txn: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressLike = None,
        engine: EngineName = "auto",
        memory_bytes: int | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
    ) -> ChangeResult:
        """Give columns of some rows other values, in one commit; the index is kept.

        Files that hold no such row stay as they are. The rows of the others are put back, those with other
        values in indexed columns into the cubes where they belong now; rows with values beyond the space of the
        index go into a new revision, as they do in an append, and the others stay in theirs. Otherwise as `delete`.

        Parameters
        ----------
        where : polars.Expr, str or True
            Rows to update: those for which it is true, not those for which it is null. A text is SQL, as in `delete`.
            True: all rows.
        assignments : mapping of str to polars.Expr, str or a plain value
            New values by column, made of the row as it was. A text is SQL, so a text to store is written
            ``"'text'"`` or ``pl.lit("text")``. Numbers are brought to the column's type; fractions do not go
            into columns of whole numbers without a cast of your own.
        dry_run : bool, default False
            Change nothing and say which files and rows would change.
        txn : tuple of str and int, optional
            See `qbeast.write_table`: a change that the table holds already is not made again.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable or bool, optional
            See `qbeast.write_table`.
        engine, memory_bytes, spill_dir
            Where rows are moved, in how much memory: as for `qbeast.write_table`.

        Returns
        -------
        ChangeResult
            What was done; `.plan` names the files.

        Raises
        ------
        InvalidInputError
            `where` is no condition on single rows of this table, an assignment is no value for a column
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
        from qbeast_core.table.dml.update import Update
        from qbeast_core.table.engine.choice import EngineChoice

        options = _options(dry_run, txn, commit_metadata, progress)
        return self._run(Update(where, assignments), EngineChoice(engine, memory_bytes, spill_dir), options)

    def _run(
        self, change: Change | Callable[[LocalEngine], Change], choice: EngineChoice, options: ChangeOptions
    ) -> ChangeResult:
        from qbeast_core.table.dml.change import Change, run_change

        with choice.opened() as local:
            options = replace(options, progress=local.report_progress(options.progress))
            planned = change if isinstance(change, Change) else change(local)
            result, newest = run_change(self._reader, planned, options, engine=local)
            result = local.report(result)
        if result.committed:
            self._move_to(newest)
        return result

    @shows_progress("merging")
    def merge(
        self,
        source: RowsLike,
        on: str | Sequence[str],
        *,
        when_matched: WhenMatched = "update",
        matched_if: Predicate | None = None,
        delete_if: Predicate | None = None,
        update: Mapping[str, Value] | None = None,
        when_not_matched: WhenNew = "insert",
        not_matched_if: Predicate | None = None,
        insert: Mapping[str, Value] | None = None,
        when_not_matched_by_source: WhenNotMatchedBySource = "ignore",
        not_matched_by_source_if: Predicate | None = None,
        source_name: str = "source",
        schema_mode: Literal["merge"] | None = None,
        dry_run: bool = False,
        txn: tuple[str, int] | None = None,
        commit_metadata: Mapping[str, str] | None = None,
        progress: ProgressLike = None,
        engine: EngineName = "auto",
        memory_bytes: int | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
    ) -> ChangeResult:
        """Merge rows into the table, in one commit: by default replace those that it has and insert the others.

        Rows match where all columns of `on` are equal; a null equals nothing. Files that can hold no
        match, by their statistics or their cubes, are not read; files that hold none stay as they are. Rows
        that change or come are put into the cubes where they belong; values beyond the space of the index begin
        a new revision, as they do in an append. Otherwise as `delete`.

        In conditions and values, plain names are columns of the table, and ``source.price`` (in SQL) or
        ``pl.col("source").struct.field("price")`` is a column of the source. Of a new row there is the source
        alone.

        Parameters
        ----------
        source : polars.DataFrame, polars.LazyFrame, iterator of frames or anything with ``__arrow_c_stream__``
            Rows to merge, whatever `qbeast.write_table` takes. Columns that the table does not have are for conditions
            and values alone.
        on : str or sequence of str
            Columns to match by, in the table and in the source.
        when_matched : {"update", "delete", "ignore"}, default "update"
            What becomes of rows of the table that have a match.
        matched_if : polars.Expr or str, optional
            Only of those for which this is true.
        delete_if : polars.Expr or str, optional
            Of rows with a match, those to delete instead of updating them. What is marked so and has no match
            is inserted all the same, unless `not_matched_if` says otherwise.
        update : mapping of str to polars.Expr, str or a plain value, optional
            What columns are set to, as in `update`; by default every column to that of the source.
        when_not_matched : {"insert", "ignore"}, default "insert"
            What becomes of rows of the source that have no match.
        not_matched_if : polars.Expr or str, optional
            Only of those for which this is true.
        insert : mapping of str to polars.Expr, str or a plain value, optional
            What new rows consist of, other columns are null; by default the columns of the source.
        when_not_matched_by_source : {"ignore", "delete"}, default "ignore"
            What becomes of rows of the table that have no match.
        not_matched_by_source_if : polars.Expr or str, optional
            Only of those for which this is true.
        source_name : str, default "source"
            What the source is called in conditions and values, where the table has a column of that name.
        schema_mode : {"merge"}, optional
            Schema evolution: columns of the source that the table does not have are added to it, in the same commit,
            and columns that the source does not have stay as they are in rows that match, and are null in new ones.
            With `update` and `insert` those new columns come that they name.
        dry_run : bool, default False
            Change nothing and say which files and rows would change.
        txn : tuple of str and int, optional
            See `qbeast.write_table`: a change that the table holds already is not made again.
        commit_metadata : mapping of str to str, optional
            Kept in the history beside our own entries.
        progress : callable or bool, optional
            See `qbeast.write_table`.
        engine, memory_bytes, spill_dir
            Where rows are moved, in how much memory: as for `qbeast.write_table`.

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
        A source that takes more than an eighth of the budget is read twice and matched in temporary files, one that can
        be read once is kept there, compressed; the table's rows are held as `optimize` holds them.

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
        >>> noted = pl.DataFrame({"id": [4, 5], "note": ["last", "new"]})
        >>> _ = table.merge(noted, on="id", schema_mode="merge")
        >>> sorted(table.scan().collect().rows())
        [(2, 15, None), (3, 33, None), (4, 40, 'last'), (5, None, 'new')]
        """
        from qbeast_core.table.dml.merge.clauses import Clauses
        from qbeast_core.table.dml.merge.merge import Merge
        from qbeast_core.table.dml.merge.stream import local_merge_source
        from qbeast_core.table.engine.choice import EngineChoice
        from qbeast_core.table.engine.stream import source_of

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
            schema_mode=schema_mode,
        )
        options = _options(dry_run, txn, commit_metadata, progress)
        return self._run(
            lambda local: Merge(local_merge_source(source_of(source), local), clauses),
            EngineChoice(engine, memory_bytes, spill_dir),
            options,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, without those that describe the index."""
        stored = self._snapshot.metadata.configuration
        return {key: text for key, text in stored.items() if not key.startswith("qbeast.")}

    def vacuum(
        self,
        *,
        retention_hours: float | None = None,
        dry_run: bool = True,
        allow_short_retention: bool = False,
    ) -> VacuumResult:
        """Find, or delete, data files that the table does not need any more.

        These are the files of versions that nobody travels back to, and what interrupted writes left behind.
        Files of the newest version are never touched, nor their deletion vectors; nor is anything that is
        not a data file. Deleted files cannot be had back, and versions that need them cannot be read.

        Parameters
        ----------
        retention_hours : float, optional
            Files that were removed from the table, or written, less than so many hours ago are spared; by
            default what the table's property ``delta.deletedFileRetentionDuration`` says, or 168 (a week).
        dry_run : bool, default True
            Tell what would be deleted, and delete nothing.
        allow_short_retention : bool, default False
            Accept less than the table's own retention. A writer at work, or a reader of an older version, can
            lose its files then.

        Returns
        -------
        VacuumResult
            The files and their bytes.

        Raises
        ------
        InvalidInputError
            The retention is none, or too short.
        UnsupportedTableError, StorageError
            The table must not be written; the store refused.

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
        from qbeast_core.table.maintenance.vacuum import vacuum

        return vacuum(
            self._snapshot,
            retention_hours=retention_hours,
            dry_run=dry_run,
            allow_short=allow_short_retention,
            now_ms=now_ms(),
        )

    def restore(self, version: int | str | date, *, dry_run: bool = False) -> RestoreResult:
        """Make an older version the newest: its rows, its columns, its properties and its index.

        One commit; no data is rewritten, and the versions in between stay in the history. What others commit
        while it is on its way is undone as well. Ids of revisions that were made since are not used again.

        Parameters
        ----------
        version : int, date, datetime or str
            A version number, or a time, as for `qbeast.open_table`.
        dry_run : bool, default False
            Change nothing and say what would be done.

        Returns
        -------
        RestoreResult
            The new version, and how many files came back and went.

        Raises
        ------
        VersionNotFoundError
            There is no such version, or a vacuum took some of its files.
        NotQbeastTableError
            The table had no Qbeast index then.
        UnsupportedTableError
            The table must not be written, or allows appends only.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> for day in range(3):
        ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "log", columns=["day"], mode="append")
        >>> table = qbeast.open_table("log")
        >>> table.restore(0).version, table.scan().collect()["day"].to_list()
        (3, [0])
        """
        from qbeast_core.table.maintenance.restore import restore

        if cast("object", version) is None:
            refuse("version", "must be a number or a time", "nothing was changed", given=version)
        number, moment = travel(version)
        newest = self._newest()
        options = newest.storage_options
        old = load_snapshot(newest.uri, version=number, timestamp=moment, storage_options=options)
        result, outcome = restore(newest, old, dry_run=dry_run)
        if outcome is not None:
            self._move_to(outcome.snapshot)
        return result

    def switch_dialect(self, dialect: BlocksDialect, *, jvm: JvmRelease = "0.7") -> DialectResult:
        """Spell the index in the log anew, for readers that know one of its two spellings only.

        One commit that changes tags alone: no file is rewritten, and qbeast reads both spellings at any time.
        Files written in dialect ``"documented"`` hold a column `_qbeast_weight` beyond the table's schema. An
        optimize by qbeast-spark 0.7 fails on it, or takes it for a column that was added; the result names these
        files, a `HiddenColumnWarning` says so, and ``optimize(full=True)`` takes the column out.

        Parameters
        ----------
        dialect : {"documented", "qbeast-spark"}
            As the format's documents spell blocks, or as the JVM implementation does.
        jvm : {"0.7", "0.8"}, default "0.7"
            Which qbeast-spark is to read the table: its last release, which fails on quantiles and on columns
            of one value, or its main branch.

        Returns
        -------
        DialectResult
            The version, and how many files got new tags.

        Raises
        ------
        InvalidColumnsError
            The JVM cannot read an index of these columns: of type byte, short or timestamp without zone, or,
            up to 0.7, by quantiles.
        InvalidInputError, UnsupportedTableError
            There is no such dialect; the table must not be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": range(9)}), "both", columns=["a"])
        >>> table = qbeast.open_table("both")
        >>> table.switch_dialect("qbeast-spark", jvm="0.8").retagged_files
        1
        """
        from qbeast_core.table.maintenance.dialect import switch_dialect

        result, outcome = switch_dialect(self._newest(), dialect, jvm=jvm)
        self._move_to(outcome.snapshot)
        return result

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set properties of the table, or unset them, in one commit.

        Parameters
        ----------
        properties : mapping of str to str or None
            None unsets. Names of your own, and those of Delta that ask nothing new of readers and writers, for
            example ``delta.checkpointInterval`` or ``delta.appendOnly``. A change data feed
            (``delta.enableChangeDataFeed``) and check constraints (``delta.constraints.<name>``) can be unset.

        Returns
        -------
        int
            The version that has them; the present one if nothing changed.

        Raises
        ------
        InvalidInputError
            A name of qbeast's own, a value that is no text, or one that a property of Delta does not take.
        UnsupportedTableError
            A property, or the table, has to do with a feature that qbeast does not support.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`; a conflict also where another writer set the same property.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "owned", columns=["a"])
        >>> table = qbeast.open_table("owned")
        >>> table.set_properties({"owner": "us"}), table.properties
        (1, {'owner': 'us'})
        """
        from qbeast_core.table.maintenance.metadata import set_properties

        outcome = set_properties(self._newest(), properties)
        self._move_to(outcome.snapshot)
        return outcome.version

    def add_columns(self, columns: Mapping[str, TypeLike] | pa.Schema) -> int:
        """Add columns at the end of the schema, in one commit; existing rows get nulls.

        Renaming and dropping columns is not supported: Delta tables can do it with the feature columnMapping, and
        tables that use it are refused by name.

        Parameters
        ----------
        columns : mapping of str to type, or pyarrow.Schema
            New columns; names differ from those of the table in more than case. Types are those of Polars
            (``pl.Int64``), Python (``int``), Arrow (``pa.int64()``), `deltalake` or PySpark, or names as Delta, SQL or
            Polars have them (``"long"``, ``"bigint"``, ``"Int64"``, ``"decimal(9,2)"``).

        Returns
        -------
        int
            The version that has them; the present one if there are none.

        Raises
        ------
        SchemaMismatchError
            A column of that name is there.
        InvalidInputError
            A type that Delta does not have.
        UnsupportedTableError
            The table must not be written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Warns
        -----
        AddedColumnWarning
            If qbeast-spark uses the table: an optimize of its release 0.7.1 loses the values of such columns.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "wider", columns=["a"])
        >>> table = qbeast.open_table("wider")
        >>> table.add_columns({"note": pl.String, "count": "long"}), table.scan().collect().rows()
        (1, [(1, None, None)])
        """
        from qbeast_core.table.maintenance.metadata import add_columns

        outcome = add_columns(self._newest(), columns)
        self._move_to(outcome.snapshot)
        return outcome.version

    def widen_columns(self, columns: Mapping[str, TypeLike]) -> int:
        """Give columns a wider type, in one commit.

        From Int8 and Int16 to Int32 at most, no file is rewritten, and indexed columns may be among them. To Int64, and
        from Float32 to Float64, all files are rewritten with the new type, each row into the cube it had: tables that
        hold files of both types need Delta's feature typeWidening, which many readers refuse.

        Parameters
        ----------
        columns : mapping of str to type
            Types as for `add_columns`. Columns of integers, with a wider type of integers; or of Float32, with Float64.

        Returns
        -------
        int
            The version that has them; the present one if they have these types already.

        Raises
        ------
        InvalidInputError
            There is no such column.
        UnsupportedTableError
            Another change of type, an indexed column whose rows would have other hashes, or the table must not be
            written.
        CommitConflictError, CommitUnknownError, StorageError
            See `qbeast.write_table`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"a": [1], "n": [7]}, schema={"a": pl.Int64, "n": pl.Int8})
        >>> _ = qbeast.write_table(rows, "narrow", columns=["a"])
        >>> table = qbeast.open_table("narrow")
        >>> table.widen_columns({"n": pl.Int32}), table.schema["n"]
        (1, Int32)
        >>> table.widen_columns({"n": pl.Int64}), table.scan().collect().rows()
        (2, [(1, 7)])
        """
        from qbeast_core.table.engine.choice import EngineChoice
        from qbeast_core.table.maintenance.widen import widen_columns

        with EngineChoice().opened() as local:
            outcome = widen_columns(self._reader, columns, engine=local)
        self._move_to(outcome.snapshot)
        return outcome.version


def _refuse_all_but_snapshots(snapshot: object) -> None:
    """Raise where somebody makes a table of a path."""
    if not isinstance(snapshot, Snapshot):
        msg = f"a Table is opened, not made: call qbeast.open_table(path); got {snapshot!r}"
        raise InvalidInputError(msg, argument="snapshot")


if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from qbeast_core.log.type_names import TypeLike
    from qbeast_core.table.check.faults import CheckReport
    from qbeast_core.table.check.repair import RepairResult
    from qbeast_core.table.dml.change import Change, ChangeOptions
    from qbeast_core.table.dml.merge.clauses import WhenMatched, WhenNew, WhenNotMatchedBySource
    from qbeast_core.table.dml.plan import ChangeResult
    from qbeast_core.table.engine.choice import EngineChoice, EngineName, LocalEngine
    from qbeast_core.table.engine.stream import RowsLike
    from qbeast_core.table.estimate.named import Expressions
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.inspect.metrics import Metrics
    from qbeast_core.table.inspect.plot import PlotKind
    from qbeast_core.table.maintenance.dialect import DialectResult, JvmRelease
    from qbeast_core.table.maintenance.restore import RestoreResult
    from qbeast_core.table.maintenance.vacuum import VacuumResult
    from qbeast_core.table.rewrite.optimize import OptimizeResult


def _options(
    dry_run: bool,  # noqa: FBT001 - handed on
    txn: tuple[str, int] | None,
    commit_metadata: Mapping[str, str] | None,
    progress: ProgressLike,
) -> ChangeOptions:
    from qbeast_core.table.dml.change import ChangeOptions
    from qbeast_core.table.write.options import metadata_of

    metadata = metadata_of(commit_metadata)
    return ChangeOptions(dry_run=dry_run, txn=txn, commit_metadata=metadata, progress=callback_of(progress))
