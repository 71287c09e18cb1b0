"""The sample column: a visible column with the weights of rows as fractions (format 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns.mapping import with_fields
from qbeast_core.log.columns.stored import PLAIN, StoredColumns
from qbeast_core.log.schema import merged_schema, schema_from_delta
from qbeast_core.spec.table_config import SAMPLE_COLUMN, SAMPLE_COLUMN_READER, min_reader_entry

DTYPE: Final = pl.Float32()


def sample_column_of(
    configuration: Mapping[str, str], schema: pl.Schema, columns: StoredColumns = PLAIN
) -> str | None:
    """Return the name of the sample column, or None if the table has none.

    A column that another writer dropped, or whose type it changed, does not count.

    >>> sample_column_of({"qbeast.sampleColumn": "s"}, pl.Schema({"a": pl.Int64, "s": pl.Float32}))
    's'
    >>> sample_column_of({"qbeast.sampleColumn": "s"}, pl.Schema({"a": pl.Int64})) is None
    True
    """
    stored = configuration.get(SAMPLE_COLUMN)
    name = None if stored is None else columns.name(stored)
    return name if name is not None and schema.get(name) == DTYPE else None


def has_sample_column(metadata: Metadata) -> bool:
    """Return whether a table has a sample column; see `sample_column_of`."""
    if SAMPLE_COLUMN not in metadata.configuration:
        return False
    schema, columns = schema_from_delta(metadata.schema_string), StoredColumns.of(metadata)
    return sample_column_of(metadata.configuration, schema, columns) is not None


def with_sample_column(metadata: Metadata, name: str, new_id: Callable[[], str]) -> Metadata:
    """Return the metadata with a sample column at the end of the schema, unless it has this one.

    A version of this library that does not compute the column must refuse the table. Versions from before
    ``qbeast.minReader`` do not know this, so the values in their files are not trusted.
    """
    columns = {**schema_from_delta(metadata.schema_string), name: DTYPE}
    changed = with_fields(metadata, merged_schema(metadata.schema_string, columns), new_id)
    entries = {
        SAMPLE_COLUMN: StoredColumns.of(changed).stored_name(name),
        **min_reader_entry(metadata.configuration, SAMPLE_COLUMN_READER),
    }
    return changed.model_copy(update={"configuration": {**changed.configuration, **entries}})


def without_values(frame: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Return rows whose sample column, if the table has one, is null and the last column: writes compute it."""
    if name is None:
        return frame
    return frame.drop(name, strict=False).with_columns(pl.lit(None, DTYPE).alias(name))
