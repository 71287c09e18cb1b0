"""The ranges of files in the space of a revision, from their statistics."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.query.index.fitting import fits_schema
from qbeast_core.space.arrays import F64Array
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import HashTransformation, Transformation
from qbeast_core.table.index.revision import bounded_columns
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.tree.space.columns import to_index_column


def file_ranges(snapshot: Snapshot, revision: Revision) -> tuple[F64Array, F64Array]:
    """Return the lowest and highest coordinates of each file, each of shape (files, dimensions).

    A file without statistics, and any file along a column by hash, has the whole range from 0 to 1.
    """
    files = snapshot.files
    lowest = np.zeros((files.height, len(revision.columns)))
    highest = np.ones_like(lowest)
    bounded = bounded_columns(files) if fits_schema(revision, snapshot.schema) else set[str]()
    for number, (name, space) in enumerate(zip(revision.columns, revision.transformations, strict=True)):
        if name in bounded and not isinstance(space, HashTransformation):
            dtype = snapshot.schema[name]
            for side, ends, unknown in (("min", lowest, 0.0), ("max", highest, 1.0)):
                bounds = files[side].struct.field(name).cast(dtype, strict=False)
                ends[:, number] = np.where(bounds.is_null(), unknown, _coordinates(bounds, space))
    return np.minimum(lowest, highest), np.maximum(lowest, highest)


def _coordinates(values: pl.Series, space: Transformation) -> F64Array:
    return np.clip(to_coordinates(space, to_index_column(values)), 0.0, 1.0)
