"""Pages by an encoder written for this test alone, decoded: every encoding, width, null form and compressor."""

# ruff: noqa: FBT001 -- hypothesis gives booleans by position

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_carbondata.damage import Damaged, UnsupportedForm
from qbeast_carbondata.pages.codecs import StoreType
from qbeast_carbondata.pages.page import decode_page, local_members
from qbeast_carbondata.structs import DataType, Encoding
from tests.foreign.carbondata import page_encoder as made
from tests.helpers.examples import examples

CODECS = st.sampled_from(["snappy", "zstd", "gzip"])
INTEGERS = {DataType.BYTE: 1, DataType.SHORT: 2, DataType.INT: 4, DataType.LONG: 8}
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)


def decoded(page: made.Page, rows: int) -> list[Any]:
    actual = decode_page(page.chunk, memoryview(page.body), page.context, rows)
    actual.validate(full=True)
    return list(actual.to_pylist())


def signed(width: int) -> tuple[int, int]:
    return -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1


@st.composite
def narrow_integers(draw: st.DrawFn) -> tuple[made.Page, list[Any]]:
    """Integers that fit their store, as they are or as differences from the largest."""
    kind = draw(st.sampled_from(list(INTEGERS)))
    width = INTEGERS[kind]
    stores = [store for store, bytes_ in made.WIDTHS.items() if bytes_ <= width]
    store = draw(st.sampled_from(stores))
    encoding = draw(st.sampled_from([Encoding.ADAPTIVE_INTEGRAL, Encoding.ADAPTIVE_DELTA_INTEGRAL]))
    least, most = signed(made.WIDTHS[store])
    if encoding == Encoding.ADAPTIVE_INTEGRAL:
        values = st.one_of(st.none(), st.integers(least, most))
    else:
        top = draw(st.integers(*signed(width)))
        values = st.integers(max(top - most, signed(width)[0]), top)
    drawn = draw(st.lists(values, min_size=1, max_size=60))
    return made.numbers(made.column(kind), drawn, encoding, store, codec=draw(CODECS)), drawn


@examples(13, sweep=1000)
@given(narrow_integers())
def test_integers_of_every_width_round_trip(drawn: tuple[made.Page, list[Any]]) -> None:
    page, values = drawn
    assert decoded(page, len(values)) == values


@examples(8, sweep=500)
@given(st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=1, max_size=60), st.booleans(), CODECS)
def test_uncompressed_floats_are_decoded(values: list[Any], double: bool, codec: str) -> None:
    kind, store = (DataType.DOUBLE, StoreType.DOUBLE) if double else (DataType.FLOAT, StoreType.FLOAT)
    page = made.numbers(made.column(kind), values, Encoding.DIRECT_COMPRESS, store, codec=codec)
    for actual, value in zip(decoded(page, len(values)), values, strict=True):
        assert actual == value or (value is not None and math.isnan(value) and math.isnan(actual))


@examples(10, sweep=800)
@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=60), st.integers(1, 5), st.booleans(), CODECS
)
def test_scaled_doubles_round_trip(whole: list[int], decimals: int, delta: bool, codec: str) -> None:
    values = [number / 10**decimals for number in whole]
    encoding = Encoding.ADAPTIVE_DELTA_FLOATING if delta else Encoding.ADAPTIVE_FLOATING
    page = made.numbers(
        made.column(DataType.DOUBLE), values, encoding, StoreType.INT, codec=codec, decimals=decimals
    )
    # Differences are of what 10**decimals times the largest is in floating point, cut to an integer.
    far = int(10.0**decimals * max(values))
    stored = [far - round(Decimal(repr(one)).scaleb(decimals)) for one in values]
    expected = [(far - one) / 10.0**decimals for one in stored] if delta else values
    assert decoded(page, len(values)) == expected


@examples(10, sweep=800)
@given(st.data())
def test_decimals_of_both_sizes_round_trip(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    limit = 10**precision - 1
    numbers = data.draw(st.lists(st.one_of(st.none(), st.integers(-limit, limit)), min_size=1, max_size=40))
    values = [None if one is None else Decimal(f"{one}E-{scale}") for one in numbers]
    own, codec = made.column(DataType.DECIMAL, precision, scale), data.draw(CODECS)
    nulls = [one is None for one in numbers]
    existing = [0 if one is None else one for one in numbers]
    form = data.draw(st.sampled_from(["small", "lengths"] if precision <= 18 else ["wide", "lengths"]))
    if form == "small":
        page = made.numbers(own, numbers, Encoding.ADAPTIVE_INTEGRAL, StoreType.LONG, codec=codec)
    elif form == "wide":
        width = next(one for one in range(1, 17) if 2 ** (8 * one - 1) >= 10**precision)
        stored = b"".join(one.to_bytes(width, "big", signed=True) for one in existing)
        report = made.meta(own, StoreType.DECIMAL, 0, codec=codec, precision=precision)
        page = made.page(own, stored, [Encoding.DIRECT_COMPRESS], codec=codec, metas=[report], nulls=nulls)
    else:
        stored = made.length_value([bytes([scale]) + made.big(one) for one in existing], 4)
        report = made.meta(own, StoreType.DECIMAL, 0, codec=codec)
        page = made.page(own, stored, [Encoding.DIRECT_COMPRESS], codec=codec, metas=[report], nulls=nulls)
    assert decoded(page, len(values)) == values


@examples(13, sweep=1000)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=60), st.booleans(), st.booleans(), CODECS)
def test_texts_round_trip_sorted_or_not(values: list[Any], long: bool, sort: bool, codec: str) -> None:
    kind = DataType.VARCHAR if long else DataType.STRING
    own = made.column(kind, dimension=True)
    page = made.texts(own, values, codec=codec, long=long, sort=sort, short=True)
    assert decoded(page, len(values)) == values


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 70_000])
@pytest.mark.parametrize("long", [False, True])
def test_texts_of_every_length_round_trip(size: int, long: bool) -> None:
    if size > 2**15 and not long:
        return
    values = ["a", "x" * size, "", "b\0c", None, "y" * size, "end"]
    own = made.column(DataType.VARCHAR if long else DataType.STRING, dimension=True)
    page = made.texts(own, values, codec="snappy", long=long, sort=False, short=False)
    assert decoded(page, len(values)) == values


@examples(10, sweep=500)
@given(
    st.lists(st.one_of(st.none(), st.integers(-40_000, 40_000)), min_size=1, max_size=60),
    st.booleans(),
    st.booleans(),
)
def test_dates_round_trip(days: list[Any], runs: bool, sort: bool) -> None:
    own = made.column(DataType.DATE, dimension=True, dictionary=True)
    stored = [1 if one is None else one + made.DATE_CUTOFF for one in days]
    page = made.surrogates(own, stored, 4, codec="snappy", runs=runs, sort=sort)
    epoch = date(1970, 1, 1)
    assert decoded(page, len(days)) == [None if one is None else epoch + timedelta(days=one) for one in days]


@examples(10, sweep=500)
@given(
    st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=8, unique=True),
    st.data(),
    st.booleans(),
    st.booleans(),
)
def test_local_dictionaries_round_trip(
    members: list[Any], data: st.DataObject, runs: bool, sort: bool
) -> None:
    own, codec = made.column(DataType.STRING, dimension=True), data.draw(CODECS)
    places = data.draw(st.lists(st.integers(0, len(members) - 1), min_size=1, max_size=60))
    plain = made.surrogates(own, [one + 1 for one in places], 3, codec=codec, runs=runs, sort=sort)
    page = made.with_local(plain, local_members(made.local_dictionary(members, codec=codec), own, codec))
    assert decoded(page, len(places)) == [members[one] for one in places]


FLIPPED: dict[DataType, Callable[[Any], bytes]] = {
    DataType.SHORT: lambda one: (one + 2**15).to_bytes(2, "big"),
    DataType.INT: lambda one: (one + 2**31).to_bytes(4, "big"),
    DataType.LONG: lambda one: (one + 2**63).to_bytes(8, "big"),
}


@examples(8, sweep=400)
@given(
    st.sampled_from(list(FLIPPED)),
    st.lists(st.one_of(st.none(), st.integers(-(2**15), 2**15 - 1)), min_size=1),
)
def test_numbers_without_dictionary_round_trip(kind: DataType, values: list[Any]) -> None:
    own = made.column(kind, dimension=True)
    stored = [b"" if one is None else FLIPPED[kind](one) for one in values]
    page = made.page(own, made.length_value(stored, 2), [], codec="snappy")
    assert decoded(page, len(values)) == values


@examples(8, sweep=400)
@given(st.lists(st.one_of(st.none(), st.booleans()), min_size=1, max_size=60), CODECS)
def test_booleans_round_trip(values: list[Any], codec: str) -> None:
    numbers = [None if one is None else int(one) for one in values]
    own = made.column(DataType.BOOLEAN)
    page = made.numbers(own, numbers, Encoding.DIRECT_COMPRESS, StoreType.BYTE, codec=codec)
    assert decoded(page, len(values)) == values


def test_wrong_number_of_values_raises() -> None:
    page = made.numbers(
        made.column(DataType.INT), [1, 2, 3], Encoding.ADAPTIVE_INTEGRAL, StoreType.BYTE, codec="snappy"
    )
    for rows in (2, 4):
        with pytest.raises(Damaged):
            decoded(page, rows)


def test_unsupported_encoding_raises() -> None:
    own = made.column(DataType.INT)
    report = made.meta(own, StoreType.INT, 0)
    with pytest.raises(UnsupportedForm, match="RLE_INTEGRAL"):
        decoded(made.page(own, b"\0" * 8, [Encoding.RLE_INTEGRAL], codec="snappy", metas=[report]), 2)


def test_foreign_compressors_raise() -> None:
    page = made.texts(
        made.column(DataType.STRING, dimension=True),
        ["a"],
        codec="snappy",
        long=False,
        sort=False,
        short=False,
    )
    chunk = page.chunk
    stranger = made.Page(made.replace(chunk, codec="org.example.Lz"), page.body, page.context)
    with pytest.raises(UnsupportedForm, match=r"org\.example\.Lz"):
        decoded(stranger, 1)


def test_permutation_sorts_and_unsorts_many_rows() -> None:
    generator = np.random.default_rng(1)
    values = [f"{number:03d}" for number in generator.integers(0, 300, 5000)]
    own = made.column(DataType.STRING, dimension=True)
    for short in (False, True):
        page = made.texts(own, values, codec="zstd", long=False, sort=True, short=short)
        assert decoded(page, len(values)) == values


@pytest.mark.parametrize("encoders", [[4], [10], [99], [3, 4], [3, 7], [2, 11]])
def test_unsupported_encoder_lists_raise(encoders: list[int]) -> None:
    page = made.page(made.column(DataType.STRING), b"\0\1a", encoders, codec="snappy")
    with pytest.raises(UnsupportedForm, match="no release writes"):
        decode_page(page.chunk, memoryview(page.body), page.context, 1)
