from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError
from qbeast_core.plan.weights import ALL_WEIGHTS, WeightRange, sample_to_weights

FRACTIONS = st.floats(0, 1)


@pytest.mark.parametrize(
    "sample",
    [
        -0.1,
        1.1,
        float("nan"),
        (0.5, 0.4),
        (0.1,),
        (0.1, 0.2, 0.3),
        "much",
        None,
        True,
        (0.1, None),
        (-0.1, 0.5),
    ],
)
def test_invalid_fractions_raise(sample: Any) -> None:
    with pytest.raises(InvalidInputError, match="sample") as caught:
        sample_to_weights(sample)
    assert caught.value.argument == "sample"


def test_fractions_zero_and_one_are_exact() -> None:
    assert sample_to_weights(1.0) == sample_to_weights((0, 1)) == ALL_WEIGHTS
    assert ALL_WEIGHTS.is_full
    assert ALL_WEIGHTS.last == 2147483647
    assert sample_to_weights(0.0).is_empty
    assert sample_to_weights((1.0, 1.0)).is_empty
    assert sample_to_weights(np.float64(0.1)) == WeightRange(-(2**31), -1717986918)


@given(st.lists(FRACTIONS, min_size=1, max_size=5))
def test_adjacent_ranges_partition_weights(fractions: list[float]) -> None:
    edges = [0.0, *sorted(fractions), 1.0]
    ranges = [sample_to_weights((low, high)) for low, high in pairwise(edges)]
    assert ranges[0].from_ == ALL_WEIGHTS.from_
    assert ranges[-1].to == ALL_WEIGHTS.to
    assert all(left.to == right.from_ for left, right in pairwise(ranges))


@given(FRACTIONS, FRACTIONS)
def test_larger_sample_contains_smaller(left: float, right: float) -> None:
    small, large = sorted([left, right])
    assert sample_to_weights(small).to <= sample_to_weights(large).to
