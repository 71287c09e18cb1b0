"""The class `Read`: rows of a table at one version, and all that can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack

import polars as pl

from qbeast_core.api.keywords import EstimateKeywords, Request
from qbeast_core.errors import InvalidInputError, check_whole_number, hints_methods
from qbeast_core.plan.weights import Sample, another_sample, parts_of
from qbeast_core.support.frames import html_of
from qbeast_core.support.hints import read_hint
from qbeast_core.support.process import Resources, refuse_forked, require
from qbeast_core.table.data.expressions import evaluating, filter_of
from qbeast_core.table.data.frames import arrow_stream, batches_within, query_batches
from qbeast_core.table.read.planner import TASK_BYTES, Planner, ScanPlan, sampled_by, scan_tasks
from qbeast_core.table.read.scan import (
    SAMPLING_WEIGHT,
    known_rows,
    query_rows,
    read_strata,
    sample_of_rows,
    scan,
    warn_of_sample,
)
from qbeast_core.table.read.shuffled import (
    BATCH_BYTES,
    BUFFER_BYTES,
    SHUFFLED_ROWS,
    Order,
    ShuffledBatches,
    ShuffledRead,
    State,
)
from qbeast_core.table.read.tasks import ScanTask

if TYPE_CHECKING:
    import pyarrow as pa

    from qbeast_core.table.engine.engine import Engine
    from qbeast_core.table.estimate.question import Function
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.estimate.sum_task import Expressions
    from qbeast_core.table.read.explain import Plan
    from qbeast_core.table.read.torch_dataset import TorchDataset


# Arguments of `Table.rows` that estimates and divisions of rows cannot use.
_UNUSED: Final = ("rows", "by", "seed", "expand")


@hints_methods
@dataclass(frozen=True, eq=False, repr=False)
class Read:
    """Rows of a table at one version: a condition, columns and a sample. Made by `Table.rows`.

    It does not change: all of its methods return rows of the same version and the same sample, which is chosen once.
    No row is read before a method is called. It can be pickled, and shared between threads.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
    >>> few = qbeast.open_table("ids").rows("id < 10")
    >>> few.count(), few.read().height, few.lazy().select(pl.col("id").sum()).collect().item()
    (10, 10, 45)
    """

    planner: Planner
    """Planner of the version; it is subject to change."""

    request: Request = field(default_factory=Request)
    """The condition, the columns and the sample, as they were passed; it is subject to change."""

    resources: Resources | None = None

    if not TYPE_CHECKING:  # type checkers report unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            known = [member for member in dir(type(self)) if not member.startswith("_")]
            hint = read_hint(name, known, scan=pl.LazyFrame, frame=pl.DataFrame)
            msg = f"the rows of a table have no attribute {name!r}.{hint}"
            raise AttributeError(msg, name=name, obj=self)

        def __getitem__(self, key: object) -> NoReturn:
            msg = f"the rows of a table are not subscriptable. Use read()[{key!r}], or batches()."
            raise TypeError(msg)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        """Return True, also without rows."""
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the request. The plan is made again."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __repr__(self) -> str:
        snapshot = self.planner.snapshot
        return f"Read of {snapshot.uri!r}, version {snapshot.version}: {self.request}"

    def _repr_html_(self) -> str:
        return html_of(repr(self), {})

    def lazy(self) -> pl.LazyFrame:
        """Return the rows as a Polars LazyFrame. Only the data that a query needs is read.

        Raises
        ------
        InvalidInputError
            The sample is not a fraction or a pair of fractions, `rows` is not a whole number or is combined with
            `sample`, a column is not in the table, `where` is not a condition on rows, or the sample of a table without
            an index lacks `sample_by`.

        Warns
        -----
        EmptySampleWarning
            The sample is empty although many rows were expected: there are few index keys.
        UnevenSampleWarning, UnindexedSampleWarning
            A reindex moves the rows of the sample, or it reads all files without an index on the columns `sample_by`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 10").lazy().select(pl.len()).collect().item()
        10
        """
        refuse_forked(self.planner.snapshot.uri)
        condition, names = self._filter, self._names
        if self.request.by is not None:
            return self._strata().lazy()
        lazy = scan(self._planner, self._sample, expand=self.request.expand)
        if condition is not None:
            lazy = lazy.filter(condition)
        weights = [SAMPLING_WEIGHT] if self.request.expand else []
        return lazy if names is None else lazy.select([*names, *weights])

    def read(self) -> pl.DataFrame:
        """Read the rows into memory. Raises InvalidInputError also if `where` cannot be evaluated for a row.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 3", columns=["id"]).read()["id"].sort().to_list()
        [0, 1, 2]
        """
        with evaluating(self._condition):
            return self.lazy().collect()

    def count(self) -> int:
        """Count the rows. Without a condition and a sample, only the log is read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 10").count()
        10
        """
        known = known_rows(self._planner) if self.request.is_all else None
        if known is not None:
            return known
        with evaluating(self._condition):
            return int(self.lazy().select(pl.len()).collect().item())

    def head(self, count: int = 10) -> pl.DataFrame:
        """Return some of the rows, in no particular order. Only the data for these rows is read.

        Parameters
        ----------
        count : int, default 10
            Maximum number of rows.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id >= 998").head(3)["id"].sort().to_list()
        [998, 999]
        """
        check_whole_number("count", count, 0)
        with evaluating(self._condition):
            return self.lazy().head(count).collect()

    def arrow(self) -> pa.Table:
        """Read the rows into memory as a pyarrow Table.

        Libraries that support Arrow streams read batches: ``pyarrow.RecordBatchReader.from_stream(rows)``.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 3").arrow().num_rows
        3
        """
        with evaluating(self._condition):
            return arrow_stream(self.lazy()).read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream of Arrow batches, each read when the consumer requests it."""
        return arrow_stream(self.lazy()).__arrow_c_stream__(requested_schema)

    def pandas(self) -> Any:
        """Read the rows into memory as a pandas DataFrame. Raises MissingDependencyError without pandas.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 3").pandas()["id"].sum()
        np.int64(3)
        """
        require("pandas", "pandas()")
        with evaluating(self._condition):
            return self.lazy().collect().to_pandas()

    def batches(
        self, *, batch_rows: int | None = None, batch_bytes: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Read the rows in batches, in the order of the index and in bounded memory.

        Parameters
        ----------
        batch_rows : int, optional
            Rows of a batch; the last one may have fewer.
        batch_bytes : int, optional
            Approximate maximum size of a batch in memory, 64 MiB by default. A batch has at least one row. Not with
            `batch_rows`.

        Yields
        ------
        polars.DataFrame
            Frames with at least one row each.

        Raises
        ------
        InvalidInputError
            As for `read`, or an argument is not a whole number above 0.
        StorageError
            A file of the table cannot be read.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> [batch.height for batch in qbeast.open_table("ids").rows().batches(batch_bytes=4000)]
        [500, 500]
        """
        for name, size in {"batch_rows": batch_rows, "batch_bytes": batch_bytes}.items():
            check_whole_number(name, 1 if size is None else size, 1)
        if batch_rows is not None and batch_bytes is not None:
            msg = "`batch_rows` and `batch_bytes` cannot be combined. Pass one of them."
            raise InvalidInputError(msg, argument="batch_bytes", value=batch_bytes)
        lazy = self.lazy()

        def batches() -> Iterator[pl.DataFrame]:
            with evaluating(self._condition):
                if batch_rows is not None:
                    yield from query_batches(lazy, batch_rows=batch_rows)
                else:
                    yield from batches_within(lazy, size_bytes=batch_bytes or BATCH_BYTES)

        return batches()

    def shuffled(
        self,
        seed: int = 0,
        *,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        batch_rows: int = SHUFFLED_ROWS,
        buffer_bytes: int = BUFFER_BYTES,
        resume: State | None = None,
    ) -> ShuffledBatches:
        """Read the rows in batches in a random order, for training, in bounded memory. Each row is returned once.

        Parameters
        ----------
        seed : int, default 0
            Seed of the order. The same seed, epoch, version and arguments return the same batches.
        epoch : int, default 0
            Each epoch has another order.
        rank, world_size : int, default 0 and 1
            Which of how many readers this one is. Readers have no row in common, and the same number of rows: up to
            ``world_size - 1`` rows are left out, other rows in each epoch. With a filter, a sample or deleted rows,
            each reader counts the rows first, from the columns of the filter.
        batch_rows : int, default 1024
            Rows of a batch; the last one may have fewer.
        buffer_bytes : int, default 256 MiB
            Rows that are kept in memory. A read takes about twice as much memory. Up to sixteen times as many rows are
            shuffled through temporary files.
        resume : Mapping, optional
            Result of ``state_dict()`` of the batches of an earlier read with the same arguments: continue after its
            last batch. The rows that are shuffled together are read again.

        Returns
        -------
        ShuffledBatches
            An iterator of frames with at least one row each.

        Raises
        ------
        InvalidInputError
            As for `read`; or an argument is not a whole number in its range; or `resume` is of another read.
        StorageError
            A file of the table cannot be read, or the folder for temporary files has no room left.

        Warns
        -----
        SmallBufferWarning
            The buffer is smaller than a sixteenth of the rows, or smaller than the rows if the folder for temporary
            files has no room. Rows are shuffled in parts. The message names a buffer that is large enough.

        Notes
        -----
        A shuffled read opens each page once. Rows up to sixteen times the buffer have any order with the same chance,
        as if they were shuffled in memory. They are all read before the first batch. Rows beyond the buffer are in
        the folder that the environment variable ``QBEAST_SPILL_DIR`` names, by default that of the system, until the
        last batch is read or the iterator is deleted. Of a larger table, each part has rows from everywhere
        in the table. There a file without an index is one piece: optimize a table first if such files are large.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> rows = qbeast.open_table("ids").rows()
        >>> batches = rows.shuffled(7, batch_rows=300)
        >>> next(batches).height, next(batches).height
        (300, 300)
        >>> state = batches.state_dict()  # after a restart, the other 400 rows follow
        >>> [batch.height for batch in rows.shuffled(7, batch_rows=300, resume=state)]
        [300, 100]
        """
        order = Order.checked(seed, epoch, rank, world_size)
        return self._in_order(order, resume, batch_rows=batch_rows, buffer_bytes=buffer_bytes)

    def torch(
        self,
        seed: int = 0,
        *,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        batch_rows: int = SHUFFLED_ROWS,
        buffer_bytes: int = BUFFER_BYTES,
        convert: Callable[[pl.DataFrame], Any] | None = None,
    ) -> TorchDataset:
        """Return shuffled batches as a PyTorch ``IterableDataset``, for a ``DataLoader`` with ``batch_size=None``.

        Parameters
        ----------
        seed, epoch, batch_rows, buffer_bytes
            See `shuffled`.
        rank, world_size : int, optional
            By default those of the process group of ``torch.distributed``, if there is one now. The workers of a loader
            divide the rows of a rank among them.
        convert : callable, optional
            Turns a frame into a batch. By default, a dict has a tensor for each column of numbers or of lists of equal
            length, and a list for each other column.

        Returns
        -------
        TorchDataset
            ``set_epoch(n)`` chooses the order of the next iteration; ``state_dict()`` and ``load_state_dict`` continue
            one, also in a ``StatefulDataLoader`` of torchdata. A loader with workers needs
            ``multiprocessing_context="spawn"``.

        Raises
        ------
        MissingDependencyError
            If PyTorch is not installed.
        InvalidInputError
            As for `shuffled`. While iterating: a column of whole numbers or booleans has nulls.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> dataset = qbeast.open_table("ids").rows().torch(batch_rows=256)  # doctest: +SKIP
        >>> [len(batch["id"]) for batch in torch.utils.data.DataLoader(dataset, batch_size=None)]  # doctest: +SKIP
        [256, 256, 256, 232]
        """
        require("torch", "torch()")
        from qbeast_core.table.read.torch_dataset import TorchDataset, rank_of

        order = Order.checked(seed, epoch, *rank_of(rank, world_size))
        return TorchDataset(
            partial(self._in_order, batch_rows=batch_rows, buffer_bytes=buffer_bytes), order, convert
        )

    def split(self, shares: Mapping[str, float], *, seed: int = 0) -> dict[str, pl.LazyFrame]:
        """Return disjoint random parts of the rows, such as rows for training, validation and test.

        A part holds about its share of the rows, the same ones each time, also after appends and optimizes. Rows of one
        key (the indexed columns, the sampling key or `sample_by`) are in one part together.

        Parameters
        ----------
        shares : mapping of str to float
            Name and share of each part. Shares are above 0 and add up to 1, or less.
        seed : int, default 0
            Another division of the rows.

        Returns
        -------
        dict of str to polars.LazyFrame
            The parts, in the order of `shares`.

        Raises
        ------
        InvalidInputError
            The shares are not numbers above 0, or add up to more than 1; or the read is a sample; or as for `lazy`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(10_000)}), "ids", columns=["id"])
        >>> parts = qbeast.open_table("ids").rows().split({"train": 0.8, "valid": 0.1, "test": 0.1})
        >>> {name: part.collect().height for name, part in parts.items()}
        {'train': 8010, 'valid': 1025, 'test': 965}
        """
        self.request.refuse("split", "sample", *_UNUSED)
        return {
            name: pl.concat([self._of(bounds).lazy() for bounds in ranges])
            for name, ranges in parts_of(shares, seed).items()
        }

    def folds(self, count: int, *, seed: int = 0) -> list[tuple[pl.LazyFrame, pl.LazyFrame]]:
        """Return pairs of rows for training and for validation. Each row is in the validation of one pair.

        Parameters
        ----------
        count : int
            Number of folds, 2 or more.
        seed : int, default 0
            Another division of the rows.

        Returns
        -------
        list of tuple
            ``(training, validation)`` for each fold.

        Raises
        ------
        InvalidInputError
            `count` is not a whole number, 2 or more; or as for `split`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(10_000)}), "ids", columns=["id"])
        >>> folds = qbeast.open_table("ids").rows().folds(5)
        >>> sum(validation.collect().height for _, validation in folds)
        10000
        """
        check_whole_number("count", count, 2)
        parts = self.split({str(number): 1 / count for number in range(count)}, seed=seed)
        return [
            (pl.concat([part for other, part in parts.items() if other != name]), validation)
            for name, validation in parts.items()
        ]

    def sql(self, query: str) -> pl.LazyFrame:
        """Run a query in SQL. The name of the rows is ``self``.

        Filters, columns and limits reduce the data that is read, as in `lazy`; ``count(*)`` reads only what the log
        does not count.

        Parameters
        ----------
        query : str
            ``"SELECT ... FROM self ..."``, perhaps with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, OFFSET and DISTINCT.
            Its expressions are those of `where`, with the same types, rules and results. A query with anything else (a
            join, a query inside, WITH, UNION, a window, a function that `where` does not have) runs in the SQL of
            Polars instead, with the types and rules of Polars; it may read other files: do not accept it from people
            who must not read them.

        Returns
        -------
        polars.LazyFrame
            Columns are named by their alias, the name of the column, or the text of the expression. Sums of integers
            that do not fit in 64 bits raise an error of Polars when rows are collected.

        Raises
        ------
        InvalidInputError
            The query has an error, or Polars cannot run it.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> rows = qbeast.open_table("ids").rows("id >= 0")
        >>> rows.sql("SELECT count(*) AS n FROM self WHERE id < 10").collect().item()
        10
        >>> rows.sql("SELECT id % 3 AS rest, sum(id) FROM self GROUP BY ALL ORDER BY 2 DESC LIMIT 1").collect().rows()
        [(0, 166833)]
        """
        return query_rows(query, self.lazy, self.planner.snapshot.schema)

    def explain(self) -> Plan:
        """Plan the read without reading rows: the files, pages and bytes to read, and why others are skipped.

        A read also opens the columns of the filter, and with a sample the indexed ones.

        Returns
        -------
        Plan
            `.files` is a frame, `.bytes_opened`, `.bytes_total`, `.rows_opened`, `.rows_total` and `.share` are
            numbers. If it opens more than a third of the bytes, `.hint`, which is printed last, names the calls after
            which it would open less, and how much. A small sample of rows is read for that.

        Notes
        -----
        A plan with a filter prints how many rows and bytes a delete or an update of these rows copies at most, as far
        as the log has it (`.rows_in_files`, `.bytes_in_files`). ``table.delete(where, dry_run=True)`` reads the columns
        of the filter, and counts rows and bytes without and with deletion vectors.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000)})
        >>> _ = qbeast.write_table(rows, "ids", columns=["id"])
        >>> plan = qbeast.open_table("ids").rows("id < 1000").explain()
        >>> plan.rows_total, plan.share < 0.3
        (100000, True)
        """
        self.request.refuse("explain", "by")
        from qbeast_core.table.read.explain import explain

        return replace(explain(self._planner, self._condition, self._sample, self._names), adviser=_hint_of)

    def files(self) -> pl.DataFrame:
        """Return the data files that the read opens, for other engines.

        Returns
        -------
        polars.DataFrame
            `path` (decoded), `size_bytes`, `num_records` (with hidden rows), `revision_id` (null: not indexed),
            `ranges` (byte ranges of the column data to read; null: the whole file), `has_deletion_vector`. The engine
            has to apply the filter and the sample to rows. It has to leave out the rows that a deletion vector hides:
            `tasks` does that, and ``optimize(purge=True)`` removes them.

        Raises
        ------
        InvalidInputError, UnsupportedTableError
            As for `tasks`.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> _ = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "ids", columns=["id"])
        >>> qbeast.open_table("ids").rows("id < 10").files()["num_records"].to_list()
        [1000]
        """
        return self.explain().files_to_open

    def tasks(self, *, task_bytes: int = TASK_BYTES) -> list[ScanTask]:
        """Split the read into tasks that any process can run without reading the log.

        Together the tasks return each row of the read once. They can be pickled, for a pool of processes or for another
        machine with access to the files. The pickles contain the storage options.

        Parameters
        ----------
        task_bytes : int, default 64 MiB
            Approximate number of stored bytes per task. Larger files are split between pages if their pages are known.

        Returns
        -------
        list of ScanTask
            Each has `.read()`, which yields frames of bounded size, `.schema` and `.paths`. Empty if no file can hold
            a matching row.

        Raises
        ------
        InvalidInputError
            As for `lazy`; or `task_bytes` is not a positive integer, or `by` or `expand` was passed.
        UnsupportedTableError
            A file is outside of the table, see `OpenKeywords`.

        Examples
        --------
        >>> import pickle, polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000), "half": [i / 2 for i in range(100_000)]})
        >>> _ = qbeast.write_table(rows, "halves", columns=["id"])
        >>> tasks = qbeast.open_table("halves").rows("id < 70000", columns=["half"]).tasks(task_bytes=100_000)
        >>> pickles = [pickle.dumps(task) for task in tasks]  # for example, to send to a pool of processes
        >>> sum(frame.height for task in pickles for frame in pickle.loads(task).read())
        70000
        """
        self.request.refuse("tasks", "by", "expand")
        split = partial(scan_tasks, columns=self.request.columns, task_bytes=task_bytes)
        warn_of_sample(self._planner, self._sample)
        return [task for plan in self._planner.plans(self._filter, self._sample) for task in split(*plan)]

    def estimate(self, aggregates: Expressions | Function, **keywords: Unpack[EstimateKeywords]) -> Estimate:
        """Estimate aggregates with a maximum error, from the smallest sample that is sufficient.

        A pilot of about 20,000 rows measures how much the answers vary. Then the fraction that the error needs is read
        and checked. Answers that a sample cannot provide with this error are computed exactly from all rows.

        Parameters
        ----------
        aggregates : polars.Expr or str, a sequence or mapping of these, or a function
            ``len``, ``count``, ``sum``, ``mean``, ``var``, ``std``, ``median``, ``quantile`` and ``null_count`` of
            expressions on a row, perhaps with ``filter`` within, and sums, differences, products and ratios of these;
            ``n_unique`` of the columns that the table is sampled by (several: of ``pl.struct``). Texts are SQL:
            ``"avg(delay)"``, or several with commas, optionally with ``AS name``. A mapping sets the names of the
            answers; otherwise the name is the name of the expression, or the text. A single text can also be
            ``"SELECT ... FROM self WHERE ... GROUP BY ..."``, without `by` and `where`, also with JOIN, HAVING, ORDER
            BY and LIMIT. Then the frame has the rows of the query, in order, and says which of them are certain. If an
            aggregate chooses them, the confidence holds as with `simultaneous`.
            A function takes a Polars frame of rows and returns a number, a mapping of names to numbers, a frame of one
            row, or a sequence of numbers. See the notes.
        **keywords
            See `EstimateKeywords`.

        Returns
        -------
        Estimate
            `.frame` holds answers and intervals.

        Raises
        ------
        InvalidInputError
            An argument is invalid, such as an aggregate that a sample cannot estimate (``max``), or the answer needs
            more memory than the table may use. A function raised an error, which is the cause, or returned something
            else.

        Notes
        -----
        Sums of sampled keys must fit in the memory of the table's `resources`. If they need more, all rows are read,
        which needs memory for groups only (and for quantiles, values of rows). If these do not fit, or the keys of
        `sample` do not fit, an error is raised. With `per` or a join of tables, rows are read in ranges of keys that
        fit in a quarter of the memory, and parts of the files are read for several ranges; if the rows of one key do
        not fit, an error is raised. For a function, the rows of the sample must fit in a third of it.

        The error of a function is estimated by a jackknife: from its values on the sample without each group of keys.
        This holds for functions that have about the same value on any large random sample of keys: ratios, weighted
        means, correlations, regression coefficients, and many statistics of values per key. An answer is not reliable,
        and `Estimate.notes` has the reason, if the function depends on the number of rows, as sums, counts, maxima and
        numbers of distinct values do; if most groups of keys do not change it; if fewer than 100 keys were sampled; or
        if one group of keys has more than 30 % of the variance. Without `sample`, more rows are then read, up to all.
        A function must not depend on the order of rows. `by` and `join` are not supported: a function can group and
        join, and return several numbers.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000)})
        >>> rows = rows.with_columns(price=pl.col("id") * 7919 % 1000, kind=pl.col("id") % 3)
        >>> _ = qbeast.write_table(rows, "sales", columns=["id", "price"])
        >>> found = qbeast.open_table("sales").rows().estimate({"mean": pl.col("price").mean()}, by="kind", error=0.02)
        >>> found.met, found.fraction < 0.5
        (True, True)
        >>> abs(found.frame["mean"] / 499.5 - 1).max() < 0.02
        True

        The median of what users spend, with a sampling key:

        >>> rows = rows.with_columns(user=pl.col("id") * 31 % 20_000)
        >>> _ = qbeast.write_table(rows, "orders", columns=["price"], sample_by=["user"])
        >>> answers = {"median": pl.col("spend").median(), "users": pl.len()}
        >>> orders = qbeast.open_table("orders").rows()
        >>> found = orders.estimate(answers, per={"spend": pl.col("price").sum()}, error=0.1)
        >>> found.met, abs(found.frame["users"].item() / 20_000 - 1) < 0.1
        (True, True)

        A function of rows, here the correlation of two columns:

        >>> rows = rows.with_columns(weight=pl.col("price") + pl.col("id") % 500)
        >>> _ = qbeast.write_table(rows, "parcels", columns=["id", "price"])
        >>> def correlation(rows):
        ...     return rows.select(pl.corr("price", "weight")).item()
        >>> found = qbeast.open_table("parcels").rows(columns=["price", "weight"]).estimate(correlation, error=0.02)
        >>> found.met, found.fraction < 0.5
        (True, True)
        >>> abs(found.frame["correlation"].item() / correlation(rows) - 1) < 0.02
        True
        """
        self.request.refuse("estimate", *_UNUSED)
        return list(self._rounds(aggregates, keywords))[-1]

    def estimates(self, aggregates: Expressions, **keywords: Unpack[EstimateKeywords]) -> Iterator[Estimate]:
        """Estimate aggregates in rounds of growing samples. `sample` is not supported.

        Arguments and errors are those of `estimate`. Errors are raised before rows are read.

        Yields
        ------
        Estimate
            One for each round. A round reads only new rows, at most as many as all rounds before it. The last one is
            the result of `estimate`. If it needs all rows, as rare groups do, all rows are read again after at most
            half of them.

        Examples
        --------
        >>> import polars as pl, qbeast
        >>> rows = pl.DataFrame({"id": range(100_000)}).with_columns(price=pl.col("id") * 7919 % 1000)
        >>> _ = qbeast.write_table(rows, "watched", columns=["id"])
        >>> cheap = qbeast.open_table("watched").rows("price < 100")
        >>> steps = list(cheap.estimates({"sum": pl.col("price").sum()}, error=0.03))
        >>> [step.met for step in steps][-1], len(steps) > 1
        (True, True)
        """
        self.request.refuse("estimates", "columns", "sample", *_UNUSED)
        return self._rounds(aggregates, keywords, progressive=True)

    def _of(self, bounds: Sample) -> Read:
        return replace(self, request=replace(self.request, sample=bounds))

    @cached_property
    def _planner(self) -> Planner:
        """Planner whose samples select rows by the columns `sample_by`."""
        return sampled_by(self.planner, self.request.sample_by)

    @cached_property
    def _condition(self) -> Any:
        """The condition without the types of the engine."""
        return self.request.where

    @cached_property
    def _engine(self) -> Engine | None:
        """Reads the files of an estimate. None: threads of this process do."""
        return None

    @cached_property
    def _filter(self) -> pl.Expr | None:
        return filter_of(self._condition, self.planner.snapshot.schema)

    @cached_property
    def _names(self) -> list[str] | None:
        return None if self.request.columns is None else self.planner.names_of(self.request.columns)

    @cached_property
    def _sample(self) -> Sample | None:
        """The sample as a range of fractions. With `rows`, it may read weights of rows."""
        chosen = self._sample_of_rows()
        return chosen if self.request.seed == 0 else another_sample(chosen, self.request.seed)

    @cached_property
    def _plan(self) -> tuple[Planner, ScanPlan]:
        """Planner of the files that may match, and its plan. A query of `lazy` plans again, with its own filters."""
        narrow = self._planner.narrowed(self._filter)
        plan = narrow.plan(self._filter, self._sample)
        warn_of_sample(self._planner, self._sample, opens=bool(plan.selection.opened.any()))
        return narrow, plan

    def _sample_of_rows(self) -> Sample | None:
        return sample_of_rows(self._planner, self.request.rows, self.request.sample, self._condition)

    def _strata(self) -> pl.DataFrame:
        request = self.request
        if request.rows is None or request.by is None or request.sample is not None or request.seed:
            msg = "`by` divides a number of rows among groups: give `rows`, without `sample` and `seed`"
            raise InvalidInputError(msg, argument="by")
        names = self.planner.names_of(request.columns)
        return read_strata(
            self._planner, self._filter, names, request.rows, request.by, expand=request.expand
        )

    def _in_order(
        self, order: Order, resume: State | None, *, batch_rows: int, buffer_bytes: int
    ) -> ShuffledBatches:
        self.request.refuse("shuffled", "by")
        check_whole_number("batch_rows", batch_rows, 1)
        check_whole_number("buffer_bytes", buffer_bytes, 1)
        names = self.planner.names_of(self.request.columns)
        how: dict[str, Any] = {"expand": self.request.expand, "where": self._condition}
        read = ShuffledRead(*self._plan, names, self._sample, order, buffer_bytes=buffer_bytes, **how)
        return ShuffledBatches(read, batch_rows, resume)

    def _rounds(
        self, aggregates: Expressions | Function, keywords: EstimateKeywords, *, progressive: bool = False
    ) -> Iterator[Estimate]:
        from qbeast_core.table.estimate.functions import estimates_of

        how: dict[str, Any] = {"engine": self._engine, "resources": self.resources}
        how["progressive"] = progressive
        columns, sample = self.request.columns, self.request.sample
        read: dict[str, Any] = {"where": self._condition, "columns": columns, "sample": sample}
        return estimates_of(self._planner, aggregates, **how, **read, **keywords)


def _hint_of(plan: Plan) -> str | None:
    """Return the hint of a plan; the modules that simulate tables are loaded if it is printed."""
    from qbeast_core.table.advise.hint import hint_of

    return hint_of(plan)
