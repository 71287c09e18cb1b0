from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.values import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    SAMPLE_STEPS,
    fraction_to_weight,
    sample_values,
    weight_to_fraction,
)


@given(st.integers(MIN_WEIGHT, MAX_WEIGHT))
def test_fraction_is_the_share_of_weights_below(weight):
    fraction = weight_to_fraction(weight)
    assert abs(Fraction(fraction) - Fraction(weight + 2**31, 2**32 - 1)) <= Fraction(1, 2**53)
    assert weight_to_fraction(np.array([weight], np.int32)).tolist() == [fraction]


@given(st.floats(0, 1))
def test_weight_truncates_towards_zero(fraction):
    expected = int(fraction * (2.0**32 - 1) - 2.0**31)
    assert fraction_to_weight(fraction) == expected
    assert fraction_to_weight(np.array([fraction])).tolist() == [expected]


@given(st.lists(st.floats(-0.5, 1.5), max_size=10).map(sorted))
def test_weight_is_monotone_in_fraction(fractions):
    weights = fraction_to_weight(np.array(fractions, np.float64))
    assert weights.dtype == np.int32
    assert weights.tolist() == sorted(weights.tolist()) == [fraction_to_weight(f) for f in fractions]


def test_limits_are_exact():
    assert fraction_to_weight(np.array([-1.0, 0.0, 0.1, 1.0, 2.0])).tolist() == [
        MIN_WEIGHT,
        MIN_WEIGHT,
        -1717986918,
        MAX_WEIGHT,
        MAX_WEIGHT,
    ]


def test_sample_values_follow_their_definition():
    # The largest multiple below 1 with a weight not above the row's, at all multiples and beside them.
    multiples = fraction_to_weight(np.arange(SAMPLE_STEPS) / SAMPLE_STEPS).astype(np.int64)
    beside = np.concatenate([multiples - 1, multiples, multiples + 1, [MAX_WEIGHT - 1, MAX_WEIGHT]])
    weights = beside[beside >= MIN_WEIGHT].astype(np.int32)
    expected = np.searchsorted(multiples, weights, side="right") - 1
    values = sample_values(weights)
    assert values.dtype == np.float32
    assert (values.astype(np.float64) * SAMPLE_STEPS == expected).all()


@given(st.lists(st.integers(MIN_WEIGHT, MAX_WEIGHT), max_size=50), st.integers(0, SAMPLE_STEPS))
def test_sample_values_below_a_multiple_are_its_sample(weights, step):
    array, fraction = np.array(weights, np.int32), step / SAMPLE_STEPS
    inside = np.ones(len(array), np.bool_) if step == SAMPLE_STEPS else array < fraction_to_weight(fraction)
    for value in (fraction, np.float32(fraction)):  # engines compare in single or in double precision
        assert ((sample_values(array) < value) == inside).all()
