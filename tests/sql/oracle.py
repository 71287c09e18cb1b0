"""DuckDB as the oracle of conditions and values, and what they are in Polars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import polars as pl

from qbeast_core.sql.lower import Clock, Lowering, lowered
from qbeast_core.sql.parse import parse_condition


@contextmanager
def with_rows(rows: pl.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection in UTC, whose table `rows` has these rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", rows.to_arrow())
        connection.execute("CREATE TABLE rows AS SELECT * FROM given")
        yield connection


def sql_expression(
    text: str, schema: pl.Schema, *, dtype: pl.DataType | None = None, clock: Clock | None = None
) -> pl.Expr:
    """Return the Polars expression of an SQL text over the columns of a row."""
    return lowered(Lowering(schema, clock), parse_condition(text, schema.names()), dtype).expr
