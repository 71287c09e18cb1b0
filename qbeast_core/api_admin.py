"""Public functions of `qbeast` for whole tables: convert, upgrade and drop tables, and check if they exist."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qbeast_core.errors import TableNotFoundError, changing, hints_keywords
from qbeast_core.io.location import Location

if TYPE_CHECKING:
    from qbeast_core.spec.blocks import BlocksDialect
    from qbeast_core.support.process import Resources
    from qbeast_core.table.index.revision import IndexColumns
    from qbeast_core.table.maintenance.convert import ConvertResult
    from qbeast_core.table.maintenance.metadata import Copies, UpgradeResult
    from qbeast_core.table.maintenance.versions import DropResult
    from qbeast_core.table.write.options import SampleBy


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
    memory_bytes: int | None = None,
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
    resources, memory_bytes
        See `write_table`. They limit the number of Parquet files that are read at the same time.

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
    with local_engine(resources, memory_bytes) as local:
        return convert(Location.of(path, storage_options), options, engine=local)


@changing
def upgrade_table(
    path: str | os.PathLike[str],
    *,
    replicated: Copies | None = None,
    storage_options: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> UpgradeResult:
    """Upgrade a table that qbeast-spark wrote before its version 0.6.0, without rewriting data.

    One commit updates the tags of the data files. qbeast returns each row once before and after. A second upgrade, or
    an upgrade of a newer table, changes nothing.

    Such tables may hold files with *copies* of rows. qbeast skips the copies; other readers of Delta tables return
    these rows twice.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    replicated : {"keep", "drop"}, optional
        Whether to keep files with copies (default, as in the format documents, with a warning if there are any), or to
        drop them, so that all readers return each row once. Files of copies that only some readers take for live are
        always dropped.
    storage_options : mapping of str to str, optional
        Options for object stores, as in `deltalake`.
    dry_run : bool, default False
        Change nothing. The result says what would be done.

    Returns
    -------
    UpgradeResult
        Version, and number of files retagged, kept and dropped.

    Raises
    ------
    InvalidInputError
        `replicated` is invalid.
    TableNotFoundError, NotQbeastTableError, UnsupportedTableError
        There is no Delta table, it has no Qbeast index, or it has a feature that qbeast cannot write.
    CommitConflictError, CommitUnknownError, StorageError
        See `write_table`.

    Warns
    -----
    QbeastWarning
        Copies are kept and `replicated` was not passed.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2]}), "new", columns=["a"])
    >>> qbeast.upgrade_table("new").committed
    False
    """
    from qbeast_core.table.maintenance.metadata import upgrade

    return upgrade(Location.of(path, storage_options), replicated=replicated, dry_run=dry_run)


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
