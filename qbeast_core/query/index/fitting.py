"""Whether the space of a revision still fits the columns of a table."""

from __future__ import annotations

import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformer import Transformer
from qbeast_core.tree.space.columns import data_type_of


def fits_schema(revision: Revision, schema: pl.Schema) -> bool:
    """Return whether there is a space, and the columns have the types they were hashed and placed with (format 3).

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> fits_schema(staging, pl.Schema({"x": pl.Int64}))
    False
    """
    has_space = any(one.is_space for one in revision.transformations)
    typed = all(_has_type(one, schema) for one in revision.column_transformers)
    return has_space and typed and not texts_changed(revision, schema)


def texts_changed(revision: Revision, schema: pl.Schema) -> tuple[str, ...]:
    """Return the columns that hold texts instead of what the revision knows or is made of, or the other way round.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> texts_changed(staging, pl.Schema({"x": pl.String}))
    ()
    """
    held = {name: schema.get(name) == pl.String for name in revision.columns}
    found = {
        one.column_name: one.data_type == "StringDataType"
        for one in revision.column_transformers
        if one.data_type is not None
    }
    wrong = {name for name, texts in found.items() if texts != held[name]}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        if space.holds_texts not in {None, held[name]}:
            wrong.add(name)
    return tuple(name for name in revision.columns if name in wrong)


def _has_type(transformer: Transformer, schema: pl.Schema) -> bool:
    dtype = schema.get(transformer.column_name)
    if dtype is None:
        return False
    try:
        found = data_type_of(transformer.column_name, dtype)
    except InvalidColumnsError:
        return False
    return getattr(transformer, "data_type", found) == found
