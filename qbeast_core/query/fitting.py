"""Whether the space of a revision still stands for the columns of a table."""

from __future__ import annotations

from typing import Final

import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    EmptyTransformation,
    IdentityToZeroTransformation,
    IdentityTransformation,
    LinearTransformation,
    StringHistogramTransformation,
    Transformation,
)
from qbeast_core.spec.transformer import Transformer
from qbeast_core.tree.columns import data_type_of

__all__ = ["fits_schema", "texts_changed"]

_OF_TEXTS: Final = (CDFStringQuantilesTransformation, StringHistogramTransformation)
_OF_NUMBERS: Final = (CDFNumericQuantilesTransformation, IdentityTransformation, LinearTransformation)


def fits_schema(revision: Revision, schema: pl.Schema) -> bool:
    """Tell whether there is a space, and the columns have the types they were hashed and placed with (format 3).

    Parameters
    ----------
    revision : Revision
        Of the table; false for the staging revision.
    schema : polars.Schema
        The table's columns.

    Examples
    --------
    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> fits_schema(staging, pl.Schema({"x": pl.Int64}))
    False
    """
    spaces = [one for one in revision.transformations if not isinstance(one, EmptyTransformation)]
    typed = all(_has_type(one, schema) for one in revision.column_transformers)
    return bool(spaces) and typed and not texts_changed(revision, schema)


def texts_changed(revision: Revision, schema: pl.Schema) -> tuple[str, ...]:
    """Return the columns that hold texts instead of what the revision knows or is made of, or the other way round.

    Parameters
    ----------
    revision : Revision
        Of the table.
    schema : polars.Schema
        The table's columns.

    Examples
    --------
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
        if _holds_texts(space) not in {None, held[name]}:
            wrong.add(name)
    return tuple(name for name in revision.columns if name in wrong)


def _holds_texts(space: Transformation) -> bool | None:
    """Tell whether a space is made of texts, or of numbers; None: it takes both."""
    if isinstance(space, IdentityToZeroTransformation):
        return None if space.identity_value is None else isinstance(space.identity_value, str)
    if isinstance(space, _OF_TEXTS):
        return True
    return False if isinstance(space, _OF_NUMBERS) else None


def _has_type(transformer: Transformer, schema: pl.Schema) -> bool:
    dtype = schema.get(transformer.column_name)
    if dtype is None:
        return False
    try:
        found = data_type_of(transformer.column_name, dtype)
    except InvalidColumnsError:
        return False
    return getattr(transformer, "data_type", found) == found
