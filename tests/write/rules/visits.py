"""A table with rules of all kinds, rows for it, and the rows that it holds then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from tests.write.rules.tables import IDENTITY, ruled

__all__ = ["CONSTRAINTS", "NOTES", "SCHEMA", "complete", "rows", "table"]

SCHEMA = {
    "id": pl.Int64(),
    "ts": pl.Datetime("us", "UTC"),
    "price": pl.Float64(),
    "day": pl.Date(),
    "kind": pl.String(),
    "double": pl.Int64(),
}
NOTES = {
    "id": IDENTITY,
    "day": {"delta.generationExpression": "CAST(TS AS DATE)"},
    "kind": {"CURRENT_DEFAULT": "'none'"},
    "double": {"delta.generationExpression": "CAST(price * 2 AS BIGINT)"},
}
CONSTRAINTS = {"positive": "price > 0", "short": "length(kind) < 9 OR kind IS NULL"}
START = datetime(2026, 1, 1, tzinfo=UTC)


def table(path: Path, columns: list[str] | None = None) -> Path:
    columns = columns or ["day", "price", "id"]
    return ruled(path, SCHEMA, NOTES, columns=columns, constraints=CONSTRAINTS)


def rows(count: int) -> pl.DataFrame:
    numbers = range(count)
    return pl.DataFrame(
        {"ts": [START + timedelta(hours=7 * n) for n in numbers], "price": [n / 3 + 0.5 for n in numbers]},
        schema_overrides={"ts": pl.Datetime("us", "UTC"), "price": pl.Float64},
    )


def complete(given_rows: pl.DataFrame, first: int = 1) -> pl.DataFrame:
    """Return the rows that a table holds, computed by Polars alone."""
    return given_rows.select(
        pl.int_range(first, first + given_rows.height).alias("id"),
        "ts",
        "price",
        pl.col("ts").dt.date().alias("day"),
        pl.lit("none").alias("kind"),
        (pl.col("price") * 2).truncate().cast(pl.Int64).alias("double"),
    )
