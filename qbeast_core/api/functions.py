"""The public functions. Each imports its operation when it is called."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack, cast

import polars as pl

from qbeast_core.api.keywords import (
    ChangeKeywords,
    EstimateKeywords,
    EstimateTableKeywords,
    OpenKeywords,
    ReadKeywords,
    ScanKeywords,
    split,
)
from qbeast_core.api.table import Table, open_version
from qbeast_core.errors import TableNotFoundError, changing, hints_keywords
from qbeast_core.io.location import Location
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import Resources, callback_of, shows_progress
from qbeast_core.table.data.expressions import Predicate, Where
from qbeast_core.table.data.frames import SparkFrame, is_spark_frame
from qbeast_core.table.data.schema import SchemaMode

if TYPE_CHECKING:
    from qbeast_core.table.engine.sources import RowsLike
    from qbeast_core.table.estimate.question import Function
    from qbeast_core.table.estimate.result import Estimate
    from qbeast_core.table.estimate.sum_task import Expressions
    from qbeast_core.table.index.revision import IndexColumns
    from qbeast_core.table.maintenance.convert import ConvertResult
    from qbeast_core.table.maintenance.versions import DropResult
    from qbeast_core.table.write.options import ColumnStats, Compression, Mode, PartitionBy, SampleBy
    from qbeast_core.table.write.write import WriteResult


@changing
@shows_progress("writing")
def write_table(
    df: RowsLike | SparkFrame,
    path: str | os.PathLike[str],
    columns: IndexColumns | None = None,
    *,
    mode: Mode = "error",
    where: Where | None = None,
    cube_size: int | None = None,
    column_stats: ColumnStats | None = None,
    schema_mode: SchemaMode | None = None,
    storage_options: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    sample_column: str | None = None,
    comment: str | None = None,
    column_comments: Mapping[str, str] | None = None,
    partition_by: PartitionBy | None = None,
    sample_by: SampleBy | None = None,
    deletion_vectors: bool | None = None,
    change_feed: bool | None = None,
    compression: Compression | None = None,
    importance: Mapping[str, float] | None = None,
    register: str | None = None,
    resources: Resources | None = None,
    **keywords: Unpack[ChangeKeywords],
) -> WriteResult:
    """Write rows to a table, organised by the indexed columns, in one atomic commit.

    If the write fails, the table is unchanged. It may leave files that no version names, which a vacuum removes. The
    table is a regular Delta table.

    Parameters
    ----------
    df : polars.DataFrame, polars.LazyFrame, pandas.DataFrame, pyarrow Dataset, anything with \
    ``__arrow_c_stream__``, or an iterator of such frames
        Rows to write. Queries, datasets, readers and iterators are read in batches and may be larger than memory.
        Queries and datasets are read two or three times and must return the same rows each time; rows that can be read
        only once are stored on disk temporarily. Categoricals are stored as strings, unsigned integers as the next
        wider signed type, timestamps in microseconds. A new table takes ``nullable=False`` of columns from Arrow rows;
        fields inside of columns, and all columns of other rows, allow nulls. A PySpark DataFrame is written by its
        executors, see `qbeast_spark_bridge.write_table`.
    path : str or path-like
        Folder or address (``s3://``, ``gs://``, ``az://`` ...) of the table. It is created if it does not exist. The
        name of a table in Unity Catalog, ``uc://catalog.schema.table``, or in AWS Glue, ``glue://db.table``, stands for
        its address, see docs/object-stores.md.
    columns : sequence of str or mapping of str to str, optional
        Columns to index, in order: ``"name"`` or ``"name:kind"`` with kind ``linear``, ``quantiles`` or
        ``hash``. Without a kind, it is chosen from the data. ``("name", "hash")``, ``pl.col("name")`` and
        ``{"name": "hash"}`` are also accepted. Bytes, shorts, ints, longs, floats, doubles, decimals, dates, timestamps
        and strings can be indexed. Required for a new table. By default an append or an overwrite keeps the columns of
        the table, with kinds and order. A hashed column stays hashed unless another kind is named. An empty list
        writes a table without index: for rows without such columns, or that are always read completely. Statistics of
        files still skip files, samples need `sample_by` (see `scan_table`) and read all files, and `Table.optimize`
        joins small files. `Table.reindex` begins an index later.
    mode : {"error", "append", "overwrite", "ignore"}, default "error"
        What to do if the table exists. An append creates the table if it does not exist.
    where : polars.Expr or str, optional
        With mode ``"overwrite"``, replace only the rows that match, in one commit: ``where="day = DATE '2026-11-05'"``.
        All new rows must match too. A text is SQL, as in `Table.delete`. The index and the schema of the table stay,
        except for new columns with ``schema_mode="merge"``. If the table does not exist, it is created.
    cube_size : int, optional
        Target number of rows per cube, 1 to 2**31 - 1. By default it is chosen from the number of rows at creation,
        and then kept; an overwrite with `columns` chooses it again. A new size begins a new revision.
    column_stats : mapping or JSON text, optional
        Statistics of all rows to expect, beyond these rows: ``<column>_min``, ``<column>_max``,
        ``<column>_quantiles``.
    schema_mode : {"merge", "overwrite"}, optional
        ``"merge"`` allows rows without some columns (null) or with new columns. Columns that the table computes
        (generated, default and identity columns of Delta) may always be missing. ``"overwrite"``, with mode
        ``"overwrite"``, replaces the schema.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.
    dialect : {"documented", "qbeast-spark"}, optional
        Encoding of the index in a new table: as in the format documents (default), or as the JVM implementation
        reads it. Appends use the dialect of the table. ``"qbeast-spark"`` excludes deletion vectors.
    sample_column : str, optional
        Name of a new column of type Float32, at the end of a new table or of an overwrite with ``schema_mode=
        "overwrite"``. Its values are computed from the indexed columns, so that ``WHERE <column> < 0.1`` returns
        the rows of ``sample=0.1``, rounded up to a multiple of 1/65536, in any engine. Later writes keep it; values in
        their rows are ignored. See `Table.add_sample_column`.
    comment : str, optional
        Description of a new table, or of one whose schema is replaced. Delta engines show it.
    column_comments : mapping of str to str, optional
        Comments of columns by name, like `comment`.
    partition_by : sequence of str, optional
        Partition columns of a new table, or of an overwrite with ``schema_mode="overwrite"``. A data file has rows of
        one partition, and each partition has its own index tree. It pays if nearly all queries select a few values
        of the column, and each value has the rows of many cubes: other filters read more, because they search each
        tree. By default a table keeps its partition columns; ``[]`` removes them. Lists, structs and maps cannot be
        partition columns.
    sample_by : sequence of str, optional
        Sampling key of a new table, or of an overwrite: the columns by whose values rows enter a sample. A sample then
        holds all rows of some keys, such as whole users, and filters skip data by the indexed columns as without the
        key. `estimate` can count keys, and compute values per key. By default samples are by the indexed columns; an
        overwrite keeps the key of the table, and ``[]`` removes it. The columns need not be indexed. Floats and nested
        columns cannot be in a key. Plain sums are less precise if keys have many rows, see docs/sampling.md.
    deletion_vectors : bool, optional
        Whether deletes, updates and merges of a new table hide rows by deletion vectors instead of rewriting files
        (``delta.enableDeletionVectors``). They write much less. All readers need to support the feature, see
        docs/readers.md. By default a new table has none, and a table that exists keeps its setting.
    change_feed : bool, optional
        Whether a new table records the rows that deletes, updates and merges change
        (``delta.enableChangeDataFeed``), see `Table.changes`. By default as `deletion_vectors`.
    compression : {"zstd", "snappy", "none"}, optional
        Compression of the data files of a new table (``delta.parquet.compression.codec``). zstd, the default, makes the
        smallest files; snappy is written faster. Columns that do not become smaller are not compressed. A table keeps
        its compression; change it by `Table.set_properties`.
    importance : mapping of str to float, optional
        How much narrower than others the pages of indexed columns of a new table are, such as ``{"ts": 3}``: filters on
        these columns read less, others more. Columns that are left out have 1. A table keeps its importance, see
        `Table.set_importance`.
    register : str, optional
        Name in Unity Catalog, ``uc://catalog.schema.table``, that the table at the address `path` gets in the same
        call, unless it has it. The catalog lends credentials to write the table if `storage_options` have none.
    resources : Resources, optional
        Memory and temporary files to use, see `qbeast.Resources`. Not for Spark.
    **keywords
        `dry_run`, `txn`, `commit_metadata` and `progress`, see `ChangeKeywords`.

    Returns
    -------
    WriteResult
        Version, rows, files, bytes, cubes, revision, how each column is indexed, and the design effect.

    Raises
    ------
    InvalidInputError
        An option is invalid (`InvalidColumnsError`: the columns to index; `SchemaMismatchError`: the rows do not fit
        the table; `ConstraintViolationError`: the rows break a rule of the table).
    TableExistsError
        Mode is ``"error"`` and the table exists, or there is something else at the path.
    NotQbeastTableError, UnsupportedTableError
        The Delta table has no Qbeast index, or has a feature that qbeast cannot write.
    InputChangedError
        A second read returned other rows. Nothing was committed.
    CommitConflictError
        The write conflicts with a commit of another writer.
    CommitUnknownError
        The store failed, and it is unknown whether the commit exists. Check before you write again.
    StorageError
        The store, or the folder for temporary files, refused a write: no permission, disk full.

    Warns
    -----
    AddedColumnWarning
        The rows add columns to a table of qbeast-spark, whose optimize (0.7.1) loses their values.
    DesignEffectWarning
        The rows bring the design effect of the table above 2: index keys repeat so often that samples are clustered.
    SmallPartitionsWarning
        Half of the partitions have fewer rows than one cube.

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
    from qbeast_core.table.engine.local import local_engine
    from qbeast_core.table.engine.sources import open_source
    from qbeast_core.table.write.options import WriteOptions, metadata_of
    from qbeast_core.table.write.write import write_rows

    options = WriteOptions(
        columns=columns,
        mode=mode,
        where=cast("Predicate | None", where),  # the bridge translates a Column
        cube_size=cube_size,
        column_stats=column_stats,
        schema_mode=schema_mode,
        storage_options=storage_options,
        txn=keywords.get("txn"),
        commit_metadata=metadata_of(keywords.get("commit_metadata")),
        dialect=dialect,
        sample_column=sample_column,
        comment=comment,
        column_comments=column_comments or {},
        partition_by=partition_by,
        sample_by=sample_by,
        deletion_vectors=deletion_vectors,
        change_feed=change_feed,
        compression=compression,
        importance=importance,
        register=register,
        dry_run=keywords.get("dry_run", False),
        progress=callback_of(keywords.get("progress")),
    )
    if is_spark_frame(df):
        bridge = importlib.import_module("qbeast_spark_bridge.write")
        result: WriteResult = bridge.write_frame(df, path, options)
        return result
    with local_engine(resources) as local, open_source(df) as source:
        options = replace(options, progress=local.report_progress(options.progress))
        if where is None:
            return local.report(write_rows(source, path, options, engine=local))
        from qbeast_core.table.dml.replace_where import LocalKeeper, replace_where

        return local.report(replace_where(source, path, options, engine=local, keeper=LocalKeeper(local)))


@hints_keywords
def open_table(path: str | os.PathLike[str], **keywords: Unpack[OpenKeywords]) -> Table:
    """Open a table at its newest version, or travel in time.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table, or its name in Unity Catalog (``uc://catalog.schema.table``) or AWS Glue
        (``glue://db.table``), see docs/object-stores.md.
    **keywords
        `version`, `storage_options`, `allow_absolute_paths` and `resources`, see `OpenKeywords`.

    Returns
    -------
    Table
        The table at this version.

    Raises
    ------
    TableNotFoundError
        There is no Delta table at the path.
    UnsupportedTableError
        The table has a feature that qbeast cannot read.
    VersionNotFoundError
        The version does not exist, or all versions are newer than the time.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> for day in range(2):
    ...     _ = qbeast.write_table(pl.DataFrame({"day": [day]}), "days", columns=["day"], mode="append")
    >>> qbeast.open_table("days", version=0).read()["day"].to_list()
    [0]
    """
    return open_version(path, **keywords)


@hints_keywords
def scan_table(
    path: str | os.PathLike[str], *, where: Predicate | None = None, **keywords: Unpack[ScanKeywords]
) -> pl.LazyFrame:
    """Scan a table lazily. Columns, filters, limits and the sample reduce the bytes that are read.

    The version is fixed by this call, not by `collect`. The same sample returns the same rows each time, and a larger
    fraction returns these and more, also after appends and optimizes. Rows with equal values of all indexed columns are
    in a sample together or not at all.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    where : polars.Expr or str, optional
        Rows to return, as in ``.filter``. A text is SQL, as in `Table.delete`.
    **keywords
        `columns`, `sample`, `sample_by`, `rows`, `by`, `seed` and `expand`, see `ReadKeywords`; `version` and others of
        `OpenKeywords`.

    Returns
    -------
    polars.LazyFrame
        Rows in no particular order.

    Raises
    ------
    InvalidInputError
        See `Read.lazy`.
    TableNotFoundError, UnsupportedTableError, VersionNotFoundError
        See `open_table`.

    Warns
    -----
    EmptySampleWarning, UnevenSampleWarning, UnindexedSampleWarning
        See `Read.lazy`.

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
    opened, read = split(keywords, OpenKeywords, ReadKeywords)
    return open_version(path, **opened).rows(where, **read).lazy()


@hints_keywords
def read_table(
    path: str | os.PathLike[str], *, where: Predicate | None = None, **keywords: Unpack[ScanKeywords]
) -> pl.DataFrame:
    """Read a table into memory.

    Parameters
    ----------
    path, where, **keywords
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
    opened, read = split(keywords, OpenKeywords, ReadKeywords)
    return open_version(path, **opened).read(where, **read)


@hints_keywords
def estimate(
    path: str | os.PathLike[str],
    aggregates: Expressions | Function,
    *,
    where: Predicate | None = None,
    **keywords: Unpack[EstimateTableKeywords],
) -> Estimate:
    """Estimate aggregates of a table with a maximum error, from the smallest sample that is sufficient.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    aggregates, where
        See `Read.estimate` and `scan_table`.
    **keywords
        `error`, `by`, `per`, `join` and others, see `EstimateKeywords`; `sample`, `sample_by` and `columns`, see
        `ReadKeywords`; `version` and others of `OpenKeywords`.

    Returns
    -------
    Estimate
        `.frame` holds answers and intervals; `.met` is whether the error was reached.

    Raises
    ------
    InvalidInputError
        An argument is invalid, such as an aggregate that a sample cannot estimate (``max``); nothing was read.
    TableNotFoundError, UnsupportedTableError, VersionNotFoundError
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
    opened, asked, read = split(keywords, OpenKeywords, EstimateKeywords, ReadKeywords)
    return open_version(path, **opened).rows(where, **read).estimate(aggregates, **asked)


@changing
def convert_table(
    path: str | os.PathLike[str],
    columns: IndexColumns,
    *,
    cube_size: int | None = None,
    dialect: BlocksDialect | None = None,
    sample_by: SampleBy | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
    resources: Resources | None = None,
) -> ConvertResult:
    """Convert a Delta table, or a folder of Parquet files, to a Qbeast table without rewriting data.

    One commit sets the columns to index. Existing rows stay in their files and are not indexed yet: reads and samples
    are correct, but open all of these files until an optimize indexes them. Rows that qbeast writes later are indexed
    at once; rows that other Delta writers append are indexed by the next optimize. A second conversion with the same
    columns changes nothing.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table or of the Parquet files. These are in one folder and have one schema; missing
        columns are null. Files in folders like ``day=2024-05-01`` become partitions of the table; the type of a
        partition column is the first of Int64, Float64, Date and String that holds all its values. A Delta log is
        created for them, and their columns are read once for statistics.
    columns : sequence of str or mapping of str to str
        Columns to index, in order, as in `write_table`. Kinds are chosen when the first rows are indexed. An empty list
        gives the table no index, but qbeast may append to it and optimize it.
    cube_size : int, optional
        Target number of rows per cube, at least 1. By default it is chosen from the number of rows.
    dialect : {"documented", "qbeast-spark"}, optional
        Encoding of the index, see `write_table`.
    sample_by : sequence of str, optional
        Sampling key, see `write_table`.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.
    commit_metadata : mapping of str to str, optional
        Entries to add to the history.
    dry_run : bool, default False
        Change nothing. The result says what would be done.
    resources : Resources, optional
        Memory to use. It limits the number of Parquet files that are read at the same time.

    Returns
    -------
    ConvertResult
        Version, number of files, rows and bytes, and whether the table was converted.

    Raises
    ------
    InvalidColumnsError
        The columns are unknown or cannot be indexed, or the table is indexed by other columns already.
    InvalidInputError
        Another option is invalid, or a Parquet file is damaged or has a type that Delta does not support
        (`SchemaMismatchError`: two files have different types of a column).
    TableNotFoundError
        There is neither a Delta table nor a Parquet file.
    UnsupportedTableError
        The table has a feature that qbeast cannot read or write, or Parquet files lie in other folders.
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
    from qbeast_core.table.engine.local import local_engine
    from qbeast_core.table.maintenance.convert import convert
    from qbeast_core.table.write.options import WriteOptions, metadata_of

    options = WriteOptions(
        columns=columns,
        cube_size=cube_size,
        dialect=dialect,
        sample_by=sample_by,
        commit_metadata=metadata_of(commit_metadata),
        dry_run=dry_run,
    )
    with local_engine(resources) as local:
        return convert(Location.of(path, storage_options), options, engine=local)


@hints_keywords
def table_exists(path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a Delta table at a path, with or without Qbeast index.

    Parameters
    ----------
    path : str or path-like
        Folder or address, or a name in AWS Glue.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.

    Raises
    ------
    InvalidInputError, StorageError
        The path is invalid, or the store cannot be read.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "there", columns=["a"])
    >>> qbeast.table_exists("there"), qbeast.table_exists("elsewhere")
    (True, False)
    """
    from qbeast_core.table.maintenance.versions import newest_version

    try:
        location = Location.of(path, storage_options)
    except TableNotFoundError:  # no such name in a catalog
        return False
    return newest_version(location.store) is not None


@changing
def drop_table(
    path: str | os.PathLike[str],
    *,
    confirm: bool = False,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> DropResult:
    """Delete a Delta table: its log, and the data files of all versions. This cannot be undone.

    Only the log, Parquet files and deletion vectors in the folder are deleted. Other files stay, and so do files in
    folders that begin with ``_`` or ``.``, files in folders that are tables themselves, and targets of links and
    absolute paths. If a deletion fails, call the function again: the log is deleted last.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    confirm : bool, default False
        Must be True, unless it is a dry run.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.
    dry_run : bool, default False
        Change nothing. The result says what would be done.

    Returns
    -------
    DropResult
        The deleted files and their size, and the files that stay.

    Raises
    ------
    InvalidInputError
        `confirm` is not True; nothing was deleted.
    TableNotFoundError
        There is no Delta table; nothing was deleted.
    StorageError
        The store cannot be read, or a file cannot be deleted.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "old", columns=["a"])
    >>> len(qbeast.drop_table("old", confirm=True).files), qbeast.table_exists("old")
    (2, False)
    """
    from qbeast_core.table.maintenance.versions import drop

    return drop(Location.of(path, storage_options), confirm=confirm, dry_run=dry_run)
