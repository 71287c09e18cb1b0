from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT, fraction_to_weight, weight_to_fraction


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
