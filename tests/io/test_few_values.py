"""Columns of few values as places among them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io.encode import place_values, used_values

TEXTS = st.lists(st.none() | st.text(max_size=3), max_size=60)
DECIMALS = st.lists(st.none() | st.decimals(-(10**20), 10**20, places=2), max_size=60)


def chunked(parts: list[list[object]], dtype: pl.DataType) -> pl.Series:
    return pl.concat(
        [pl.Series("a", part, dtype=dtype) for part in parts] or [pl.Series("a", [], dtype=dtype)]
    )


def check(column: pl.Series, some: pl.Series) -> None:
    actual = place_values(column, some)
    assert actual is not None
    places, values = actual
    assert values.to_list() == sorted(column.drop_nulls().unique().to_list())
    assert values.gather(places).to_list() == column.to_list()
    part = places[len(places) // 2 :]
    rows, used = used_values(part, values)
    assert used.gather(rows).to_list() == column[len(places) // 2 :].to_list()
    assert sorted(rows.drop_nulls().unique().to_list()) == list(range(len(used)))


@pytest.mark.parametrize(
    ("values", "dtype"), [(TEXTS, pl.String()), (DECIMALS, pl.Decimal(38, 2))], ids=["texts", "decimals"]
)
@given(data=st.data(), step=st.integers(1, 5))
def test_few_values_round_trip(values, dtype, data, step):
    column = chunked(data.draw(st.lists(values, max_size=3)), dtype)
    if column.gather_every(step).null_count() < len(column.gather_every(step)):
        check(column, column.gather_every(step))


def test_unsampled_values_are_found_in_any_chunk():
    rng = np.random.default_rng(0)
    parts = [[f"{number:06}" for number in rng.integers(0, 256, 40_000)] for _ in range(3)]
    check(chunked(parts, pl.String()), pl.Series(["000007"]))


def test_slices_of_frames_are_supported():
    column = chunked([["x", "y", None, "z"] * 9, ["z", "long enough!"] * 9], pl.String())
    check(column.slice(3, 40), column[:5])


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["a", "more than 12 bytes"]),
        pl.Series(["a", "ä" * 7]),
        pl.Series([str(number) for number in range(257)]),
        pl.Series([None, None], dtype=pl.String),
        pl.Series([], dtype=pl.String),
        pl.Series([1, 2]),
        pl.Series([[b"a"]]),
    ],
)
@pytest.mark.parametrize("sampled", [1, 300])
def test_other_columns_are_unchanged(column, sampled):
    assert place_values(column, column[:sampled]) is None


def test_long_texts_differ_from_short_texts():
    long = chunked([["a", "the same length, first"], ["a", "the same length, other"]], pl.String())
    assert place_values(long, pl.Series(["a"])) is None


def test_signs_and_zeros_of_decimals_differ():
    column = pl.Series([Decimal("-0.01"), Decimal("0.01"), Decimal("0.00"), None], dtype=pl.Decimal(15, 2))
    check(column, column[:1])
