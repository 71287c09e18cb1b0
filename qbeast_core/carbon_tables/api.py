"""The public functions for CarbonData tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from qbeast_core.carbon_tables.importing import ImportResult, WhichSegments, import_table
from qbeast_core.carbon_tables.table import CarbonTable, OnUnreadable, OpenOptions, open_carbon_table
from qbeast_core.progress import ProgressLike, callback_of, shows_progress
from qbeast_core.resources import Resources
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.engine.choice import local_engine
from qbeast_core.table.write.options import WriteOptions, metadata_of
from qbeast_core.table.write.target import Mode

__all__ = ["import_carbondata", "open_carbondata", "read_carbondata", "scan_carbondata"]


def open_carbondata(
    path: str | os.PathLike[str],
    *,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> CarbonTable:
    """Open an Apache CarbonData table without a JVM, to inspect and read it.

    Parameters
    ----------
    path : str or path-like
        Folder or address of a table (with ``Metadata/schema``), or of ``*.carbondata`` files of an SDK writer.
    segments : sequence of str, optional
        Ids of the live segments to read; all by default.
    on_unreadable : {"error", "skip-segment"}, default "error"
        What to do if a segment cannot be read. ``"skip-segment"`` first reads every segment once, and leaves out
        segments that fail; `CarbonTable.left_out` lists them.
    storage_options : mapping of str to str, optional
        Options of the object store, as in `deltalake`.
    external_paths : mapping of str to path, optional
        Present locations of folders outside the table (added segments), by their paths in the table's metadata.
    allow_absolute_paths : bool, default False
        Open such folders at the paths in the table's metadata. Only for tables whose writers you trust.
    writer_settings : mapping of str to str, optional
        Values of ``carbon.timegranularity`` and ``carbon.cutOffTimestamp`` (UTC if it has no zone) in the
        ``carbon.properties`` of the cluster that wrote the table. Timestamps of CarbonData up to 1.1 depend on them,
        and no file records them. By default, timestamps are seconds since 1970.

    Returns
    -------
    CarbonTable
        The table at this moment: later loads are not visible.

    Raises
    ------
    TableNotFoundError
        There is neither a CarbonData table nor a data file.
    DamagedFileError, StorageError
        A metadata file is damaged or missing.
    UnsupportedTableError
        The table has folders outside that may not be opened, is a secondary index of another table, is encrypted, or
        the valid version of its table status is unknown.
    InvalidInputError
        An option is invalid.

    Examples
    --------
    >>> table = qbeast.open_carbondata("carbon/orders")  # doctest: +SKIP
    >>> table.explain("price > 100")  # doctest: +SKIP
    """
    options = OpenOptions(
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    return open_carbon_table(path, options)


def scan_carbondata(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> pl.LazyFrame:
    """Scan a CarbonData table lazily: only blocklets and pages that the columns, filters and limits need are decoded.

    Parameters
    ----------
    where : polars.Expr or str, optional
        Rows to keep. A text is SQL, as for `read_table`.
    columns : sequence of str, optional
        Columns to return, in order; all by default.
    path, segments, on_unreadable, storage_options, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.

    Returns
    -------
    polars.LazyFrame
        The live rows, in no particular order.

    Raises
    ------
    The same errors as `open_carbondata`; InvalidInputError if `where` is not a condition on the rows; on collect,
    UnsupportedTableError and DamagedFileError for the content of data files, with the file and the position.

    Examples
    --------
    >>> qbeast.scan_carbondata("carbon/orders", where="id < 3").collect()  # doctest: +SKIP
    """
    opened = open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    return opened.scan(where, columns=columns)


def read_carbondata(
    path: str | os.PathLike[str],
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    segments: Sequence[str] | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Read a CarbonData table into memory.

    Parameters
    ----------
    where, columns
        As for `scan_carbondata`.
    path, segments, on_unreadable, storage_options, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.

    Returns
    -------
    polars.DataFrame
        Rows in no particular order.

    Raises
    ------
    The same errors as `scan_carbondata`.

    Examples
    --------
    >>> qbeast.read_carbondata("carbon/orders", where="price > 100")  # doctest: +SKIP
    """
    opened = open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    return opened.read(where, columns=columns)


@shows_progress("importing")
def import_carbondata(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    segments: WhichSegments = "current",
    mode: Mode = "error",
    cube_size: int | None = None,
    on_unreadable: OnUnreadable = "error",
    storage_options: Mapping[str, str] | None = None,
    external_paths: Mapping[str, str | os.PathLike[str]] | None = None,
    allow_absolute_paths: bool = False,
    writer_settings: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    dialect: BlocksDialect | None = None,
    dry_run: bool = False,
    progress: ProgressLike = None,
    resources: Resources | None = None,
    memory_bytes: int | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> ImportResult:
    """Write the rows of a CarbonData table to a qbeast table; the CarbonData table is not changed.

    Parameters
    ----------
    path : str or path-like
        The CarbonData table.
    target : str or path-like
        The table to create.
    columns : sequence of str, optional
        Columns to index, as for `write_table`. By default the indexed columns of a table that is overwritten, else the
        sort columns of the CarbonData table, or its first three dimensions that can be indexed.
    segments : {"current", "history"}, default "current"
        ``"current"``: the present rows in one commit. ``"history"``: one commit per load, oldest first, with the
        load's id and time in the commit's metadata, so time travel reaches each load. Compacted loads are replayed
        one by one if their files exist and none of their rows was changed. Rows that are deleted now are in no
        version. After an error, the earlier commits stay.
    mode, cube_size, dialect, dry_run, progress, resources, memory_bytes, spill_dir, commit_metadata
        As for `write_table`. A dry run of a history plans each load like the first.
    on_unreadable, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.
    storage_options : mapping of str to str, optional
        For object stores, of both tables.

    Returns
    -------
    ImportResult
        The result of the last commit, with the rows, files and bytes of all commits, and the segments imported and left
        out.

    Raises
    ------
    The same errors as `open_carbondata`, `scan_carbondata` and `write_table`.

    Examples
    --------
    >>> qbeast.import_carbondata("carbon/orders", "orders", segments="history")  # doctest: +SKIP
    """
    opened = open_carbondata(
        path,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    )
    options = WriteOptions(
        columns=columns,
        mode=mode,
        cube_size=cube_size,
        storage_options=storage_options,
        commit_metadata=metadata_of(commit_metadata),
        dialect=dialect,
        dry_run=dry_run,
        progress=callback_of(progress),
    )
    with local_engine(resources, memory_bytes, spill_dir) as local:
        options = replace(options, progress=local.report_progress(callback_of(progress)))
        return local.report(import_table(opened, target, options, segments=segments, engine=local))
