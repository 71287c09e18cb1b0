"""A data file of rows that have their places already, written in their order."""

from __future__ import annotations

import time
from collections.abc import Mapping

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import FileSettings, store_file
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.pack import page_rows_for

__all__ = ["store_indexed"]


def store_indexed(
    rows: pl.DataFrame,
    weights: I32Array,
    target: FileTarget,
    revision: Revision,
    *,
    path: str,
    starts: I64Array,
    settings: FileSettings | None = None,
    values: Mapping[str, pl.Series] | None = None,
) -> AddFile:
    """Write rows in the order of their file, which have places in a revision; return the file without blocks.

    Parameters
    ----------
    rows : polars.DataFrame
        Of the table's types.
    weights : ndarray of int32, shape (rows,)
        Theirs.
    target : FileTarget
        Where the file goes.
    revision : Revision
        That the rows are indexed in.
    path : str
        Name of the file, not used before.
    starts : ndarray of int64, shape (blocks,)
        Where its blocks start.
    settings : FileSettings, optional
        How it is encoded; by default as these rows alone would have it.
    values : mapping of str to polars.Series, optional
        See `store_file`.

    Raises
    ------
    StorageError
        If the store refuses.
    """
    if settings is None:
        settings = FileSettings.of(rows, revision.columns, target.configuration, dialect=target.dialect)
    return store_file(
        rows,
        weights,
        page_rows_for(rows.height, cube_size=revision.desired_cube_size),
        store=target.store,
        path=path,
        settings=settings,
        now_ms=lambda: time.time_ns() // 1_000_000,
        values=values,
        starts=starts,
    )
