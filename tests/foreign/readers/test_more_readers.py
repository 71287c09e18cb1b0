"""Engines that `make sweep` installs read files with bands: all rows, and those of a filter that skips pages."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.sweep

RANDOM = np.random.default_rng(11)
ROWS = 20_000
FRAME = pl.DataFrame(
    {
        "row": np.arange(ROWS),
        "x": RANDOM.random(ROWS),
        "day": pl.Series(RANDOM.integers(0, 3_000, ROWS)).cast(pl.Date),
        "price": pl.Series(RANDOM.integers(0, 10**7, ROWS)).cast(pl.Decimal(12, 2)),
        "text": RANDOM.choice(["", "red", "green", "blue"], ROWS),
        "note": pl.Series(RANDOM.integers(0, 2**60, ROWS)).cast(pl.String),
        "flag": RANDOM.random(ROWS) < 0.5,
    }
).with_columns(pl.when(pl.col("row") % 7 > 0).then(pl.col("x", "price", "text", "flag")).name.keep())
WHERE = "x >= 0.25 AND x < 0.3 AND row < 9000"

Read = Callable[[Path, str], Any]


def with_chdb(folder: Path, where: str) -> Any:
    chdb: Any = pytest.importorskip("chdb")
    query = f"SELECT * FROM file('{folder}/*.parquet', Parquet) WHERE {where} SETTINGS output_format_parquet_string_as_string = 1"  # noqa: E501, S608 # of constants
    return pq.read_table(io.BytesIO(chdb.query(query, "Parquet").bytes()))


def with_chdb_as_delta(folder: Path, where: str) -> Any:
    chdb: Any = pytest.importorskip("chdb")
    query = f"SELECT * FROM deltaLakeLocal('{folder}') WHERE {where} SETTINGS output_format_parquet_string_as_string = 1"  # noqa: E501, S608 # of constants
    with contextlib.chdir("/"):  # it opens only files below the working directory
        return pq.read_table(io.BytesIO(chdb.query(query, "Parquet").bytes()))


def with_daft(folder: Path, where: str) -> Any:
    daft: Any = pytest.importorskip("daft")
    return daft.read_parquet(f"{folder}/*.parquet").where(daft.sql_expr(where)).to_arrow()


def with_daft_as_delta(folder: Path, where: str) -> Any:
    daft: Any = pytest.importorskip("daft")
    return daft.read_deltalake(str(folder)).where(daft.sql_expr(where)).to_arrow()


def with_datafusion(folder: Path, where: str) -> Any:
    datafusion: Any = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_parquet("rows", str(folder))
    return context.sql(f"SELECT * FROM rows WHERE {where}").to_arrow_table()  # noqa: S608 # of constants


def with_datafusion_as_delta(folder: Path, where: str) -> Any:
    datafusion: Any = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_table("rows", DeltaTable(folder))
    return context.sql(f"SELECT * FROM rows WHERE {where}").to_arrow_table()  # noqa: S608 # of constants


@cache
def sail() -> tuple[Any, Any]:
    """Return a server of Sail, which lives as long as this process, and a session on it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- the client that `make readers` installs

    server: Any = pytest.importorskip("pysail.spark").SparkConnectServer()
    server.start()
    _, port = server.listening_address
    return server, SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()


def with_sail(folder: Path, where: str) -> Any:
    pytest.importorskip("pysail")
    return sail()[1].read.format("delta").load(str(folder)).where(where).toArrow()


@pytest.mark.parametrize("read", [with_chdb, with_daft, with_daft_as_delta, with_datafusion, with_sail])
@pytest.mark.parametrize("sample", [None, "sample"])
def test_engine_reads_rows_and_samples_of_bands(read: Read, sample: str | None, tmp_path: Path) -> None:
    with small_files(file_rows=8_000, page_rows=64):
        qbeast.write_table(FRAME, tmp_path, columns=["row", "x"], cube_size=1_000, sample_column=sample)
    assert all(pq.read_metadata(file).num_row_groups > 1 for file in tmp_path.glob("*.parquet"))
    for where in ("true", WHERE):
        actual = pl.DataFrame(read(tmp_path, where)).select(FRAME.columns).cast(dict(FRAME.schema))
        assert_same_rows(actual, FRAME.sql(f"SELECT * FROM self WHERE {where}"))  # noqa: S608 # of constants
    for fraction in (0.01, 0.25, 0.7) if sample else ():
        expected = qbeast.read_table(tmp_path, sample=math.ceil(fraction * 65536) / 65536)
        rows = pl.DataFrame(read(tmp_path, f"sample < {fraction}"))["row"]
        assert rows.sort().to_list() == expected["row"].sort().to_list()


@pytest.mark.parametrize(
    "read", [with_chdb_as_delta, with_sail, with_daft_as_delta, with_datafusion_as_delta]
)
@pytest.mark.parametrize("vectors", [False, True])
def test_engine_reads_or_refuses_vectors(read: Read, tmp_path: Path, *, vectors: bool) -> None:
    """As docs/readers.md and decision 008 list."""
    path = tmp_path / "t"
    qbeast.write_table(FRAME, path, columns=["row", "x"], cube_size=1_000, deletion_vectors=vectors)
    table = qbeast.open_table(path)
    assert (table.delete("row % 100 = 7").rows_copied == 0) == vectors
    if vectors and read in (with_daft_as_delta, with_datafusion_as_delta):
        with pytest.raises(Exception, match=r"deletion vectors|EnsureRequirements"):
            read(path, WHERE)
        return
    actual = pl.DataFrame(read(path, WHERE)).select(FRAME.columns).cast(dict(FRAME.schema))
    assert_same_rows(actual, FRAME.sql(f"SELECT * FROM self WHERE {WHERE} AND row % 100 != 7"))  # noqa: S608 # of constants
