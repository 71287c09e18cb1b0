"""Spark DataFrames of Polars frames and back, and rows of every type from either side."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from tests.helpers.strategies import ROW

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def to_spark(spark: SparkSession, frame: pl.DataFrame, folder: Path, *, parts: int = 2) -> DataFrame:
    """Write a frame to files in a new folder (other roads change types), and return them in as many partitions."""
    folder.mkdir(parents=True)
    rows = frame.to_arrow()
    cuts = [rows.num_rows * number // parts for number in range(parts + 1)]
    for first, end in pairwise(cuts):
        pq.write_table(rows.slice(first, end - first), folder / f"{first}-{end}.parquet")
    return spark.read.parquet(*map(str, sorted(folder.iterdir())))


INDEXED = ("whole", "real", "x.y", "`day`", "moment", "naive", "single", "small", "money", "wide")


def every_type(rows: int = 600) -> pl.DataFrame:
    """Columns of all types, the indexed ones first, with nulls, NaN, zeros of both signs, old and late times."""
    rng = np.random.default_rng(3)
    real = rng.normal(0, 10, rows).round(1)
    real[:60] = np.resize([np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324], 60)
    instants = pl.Series(
        rng.integers(-62_135_596_800, 253_402_300_799, rows) * 1_000_000 + rng.integers(0, 10**6)
    )
    units = pl.Series(rng.integers(-(10**9), 10**9, rows))
    frame = pl.DataFrame(
        {
            ROW: range(rows),
            "whole": rng.integers(-(2**62), 2**62, rows),
            "real": real,
            "x.y": [f"é'\\{number % 97}" for number in range(rows)],
            "`day`": instants.cast(pl.Datetime("us")).cast(pl.Date),
            "moment": instants.cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "naive": instants.reverse().cast(pl.Datetime("us")),
            "single": pl.Series(real[::-1].copy(), dtype=pl.Float32),
            "small": pl.Series(rng.integers(-128, 128, rows), dtype=pl.Int8),
            "money": units.cast(pl.Decimal(18, 4)),
            "wide": units.cast(pl.Decimal(25, 3)),
            "flag": rng.random(rows) < 0.5,
            "bytes": [bytes([number % 256, 0]) for number in range(rows)],
            "list": [[number, None] if number % 3 else None for number in range(rows)],
            "struct": [{"n": number, "s": None if number % 5 else "s"} for number in range(rows)],
        },
    )
    holes = pl.Series(rng.random(rows) < 0.1)
    return frame.with_columns(pl.when(~holes).then(pl.col(name)) for name in INDEXED)


def numbers(rows: DataFrame) -> list[int]:
    return sorted(rows.select(ROW).toArrow()[ROW].to_pylist())


EVERY_TYPE = """
SELECT id AS row,
       CAST(id % 7 AS TINYINT) AS tiny, CAST(id AS SMALLINT) AS small, CAST(id * 3 AS INT) AS int,
       IF(id % 5 = 0, NULL, id * 10000000000) AS long,
       CAST(IF(id % 11 = 0, 'NaN', id / 7) AS FLOAT) AS float,
       CAST(IF(id % 13 = 0, 'NaN', IF(id % 17 = 0, '-Infinity', id / 3)) AS DOUBLE) AS double,
       CAST(id AS DECIMAL(5, 2)) AS small_decimal, CAST(id * 100000000000 AS DECIMAL(38, 10)) AS big_decimal,
       id % 2 = 0 AS flag, CAST(concat('b', id) AS BINARY) AS bytes,
       date_add(DATE'0001-01-01', CAST(id * 1000 AS INT)) AS day,
       timestamp_micros(id * 1000000007 - 60000000000000) AS at,
       CAST(timestamp_micros(id * 1000000007) AS TIMESTAMP_NTZ) AS at_ntz,
       concat('n', id % 40) AS text,
       array(id, NULL) AS list, map(concat('k', id), timestamp_micros(id)) AS map,
       named_struct('a', id, 'b', array(named_struct('at', timestamp_micros(id)))) AS struct
FROM range(0, 300, 1, 3)
"""
INDEXABLE = [
    *("tiny", "small", "int", "long", "float", "double"),
    *("small_decimal", "big_decimal", "day", "at", "at_ntz", "text"),
]


def of_spark(df: DataFrame) -> pl.DataFrame:
    """Return the rows as Spark itself hands them over."""
    frame: pl.DataFrame = pl.DataFrame(df.toArrow())
    return frame
