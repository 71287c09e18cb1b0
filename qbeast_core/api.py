"""What `import qbeast` offers: signatures, documentation, order of steps."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import polars as pl

from qbeast_core.io.location import resolve_location
from qbeast_core.opened import open_version
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.query.fractions import Sample, Share
from qbeast_core.renamed import renamed
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.data.frames import FrameLike, SparkFrame, is_spark_frame
from qbeast_core.table.data.schema import SchemaMode
from qbeast_core.table.read.reader import different_names
from qbeast_core.table.read.scan import SAMPLING_WEIGHT
from qbeast_core.table.table import Table

if TYPE_CHECKING:
    from qbeast_core.table.engine.choice import EngineName
    from qbeast_core.table.engine.stream import RowsLike
    from qbeast_core.table.estimate.named import Expressions
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.index.asked_columns import IndexColumns
    from qbeast_core.table.maintenance.convert import ConvertResult
    from qbeast_core.table.maintenance.upgrade import Copies, UpgradeResult
    from qbeast_core.table.write.options import ColumnStats
    from qbeast_core.table.write.target import Mode
    from qbeast_core.table.write.write import WriteResult

__all__ = [
    "convert_table",
    "estimate",
    "open_table",
    "read_table",
    "scan_table",
    "upgrade_table",
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
    engine: EngineName = "auto",
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
    engine : {"auto", "memory", "spill"}, default "auto"
        Hold the rows in memory, or sort them by temporary files; by default memory while the estimated need fits
        `memory_bytes`. The tables are as good. Not for Spark.
    memory_bytes : int, optional
        What the call may add to the memory of the process, about, 4 MiB or more; by default the environment's
        ``QBEAST_MEMORY_BYTES`` (such as ``2GiB``), or half of what the machine or its cgroup has. Rows are held
        within it; what Python and its libraries need to work at all, some 100 MiB, and what a query takes that
        gives the rows come on top.
    spill_dir : path-like, optional
        A folder for temporary files, twice the size of the rows at most; by default the environment's
        ``QBEAST_SPILL_DIR``, or the system's. They are removed when the call ends, and those that a killed
        process left when the next call spills.

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
        Mode ``"error"`` met a table, or something that is no table is at the path.
    NotQbeastTableError, UnsupportedTableError
        The Delta table has no Qbeast index, or a feature that must not be written.
    InputChangedError
        Rows that were read again were not the same; nothing was committed.
    CommitConflictError
        Another writer changed the table so that this write no longer fits.
    CommitUnknownError
        The store failed and nobody can tell whether the commit landed; look before writing again.
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
    from qbeast_core.table.engine.choice import EngineChoice
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
    with EngineChoice(engine, memory_bytes, spill_dir).opened() as local:
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
        A version number; or a time or a date, whose first moment counts (UTC where no zone is named): the newest
        version of that time or before. Texts of these too, times in ISO 8601.
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
        There is no Delta table at the path.
    NotQbeastTableError, UnsupportedTableError
        It has no Qbeast index, or a feature that cannot be read right.
    VersionNotFoundError
        There is no such version, or none that old.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> for day in range(2):
    ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "days", columns=["day"], mode="append")
    >>> qbeast.open_table("days", version=0).scan().collect()["day"].to_list()
    [0]
    """
    return open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths)


def scan_table(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    sample: Sample | None = None,
    rows: int | None = None,
    expand: bool = False,
    version: int | str | date | None = None,
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
        Rows to keep, as ``.filter`` of the frame does it. A text is SQL, as for `Table.delete`.
    sample : float, str or tuple of float, optional
        A fraction in [0, 1] of the rows, or ``(from, to)``, the rows between two fractions. Texts such as ``"1%"``,
        ``"0.01"`` and ``"10%:20%"`` mean the same.
    rows : int, optional
        An approximate number of random rows instead of a fraction; the log has the number of all rows. The result
        varies as the count of any sample does, see `Table.design_effect`. With `where` at least this number of
        matching rows: all if fewer match, more where the last ones share an index key. The call then reads the
        weights of matching rows. A filter that comes later, ``.filter(...)``, takes from the rows of the sample.
    expand : bool, default False
        Add a column `sampling_weight`: how many rows of the table each row stands for, 1 over its probability to be
        in the sample. Its sum estimates a count, the sum of ``x * sampling_weight`` a sum; `estimate` does that, and
        tells how far it may be off.
    version : int, date, datetime or str, optional
        See `open_table`.
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
        If the sample is no fraction or pair of fractions, `rows` is given beside it or no whole number, or `where` is
        no condition on the rows.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError, VersionNotFoundError
        See `open_table`.

    Warns
    -----
    EmptySampleWarning
        If the sample holds no row where many were to be expected: the index keys are few.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> rows = pl.DataFrame({"id": range(10_000), "price": [i % 101 for i in range(10_000)]})
    >>> _ = qbeast.write_table(rows, "items", columns=["id", "price"])
    >>> qbeast.scan_table("items").filter(pl.col("id") < 3).collect().sort("id")["price"].to_list()
    [0, 1, 2]
    >>> qbeast.scan_table("items", where="id < 3").collect().height
    3
    >>> qbeast.scan_table("items", sample="10%").select("price").collect().height
    963
    >>> some = qbeast.scan_table("items", rows=500, expand=True).collect()
    >>> some.height, round(some["sampling_weight"].sum())
    (480, 9600)
    """
    return open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths).scan(
        where=where, sample=sample, rows=rows, expand=expand
    )


@renamed(filter="where")
def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    sample: Sample | None = None,
    rows: int | None = None,
    expand: bool = False,
    version: int | str | date | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> pl.DataFrame:
    """Read a table into memory.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    columns : sequence of str, optional
        Columns to read; all by default.
    where, sample, rows, expand, version, storage_options, allow_absolute_paths
        As for `scan_table`; with `columns`, ``sampling_weight`` comes last.

    Returns
    -------
    polars.DataFrame
        Rows in no particular order.

    Raises
    ------
    The same errors as `scan_table`.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2, 3]}), "numbers", columns=["a"])
    >>> qbeast.read_table("numbers", where=pl.col("a") > 2)["a"].to_list()
    [3]
    >>> qbeast.read_table("numbers", where="a > 1 AND a < 3")["a"].to_list()
    [2]
    """
    lazy = scan_table(
        path,
        where=where,
        sample=sample,
        rows=rows,
        expand=expand,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    there = [name for name in lazy.collect_schema() if not expand or name != SAMPLING_WEIGHT]
    wanted = None if columns is None else different_names(columns, there)
    names = None if wanted is None else [*wanted, *([SAMPLING_WEIGHT] if expand else [])]
    return (lazy if names is None else lazy.select(names)).collect()


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
    """Answer aggregates of a table to a promised error, from as small a sample as that takes.

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
        Prints well; `.frame` holds answers and intervals, `.met` tells whether the error was reached.

    Raises
    ------
    InvalidInputError
        An argument cannot be used, such as an aggregate that a sample says nothing of (``max``); nothing was read.
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


def convert_table(
    path: str | os.PathLike[str],
    columns: IndexColumns,
    *,
    cube_size: int | None = None,
    dialect: BlocksDialect | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
    memory_bytes: int | None = None,
) -> ConvertResult:
    """Let a Delta table, or a folder of Parquet files, be a table of qbeast's, without moving any data.

    One commit says which columns are to be indexed. The rows that are there stay in their files, not indexed
    yet: reads and samples are right, but open all of them until an optimize indexes them. What is written
    later is indexed at once; what other Delta writers append is not, until the next optimize. Converting the
    same table again, with the same columns, changes nothing.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table, or of the Parquet files: all in one folder, of one schema (columns may
        be missing, then they are null). A Delta log is made for them; their columns are read once, for
        statistics.
    columns : sequence of str or mapping of str to str
        Columns to index, in order, as for `write_table`. How each is indexed is decided when the first rows
        are.
    cube_size : int, optional
        Rows a cube of the tree aims to hold, at least 1; by default chosen from the number of rows.
    dialect : {"documented", "qbeast-spark"}, optional
        How blocks will be spelled, see `write_table`.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    commit_metadata : mapping of str to str, optional
        Kept in the history beside our own entries.
    dry_run : bool, default False
        Change nothing and say what would be done.
    memory_bytes : int, optional
        As for `write_table`: how many Parquet files are looked at at the same time.

    Returns
    -------
    ConvertResult
        Version, files, rows and bytes found, and whether anything was converted.

    Raises
    ------
    InvalidColumnsError
        The columns are unknown or cannot be indexed, or the table is indexed by other ones already.
    InvalidInputError
        Another option cannot be used as given, or a Parquet file is damaged or has a type that Delta lacks
        (`SchemaMismatchError`: two files disagree about a column).
    TableNotFoundError
        There is neither a Delta table nor a Parquet file.
    UnsupportedTableError
        It is partitioned, or has a feature that must not be read or written; the message names it.
    CommitConflictError, CommitUnknownError, StorageError
        See `write_table`.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> pl.DataFrame({"id": range(1000), "price": [i % 97 for i in range(1000)]}).write_delta("plain")
    >>> result = qbeast.convert_table("plain", columns=["id", "price"])
    >>> result.version, result.rows, result.columns
    (1, 1000, ('id', 'price'))
    >>> qbeast.read_table("plain", sample=0.1).height
    81
    """
    from qbeast_core.table.engine.choice import EngineChoice
    from qbeast_core.table.maintenance.convert import convert
    from qbeast_core.table.write.options import WriteOptions, metadata_of

    options = WriteOptions(
        columns=columns,
        cube_size=cube_size,
        dialect=dialect,
        storage_options=storage_options,
        commit_metadata=metadata_of(commit_metadata),
        dry_run=dry_run,
    )
    with EngineChoice(memory_bytes=memory_bytes).opened() as local:
        return convert(resolve_location(path), options, engine=local)


def upgrade_table(
    path: str | os.PathLike[str],
    *,
    replicated: Copies | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> UpgradeResult:
    """Bring a table that qbeast-spark wrote before its version 0.6.0 up to date, without touching its data.

    One commit gives every data file the tags of today; the rows stay where they are, and qbeast returns each
    of them once before and after. Done again it changes nothing, and a table of today has nothing to upgrade.

    Such tables may hold files with *copies* of rows. qbeast passes over them; every other reader of Delta
    tables returns those rows twice.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    replicated : {"keep", "drop"}, optional
        What becomes of files with copies: kept, as the format's documents have it (default, with a warning if
        there are any), or dropped from the table, after which every reader sees each row once. Either way
        files that readers disagree about, all of them copies, are dropped.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    dry_run : bool, default False
        Change nothing and say what would be done.

    Returns
    -------
    UpgradeResult
        The version, and how many files were retagged, kept and dropped.

    Raises
    ------
    InvalidInputError
        `replicated` is neither.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError
        There is no Delta table, it has no Qbeast index, or a feature that must not be written.
    CommitConflictError, CommitUnknownError, StorageError
        See `write_table`.

    Warns
    -----
    QbeastWarning
        Copies are kept and nobody asked for that.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2]}), "new", columns=["a"])
    >>> qbeast.upgrade_table("new").upgraded
    False
    """
    from qbeast_core.table.maintenance.upgrade import upgrade

    return upgrade(
        resolve_location(path), replicated=replicated, storage_options=storage_options, dry_run=dry_run
    )
