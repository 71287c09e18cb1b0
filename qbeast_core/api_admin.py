"""What `import qbeast` offers for whole tables: convert, upgrade, look for and drop them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from qbeast_core.io.stores.location import resolve_location
from qbeast_core.resources import Resources
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.engine.choice import local_engine
from qbeast_core.table.index.column_texts import IndexColumns
from qbeast_core.table.maintenance.convert import ConvertResult, convert
from qbeast_core.table.maintenance.drop import DropResult, drop, newest_version
from qbeast_core.table.maintenance.upgrade import Copies, UpgradeResult, upgrade
from qbeast_core.table.write.options import WriteOptions, metadata_of

__all__ = ["convert_table", "drop_table", "table_exists", "upgrade_table"]


def convert_table(
    path: str | os.PathLike[str],
    columns: IndexColumns,
    *,
    cube_size: int | None = None,
    dialect: BlocksDialect | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dry_run: bool = False,
    resources: Resources | None = None,
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
    resources, memory_bytes
        See `write_table`: they bound how many Parquet files are read at the same time.

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
    options = WriteOptions(
        columns=columns,
        cube_size=cube_size,
        dialect=dialect,
        storage_options=storage_options,
        commit_metadata=metadata_of(commit_metadata),
        dry_run=dry_run,
    )
    with local_engine(resources, memory_bytes) as local:
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
        What to do with files with copies: they are kept, as the format's documents have it (default, with a warning if
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
        Copies are kept although `replicated` was not given.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1, 2]}), "new", columns=["a"])
    >>> qbeast.upgrade_table("new").committed
    False
    """
    return upgrade(
        resolve_location(path), replicated=replicated, storage_options=storage_options, dry_run=dry_run
    )


def table_exists(path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a Delta table at a path, with or without Qbeast index.

    Parameters
    ----------
    path : str or path-like
        Folder or address.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.

    Raises
    ------
    InvalidInputError, StorageError
        The path is not one, or the store cannot be read.

    Examples
    --------
    >>> import polars as pl, qbeast
    >>> _ = qbeast.write_table(pl.DataFrame({"a": [1]}), "there", columns=["a"])
    >>> qbeast.table_exists("there"), qbeast.table_exists("elsewhere")
    (True, False)
    """
    return newest_version(path, storage_options) is not None


def drop_table(
    path: str | os.PathLike[str], *, confirm: bool, storage_options: Mapping[str, str] | None = None
) -> DropResult:
    """Delete a Delta table: its log and its data files, of all versions. This cannot be undone.

    Only files below the folder are deleted, never what a link or an absolute path leads to: the log, Parquet files and
    deletion vectors, but not those in folders that begin with ``_`` or ``.``, or that are tables of their own. Other
    files stay. If a deletion fails, call it again: the log is deleted last.

    Parameters
    ----------
    path : str or path-like
        Folder or address of the table.
    confirm : bool
        Must be True.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.

    Returns
    -------
    DropResult
        The files that were deleted, and their bytes.

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
    return drop(path, storage_options, confirm=confirm)
