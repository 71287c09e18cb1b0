"""What `import qbeast` offers for CarbonData tables: signatures, documentation, order of steps."""

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
    """Open an Apache CarbonData table, without a JVM: what it consists of, what of it cannot be read, its rows.

    Parameters
    ----------
    path : str or path-like
        Folder or address of a table (with ``Metadata/schema``), or of ``*.carbondata`` files that an SDK wrote.
    segments : sequence of str, optional
        Ids of the live segments to read; all by default.
    on_unreadable : {"error", "skip-segment"}, default "error"
        What to do about a segment that cannot be read. ``"skip-segment"`` reads every segment to its end once before,
        and leaves out those that fail; `CarbonTable.left_out` lists them.
    storage_options : mapping of str to str, optional
        For object stores, as `deltalake` takes them.
    external_paths : mapping of str to path, optional
        Where folders outside of the table (added segments) lie now, by what the table calls them.
    allow_absolute_paths : bool, default False
        Open such folders where the table says they are. Only for tables whose writers you trust.
    writer_settings : mapping of str to str, optional
        What ``carbon.properties`` of the cluster that wrote the table said of ``carbon.timegranularity`` and
        ``carbon.cutOffTimestamp`` (taken for UTC if it names no zone), if they were set: timestamps of CarbonData up
        to 1.1 count by them, and no file tells them. By default seconds since 1970.

    Returns
    -------
    CarbonTable
        As it is now: later loads are not seen.

    Raises
    ------
    TableNotFoundError
        There is neither a CarbonData table nor a data file.
    DamagedFileError, StorageError
        A file of its metadata is damaged, or missing.
    UnsupportedTableError
        It has folders outside that may not be opened, is the secondary index of another table, is encrypted, or nothing
        tells which version of its table status counts.
    InvalidInputError
        An option cannot be used as given.

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
    """Scan a CarbonData table lazily: columns, filters and limits decide which blocklets and pages are decoded.

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
        Rows that are live now, in no particular order.

    Raises
    ------
    The same errors as `open_carbondata`; InvalidInputError if `where` is not a condition on the rows; when it is
    collected, UnsupportedTableError and DamagedFileError for the content of data files, naming file and place.

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
    """Write the rows of a CarbonData table to a table of qbeast's; the CarbonData table stays as it is.

    Parameters
    ----------
    path : str or path-like
        The CarbonData table.
    target : str or path-like
        The table to make.
    columns : sequence of str, optional
        Columns to index, as for `write_table`; by default those of a table that is overwritten, else the sort columns
        of the CarbonData table, or its first three dimensions that can be indexed.
    segments : {"current", "history"}, default "current"
        ``"current"``: the rows as they are, in one commit. ``"history"``: a commit for each load, oldest first, with
        its id and time in the commit's metadata, so that time travel leads to each; loads that were compacted are
        replayed one by one while their files are there and none of their rows was changed. Rows that are
        deleted now are in no version. Each commit stands for itself: after an error the earlier ones are there.
    mode, cube_size, dialect, dry_run, progress, resources, memory_bytes, spill_dir, commit_metadata
        As for `write_table`. A dry run of a history plans each load as if it were the first.
    on_unreadable, external_paths, allow_absolute_paths, writer_settings
        As for `open_carbondata`.
    storage_options : mapping of str to str, optional
        For object stores, of both tables.

    Returns
    -------
    ImportResult
        Of the last commit, with all rows, files and bytes; which segments are in the table, and which were left out.

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
