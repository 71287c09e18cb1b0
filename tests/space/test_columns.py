from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.space.values import StringColumn
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
