"""What a write does to the table that is there, and which kinds of frames it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from werkzeug.serving import make_server

import qbeast
from qbeast_core.io.location import Location
from qbeast_core.table.write.options import find_target
from tests.helpers.invariants import check_invariants
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled

ROWS = pl.DataFrame(
    {
        ROW: [0, 1, 2, 3],
        "s": ["b", None, "a", ""],
        "x": [1.5, float("nan"), None, -0.0],
        "d": [date(1, 1, 1), None, date(2024, 2, 29), date(9999, 12, 31)],
        "t": [
            datetime(2024, 1, 1, tzinfo=UTC),
            None,
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 1, 1, tzinfo=UTC),
        ],
        "n": [Decimal("1.50"), None, Decimal("-99.99"), Decimal("0.00")],
        "l": [[1], None, [], [None, 2]],
    },
    schema_overrides={"n": pl.Decimal(9, 2)},
)
MORE = ROWS.with_columns(pl.col(ROW) + 10)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=[ROW, "s"])
    return tmp_path / "t"


def test_ignore_mode_keeps_or_creates_a_table(table: Path) -> None:
    result = qbeast.write_table(MORE, table, columns=[ROW, "s"], mode="ignore")
    assert (result.committed, result.version, result.rows) == (False, 0, 0)
    assert_same_rows(qbeast.read_table(table), ROWS)
    assert qbeast.write_table(MORE, table.with_name("new"), columns=[ROW], mode="ignore").committed


def test_overwrite_changes_schema_on_request(table: Path) -> None:
    other = pl.DataFrame({"other": [1, 2], ROW: ["x", "y"]})
    with pytest.raises(qbeast.SchemaMismatchError):
        qbeast.write_table(other, table, columns=["other"], mode="overwrite")
    qbeast.write_table(other, table, columns=["other"], mode="overwrite", schema_mode="overwrite")
    assert_same_rows(qbeast.read_table(table), other)
    assert qbeast.open_table(table).schema == other.schema
    assert_same_rows(qbeast.read_table(table, version=0), ROWS)


def test_merge_adds_and_omits_columns(table: Path) -> None:
    rows = MORE.drop("x", "l").with_columns(new=pl.col(ROW) * 2)
    qbeast.write_table(rows, table, mode="append", schema_mode="merge")
    expected = pl.concat([ROWS, rows], how="diagonal")
    actual = qbeast.read_table(table)
    assert actual.columns == [*ROWS.columns, "new"]
    assert_same_rows(actual, expected.select(actual.columns))
    assert_same_rows(
        qbeast.read_table(table, where=pl.col("new").is_null()), expected.filter(pl.col("new").is_null())
    )
    assert_same_rows(qbeast.read_table(table, where=pl.col("new") > 22), expected.filter(pl.col("new") > 22))
    assert_same_rows(pl.scan_delta(table).collect(), expected.select(actual.columns))


def test_merge_may_omit_an_indexed_column(table: Path) -> None:
    rows = MORE.drop("s")
    qbeast.write_table(rows, table, mode="append", schema_mode="merge")
    expected = pl.concat([ROWS, rows], how="diagonal")
    for expr in (pl.lit(value=True), pl.col("s").is_null(), pl.col("s") == "a"):
        assert_same_rows(qbeast.read_table(table, where=expr), expected.filter(expr))
    check_invariants(table)


def test_reordered_and_narrower_columns_are_appended(tmp_path: Path) -> None:
    first = pl.DataFrame(
        {"a": [1], "b": [1.0], "n": [Decimal("1.25")]}, schema_overrides={"n": pl.Decimal(12, 4)}
    )
    qbeast.write_table(first, tmp_path / "t", columns=["a"])
    narrow = {"n": pl.Decimal(5, 2), "b": pl.Float32(), "a": pl.Int16()}
    more = pl.DataFrame({"n": [Decimal("-1.5")], "b": [0.1], "a": [7]}, schema=narrow)
    qbeast.write_table(more, tmp_path / "t", mode="append")
    expected = pl.concat([first, more.select(first.columns).cast(first.schema)])
    assert_frame_equal(qbeast.read_table(tmp_path / "t").sort("a"), expected)


def test_null_column_takes_the_table_type(table: Path) -> None:
    rows = MORE.with_columns(s=pl.lit(None), l=pl.lit(None))
    assert rows.schema["s"] == pl.Null
    qbeast.write_table(rows, table, mode="append")
    assert_same_rows(qbeast.read_table(table), pl.concat([ROWS, rows.cast(ROWS.schema)]))


INPUTS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "LazyFrame": lambda rows: rows.lazy(),
    "pyarrow Table": lambda rows: rows.to_arrow(),
    "RecordBatchReader": lambda rows: rows.to_arrow().to_reader(max_chunksize=3),
    "RecordBatch": lambda rows: pa.RecordBatch.from_pylist(rows.to_dicts(), rows.to_arrow().schema),
    "pandas on Arrow": lambda rows: rows.to_pandas(use_pyarrow_extension_array=True),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_frame_is_written_alike(tmp_path: Path, kind: str) -> None:
    make = INPUTS[kind]
    qbeast.write_table(make(ROWS), tmp_path / "t", columns=[ROW, "s"])
    qbeast.write_table(make(MORE), tmp_path / "t", mode="append")
    assert_same_rows(qbeast.read_table(tmp_path / "t"), pl.concat([ROWS, MORE]))
    qbeast.write_table(make(ROWS.clear()), tmp_path / "t", mode="append")
    assert qbeast.read_table(tmp_path / "t").height == 8


FROM_DUCKDB = """
import sys, duckdb, qbeast
connection = duckdb.connect()
connection.execute("set timezone = 'UTC'")
qbeast.write_table(connection.read_parquet(sys.argv[1]), sys.argv[2], columns=["row", "s"])
"""


@pytest.mark.sweep
def test_duckdb_relation_is_written(tmp_path: Path) -> None:
    """In a process of its own: at its end the binding of DuckDB complains of what Polars still holds."""
    ROWS.write_parquet(tmp_path / "rows.parquet")
    program = [sys.executable, "-c", FROM_DUCKDB, str(tmp_path / "rows.parquet"), str(tmp_path / "t")]
    subprocess.run(program, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    assert_same_rows(qbeast.read_table(tmp_path / "t"), ROWS)


def test_pandas_frame_is_written_without_index(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            ROW: np.arange(3),
            "s": ["a", None, "c"],
            "t": pd.to_datetime(["2024-01-01", None, "2024-03-01"]),
            "c": pd.Categorical(["x", "y", "x"]),
        },
        index=[7, 8, 9],
    )
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW])
    actual = qbeast.read_table(tmp_path / "t").sort(ROW)
    assert actual.schema == {ROW: pl.Int64, "s": pl.String, "t": pl.Datetime("us"), "c": pl.String}
    assert actual["s"].to_list() == ["a", None, "c"]
    assert actual["c"].to_list() == ["x", "y", "x"]
    assert actual["t"].to_list() == [datetime(2024, 1, 1), None, datetime(2024, 3, 1)]  # noqa: DTZ001 -- naive as written


def test_unsupported_types_become_the_next_larger(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {
            ROW: pl.Series([0, 1], dtype=pl.UInt32),
            "u8": pl.Series([255, None], dtype=pl.UInt8),
            "u64": pl.Series([2**63 - 1, 0], dtype=pl.UInt64),
            "cat": pl.Series(["a", "b"], dtype=pl.Categorical),
            "ns": pl.Series([1_700_000_000_123_456_789, None], dtype=pl.Datetime("ns")),
            "ms": pl.Series([1_700_000_000_123, None], dtype=pl.Datetime("ms", "Europe/Paris")),
            "arr": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.UInt16, 2)),
        }
    )
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW, "u8", "cat", "ns", "ms"])
    actual = qbeast.read_table(tmp_path / "t").sort(ROW)
    assert dict(actual.schema) == {
        ROW: pl.Int64,
        "u8": pl.Int16,
        "u64": pl.Int64,
        "cat": pl.String,
        "ns": pl.Datetime("us"),
        "ms": pl.Datetime("us", "UTC"),
        "arr": pl.List(pl.Int32),
    }
    assert_frame_equal(
        actual, rows.with_columns(pl.col("ms").dt.convert_time_zone("UTC")).cast(dict(actual.schema))
    )


def test_pyarrow_types_keep_their_values(tmp_path: Path) -> None:
    rows = pa.table(
        {
            ROW: pa.array([0, 1], pa.int8()),
            "large": pa.array(["x", None], pa.large_string()),
            "view": pa.array(["y", "z"], pa.string_view()),
            "dictionary": pa.array(["p", "q"]).dictionary_encode(),
            "half": pa.array([1.5, None], pa.float16()),
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        }
    )
    qbeast.write_table(rows, tmp_path / "t", columns=[ROW, "dictionary"])
    actual = qbeast.read_table(tmp_path / "t").sort(ROW)
    assert actual.rows() == [(0, "x", "y", "p", 1.5, b"ab"), (1, None, "z", "q", None, b"cd")]


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_one_row_tables_grow(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "t"
    result = qbeast.write_table(ROWS.head(rows), path, columns=[ROW, "s", "x"], mode="overwrite")
    assert (result.rows, result.files, result.version) == (rows, min(rows, 1), 0)
    assert_same_rows(qbeast.read_table(path), ROWS.head(rows))
    assert qbeast.read_table(path, sample=0.5, where=pl.col(ROW) > 5).is_empty()
    assert qbeast.scan_table(path).select(pl.len()).collect().item() == rows
    assert qbeast.open_table(path).rows(pl.col(ROW) > 5).explain().bytes_opened == 0
    qbeast.write_table(MORE, path, mode="append")
    assert_same_rows(qbeast.read_table(path), pl.concat([ROWS.head(rows), MORE]))
    check_invariants(path)


@pytest.mark.parametrize("name", ["sp ace", "100%", "plus+", "ünï", "q?u", "ha#sh", "a=b", "[x]", "*"])
def test_table_works_in_any_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "t"
    qbeast.write_table(ROWS, path, columns=[ROW], mode="append")
    qbeast.write_table(MORE, str(path), mode="append")
    assert_same_rows(qbeast.read_table(path), pl.concat([ROWS, MORE]))
    assert_same_rows(qbeast.read_table(path, where=pl.col(ROW) > 5), MORE)


# fmt: off
NAMES = [
    "a b", "a.b", "a,b", "a;b", "a`b", 'a"b', "a'b", "a\\b", "a\nb", "a{b}", "a=b", "a/b", "a%20b", "a:b", "$x",
    "é", "日本", " ", "x" * 300, "*a", "^a", "__row_key", "__qbeast_row",
    "file", "path", "low", "high", "rows", "blocks", "literal",
]
# fmt: on


@pytest.mark.parametrize("first", range(0, len(NAMES), 10))
def test_columns_with_any_name_are_indexed(tmp_path: Path, first: int) -> None:
    names = NAMES[first : first + 10]
    values = [pl.Series(name, [*range(number, 59 + number), None]) for number, name in enumerate(names)]
    rows = pl.DataFrame([pl.Series(ROW, range(60)), *values])
    qbeast.write_table(rows, tmp_path, columns=[*names, ROW], cube_size=20)
    qbeast.write_table(rows.with_columns(pl.col(ROW) + 60), tmp_path, mode="append")
    table = qbeast.open_table(tmp_path)
    assert table.indexed_columns == (*names, ROW)
    both = pl.concat([rows, rows.with_columns(pl.col(ROW) + 60)])
    for name in names:
        for expr in (pl.col(name) < 10, pl.col(name).is_null()):
            assert_same_rows(table.rows().lazy().filter(expr).collect(), both.filter(expr))
        assert table.rows(columns=[name]).explain().bytes_opened > 0
    assert_same_rows(table.read(sample=0.3), sampled(both, [*names, ROW], 0.3))


@pytest.mark.parametrize(
    "columns",
    [
        ["id:linear", "x:hash"],
        [("id", "linear"), ("x", "hash")],
        {"id": "linear", "x": "hash"},
        {"id": "linear", "x": "hashing"},
        [pl.col("id"), "x:hash"],
        ["id", ("x", "hash")],
    ],
)
def test_columns_are_texts_pairs_or_mapping(tmp_path: Path, columns: Any) -> None:
    rows = pl.DataFrame({"id": range(100), "x": range(100)})
    result = qbeast.write_table(rows, tmp_path / "t", columns)
    assert result.transformers == {"id": "linear", "x": "hash"}
    rows.write_delta(tmp_path / "plain")
    assert qbeast.convert_table(tmp_path / "plain", columns).columns == ("id", "x")
    qbeast.open_table(tmp_path / "plain").optimize()
    assert qbeast.open_table(tmp_path / "plain").revisions[-1].transformer_kinds["x"] == "hash"


def test_versions_are_numbers_dates_times_or_texts(tmp_path: Path) -> None:
    for first in (0, 100):
        qbeast.write_table(pl.DataFrame({"id": [first]}), tmp_path, ["id"], mode="append")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    for version, number in {0: 0, "1": 1, tomorrow: 1, f"{tomorrow}": 1, f"{tomorrow}T12:00": 1}.items():
        assert qbeast.open_table(tmp_path, version=version).version == number
    assert qbeast.read_table(tmp_path, version="0").height == 1
    with pytest.raises(qbeast.VersionNotFoundError, match="oldest is 0"):
        qbeast.open_table(tmp_path, version=date(2001, 1, 1))
    assert qbeast.open_table(tmp_path).restore("0").version == 2


def empty_azure(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Answer like a container of Azure without files."""
    if "comp=list" not in environ["QUERY_STRING"]:
        start_response("404 Not Found", [])
        return []
    start_response("200 OK", [("Content-Type", "application/xml")])
    return [b"<EnumerationResults><Blobs></Blobs><NextMarker/></EnumerationResults>"]


@pytest.fixture
def azure() -> Iterator[str]:
    server = make_server("127.0.0.1", 0, empty_azure, threaded=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_empty_azure_path_uses_storage_options(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    # Unlike those of S3, such a place cannot be opened without an account.
    options = {"azure_storage_account_name": "someone", "azure_storage_account_key": "a2V5"}
    options |= {"azure_storage_endpoint": azure, "azure_allow_http": "true"}
    assert find_target(Location.of("az://container/table", options), "append").is_new
