from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.hashes import number_text
from qbeast_core.space.values import NumberColumn, number_values
from tests.space.carriers import numbers

NEAR_TIES = st.builds(
    lambda bits, tail, sign: sign * ((1 << bits) + (1 << max(bits - 53, 0)) + tail),
    st.integers(53, 125),
    st.integers(-3, 3),
    st.sampled_from([-1, 1]),
)
UNSCALED = st.integers(-(10**38), 10**38) | st.integers(-(10**19), 10**19) | NEAR_TIES


def texts_of(column: NumberColumn) -> list[str]:
    data, starts, lengths = number_text(column)
    return [data[i : i + n].tobytes().decode() for i, n in zip(starts, lengths, strict=True)]


@given(st.lists(UNSCALED, min_size=1), st.integers(0, 38))
@example([2**53 + 1, -(2**53) - 1], 2)
def test_wide_decimals_become_the_nearest_float(unscaled, scale):
    column = numbers("decimal", unscaled, precision=38, scale=scale)
    assert number_values(column).tolist() == [float(Fraction(value, 10**scale)) for value in unscaled]


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1), st.integers(0, 18))
def test_narrow_decimals_become_the_nearest_float(unscaled, scale):
    column = numbers("decimal", unscaled, precision=18, scale=scale)
    assert number_values(column).tolist() == [float(Fraction(value, 10**scale)) for value in unscaled]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_round_and_timestamps_floor(values):
    assert number_values(numbers("int64", values)).tolist() == [float(value) for value in values]
    assert number_values(numbers("timestamp", values)).tolist() == [float(value // 1000) for value in values]


@given(st.lists(st.datetimes(), min_size=1))
def test_dates_count_milliseconds_to_their_utc_midnight(moments):
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    days = [(moment.replace(tzinfo=UTC) - epoch).days for moment in moments]
    expected = [timedelta(days=day) // timedelta(milliseconds=1) for day in days]
    assert number_values(numbers("date", days)).tolist() == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.002, "0.002"),
        (9.99e-4, "9.99E-4"),
        (1.234e-5, "1.234E-5"),
        (-3e-7, "-3.0E-7"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e10, "1.0E10"),
        (2e23, "2.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (5e-324, "4.9E-324"),
        (1e-323, "9.9E-324"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_print_as_in_java(value, text):
    assert texts_of(numbers("float64", [value, value])) == [text, text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e-45, "1.4E-45"),
        (3.4028235e38, "3.4028235E38"),
        (123456.79, "123456.79"),
        (1234567.0, "1234567.0"),
        (9999999.0, "9999999.0"),
        (16777216.0, "1.6777216E7"),
        (1e10, "1.0E10"),
        (1e-3, "0.001"),
        (float("nan"), "NaN"),
    ],
)
def test_floats_print_as_in_java(value, text):
    assert texts_of(numbers("float32", [value])) == [text]


@given(st.lists(st.floats(), min_size=1))
def test_printed_double_reads_back(values):
    texts = texts_of(numbers("float64", values))
    assert np.array_equal(np.array(texts, np.float64), np.array(values) + 0.0, equal_nan=True)


@given(st.lists(st.floats(width=32), min_size=1))
def test_printed_float_reads_back(values):
    texts = texts_of(numbers("float32", values))
    assert np.array_equal(np.array(texts, np.float32), np.array(values, np.float32), equal_nan=True)


@given(st.lists(UNSCALED, min_size=1), st.integers(0, 38))
def test_decimals_print_all_digits_of_scale(unscaled, scale):
    for text, value in zip(
        texts_of(numbers("decimal", unscaled, precision=38, scale=scale)), unscaled, strict=True
    ):
        assert Fraction(text) == Fraction(value, 10**scale)
        assert len(text.partition(".")[2]) == scale
        assert text.lstrip("-").partition(".")[0].isdigit()
        assert text.startswith("-") == (value < 0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_print_plainly(values):
    assert texts_of(numbers("int64", values)) == [str(value) for value in values]


def test_dates_and_timestamps_have_no_text():
    for kind in ("date", "timestamp"):
        with pytest.raises(InvalidInputError, match="cannot be hashed"):
            number_text(numbers(kind, [1]))
