"""What `import qbeast` offers: signatures, documentation, order of steps."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import polars as pl

from qbeast_core.opened import open_version
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.plan.fractions import Sample, Share
from qbeast_core.resources import Resources
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.data.frames import FrameLike, SparkFrame, is_spark_frame
from qbeast_core.table.data.schema import SchemaMode
from qbeast_core.table.table import Table

if TYPE_CHECKING:
    from qbeast_core.table.engine.stream import RowsLike
    from qbeast_core.table.estimate.named import Expressions
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.index.column_texts import IndexColumns
    from qbeast_core.table.write.options import ColumnStats
    from qbeast_core.table.write.target import Mode
    from qbeast_core.table.write.write import WriteResult

__all__ = [
    "estimate",
    "open_table",
    "read_table",
    "scan_table",
    "write_table",
]


@shows_progress("writing")
def write_table(
    df: RowsLike | SparkFrame,
    path: str | os.PathLike[str],
    columns: IndexColumns | None = None,
    *,
    mode: Mode = "error",
    cube_size: int | None = None,
    column_stats: ColumnStats | None = None,
    schema_mode: SchemaMode | None = None,
    storage_options: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    dry_run: bool = False,
    progress: ProgressLike = None,
    resources: Resources | None = None,
    memory_bytes: int | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> WriteResult:
    """Write rows to a table, organised by the indexed columns, in one atomic commit.

    Readers see all of it or none of it. If anything raises, the table is as it was; at worst files that no
    version names are left behind, which a vacuum removes. The table is an ordinary Delta table.

    Parameters
    ----------
    df : polars.DataFrame, polars.LazyFrame, pandas.DataFrame, pyarrow Dataset, anything with \
    ``__arrow_c_stream__``, or an iterator of such frames
        The rows. Queries, datasets, readers and iterators may hold more than memory: they are read batch by batch,
        queries and datasets two or three times, which have to give the same rows each time; what can be read once
        is kept on disk meanwhile. Categoricals are stored as strings, unsigned integers as the next wider signed ones,
        timestamps in microseconds. A PySpark DataFrame is written by its executors, see
        `qbeast_spark_bridge.write_table`.
    path : str or path-like
        Folder or address (``s3://``, ``gs://``, ``az://`` ...) of the table; created if absent.
    columns : sequence of str or mapping of str to str, optional
        Columns to index, in order: ``"name"`` or ``"name:kind"`` with kind ``linear``, ``quantiles`` or
        ``hash``; without a kind it is chosen from the data. ``("name", "hash")``, ``pl.col("name")`` and
        ``{"name": "hash"}`` work too. Bytes, shorts, ints, longs, floats, doubles,
        decimals, dates, timestamps and strings can be indexed. Needed for a new table; an append and an overwrite
        keep those of the table, kinds and order. A hashed column stays hashed unless another kind is named.
    mode : {"error", "append", "overwrite", "ignore"}, default "error"
        What to do when the table exists. An append to no table creates it.
    cube_size : int, optional
        Rows a cube of the tree aims to hold, 1 to 2**31 - 1; by default chosen from the number of rows at
        creation and then kept, by an overwrite as long as it names no `columns`. Another size than the table's begins
        a new revision.
    column_stats : mapping or JSON text, optional
        What is known beyond these rows: ``<column>_min``, ``<column>_max``, ``<column>_quantiles``.
    schema_mode : {"merge", "overwrite"}, optional
        ``"merge"`` lets rows lack columns (null) or bring new ones; ``"overwrite"``, with mode
        ``"overwrite"``, replaces the schema.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    txn : tuple of str and int, optional
        ``(application id, version)``: if the table holds that version of the application or a later one,
        nothing is written. Makes a retried write idempotent.
    commit_metadata : mapping of str to str, optional
        Kept in the history beside our own entries.
    dialect : {"documented", "qbeast-spark"}, optional
        How blocks are spelled in a new table: as the format documents say (default), or as the JVM
        implementation reads them. Appends follow the table.
    dry_run : bool, default False
        Plan the write and throw the plan away: the result says what would be done, and nothing is written.
    progress : callable or bool, optional
        Called with a `Progress` at every step; or True, for a bar in terminals (by rich, ``pip install rich``) and
        notebooks.
    resources : Resources, optional
        Memory, folder for temporary files, and whether to use it, see `qbeast.Resources`; not for Spark.
    memory_bytes, spill_dir : optional
        Short for ``resources=qbeast.Resources(memory_bytes=..., spill_dir=...)``.

    Returns
    -------
    WriteResult
        Version, rows, files, bytes, cubes, revision, how each column is indexed, and the design effect.

    Raises
    ------
    InvalidInputError
        An option cannot be used as given (`InvalidColumnsError`: the columns to index;
        `SchemaMismatchError`: the rows do not fit the table).
    TableExistsError
        Mode ``"error"`` and the table exists, or there is something else at the path.
    NotQbeastTableError, UnsupportedTableError
        The Delta table has no Qbeast index, or a feature that qbeast cannot write.
    InputChangedError
        Rows were not the same when they were read again; nothing was committed.
    CommitConflictError
        Another writer changed the table in conflict with this write.
    CommitUnknownError
        The store failed, and it is unknown whether the commit was made; check before you write again.
    StorageError
        The store, or the folder for temporary files, refused a write: no rights, disk full.

    Warns
    -----
    AddedColumnWarning
        If rows bring columns to a table of qbeast-spark, whose optimize (0.7.1) loses their values.
    DesignEffectWarning
        If these rows bring the design effect of the table above 2: equal index keys repeat so much that samples
        are clustered.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> trips = pl.DataFrame({"fare": [3.5, 12.0, 7.25], "km": [0.8, 6.1, 2.4], "city": ["Oslo", "Rome", "Rome"]})
    >>> qbeast.write_table(trips, "trips", columns=["fare", "km"]).version
    0
    >>> result = qbeast.write_table(trips, "trips", mode="append")
    >>> result.version, result.rows, result.transformers
    (1, 3, {'fare': 'linear', 'km': 'linear'})
    """
    from qbeast_core.table.engine.choice import local_engine
    from qbeast_core.table.engine.stream import source_of
    from qbeast_core.table.write.options import WriteOptions, metadata_of
    from qbeast_core.table.write.write import write_rows

    options = WriteOptions(
        columns=columns,
        mode=mode,
        cube_size=cube_size,
        column_stats=column_stats,
        schema_mode=schema_mode,
        storage_options=storage_options,
        txn=txn,
        commit_metadata=metadata_of(commit_metadata),
        dialect=dialect,
        dry_run=dry_run,
        progress=callback_of(progress),
    )
    if is_spark_frame(df):
        bridge = importlib.import_module("qbeast_spark_bridge.write")
        written: WriteResult = bridge.write_frame(df, path, options)
        return written
    with local_engine(resources, memory_bytes, spill_dir) as local:
        options = replace(options, progress=local.report_progress(callback_of(progress)))
        return local.report(write_rows(source_of(df), path, options, engine=local))


def open_table(
    path: str | os.PathLike[str],
    *,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Table:
    """Open a table at its newest version, or travel in time.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    version : int, date, datetime or str, optional
        A version number; or a time, or a date, which means its first moment (in UTC if it has no zone): the newest
        version of that time or before. Texts of these work too, times in ISO 8601.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    allow_absolute_paths : bool, default False
        Read files that the table's log names by absolute paths, as those of a shallow clone are: of the local
        disk for a local table, of the same bucket for one in an object store. Only for tables whose writers
        you trust; else such a file is refused when it is to be read.

    Returns
    -------
    Table
        Pinned at that version.

    Raises
    ------
    TableNotFoundError
        The path has no Delta table.
    NotQbeastTableError, UnsupportedTableError
        It has no Qbeast index, or a feature that cannot be read right.
    VersionNotFoundError
        The version does not exist, or all are newer than the time.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> for day in range(2):
    ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "days", columns=["day"], mode="append")
    >>> qbeast.open_table("days", version=0).read()["day"].to_list()
    [0]
    """
    return open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)


def scan_table(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    sample: Sample | None = None,
    version: int | str | date | None = None,
    rows: int | None = None,
    expand: bool = False,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> pl.LazyFrame:
    """Scan a table lazily: columns, filters, limits and the sample decide which bytes are read.

    The version is fixed now, not when the frame is collected. The same sample gives the same rows every
    time, a larger fraction gives those and more, whatever has been appended or re-organised since. Rows
    with equal values of all indexed columns are in a sample together or not at all.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    where : polars.Expr or str, optional
        Rows to keep, as by ``.filter`` of the frame. A text is SQL, as for `Table.delete`.
    columns : sequence of str, optional
        Columns to return, in order; all by default. Filters can use other columns.
    sample : float, str or tuple of float, optional
        A fraction in [0, 1] of the rows, or ``(from, to)``, the rows between two fractions. Texts such as ``"1%"``,
        ``"0.01"`` and ``"10%:20%"`` mean the same.
    version : int, date, datetime or str, optional
        See `open_table`.
    rows : int, optional
        An approximate number of random rows instead of a fraction. The result varies like the count of any sample, see
        `Table.design_effect`. With `where` at least this number of matching rows: all if fewer match, more if the last
        ones share an index key; the call then reads the weights of matching rows. A later ``.filter(...)`` takes from
        the rows of the sample.
    expand : bool, default False
        Add a last column `sampling_weight`: how many rows of the table each row stands for, 1 over its probability to
        be in the sample. Its sum estimates a count, the sum of ``x * sampling_weight`` a sum; `estimate` does that,
        with intervals.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    allow_absolute_paths : bool, default False
        See `open_table`.

    Returns
    -------
    polars.LazyFrame
        Rows in no particular order.

    Raises
    ------
    InvalidInputError
        The sample is not a fraction or pair of fractions, `rows` is given with it or is not a whole number, a column
        is not in the table, or `where` is not a condition on the rows.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError, VersionNotFoundError
        See `open_table`.

    Warns
    -----
    EmptySampleWarning
        The sample has no row although many were expected: there are few index keys.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(10_000), "price": [i % 101 for i in range(10_000)]})
    >>> _ = qbeast.write_table(rows, "items", columns=["id", "price"])
    >>> qbeast.scan_table("items").filter(pl.col("id") < 3).collect().sort("id")["price"].to_list()
    [0, 1, 2]
    >>> qbeast.scan_table("items", where="id < 3", columns=["price"]).collect().shape
    (3, 1)
    >>> qbeast.scan_table("items", sample="10%").select("price").collect().height
    963
    >>> some = qbeast.scan_table("items", rows=500, expand=True).collect()
    >>> some.height, round(some["sampling_weight"].sum())
    (480, 9600)
    """
    table = open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)
    return table.scan(where, columns=columns, sample=sample, rows=rows, expand=expand)


def read_table(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    sample: Sample | None = None,
    version: int | str | date | None = None,
    rows: int | None = None,
    expand: bool = False,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> pl.DataFrame:
    """Read a table into memory.

    Parameters
    ----------
    path, where, columns, sample, version, rows, expand, storage_options, allow_absolute_paths
        See `scan_table`.

    Returns
    -------
    polars.DataFrame
        Rows in no particular order.

    Raises
    ------
    The same errors as `scan_table`; InvalidInputError also if `where` cannot be evaluated for a row.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2, 3]}), "numbers", columns=["a"])
    >>> qbeast.read_table("numbers", where=pl.col("a") > 2)["a"].to_list()
    [3]
    >>> qbeast.read_table("numbers", where="a > 1 AND a < 3")["a"].to_list()
    [2]
    """
    table = open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)
    return table.read(where, columns=columns, sample=sample, rows=rows, expand=expand)


def estimate(
    path: str | os.PathLike[str],
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
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Estimate:
    """Estimate aggregates of a table to a promised error, from as small a sample as that needs.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    aggregates, by, where, join, error, absolute, confidence, sample, simultaneous, max_fraction, max_bytes, \
    min_group_rows, memory_bytes
        See `Table.estimate`.
    version, storage_options, allow_absolute_paths
        See `open_table`.

    Returns
    -------
    Estimate
        Prints as a table; `.frame` holds answers and intervals, `.met` says whether the error was reached.

    Raises
    ------
    InvalidInputError
        An argument is invalid, such as an aggregate that a sample cannot estimate (``max``); nothing was read.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError, VersionNotFoundError
        See `open_table`.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(200_000)}).with_columns(price=pl.col("id") * 7919 % 1000)
    >>> _ = qbeast.write_table(rows, "prices", columns=["id", "price"])
    >>> found = qbeast.estimate("prices", {"mean": "avg(price)", "cheap": "count_if(price < 250)"}, error=0.05)
    >>> found.met, found.rows_read < 100_000
    (True, True)
    """
    table = open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)
    return table.estimate(
        aggregates,
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
