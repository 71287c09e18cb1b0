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
    """Return the rows as deltalake reads them, also with column mapping, where `polars.scan_delta` raises."""
    table = DeltaTable(uri, storage_options=dict(options or {}) or None)
    query = QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return pl.DataFrame(query.read_all()).select(field.name for field in table.schema().fields)


def map_columns_and_feed(path: Path, column: str) -> None:
    """Enable the feed of a table, and column mapping with the same names."""
    enable_feed(path)
    table = qbeast.open_table(path)
    table.rename_column(column, "renamed", upgrade_protocol=True)
    table.rename_column("renamed", column)
