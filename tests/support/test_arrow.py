"""Columns of Arrow in any encoding become columns of Polars with the values that pyarrow reads."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from qbeast_core.support.arrow import frame_of

_LISTS: Final[list[Any]] = [[1], [2], None, [3, 4], []]
_PRICES: Final = [Decimal("1.5"), None, Decimal("-2.5")]
_OFFSET: Final = pa.array([0, None, 2], pa.timestamp("us", "+05:30"))
_NOTHING: Final = pa.array([[], None, []], pa.list_(pa.int64(), 0))
_RUNS: Final = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
_TEXTS: Final = pa.array(["a", None, "b"])

COLUMNS: Final[dict[str, pa.Array]] = {
    "runs": _RUNS,
    "list view": pa.array(_LISTS, pa.list_view(pa.int64())),
    "large list view": pa.array(_LISTS, pa.large_list_view(pa.int64())),
    "views out of order": pa.ListViewArray.from_arrays(
        pa.array([2, 0, 0], pa.int32()), pa.array([2, 1, 3], pa.int32()), pa.array([1, 2, 3, 4])
    ),
    "views of offsets": pa.array([[0], None, [1, 2]], pa.list_view(pa.timestamp("us", "+05:30"))),
    "huge lists": pa.array(_LISTS, pa.large_list(pa.int64())),
    "no values": _NOTHING,
    "lists of no values": pa.array([[[], None], None, []], pa.list_(pa.list_(pa.int64(), 0))),
    "pairs of offsets": pa.array([[0, 1], None, [2, 3]], pa.list_(pa.timestamp("us", "+05:30"), 2)),
    "offset": _OFFSET,
    "named zone": pa.array([0, None, 2], pa.timestamp("us", "Europe/Madrid")),
    "short decimal256": pa.array(_PRICES, pa.decimal256(20, 1)),
    "wide decimal256 of short values": pa.array(_PRICES, pa.decimal256(50, 1)),
    "decimal32": pa.array(_PRICES, pa.decimal32(5, 1)),
    "decimal64 in fields": pa.StructArray.from_arrays([pa.array(_PRICES, pa.decimal64(12, 1))], ["price"]),
    "decimal32 in lists": pa.array([_PRICES, None, _PRICES[1:]], pa.list_(pa.decimal32(5, 1))),
    "hundreds": pa.array([Decimal(1500), None], pa.decimal128(5, -2)),
    "no bytes": pa.array([b"", None], pa.binary(0)),
    "some bytes": pa.array([b"ab", None], pa.binary(2)),
    "text views": pa.array(["a", None], pa.string_view()),
    "dictionary of decimals": pa.array(_PRICES, pa.decimal128(5, 1)).dictionary_encode(),
    "dictionary of offsets": _OFFSET.dictionary_encode(),
    "dictionaries in lists": pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()), pa.array(_PRICES, pa.decimal128(5, 1)).dictionary_encode()
    ),
    "seconds": pa.array([0, None, 2], pa.timestamp("s")),
    "fields": pa.StructArray.from_arrays(
        [_OFFSET, _NOTHING, _RUNS, pa.array(_LISTS[1:4], pa.list_view(pa.int64())), _TEXTS],
        ["offset", "nothing", "runs", "views", "text"],
        mask=pa.array([False, True, False]),
    ),
}


@pytest.mark.parametrize("first", [0, 1, 9])
@pytest.mark.parametrize("name", list(COLUMNS))
def test_columns_keep_their_values(name: str, first: int) -> None:
    array = COLUMNS[name][first:]
    frame, problems = frame_of(pa.table({"c": array, "other": range(len(array))}))
    assert problems == []
    assert frame["c"].to_list() == array.to_pylist()
    without_chunks, problems = frame_of(pa.Table.from_batches([], pa.schema([("c", array.type)])))
    assert problems == []
    assert without_chunks.schema["c"] == frame.schema["c"]


VALUES: Final[dict[str, pa.Array]] = {
    name: COLUMNS[name]
    for name in ("runs", "list view", "text views", "decimal32", "named zone", "no values")
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", list(VALUES))
def test_maps_keep_values_of_any_encoding(name: str, first: int) -> None:
    values = VALUES[name]
    keys = pa.array([f"k{number}" for number in range(len(values))])
    offsets = pa.array([0, 1, 1, 1, len(values)], pa.int32())
    maps = pa.MapArray.from_arrays(offsets, keys, values, mask=pa.array([False, True, False, False]))[first:]
    frame, problems = frame_of(pa.table({"c": maps}))
    assert problems == []
    assert frame["c"].to_list() == [pairs if pairs is None else dict(pairs) for pairs in maps.to_pylist()]


@pytest.mark.parametrize("zone", [None, "UTC", "+05:30"])
def test_seconds_beyond_64_bits_of_milliseconds_are_refused(zone: str | None) -> None:
    seconds = pa.array([2**62], pa.timestamp("s", zone))
    for column in (seconds, pa.StructArray.from_arrays([seconds], ["at"])):
        frame, (problem,) = frame_of(pa.table({"c": column}))
        assert frame.columns == []
        assert problem.startswith("column 'c' of type ")


def test_times_of_keys_and_values_keep_their_instants() -> None:
    zoned = pa.map_(pa.string(), pa.timestamp("us", "+05:30"))
    frame, problems = frame_of(pa.table({"c": pa.array([[("a", 0)], None], zoned)}))
    assert problems == []
    assert frame["c"].to_list() == [{"a": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}, None]
