"""The public functions for CarbonData tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import polars as pl

from qbeast_carbondata.tables.importing import ImportResult, WhichSegments, import_table
from qbeast_carbondata.tables.table import OnUnreadable, open_carbondata
from qbeast_core.errors import changing, hints_keywords
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.support.process import ProgressLike, Resources, callback_of, shows_progress
from qbeast_core.table.data.expressions import Predicate
from qbeast_core.table.engine.local import local_engine
from qbeast_core.table.write.options import Mode, WriteOptions, metadata_of

__all__ = ["import_carbondata", "open_carbondata", "read_carbondata", "scan_carbondata"]


@hints_keywords
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
    return open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    ).scan(where, columns=columns)


@hints_keywords
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
    return open_carbondata(
        path,
        segments=segments,
        on_unreadable=on_unreadable,
        storage_options=storage_options,
        external_paths=external_paths,
        allow_absolute_paths=allow_absolute_paths,
        writer_settings=writer_settings,
    ).read(where, columns=columns)


@changing
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
    with local_engine(resources, memory_bytes, spill_dir) as local:
        options = WriteOptions(
            columns=columns,
            mode=mode,
            cube_size=cube_size,
            storage_options=storage_options,
            commit_metadata=metadata_of(commit_metadata),
            dialect=dialect,
            dry_run=dry_run,
            progress=local.report_progress(callback_of(progress)),
        )
        return local.report(import_table(opened, target, options, segments=segments, engine=local))
