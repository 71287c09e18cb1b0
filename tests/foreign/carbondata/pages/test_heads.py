"""Lengths in front of strings of any bytes are found where the writer put them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_carbondata.damage import Damaged
from qbeast_carbondata.pages.texts import length_heads
from tests.foreign.carbondata.page_encoder import length_value
from tests.helpers.examples import examples

# Lengths are mostly zeros: strings of few small bytes hold much that looks like them.
STRINGS = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.lists(st.sampled_from([0, 0, 0, 1, 4]), max_size=30).map(bytes),
        st.integers(250, 600).map(bytes),
    ),
    min_size=1,
    max_size=80,
)


def true_heads(strings: list[bytes], width: int) -> list[int]:
    ends = np.cumsum([width + len(item) for item in strings]).tolist()
    return [0, *ends[:-1]]


@examples(30, sweep=3000)
@given(STRINGS, st.sampled_from([2, 4]))
def test_length_heads_skip_bytes_that_look_alike(strings: list[bytes], width: int) -> None:
    data = np.frombuffer(length_value(strings, width), np.uint8)
    assert length_heads(data, width).tolist() == true_heads(strings, width)


@examples(20, sweep=1000)
@given(STRINGS, st.sampled_from([2, 4]), st.data())
def test_truncated_bytes_raise(strings: list[bytes], width: int, data: st.DataObject) -> None:
    whole = length_value(strings, width)
    heads = true_heads(strings, width)
    end = data.draw(st.integers(0, len(whole) - 1))
    cut = np.frombuffer(whole[:end], np.uint8)
    if end in heads:
        assert length_heads(cut, width).tolist() == heads[: heads.index(end)]
    else:
        with pytest.raises(Damaged):
            length_heads(cut, width)


@pytest.mark.parametrize("width", [2, 4])
def test_length_heads_work_for_many_rows(width: int) -> None:
    generator = np.random.default_rng(3)
    strings = [generator.bytes(int(size)) for size in generator.integers(0, 40, 20_000)]
    data = np.frombuffer(length_value(strings, width), np.uint8)
    assert length_heads(data, width).tolist() == true_heads(strings, width)
