from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from qbeast_core.space import coordinates
from qbeast_core.space.coordinates import (
    coordinates_of_numbers,
    number_ranks,
    string_quantile_bounds,
    string_ranks,
    to_coordinates,
)
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
)
from tests.space.carriers import numbers, strings
from tests.space.coordinate_reference import number_rank, string_rank

FINITE = st.floats(-1e300, 1e300) | st.sampled_from([0.0, -0.0, 1.0, 2.0, 5e-324])
KNOTS = st.lists(FINITE, min_size=2, max_size=8).map(sorted)
# Few letters and lengths around those of a word, so that prefixes, repeats and NULs abound.
TEXT = (
    st.text("a\0b", max_size=16) | st.text(max_size=9) | st.text("ab", max_size=3).map(lambda s: "x" * 7 + s)
)
TEXTS = st.lists(TEXT, min_size=2, max_size=12)


@given(KNOTS, st.lists(st.floats() | FINITE, max_size=20))
def test_number_ranks_match_scalar_rules(quantiles, values):
    values = [*values, *quantiles]
    got = number_ranks(quantiles, np.array(values)).tolist()
    assert got == [number_rank(value, quantiles) for value in values]
    got = number_ranks(quantiles, np.array(values), first=True).tolist()
    assert got == [number_rank(value, quantiles, first=True) for value in values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2).map(sorted), st.data())
@example([-1.7976931348623157e308, 1.7976931348623157e308], None)
def test_number_ranks_are_monotone_for_any_quantiles(quantiles, data):
    values = data.draw(st.lists(st.floats(allow_nan=False))) if data else [-1e308, 0.0, 1e308]
    values = [*sorted([*values, *quantiles, float("inf"), float("-inf")]), float("nan")]
    for first in (True, False):
        ranks = number_ranks(quantiles, np.array(values), first=first)
        assert ((ranks >= 0) & (ranks <= 1)).all()
        assert (np.diff(ranks) >= 0).all()
    assert ranks[0] == 0.0
    assert ranks[-1] == 1.0


@given(TEXTS, st.lists(TEXT, max_size=20))
def test_string_ranks_match_scalar_rules(quantiles, values):
    column = strings([*values, *quantiles])
    ordered = sorted(text.encode() for text in quantiles)
    for first in (True, False):
        expected = [string_rank(v.encode(), ordered, first=first) for v in [*values, *quantiles]]
        assert string_ranks(quantiles, column, first=first).tolist() == expected


def test_string_ranks_agree_for_many_long_strings():
    rng = np.random.default_rng(3)
    values = [f"{'user/' * (k % 5)}{k:06d}" for k in rng.integers(0, 300_000, 70_000).tolist()]
    values += ["x" * 1000 + str(k) for k in range(50)]
    quantiles = sorted({values[k].encode() for k in rng.integers(0, len(values), 999).tolist()})
    got = string_ranks([text.decode() for text in quantiles], strings(values))
    assert got[::9].tolist() == [string_rank(value.encode(), quantiles) for value in values[::9]]


def test_slices_of_a_longer_buffer_rank_alike():
    column = strings(["b", "a", "c\0", "c", "bbbbbbbbbbbbbb"])
    whole = string_ranks(["a", "b", "c"], column)
    assert string_ranks(["a", "b", "c"], column.slice(1, 4)).tolist() == whole[1:4].tolist()
    assert string_ranks(["a", "b"], column.slice(2, 2)).tolist() == []


def test_query_bounds_span_the_quantiles_that_repeat():
    number = CDFNumericQuantilesTransformation(
        quantiles=(1.0, 1.0, 2.0, 2.0, 2.0), data_type="DoubleDataType"
    )
    values = np.array([0.0, 1.0, 1.5, 2.0, 3.0])
    lower, upper = (coordinates_of_numbers(number, values, first=first) for first in (True, False))
    assert lower.tolist() == [0.0, 0.0, 0.375, 0.5, 1.0]
    assert upper.tolist() == [0.0, 0.25, 0.375, 1.0, 1.0]
    string = CDFStringQuantilesTransformation(quantiles=("a", "a", "b"))
    lower, upper = string_quantile_bounds(string, strings(["", "a", "aa", "b", None]))
    assert lower.tolist() == [0.0, 0.0, 0.5, 1.0, 0.0]
    assert upper.tolist() == [0.0, 0.5, 0.5, 1.0, 0.0]


@given(TEXTS, st.lists(TEXT, max_size=20))
def test_written_coordinates_are_within_query_bounds(quantiles, values):
    transformation = CDFStringQuantilesTransformation(quantiles=tuple(quantiles))
    column = strings(values)
    lower, upper = string_quantile_bounds(transformation, column)
    written = to_coordinates(transformation, column)
    assert ((lower <= written) & (written <= upper)).all()


def test_quantile_pair_separates_value_from_next():
    pair = CDFStringQuantilesTransformation(quantiles=("v", "v\0"))
    assert to_coordinates(pair, strings(["u", "v", "v\0", "w", None])).tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]


def test_nulls_of_numeric_quantiles_have_coordinate_zero():
    quantiles = CDFNumericQuantilesTransformation(quantiles=(1.0, 2.0), data_type="IntegerDataType")
    assert to_coordinates(quantiles, numbers("int32", [2, None, 1])).tolist() == [1.0, 0.0, 0.0]


class CountedBytes(bytes):
    """Bytes that count how many of them are copied."""

    copied = 0

    def __getitem__(self, key):
        taken = super().__getitem__(key)
        CountedBytes.copied += len(taken)
        return taken


def test_long_quantile_is_copied_once():
    text = CountedBytes(b"x" * 70_000)
    words = [coordinates._word(text, depth) for depth in range(10_000)]  # noqa: SLF001 -- its cost is tested
    assert (CountedBytes.copied, words[-1] & 0xFF) == (70_000, 7)
