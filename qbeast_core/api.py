"""What `import qbeast` offers: signatures, documentation, order of steps."""

from __future__ import annotations

import importlib
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

import polars as pl

from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.column_stats import ColumnStats
from qbeast_core.table.data_files import World
from qbeast_core.table.frames import FrameLike
from qbeast_core.table.opened import open_newest
from qbeast_core.table.progress import ProgressCallback
from qbeast_core.table.reader import Sample
from qbeast_core.table.result import WriteResult
from qbeast_core.table.schema_match import SchemaMode
from qbeast_core.table.snapshot import load_snapshot
from qbeast_core.table.spark_frame import SparkFrame, is_spark_frame
from qbeast_core.table.table import Table
from qbeast_core.table.target import Mode
from qbeast_core.table.travel import travel
from qbeast_core.table.write import write_frame
from qbeast_core.table.write_options import WriteOptions, metadata_of

__all__ = ["WORLD", "open_table", "read_table", "scan_table", "write_table"]

WORLD = World(now_ms=lambda: time.time_ns() // 1_000_000, new_id=lambda: str(uuid.uuid4()))
"""The clock and the ids of this machine."""


def write_table(
    df: FrameLike | SparkFrame,
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    mode: Mode = "error",
    cube_size: int | None = None,
    column_stats: ColumnStats | None = None,
    schema_mode: SchemaMode | None = None,
    storage_options: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    progress: ProgressCallback | None = None,
) -> WriteResult:
    """Write rows to a table, organised by the indexed columns, in one atomic commit.

    Readers see all of it or none of it. If anything raises, the table is as it was; at worst files that no
    version names are left behind, which a vacuum removes. The table is an ordinary Delta table.

    Parameters
    ----------
    df : polars.DataFrame, polars.LazyFrame, pandas.DataFrame or anything with ``__arrow_c_stream__``
        The rows. Categoricals are stored as strings, unsigned integers as the next wider signed ones,
        timestamps in microseconds. A PySpark DataFrame is written by its executors, see
        `qbeast_spark_bridge.write_table`.
    path : str or path-like
        Folder or address (``s3://``, ``gs://``, ``az://`` ...) of the table; created if absent.
    columns : sequence of str, optional
        Columns to index, in order: ``"name"`` or ``"name:kind"`` with kind ``linear``, ``quantiles`` or
        ``hash``; without a kind it is chosen from the data. Bytes, shorts, ints, longs, floats, doubles,
        decimals, dates, timestamps and strings can be indexed. Needed for a new table; an append takes
        those of the table.
    mode : {"error", "append", "overwrite", "ignore"}, default "error"
        What to do when the table exists. An append to no table creates it.
    cube_size : int, optional
        Rows a cube of the tree aims to hold, 1 to 2**31 - 1; by default chosen from the number of rows at
        creation and then kept. Another size than the table's begins a new revision.
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
    progress : callable, optional
        Called with a `Progress` at every step.

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
    CommitConflictError
        Another writer changed the table so that this write no longer fits.
    CommitUnknownError
        The store failed and nobody can tell whether the commit landed; look before writing again.
    StorageError
        The store refused a write: no rights, disk full.

    Warns
    -----
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
        progress=progress,
    )
    if is_spark_frame(df):
        bridge = importlib.import_module("qbeast_spark_bridge.write")
        written: WriteResult = bridge.write_rows(df, path, options)
        return written
    return write_frame(df, path, options, WORLD)


def open_table(
    path: str | os.PathLike[str],
    *,
    version: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Table:
    """Open a table at its newest version, or travel in time.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    version : int, datetime or str, optional
        A version number; or a time (with time zone, or ISO 8601 text of one; UTC where none is named): the
        newest version of that time or before.
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
    number, moment = travel(version)
    if number is None and moment is None:
        return open_newest(path, storage_options, allow_absolute_paths=allow_absolute_paths)
    snapshot = load_snapshot(
        path,
        version=number,
        timestamp=moment,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    return Table(snapshot)


def scan_table(
    path: str | os.PathLike[str],
    *,
    sample: Sample | None = None,
    version: int | str | datetime | None = None,
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
    sample : float or tuple of float, optional
        A fraction in [0, 1] of the rows, or ``(from, to)``, the rows between two fractions.
    version : int, datetime or str, optional
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
        If the sample is no fraction or pair of fractions.
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
    >>> qbeast.scan_table("items", sample=0.1).select("price").collect().height
    963
    """
    table = open_table(
        path,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    return table.scan(sample=sample)


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filter: pl.Expr | None = None,  # noqa: A002 -- the word every reader expects
    sample: Sample | None = None,
    version: int | str | datetime | None = None,
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
    filter : polars.Expr, optional
        Rows to keep.
    sample : float or tuple of float, optional
        See `scan_table`.
    version : int, datetime or str, optional
        See `open_table`.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    allow_absolute_paths : bool, default False
        See `open_table`.

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
    >>> qbeast.read_table("numbers", filter=pl.col("a") > 2)["a"].to_list()
    [3]
    """
    lazy = scan_table(
        path,
        sample=sample,
        version=version,
        storage_options=storage_options,
        allow_absolute_paths=allow_absolute_paths,
    )
    kept = lazy if filter is None else lazy.filter(filter)
    return (kept if columns is None else kept.select(columns)).collect()
