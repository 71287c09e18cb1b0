"""Files of other writers whose types are not the table's: read as deltalake reads them, or refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.log.actions import file_stats, stats_columns
from tests.helpers.handmade_log import PROTOCOL, add, features, metadata, write_log

NUMBERS = [1, None, -3]
NATURAL = [1, None, 3]
AMOUNTS = [Decimal("1.25"), None, Decimal("-3.10")]
DAYS = [dt.date(2020, 1, 1), None, dt.date(1960, 2, 29)]
TIMES = [dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC), None, dt.datetime(1960, 2, 29, tzinfo=dt.UTC)]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


CASES: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "byte in int32": ("byte", pa.int32(), NUMBERS),
    "short in int32": ("short", pa.int32(), NUMBERS),
    "byte in int16": ("byte", pa.int16(), NUMBERS),
    "integer in int64": ("integer", pa.int64(), NUMBERS),
    "short in int8": ("short", pa.int8(), NUMBERS),
    "long in int32": ("long", pa.int32(), NUMBERS),
    "byte in uint8": ("byte", pa.uint8(), NATURAL),
    "integer in uint32": ("integer", pa.uint32(), NATURAL),
    "long in uint64": ("long", pa.uint64(), NATURAL),
    "date in int32": ("date", pa.int32(), NUMBERS),
    "double in float": ("double", pa.float32(), [1.5, None, -3.0]),
    "double in int32": ("double", pa.int32(), NUMBERS),
    "string in binary": ("string", pa.binary(), [b"a", None, "é".encode()]),
    "binary in string": ("binary", pa.string(), ["a", None, "é"]),
    "timestamp without zone": ("timestamp", pa.timestamp("us"), TIMES),
    "timestamp in nanoseconds": ("timestamp", pa.timestamp("ns", "UTC"), TIMES),
    "timestamp in milliseconds": ("timestamp", pa.timestamp("ms", "UTC"), TIMES),
    "timestamp_ntz with zone": ("timestamp_ntz", pa.timestamp("us", "UTC"), TIMES),
    "timestamp_ntz in date": ("timestamp_ntz", pa.date32(), DAYS),
    "decimal of less digits": ("decimal(12,2)", pa.decimal128(9, 2), AMOUNTS),
    "decimal of more digits": ("decimal(9,2)", pa.decimal128(18, 2), AMOUNTS),
    "decimal of smaller scale": ("decimal(12,4)", pa.decimal128(9, 2), AMOUNTS),
    "decimal in int32": ("decimal(9,2)", pa.int32(), NUMBERS),
    "array of bytes": (
        {"type": "array", "elementType": "byte", "containsNull": True},
        pa.list_(pa.int32()),
        [[1, 2], None, [3, None]],
    ),
    "struct of fewer fields": (
        {"type": "struct", "fields": [field("a", "byte"), field("c", "short")]},
        pa.struct([("x", pa.int32()), ("a", pa.int32())]),
        [{"x": 1, "a": None}, None, {"x": 7, "a": 8}],
    ),
    "map to shorts": (
        {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True},
        pa.map_(pa.string(), pa.int32()),
        [[("a", 1)], None, []],
    ),
    "map of wider keys": (
        {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True},
        pa.map_(pa.int32(), pa.int32()),
        [[(1, 2), (-3, None)], None, []],
    ),
    "map of doubles in a struct": (
        {
            "type": "struct",
            "fields": [
                field(
                    "m", {"type": "map", "keyType": "double", "valueType": "short", "valueContainsNull": True}
                )
            ],
        },
        pa.struct([("m", pa.map_(pa.float32(), pa.int32()))]),
        [{"m": [(1.5, 2)]}, None, {"m": None}],
    ),
    "map of times": (
        {"type": "map", "keyType": "timestamp", "valueType": "long", "valueContainsNull": True},
        pa.map_(pa.timestamp("ms", "UTC"), pa.int64()),
        [[(1, 2)], None],
    ),
}


def stored(path: Path, kind: Any, stored_as: pa.DataType, values: list[Any]) -> Path:
    """Make a table of two columns, statistics included, from a file with other types."""
    path.mkdir()
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, stored_as)})
    pq.write_table(rows, path / "f.parquet", store_schema=False)
    protocol = features("timestampNtz", reader=["timestampNtz"]) if kind == "timestamp_ntz" else PROTOCOL
    schema = {"type": "struct", "fields": [field("id", "long"), field("v", kind)]}
    size = (path / "f.parquet").stat().st_size
    write_log(path, [protocol, metadata(schema), add("f.parquet", size=size)])
    existing = by_deltalake(path)
    stats = file_stats(existing, columns=stats_columns(existing.schema, {}))
    write_log(path, [protocol, metadata(schema), add("f.parquet", size=size, stats=stats)])
    return path


def by_deltalake(path: Path) -> pl.DataFrame:
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY id")
    return pl.DataFrame(rows.read_all())


def assert_read(path: Path, wanted: pl.DataFrame) -> None:
    """Look at whole reads, and at a filter for each value."""
    assert_frame_equal(qbeast.read_table(path).sort("id"), wanted)
    values = wanted["v"]
    for number in range(wanted.height if not values.dtype.is_nested() else 0):
        same = pl.col("v").eq_missing(pl.lit(values.slice(number, 1)).first())
        assert_frame_equal(qbeast.read_table(path, where=same).sort("id"), wanted.filter(same))


@pytest.mark.parametrize("case", CASES)
def test_stored_types_are_read_as_by_deltalake(case: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "t", *CASES[case])
    expected = by_deltalake(path)
    qbeast.convert_table(path, columns=["id"])
    assert_read(path, expected)
    assert qbeast.open_table(path).check().ok
    qbeast.open_table(path).optimize()
    assert_read(path, expected)


def test_files_of_several_types_are_read_together(tmp_path: Path) -> None:
    path = stored(tmp_path / "t", "byte", pa.int32(), NUMBERS)
    for number, dtype in enumerate([pa.int8(), pa.int16(), pa.int32()], 2):
        rows = pa.table({"id": pa.array([number * 10], pa.int64()), "v": pa.array([number], dtype)})
        pq.write_table(rows, path / f"{number}.parquet")
        write_log(
            path,
            [add(f"{number}.parquet", size=(path / f"{number}.parquet").stat().st_size)],
            first=number - 1,
        )
    expected = by_deltalake(path)
    qbeast.convert_table(path, columns=["v"])
    assert_read(path, expected)
    assert_frame_equal(qbeast.read_table(path, sample=1.0).sort("id"), expected)


@pytest.mark.parametrize(
    ("kind", "stored_as", "values"),
    [
        ("byte", pa.int32(), [300]),
        ("string", pa.binary(), [b"\xff"]),
        ("boolean", pa.int32(), [1]),
        ("float", pa.float64(), [0.1]),
    ],
)
def test_values_outside_the_type_raise(
    kind: str, stored_as: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(
        pa.table({"v": pa.array(values, stored_as)}), tmp_path / "t" / "f.parquet", store_schema=False
    )
    schema = {"type": "struct", "fields": [field("id", "long"), field("v", kind)]}
    size = (tmp_path / "t" / "f.parquet").stat().st_size
    stats = json.dumps({"numRecords": 1})
    write_log(tmp_path / "t", [PROTOCOL, metadata(schema), add("f.parquet", size=size, stats=stats)])
    qbeast.convert_table(tmp_path / "t", columns=["id"])
    with pytest.raises(qbeast.StorageError, match=r"f\.parquet"):
        qbeast.read_table(tmp_path / "t")
