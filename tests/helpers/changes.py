"""Rows with nulls, texts, days and NaN to delete, update and merge, and rows to merge into them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl

import qbeast
from tests.helpers.strategies import ROW
from tests.helpers.tables import small_files


def spread(count: int = 400, start: int = 0) -> pl.DataFrame:
    """Return rows with nulls, texts, days and a float that is sometimes NaN."""
    number = pl.int_range(start, start + count, eager=True).alias(ROW)
    mixed = (number * 7919) % 397
    return pl.select(
        number,
        a=pl.when(mixed % 11 > 0).then(mixed).cast(pl.Int64),
        s=pl.when(mixed % 7 > 0).then(pl.format("key {}", mixed % 13)),
        f=pl.when(mixed % 29 > 0).then(mixed / 8).otherwise(float("nan")),
        d=date(2024, 1, 1) + pl.duration(days=mixed % 60),
    ).with_columns(pl.col("d").cast(pl.Date))


def written(path: Path, *, appends: int = 2, count: int = 200) -> pl.DataFrame:
    frames = [spread(count, number * count) for number in range(appends)]
    with small_files():
        for frame in frames:
            qbeast.write_table(frame, path, columns=[ROW, "a", "s"], mode="append", cube_size=30)
    return pl.concat(frames)


def changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with changed values, new rows, and rows with null keys."""
    changed = rows.filter(pl.col(ROW) % 7 == 0).with_columns(f=pl.lit(0.25), s=pl.lit("changed"))
    new = spread(40, 9000)
    null_keys = spread(5, 20_000).with_columns(pl.lit(None, pl.Int64).alias("a"))
    return pl.concat([changed, new, null_keys]).unique(["a", "s"], keep="first", maintain_order=True)
