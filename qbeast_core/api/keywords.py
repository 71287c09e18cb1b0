"""Keyword arguments that several calls have in common. Each is declared and documented once, here.

A function takes a group as ``**keywords: Unpack[ChangeKeywords]``. Type checkers and editors show the names and types;
so does `inspect.signature`, see `hints_keywords`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import TYPE_CHECKING, Any, TypedDict

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.weights import Sample, Share
from qbeast_core.support.process import ProgressLike, Resources
from qbeast_core.support.text import on_one_line

if TYPE_CHECKING:
    from qbeast_core.spec.blocks import BlocksDialect
    from qbeast_core.table.data.expressions import Where
    from qbeast_core.table.data.schema import SchemaMode
    from qbeast_core.table.estimate.join import Joins
    from qbeast_core.table.estimate.sum_task import Expressions
    from qbeast_core.table.write.options import ColumnStats, Compression, Mode, PartitionBy, SampleBy


class OpenKeywords(TypedDict, total=False):
    """Keyword arguments of calls that open a table.

    Attributes
    ----------
    version : int, date, datetime or str, optional
        Version number; or a time, for the newest version at this time, by the times that `Table.versions` shows. A date
        is its first moment. Times without a zone are in UTC. Texts are accepted too, times in ISO 8601.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.
    allow_absolute_paths : bool, default False
        Read files that the log names by absolute paths, as in a shallow clone: on the local disk for a local table, in
        the same bucket for a table in an object store. Use it only for tables whose writers you trust. By default a
        read of such a file raises.
    resources : Resources, optional
        Memory and temporary files that each change and estimate of this table may use. On Spark this is the memory of
        the driver, for the sums of an estimate.
    """

    version: int | str | date | None
    storage_options: Mapping[str, str] | None
    allow_absolute_paths: bool
    resources: Resources | None


class ReadKeywords(TypedDict, total=False):
    """Keyword arguments of reads, beside the condition `where`.

    Attributes
    ----------
    columns : sequence of str, optional
        Columns to return, in order. By default all columns. Filters can use other columns.
    sample : float, str or tuple of float, optional
        Fraction of the rows in [0, 1], or ``(from, to)`` for the rows between two fractions. Texts such as ``"1%"``,
        ``"0.01"`` and ``"10%:20%"`` are accepted too.
    sample_by : sequence of str, optional
        Columns by whose values rows enter a sample. By default the sampling key of the table, or else its indexed
        columns. A table without an index needs them. A sample by other columns than these reads all files, and has the
        same rows before and after the table gets an index.
    rows : int, optional
        Approximate number of random rows, instead of `sample`. The actual number varies like the count of any sample,
        see `Table.design_effect`. With `where` it is the minimum number of matching rows: all are returned if fewer
        match, and more if the last rows share an index key; the weights of matching rows are read for that. A later
        ``.filter(...)`` filters the rows of the sample.
    by : str or sequence of str, optional
        Columns of groups. The number of `rows` is divided equally among the groups, and groups that have fewer rows
        give all of them (a stratified sample). With `expand`, the weights make sums over the sample unbiased. The
        columns `by` are read completely, and rare groups open more of the table than others if these columns are not
        indexed. The rows are in memory.
    seed : int, default 0
        Another sample of the same size, at a fraction of 1/2 or less. The samples of the first seeds are disjoint:
        ``sample=0.01, seed=3`` is ``sample=(0.03, 0.04)``. A read opens more than its share, as bands grow with the
        fraction: small seeds are cheaper.
    expand : bool, default False
        Add a last column `sampling_weight`: the number of rows of the table that a row represents, 1 over its
        probability to be in the sample. Its sum estimates a count, and the sum of ``x * sampling_weight`` a sum.
        `estimate` also computes intervals.
    """

    columns: Sequence[str] | None
    sample: Sample | None
    sample_by: Sequence[str] | None
    rows: int | None
    by: str | Sequence[str] | None
    seed: int
    expand: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Request:
    """The condition of a read, and the arguments of `ReadKeywords`."""

    where: Any = None
    columns: Sequence[str] | None = None
    sample: Sample | None = None
    sample_by: Sequence[str] | None = None
    rows: int | None = None
    by: str | Sequence[str] | None = None
    seed: int = 0
    expand: bool = False

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in ReadKeywords.__annotations__}
        shown = [f"{name}={value}" for name, value in given.items() if value]
        shown = shown if self.where is None else [f"where {self.where}", *shown]
        return on_one_line(", ".join(shown) or "all rows")

    @property
    def is_all(self) -> bool:
        """Whether the read has all rows of the version."""
        return all(value is None for value in (self.where, self.sample, self.rows, self.by)) and not self.seed

    def refuse(self, call: str, *names: str) -> None:
        """Raise if the read has arguments that a method cannot use."""
        for field in fields(self):
            if field.name in names and getattr(self, field.name) != field.default:
                msg = f"`{field.name}` of Table.rows has no meaning for {call}(). Leave it out."
                raise InvalidInputError(msg, argument=field.name)


class ScanKeywords(ReadKeywords, OpenKeywords, total=False):
    """Keyword arguments of calls that open a table and read it: `ReadKeywords` and `OpenKeywords`."""


class EstimateKeywords(TypedDict, total=False):
    """Keyword arguments of estimates, beside the aggregates.

    Attributes
    ----------
    per : polars.Expr or str, or a sequence or mapping of these, optional
        Values per key, by name, such as ``{"spend": pl.col("price").sum()}``: aggregates over all rows of one key
        that match `where`. Then `aggregates` use one row per key, with the columns of the key and these values:
        ``pl.col("spend").median()``, ``pl.len()`` for the number of keys. The key is the columns of ``sample_by``
        of `write_table`, or the indexed columns of a table without it. Samples hold all rows of their keys, so any
        aggregate of Polars works here, also ``first``, ``max`` or ``n_unique``. SQL is as in `aggregates`; the sum
        of no values is null. The same as a query: ``"SELECT median(spend) FROM (SELECT user, sum(price) AS spend
        FROM self GROUP BY user)"``; the inner query can have more groups than the key, and WHERE.
    by : str or polars.Expr, or a sequence or mapping of these, optional
        Groups: columns, expressions on a row such as ``pl.col("ts").dt.truncate("1mo")``, or SQL. They are named
        like aggregates. Null is a group. Groups without a sampled row are missing, see `Estimate.complete`.
        With `per`, expressions on the key and on values per key group keys. Others group the rows first: a key
        then has values in each group.
    join : tuple, qbeast.Join or a list of these, optional
        Tables or frames to join to the rows first, in this order: ``(other, columns)`` or ``(other, columns,
        how)``, with ``"left"`` (default), ``"inner"``, ``"semi"`` or ``"anti"``. `by`, `where` and `aggregates` can
        use their columns. A frame must have distinct values of the columns, except for ``"semi"`` and ``"anti"``. A
        table (`Table` or its path) must have the same sampling key as this one, and `columns` must be this key:
        samples of both then hold all rows of the same keys, and several rows may match. See `qbeast.Join`. For a
        query with JOIN, a mapping of the names in the query to tables or frames: ``{"users": table}`` for
        ``"... FROM self JOIN users USING (user)"``.
    error : float or str, default 0.05
        Maximum error of an answer, as a fraction of it, in (0, 1]: 0.02 or ``"2%"``. Without meaning if a `sample` is
        read, or if `absolute` names the answer. With HAVING and LIMIT, of the
        rows that the result lists; if an aggregate chooses them, as a fraction of the exact answer.
    absolute : mapping of str to float, optional
        Maximum error of answers by name, in the unit of the answer, for values that may be near zero.
    confidence : float or str, default 0.95
        Probability that an answer has at most this error, in (0, 1): 0.99 or ``"99%"``.
    simultaneous : bool, default False
        Whether the confidence holds for all answers of all groups at once, not for each one.
    max_fraction : float or str, default 1.0
        Read at most this fraction of the keys, even if the error is not reached, see `Estimate.met`.
    max_bytes : int, optional
        Read at most this number of bytes of data files, even if the error is not reached.
    min_group_rows : int, optional
        Groups that are estimated to have fewer rows (with `per`: keys) do not decide how much is read. They are listed
        with their intervals, and are not `reliable` unless they reach the error by chance. By default a thousandth of
        the rows that match, and 0 if all listed groups have fewer. 0: all groups reach the error, which reads all rows
        if one of them is rare.
    replicates : int, default 64
        Number of groups of keys, at least 32. A function is called for the sample without each of them, for the
        whole sample, and for 8 parts of it.
    """

    per: Expressions | None
    by: Expressions | None
    join: Joins | None
    error: Share | None
    absolute: Mapping[str, float] | None
    confidence: Share
    simultaneous: bool
    max_fraction: Share
    max_bytes: int | None
    min_group_rows: int | None
    replicates: int


class EstimateTableKeywords(EstimateKeywords, OpenKeywords, total=False):
    """Keyword arguments of calls that open a table and estimate: `EstimateKeywords`, `OpenKeywords`, and the sample.

    Attributes
    ----------
    sample, sample_by, columns
        See `ReadKeywords`. A sample is read instead of an `error`, and answers have intervals. Without an index on the
        columns of `sample_by`, all rows are read, and answers are exact. `columns` are those of the frame that a
        function takes.
    """

    sample: Sample | None
    sample_by: Sequence[str] | None
    columns: Sequence[str] | None


class CommitKeywords(TypedDict, total=False):
    """Keyword arguments of calls that commit to a table.

    Attributes
    ----------
    commit_metadata : mapping of str to str, optional
        Entries to add to the history.
    progress : callable or bool, optional
        Function that is called with a `Progress` at each step. True shows a progress bar in terminals (with rich,
        ``pip install rich``) and notebooks.
    """

    commit_metadata: Mapping[str, str] | None
    progress: ProgressLike


class ChangeKeywords(CommitKeywords, total=False):
    """Keyword arguments of calls that change rows: a write, a delete, an update or a merge.

    Attributes
    ----------
    commit_metadata, progress
        See `CommitKeywords`.
    dry_run : bool, default False
        Change nothing. The result has the numbers and files of the change, and the rows and bytes that it would copy.
    txn : tuple of str and int, optional
        ``(application id, version)``. If the table has this version of the application or a later one, nothing is
        changed. A job can then be repeated without changing the table twice.
    """

    dry_run: bool
    txn: tuple[str, int] | None


class WriteKeywords(ChangeKeywords, total=False):
    """Keyword arguments of `qbeast.write_table`, which documents them, for writes by another engine."""

    mode: Mode
    where: Where | None
    cube_size: int | None
    column_stats: ColumnStats | None
    schema_mode: SchemaMode | None
    storage_options: Mapping[str, str] | None
    dialect: BlocksDialect | None
    sample_column: str | None
    comment: str | None
    column_comments: Mapping[str, str] | None
    partition_by: PartitionBy | None
    sample_by: SampleBy | None
    deletion_vectors: bool | None
    change_feed: bool | None
    compression: Compression | None
    importance: Mapping[str, float] | None
    register: str | None


def split(keywords: Mapping[str, Any], *groups: type) -> tuple[dict[str, Any], ...]:
    """Return the keyword arguments of each group. A name belongs to the first group that has it.

    >>> split({"version": 3, "sample": 0.1}, OpenKeywords, ReadKeywords)
    ({'version': 3}, {'sample': 0.1})
    """
    left = dict(keywords)
    return tuple({name: left.pop(name) for name in group.__annotations__ if name in left} for group in groups)
