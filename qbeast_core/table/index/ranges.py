"""The ranges of files along the dimensions of a revision, from their statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from qbeast_core.query.index.build import fits_schema
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.space.index_columns import NumberColumn, number_values
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import HashTransformation, Transformation
from qbeast_core.tree.growth.gain import Axis
from qbeast_core.tree.space.index_values import to_index_column


def axes_of(
    files: pl.DataFrame, schema: pl.Schema, revision: Revision, *, rehashed: Mapping[str, str] | None = None
) -> list[Axis]:
    """Return the dimensions of a revision for some files of a snapshot.

    Only columns of numbers, dates and times have known ranges.
    """
    fits = fits_schema(revision, schema, rehashed)
    bounded = bounded_columns(files) if fits else set[str]()
    return [
        _axis(files, name, schema[name], space) if name in bounded else Axis.unknown(files.height)
        for name, space in zip(revision.columns, revision.transformations, strict=True)
    ]


def bounded_columns(files: pl.DataFrame) -> set[str]:
    """Return the columns with a minimum and a maximum in the statistics."""
    schema = files.schema
    low, high = (
        {field.name for field in dtype.fields}
        if isinstance(dtype := schema.get(side), pl.Struct)
        else set[str]()
        for side in ("min", "max")
    )
    return low & high


def _axis(files: pl.DataFrame, name: str, dtype: pl.DataType, space: Transformation) -> Axis:
    bounds = pl.DataFrame(
        {end: files[end].struct.field(name).cast(dtype, strict=False) for end in ("min", "max")}
    )
    if dtype.is_float():
        bounds = bounds.with_columns(pl.when(pl.all().is_finite()).then(pl.all()).name.keep())
    known = bounds.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    both = to_index_column(pl.concat([bounds["min"].filter(known), bounds["max"].filter(known)]))
    if not isinstance(both, NumberColumn) or isinstance(space, HashTransformation) or not known.any():
        return Axis.unknown(files.height)
    low, high = np.split(number_values(both) / 2, 2)  # halved: the range of extreme doubles does not overflow
    rows = files["num_records"].fill_null(0).cast(pl.Int64).to_numpy()[known]
    axis = Axis.of(np.minimum(low, high), np.maximum(low, high), rows, to_coordinates(space, both))
    lowest, highest = np.zeros(files.height), np.ones(files.height)
    lowest[known], highest[known] = axis.lowest, axis.highest
    return Axis(axis.coordinates, axis.shares, lowest, highest)
