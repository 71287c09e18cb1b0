"""Write a data file of sorted rows."""

from __future__ import annotations

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.tag_copy import FileIndex
from qbeast_core.space.arrays import I32Array
from qbeast_core.table.data.data_files import FileSettings, store_file
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.bands.shape import FileShape


def settings_for(
    target: FileTarget,
    rows: pl.DataFrame,
    indexed: tuple[str, ...],
    *,
    size_bytes: int | None = None,
) -> FileSettings:
    """Choose the settings of files for such rows; see `FileSettings.of`."""
    return FileSettings.of(
        rows,
        indexed,
        target.configuration,
        dialect=target.dialect,
        columns=target.columns,
        clustered_by=target.clustered_by,
        size_bytes=size_bytes,
        is_scattered=bool(target.sample_by),
    )


def store_sorted(
    target: FileTarget,
    rows: pl.DataFrame,
    weights: I32Array,
    settings: FileSettings,
    *,
    path: str,
    shape: FileShape,
    index: FileIndex | None = None,
) -> AddFile:
    """Write a file of arranged rows, which repeats its index. Return it without blocks."""
    put = target.store.put
    return store_file(rows, weights, shape, put=put, path=path, settings=settings, index=index)[0]
