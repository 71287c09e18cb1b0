"""Write a data file of rows that are placed and sorted."""

from __future__ import annotations

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.data_files import FileSettings, store_file
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.layout.pack import page_rows_for


def store_indexed(
    rows: pl.DataFrame,
    weights: I32Array,
    target: FileTarget,
    revision: Revision,
    *,
    path: str,
    starts: I64Array,
    settings: FileSettings | None = None,
) -> AddFile:
    """Write sorted rows that are placed in a revision. Return the file without blocks."""
    if settings is None:
        settings = FileSettings.of(rows, revision.columns, target.configuration, dialect=target.dialect)
    add, _ = store_file(
        rows,
        weights,
        page_rows_for(rows.height, cube_size=revision.desired_cube_size),
        put=target.store.put,
        path=path,
        settings=settings,
        starts=starts,
    )
    return add
