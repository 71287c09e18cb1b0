"""Compute the finest-grid cells of rows in the space of a revision."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.space.arrays import U32Array
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.spec.revision import Revision
from qbeast_core.tree.layout.grid import grid
from qbeast_core.tree.layout.parallel import map_chunks
from qbeast_core.tree.space.columns import to_index_column


def grid_columns(frame: pl.DataFrame, revision: Revision) -> list[U32Array]:
    """Return the finest-grid cell of each row along each indexed column of `revision`."""
    columns = [frame.get_column(name) for name in revision.columns]
    cells = [np.empty(frame.height, np.uint32) for _ in columns]

    def chunk(start: int, stop: int) -> None:
        for column, space, out in zip(columns, revision.transformations, cells, strict=True):
            values = to_index_column(column.slice(start, stop - start))
            out[start:stop] = grid(to_coordinates(space, values))

    map_chunks(chunk, frame.height)
    return cells
