"""Check whether the space of a revision fits the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import EmptyTransformation
from qbeast_core.spec.transformer import DECIMAL_TYPE, Transformer
from qbeast_core.tree.space.columns import data_type_of


def fits_schema(revision: Revision, schema: pl.Schema, rehashed: Mapping[str, str] | None = None) -> bool:
    """Return whether a revision has a space, and the columns have the types that it was built for (format 3).

    `rehashed` are decimal columns whose type was widened, and their types: a revision fits if it notes the same type.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> fits_schema(staging, pl.Schema({"x": pl.Int64}))
    False
    """
    has_space = any(not isinstance(part, EmptyTransformation) for part in revision.transformations)
    typed = all(_has_type(part, schema) for part in revision.column_transformers)
    noted = {part.column_name: part.model_extra or {} for part in revision.column_transformers}
    typed &= all(
        noted[name].get(DECIMAL_TYPE) == dtype for name, dtype in (rehashed or {}).items() if name in noted
    )
    return has_space and typed and not texts_changed(revision, schema)


def texts_changed(revision: Revision, schema: pl.Schema) -> tuple[str, ...]:
    """Return the columns that are text in the schema but not in the revision, or the reverse.

    >>> from qbeast_core.spec.revision import staging_revision
    >>> staging = staging_revision(["x"], timestamp_ms=0, table_id="t", cube_size=9)
    >>> texts_changed(staging, pl.Schema({"x": pl.String}))
    ()
    """
    is_text = {name: schema.get(name) == pl.String for name in revision.columns}
    was_text = {
        transformer.column_name: transformer.data_type == "StringDataType"
        for transformer in revision.column_transformers
        if transformer.data_type is not None
    }
    wrong = {name for name, text in was_text.items() if text != is_text[name]}
    for name, space in zip(revision.columns, revision.transformations, strict=False):
        if space.holds_texts not in {None, is_text[name]}:
            wrong.add(name)
    return tuple(name for name in revision.columns if name in wrong)


def _has_type(transformer: Transformer, schema: pl.Schema) -> bool:
    dtype = schema.get(transformer.column_name)
    if dtype is None:
        return False
    try:
        data_type = data_type_of(transformer.column_name, dtype)
    except InvalidColumnsError:
        return False
    return getattr(transformer, "data_type", data_type) == data_type
