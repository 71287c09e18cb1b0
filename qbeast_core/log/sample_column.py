"""The sample column: a visible column with the weights of rows as fractions (format 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns.stored import PLAIN, StoredColumns
from qbeast_core.log.schema import schema_from_delta
from qbeast_core.spec.table_config import SAMPLE_COLUMN

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


def without_values(frame: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Return rows whose sample column, if the table has one, is null and the last column: writes compute it."""
    if name is None:
        return frame
    return frame.drop(name, strict=False).with_columns(pl.lit(None, DTYPE).alias(name))
