"""Every supported PySpark reads our data files with its own Parquet reader: each type and encoding, nulls, pages."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import qbeast
from tests.helpers.small_files import small_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sweep

ROWS = 3_000
INDEXED = ["id", "word"]
VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
NESTED = "spark.sql.parquet.enableNestedColumnVectorizedReader"


def every_type(rows: int) -> pl.DataFrame:
    """Give columns of every type, each with nulls: of few values (a dictionary) and of many (none)."""
    numbers = np.random.default_rng(7).integers(0, 2**40, rows).tolist()
    many, few = [f"{n:x}" * (n % 4) for n in numbers], [f"kind {n % 7}" for n in numbers]
    day = [date(1600, 1, 1) + timedelta(days=n % 300_000) for n in numbers]
    moment = [datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=n * 1000 + n % 999) for n in numbers]
    triples = list(zip(numbers, many, few, strict=True))
    columns: dict[str, tuple[list[Any], pl.DataType]] = {
        "i8": ([n % 256 - 128 for n in numbers], pl.Int8()),
        "i16": ([n % 65_536 - 32_768 for n in numbers], pl.Int16()),
        "i32": ([n % 2**32 - 2**31 for n in numbers], pl.Int32()),
        "i64": ([n * 4_194_301 for n in numbers], pl.Int64()),
        "few_longs": ([n % 11 for n in numbers], pl.Int64()),
        "f32": ([float(n) for n in numbers], pl.Float32()),
        "f64": ([n / 7 for n in numbers], pl.Float64()),
        "flag": ([n % 3 == 0 for n in numbers], pl.Boolean()),
        "day": (day, pl.Date()),
        "moment": (moment, pl.Datetime("us", "UTC")),
        "local": ([item.replace(tzinfo=None) for item in moment], pl.Datetime("us")),
        "dec9": ([Decimal(n % 10**9).scaleb(-2) for n in numbers], pl.Decimal(9, 2)),
        "dec18": ([Decimal(n).scaleb(-4) for n in numbers], pl.Decimal(18, 4)),
        "dec38": ([Decimal(n).scaleb(-6) for n in numbers], pl.Decimal(38, 6)),
        "many": (many, pl.String()),
        "few": (few, pl.String()),
        "same": (["only"] * rows, pl.String()),
        "binary": ([text.encode() for text in many], pl.Binary()),
        "few_binary": ([text.encode() for text in few], pl.Binary()),
        "texts": (
            [[text, None, kind][: n % 4] for n, text, kind in triples],
            pl.List(pl.String()),
        ),
        "lists": ([[n, None, n % 9][: n % 4] for n in numbers], pl.List(pl.Int64())),
        "part": (
            [{"t": text, "u": kind, "n": n} for n, text, kind in triples],
            pl.Struct({"t": pl.String(), "u": pl.String(), "n": pl.Int64()}),
        ),
    }
    ids = pl.DataFrame({"id": range(rows), "word": [f"{n % 5003} {'é' * (n % 3)}" for n in numbers]})
    holes = {
        name: pl.Series(
            name, [None if (i * 7 + at) % (at % 9 + 2) == 0 else v for i, v in enumerate(values)], dtype=t
        )
        for at, (name, (values, t)) in enumerate(columns.items())
    }
    return ids.with_columns(**holes, nothing=pl.lit(None, dtype=pl.String))


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return every_type(ROWS)


@pytest.fixture(scope="module")
def folder(rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "table"
    with small_files(file_rows=1_500, page_rows=64):
        qbeast.write_table(rows, path, columns=INDEXED, cube_size=500)
    assert any(pq.read_metadata(file).num_row_groups > 1 for file in path.glob("*.parquet"))
    return path


@pytest.fixture(params=["vectorized", "vectorized, nested too", "row by row"])
def reader(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    chosen = {VECTORIZED: request.param != "row by row", NESTED: request.param.endswith("too")}
    for key, on in chosen.items():
        spark.conf.set(key, str(on).lower())
    yield spark
    for key in chosen:
        spark.conf.unset(key)


def in_spark(
    spark: SparkSession, folder: Path, rows: pl.DataFrame, where: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the files as Spark does by itself; return that and what is expected, with plain types."""
    # The session's zone and calendars of Python are not what is asked for: plain numbers and texts are.
    report = {
        "moment": "unix_micros(moment)",
        "local": "unix_micros(cast(local AS timestamp))",
        "day": "unix_date(day)",
        **{name: f"cast({name} AS string)" for name in ("dec9", "dec18", "dec38")},
    }
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.read.parquet(*map(str, folder.glob("*.parquet"))).where(where)
        actual = frame.selectExpr(*(f"{report.get(name, name)} AS {name}" for name in rows.columns)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))  # other tests share the session
    plain = rows.with_columns(
        pl.col("moment", "local").to_physical(),
        pl.col("day").to_physical(),
        pl.col("dec9", "dec18", "dec38").cast(pl.String),
    )
    listed = [
        {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}
        for row in (item.asDict(recursive=True) for item in actual)
    ]
    return pl.DataFrame(listed, schema=plain.schema, orient="row").sort("id"), plain


def test_files_hold_the_expected_rows(folder: Path) -> None:
    group = pq.read_metadata(next(folder.glob("*.parquet"))).row_group(0)
    chunks = {
        chunk.path_in_schema: set(chunk.encodings) for chunk in map(group.column, range(group.num_columns))
    }
    dictionaries = {name for name, actual in chunks.items() if "RLE_DICTIONARY" in actual}
    assert {"few", "same", "few_binary", "few_longs", "part.u"} <= dictionaries
    assert {"word", "many", "binary", "part.t", "texts.list.element"}.isdisjoint(dictionaries)
    assert "PLAIN" in chunks["many"] & chunks["binary"] & chunks["texts.list.element"] & chunks["part.t"]
    assert "DELTA_BINARY_PACKED" in chunks["i64"] & chunks["moment"] & chunks["dec18"]
    assert "PLAIN" in chunks["part.n"] & chunks["lists.list.element"]
    assert not any("DELTA_LENGTH_BYTE_ARRAY" in actual for actual in chunks.values())


FILTERS: dict[str, pl.Expr] = {
    "true": pl.lit(value=True),
    "id < 700": pl.col("id") < 700,
    "word > '4' AND id % 3 = 0": (pl.col("word") > "4") & (pl.col("id") % 3 == 0),
    "many IS NULL": pl.col("many").is_null(),
    "i64 > 0": pl.col("i64") > 0,
}


@pytest.mark.parametrize("where", list(FILTERS))
def test_spark_reads_every_value(reader: SparkSession, folder: Path, rows: pl.DataFrame, where: str) -> None:
    actual, plain = in_spark(reader, folder, rows, where)
    expected = plain.filter(FILTERS[where])
    assert actual.height == expected.height > 0
    for name in plain.columns:
        assert actual[name].equals(expected[name]), name
