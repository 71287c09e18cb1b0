"""Spark DataFrames of Polars frames, through Parquet files: other roads change types on the way."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


def to_spark(spark: SparkSession, frame: pl.DataFrame, folder: Path, *, parts: int = 2) -> DataFrame:
    """Write a frame to files in a new folder, and return them as a DataFrame of as many partitions."""
    folder.mkdir(parents=True)
    rows = frame.to_arrow()
    cuts = [rows.num_rows * number // parts for number in range(parts + 1)]
    for first, end in pairwise(cuts):
        pq.write_table(rows.slice(first, end - first), folder / f"{first}-{end}.parquet")
    return spark.read.parquet(*map(str, sorted(folder.iterdir())))
