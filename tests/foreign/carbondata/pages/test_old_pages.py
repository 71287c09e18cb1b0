"""Pages of versions 1 and 2, dictionaries, rows of streams: what an encoder writes comes back, each in every form."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_carbondata.damage import Damaged, UnsupportedForm
from qbeast_carbondata.pages.codecs import decompress_start
from qbeast_carbondata.pages.old_measures import read_java_meta
from qbeast_carbondata.pages.old_rows import decode_rows, read_dictionary
from qbeast_carbondata.pages.page import decode_page, row_ids, run_lengths
from qbeast_carbondata.pages.texts import chain, texts
from qbeast_carbondata.structs import DataType, Encoding
from tests.foreign.carbondata import old_encoder as old
from tests.foreign.carbondata.page_encoder import FixedDictionaries, column, shortened
from tests.helpers.examples import examples

WIDTHS = st.sampled_from([11, 13, 16, 17, 18, 24])
VERSIONS = st.sampled_from([1, 2])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@examples(10, sweep=1000)
@given(st.data(), VERSIONS, WIDTHS, st.booleans(), st.booleans())
def test_surrogates_round_trip(
    data: st.DataObject,
    version: int,
    bits: int,
    is_sorted: bool,  # noqa: FBT001 -- hypothesis gives it
    in_runs: bool,  # noqa: FBT001 -- hypothesis gives it
) -> None:
    members = data.draw(st.sampled_from([3, 255, 256, 70_000]))
    rows = data.draw(st.lists(st.integers(1, min(members, 9)) | st.just(members), min_size=1, max_size=60))
    width = (members.bit_length() + 7) // 8
    own = column(DataType.STRING, dimension=True)
    own = replace(own, schema=replace(own.schema, encoders=(Encoding.DICTIONARY,)))
    existing = pa.array([None, None, *(f"m{number}" for number in range(2, members + 1))], pa.large_string())

    context = old.context(own, version, cardinality=members, members=existing)
    stored = [number.to_bytes(width, "big") for number in rows]
    chunk, body = old.page(stored, [Encoding.DICTIONARY], bits=bits, is_sorted=is_sorted, in_runs=in_runs)
    actual = decode_page(chunk, body, context, len(rows))
    assert actual.to_pylist() == [existing[number].as_py() for number in rows]


@examples(10, sweep=1000)
@given(st.lists(TEXTS | st.none(), min_size=1, max_size=50), VERSIONS, WIDTHS, st.booleans())
def test_texts_round_trip(values: list[str | None], version: int, bits: int, is_sorted: bool) -> None:  # noqa: FBT001
    context = old.context(column(DataType.STRING, dimension=True), version)
    raw = [old.NULL if value is None else value.encode() for value in values]
    stored = [len(item).to_bytes(2, "big") + item for item in raw]
    chunk, body = old.page(stored, [], bits=bits, is_sorted=is_sorted)
    assert decode_page(chunk, body, context, len(values)).to_pylist() == values


@examples(10, sweep=2000)
@given(st.data(), VERSIONS)
def test_integers_round_trip(data: st.DataObject, version: int) -> None:
    # Differences that need 64 bits are what 1.0 lost.
    middle = data.draw(st.sampled_from([0, 100, -40_000, 2**31, 2**53 + 7, -(2**61), 2**63 - 600]))
    spread = data.draw(st.sampled_from([3, 250, 2**15, 2**33]))
    numbers = st.integers(max(middle - spread, -(2**63)), min(middle + spread, 2**63 - 1))
    values = data.draw(st.lists(numbers | st.none(), min_size=1, max_size=40).filter(any_known))
    chunk, body = old.integers_page(values, version)
    actual = decode_page(chunk, body, old.context(column(DataType.LONG), version), len(values))
    assert actual.to_pylist() == values


def any_known(values: list[int | None]) -> bool:
    return any(value is not None for value in values)


@examples(10, sweep=2000)
@given(st.data(), VERSIONS, st.integers(1, 4), st.booleans())
def test_doubles_round_trip(data: st.DataObject, version: int, decimals: int, plain: bool) -> None:  # noqa: FBT001
    middle = data.draw(st.sampled_from([0, 90, 40_000, 9_000_000]))
    numbers = st.integers(middle - 100, middle + 100)
    scaled = data.draw(st.lists(numbers | st.none(), min_size=1, max_size=40).filter(any_known))
    chunk, body = old.doubles_page(scaled, decimals, version, plain=plain)
    actual = decode_page(chunk, body, old.context(column(DataType.DOUBLE), version), len(scaled))
    assert actual.to_pylist() == [None if value is None else value / 10**decimals for value in scaled]


@examples(8, sweep=500)
@given(st.permutations(range(40)), WIDTHS)
def test_row_ids_of_any_width_round_trip(ids: list[int], bits: int) -> None:
    short, pairs = shortened(ids)
    first = old.pack_bits(short, bits)
    data = len(first).to_bytes(4, "big") + first + old.pack_bits(pairs, bits)
    positions = row_ids(data, len(ids), is_packed=True)
    assert np.array(ids)[positions].tolist() == list(range(40))


def test_invalid_row_ids_and_runs_raise() -> None:
    for data in (b"", b"\0\0\0\x09\x01", b"\0\0\0\0", b"\0\0\0\x05" + b"\xff" * 5):
        with pytest.raises(Damaged):
            row_ids(data, 2, is_packed=True)
    for pairs in ([0, 2, 2, 2], [0, 3, 2, 1], [0, 0, 0, 4], []):
        with pytest.raises(Damaged):
            run_lengths(old.pack_bits(pairs, 17), 3, is_packed=True)


@examples(5, sweep=300)
@given(st.data())
def test_changed_meta_is_read_or_raises(data: st.DataObject) -> None:
    meta = bytearray(old.java_meta("d", 0, 9, -9))
    assert read_java_meta(bytes(meta)).maximum == 9
    meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_java_meta(bytes(meta[: data.draw(st.integers(4, len(meta)))]))
    except (Damaged, UnsupportedForm) as error:
        assert error.reason  # noqa: PT017 -- or it is read


@examples(8, sweep=500)
@given(st.lists(st.lists(TEXTS | st.sampled_from(["x" * 130, "y" * 17_000]), max_size=20), max_size=4))
def test_members_of_every_load_round_trip(loads: list[list[str]]) -> None:
    actual = read_dictionary(old.dictionary([[item.encode() for item in load] for load in loads]))
    assert texts(actual).to_pylist() == [item for load in loads for item in load]


@examples(5, sweep=300)
@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=30))
def test_long_values_follow_each_other(sizes: list[int]) -> None:
    data = b"".join(size.to_bytes(4, "big") + b"\0" * size for size in sizes)
    buffer = np.frombuffer(data, np.uint8)

    def ends(at: Any) -> Any:
        place = [np.minimum(at + byte, len(data) - 1) for byte in range(4)]
        return (
            at + 4 + sum(buffer[item].astype(np.int64) << 8 * (3 - byte) for byte, item in enumerate(place))
        )

    actual = chain(ends, 0, len(data))
    assert np.diff(actual).tolist() == [size + 4 for size in sizes]
    with pytest.raises(Damaged):
        chain(ends, 0, len(data), len(sizes) + 1)
    with pytest.raises(Damaged):
        chain(ends, 0, len(data) - 1)


FIELDS = [
    column(DataType.STRING, dimension=True),
    column(DataType.VARCHAR, dimension=True),
    column(DataType.TIMESTAMP, dimension=True),
    column(DataType.DATE, dimension=True, dictionary=True),
    column(DataType.BOOLEAN),
    column(DataType.SHORT),
    column(DataType.INT),
    column(DataType.LONG),
    column(DataType.DOUBLE),
    column(DataType.DECIMAL, 20, 2),
]
ROWS = st.tuples(
    TEXTS | st.none(),
    TEXTS,
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)) | st.none(),  # noqa: DTZ001 -- made UTC below
    st.dates(date(1900, 1, 1), date(2100, 1, 1)) | st.none(),
    st.booleans() | st.none(),
    st.integers(-(2**15), 2**15 - 1) | st.none(),
    st.integers(-(2**31), 2**31 - 1) | st.none(),
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.floats(allow_nan=False) | st.none(),
    st.decimals(-(10**17), 10**17, places=2) | st.none(),
)


@examples(8, sweep=1000)
@given(st.lists(ROWS, min_size=1, max_size=40))
def test_rows_of_a_stream_round_trip(rows: list[tuple[Any, ...]]) -> None:
    numbered = [_numbered(number) for number in range(len(FIELDS))]
    whole = [tuple(_utc(value) for value in row) for row in rows]
    data = b"".join(old.row([_field(number, value) for number, value in enumerate(row)]) for row in whole)
    dictionaries = FixedDictionaries()
    actual = decode_rows(np.frombuffer(data, np.uint8), len(rows), numbered, numbered, dictionaries)
    assert [tuple(row) for row in zip(*(array.to_pylist() for array in actual), strict=True)] == whole
    (item,) = decode_rows(np.frombuffer(data, np.uint8), len(rows), numbered, numbered[7:8], dictionaries)
    assert item.equals(actual[7])
    with pytest.raises(Damaged):
        decode_rows(np.frombuffer(data, np.uint8), len(rows) + 1, numbered, numbered, dictionaries)


def _numbered(number: int) -> Any:
    return replace(FIELDS[number], number=number)


def _utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=UTC)
    return value


def _field(number: int, value: Any) -> bytes | None:
    """Write a field as the stream writer does: bits say of measures alone that they are null."""
    if number < 2:
        return _behind(old.NULL if value is None else value.encode(), 4 if number else 2)
    if number == 2:
        ms = (
            None if value is None else (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        )
        return _behind(b"" if ms is None else (ms + 2**63).to_bytes(8, "big"), 2)
    if number == 3:
        days = 1 if value is None else (value - date(1970, 1, 1)).days + 1073741823
        return days.to_bytes(4, "big")
    if value is None or number < 9:
        form = {4: ">?", 5: ">h", 6: ">i", 7: ">q", 8: ">d"}.get(number, "")
        return None if value is None else struct.pack(form, value)
    return _behind(b"\x02" + int(value.scaleb(2)).to_bytes(9, "big", signed=True), 2)


def _behind(data: bytes, width: int) -> bytes:
    return len(data).to_bytes(width, "big") + data


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy"])
def test_bytes_after_blocklet_rows_are_ignored(codec: str) -> None:
    rows = b"rows" * 100
    packed = pa.compress(rows + bytes(32 << 20), codec=codec, asbytes=True)
    before = pa.total_allocated_bytes()
    actual = decompress_start(codec, packed, len(rows))
    assert actual.tobytes() == rows
    if codec != "snappy":
        assert pa.total_allocated_bytes() - before < 1 << 20
    with pytest.raises(Damaged):
        decompress_start(codec, packed[: len(packed) // 2], 33 << 20)
