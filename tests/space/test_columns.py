from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.columns import NumberColumn, StringColumn
from tests.space.carriers import strings


def texts(column: StringColumn) -> list[bytes | None]:
    nulls = np.zeros(len(column), bool) if column.nulls is None else column.nulls
    spans = zip(column.offsets, column.offsets[1:], nulls, strict=False)
    return [None if null else column.data[start:stop].tobytes() for start, stop, null in spans]


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1), st.data())
def test_strings_survive_a_slice(values, data):
    column = strings(values)
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    part = column.slice(start, stop)
    assert texts(part) == values[start:stop]


@pytest.mark.parametrize(
    "make",
    [
        lambda: NumberColumn("int32", np.zeros(3)),
        lambda: NumberColumn("decimal", np.zeros(3, np.int64), precision=30),
        lambda: NumberColumn("decimal", np.zeros((3, 2), np.int64), precision=18),
        lambda: NumberColumn("int64", np.zeros(3, np.int64), np.zeros(2, bool)),
        lambda: StringColumn(np.zeros(3, np.int8), np.zeros(2, np.int64)),
        lambda: StringColumn(np.zeros(3, np.uint8), np.zeros(0, np.int64)),
    ],
)
def test_buffers_of_the_wrong_kind_raise(make):
    with pytest.raises(InvalidInputError):
        make()
