"""Columns of few values as dictionary codes."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.io.parquet.few_values import encode_few_values, used_values

TEXTS = st.lists(st.none() | st.text(max_size=3), max_size=60)
DECIMALS = st.lists(st.none() | st.decimals(-(10**20), 10**20, places=2), max_size=60)


def chunked(parts: list[list[object]], dtype: pl.DataType) -> pl.Series:
    return pl.concat(
        [pl.Series("a", part, dtype=dtype) for part in parts] or [pl.Series("a", [], dtype=dtype)]
    )


def check(column: pl.Series) -> None:
    encoded = encode_few_values(column)
    if column.null_count() == len(column):
        assert encoded is None
        return
    assert encoded is not None
    codes, values = encoded
    assert sorted(values.to_list()) == sorted(column.drop_nulls().unique().to_list())
    assert values.gather(codes).to_list() == column.to_list()
    part = codes[len(codes) // 2 :]
    part_codes, part_values = used_values(part, values)
    assert part_values.gather(part_codes).to_list() == column[len(codes) // 2 :].to_list()
    assert sorted(part_codes.drop_nulls().unique().to_list()) == list(range(len(part_values)))


@given(st.lists(TEXTS, max_size=3))
def test_texts_decode_to_themselves(parts):
    check(chunked(parts, pl.String()))


@given(st.lists(DECIMALS, max_size=3))
def test_decimals_decode_to_themselves(parts):
    check(chunked(parts, pl.Decimal(38, 2)))


def test_chunks_share_one_dictionary():
    rng = np.random.default_rng(0)
    parts = [[f"{number:06}" for number in rng.integers(0, 256, 40_000)] for _ in range(3)]
    column = chunked(parts, pl.String())
    check(column)
    encoded = encode_few_values(column)
    assert encoded is not None
    assert encoded[0].chunk_lengths() == column.chunk_lengths()


def test_slices_are_encoded():
    column = chunked([["x", "y", None, "z"] * 9, ["z", "more than 12 bytes"] * 9], pl.String())
    check(column.slice(3, 40))


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([str(number) for number in range(257)]),
        pl.Series([None, None], dtype=pl.String),
        pl.Series([1, 2]),
        pl.Series([[b"a"]]),
    ],
)
def test_other_columns_are_not_encoded(column):
    assert encode_few_values(column) is None


def test_signs_and_zeros_of_decimals_differ():
    check(pl.Series([Decimal("-0.01"), Decimal("0.01"), Decimal("0.00"), None], dtype=pl.Decimal(15, 2)))
