"""The design effect is a sum over index keys, however the weights are cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.tree.keys import design_effect
from tests.helpers.small_files import resized


def by_definition(weights):
    _, counts = np.unique(weights, return_counts=True)
    return float((counts.astype(np.float64) ** 2).sum() / len(weights))


@given(st.lists(st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]), min_size=1, max_size=40))
def test_design_effect_is_mean_key_size(weights):
    array = np.array(weights, np.int32)
    for rows in (1, 2, 7, 1 << 16):
        with resized(chunk_rows=rows):
            assert design_effect(array) == pytest.approx(by_definition(array))


def test_design_effect_of_empty_and_equal_keys():
    assert design_effect(np.zeros(0, np.int32)) == 1.0
    assert design_effect(np.zeros(200_000, np.int32)) == 200_000
    assert design_effect(np.arange(200_000, dtype=np.int32)) == 1.0
