"""Write the tables of `layout1`: run with the library at an older commit, see `layout1/PROVENANCE.txt`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

import qbeast
from tests.helpers.small_files import small_files

FRACTIONS = (0.01, 0.1, 0.3, 0.77)
WORDS = ("", "ä", "Bergen", "Oslo", "Rome", "Zürich", "a longer name of a town")


def trips(first: int, count: int) -> pl.DataFrame:
    """Return rows with nulls in both indexed columns; no value repeats often."""
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(id=number).with_columns(
        fare=pl.when(pl.col("id") % 41 != 0).then((pl.col("id") * 7919 % 10_007) / 4),
        town=pl.when(pl.col("id") % 29 != 0).then(
            pl.concat_str(
                (pl.col("id") % 7).replace_strict(dict(enumerate(WORDS))),
                (pl.col("id") * 31 % 997).cast(pl.String),
                separator=" ",
            )
        ),
        seats=(pl.col("id") % 5).cast(pl.Int16),
    )


def flights(first: int, count: int) -> pl.DataFrame:
    """Return rows with a long and a date to index."""
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    return pl.select(id=number).with_columns(
        delay=pl.when(pl.col("id") % 31 != 0).then(pl.col("id") * 6007 % 4001),
        day=pl.lit(date(2020, 1, 1)) + pl.duration(days=pl.col("id") * 17 % 1500),
        tail=pl.concat_str(pl.lit("N"), (pl.col("id") % 13).cast(pl.String)),
    )


def sales(first: int, count: int) -> pl.DataFrame:
    """Return rows of which half have one key, a fifth another, and the rest a few rows each."""
    number = pl.int_range(first, first + count, dtype=pl.Int64)
    tenth = pl.col("id") % 10
    key = pl.when(tenth < 5).then(7).when(tenth < 7).then(11).otherwise(pl.col("id") * 53 % 211)
    return pl.select(id=number).with_columns(shop=key.cast(pl.Int32), price=pl.col("id") * 97 % 1009)


def write_documented(path: Path) -> pl.DataFrame:
    """Write files with nulls, append twice, delete, checkpoint, update; vacuum, so that the table is small."""
    write(path, trips, [3000, 900, 600], columns=["fare", "town"], cube_size=250)
    table = qbeast.open_table(path)
    table.set_properties({"delta.checkpointInterval": "4"})
    is_deleted, is_updated = pl.col("fare").is_between(500, 520), pl.col("fare").is_between(2000, 2010)
    table.delete(is_deleted)
    table.update(is_updated, {"fare": 1.25, "seats": 9})
    table.vacuum(retention_hours=0, dry_run=False, allow_short_retention=True)
    rows = trips(0, 4500).filter(~is_deleted.fill_null(value=False))
    return rows.with_columns(
        fare=pl.when(is_updated).then(1.25).otherwise("fare"),
        seats=pl.when(is_updated).then(pl.lit(9, pl.Int16)).otherwise("seats"),
    )


def write_spark(path: Path) -> pl.DataFrame:
    """Write files without the hidden column of weights, and delete."""
    sizes = [1000, 500]
    write(path, flights, sizes, columns=["delay", "day"], cube_size=150, dialect="qbeast-spark")
    is_deleted = pl.col("day").is_between(date(2021, 1, 1), date(2021, 1, 1) + timedelta(days=20))
    qbeast.open_table(path).delete(is_deleted)
    return flights(0, sum(sizes)).filter(~is_deleted)


def write_heavy(path: Path) -> pl.DataFrame:
    """Write files in which a key fills pages."""
    write(path, sales, [1200, 600], columns=["shop"], cube_size=150)
    return sales(0, 1800)


def write(path: Path, make: Callable[[int, int], pl.DataFrame], sizes: list[int], **options: object) -> None:
    """Create the table with the first rows and append the others."""
    first = 0
    for size in sizes:
        mode = "append" if first else "error"
        qbeast.write_table(make(first, size), path, mode=mode, **(options if mode == "error" else {}))  # type: ignore[arg-type]
        first += size


def store_expected(rows: pl.DataFrame, indexed: list[str], folder: Path, spark: SparkSession) -> None:
    """Store the rows with Spark's hash of the indexed columns, and compare samples of the library with them."""
    file = folder / "expected.parquet"
    rows.write_parquet(file)
    hashed = (
        spark.read.parquet(str(file)).selectExpr("id", f"hash({', '.join(indexed)}) AS weight").toPandas()
    )
    expected = rows.join(pl.from_pandas(hashed), on="id", validate="1:1").sort("id")
    for fraction in FRACTIONS:
        kept = expected.filter(pl.col("weight") < int(fraction * (2**32 - 1) - 2**31))
        actual = qbeast.read_table(folder / "table", sample=fraction)
        assert actual.sort("id").equals(kept.drop("weight")), (folder, fraction)
    assert qbeast.open_table(folder / "table").check().ok
    expected.write_parquet(file, compression_level=22)


def write_all(target: Path, names: list[str]) -> None:
    """Write each table into a folder of `target`."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    for name in names:
        folder = target / name
        folder.mkdir(parents=True)
        with small_files(file_rows=900, page_rows=64):
            rows = TABLES[name](folder / "table")
        store_expected(rows, list(qbeast.open_table(folder / "table").indexed_columns), folder, spark)


TABLES = {
    "documented": write_documented,
    "qbeast-spark": write_spark,
    "heavy": write_heavy,
    "heavy-shuffled": write_heavy,
}

if __name__ == "__main__":
    write_all(Path(sys.argv[1]), sys.argv[2:])
