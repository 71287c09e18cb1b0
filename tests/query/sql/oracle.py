"""DuckDB as the oracle of conditions and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import polars as pl


@contextmanager
def with_rows(rows: pl.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection in UTC, whose table `rows` has these rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", rows.to_arrow())
        connection.execute("CREATE TABLE rows AS SELECT * FROM given")
        yield connection
