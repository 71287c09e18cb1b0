"""Tables with column mapping and a feed, and their rows by another reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
from deltalake import DeltaTable, QueryBuilder

import qbeast
from tests.helpers.change_feed import enable_feed

__all__ = ["map_columns_and_feed", "rows_of_others"]


def rows_of_others(uri: str | Path, options: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Return the rows as Polars reads them, or as deltalake does if columns are mapped, which Polars refuses."""
    table = DeltaTable(uri, storage_options=dict(options or {}) or None)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
        return pl.scan_delta(str(uri), storage_options=dict(options or {}) or None).collect()
    query = QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return pl.DataFrame(query.read_all()).select(field.name for field in table.schema().fields)


def map_columns_and_feed(path: Path, column: str) -> None:
    """Enable the feed of a table, and column mapping with the same names."""
    enable_feed(path)
    table = qbeast.open_table(path)
    table.rename_column(column, "renamed", upgrade_protocol=True)
    table.rename_column("renamed", column)
