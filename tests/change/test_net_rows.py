"""Differences of removed and added rows equal those of multisets, whatever the frames and parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.table.read.changes import SignedRows, net_rows
from tests.helpers.examples import examples
from tests.helpers.small_files import resized

SCHEMA = {"a": pl.Int64, "b": pl.String, "c": pl.List(pl.Int64)}
ROW = st.tuples(
    st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, "", "x"]), st.sampled_from([None, (), (1,)])
)
SIDE = st.tuples(st.sampled_from([-1, 1]), st.lists(ROW, max_size=8))


@examples(5, sweep=2000)
@given(
    sides=st.lists(SIDE, max_size=6),
    rows_at_once=st.sampled_from([1, 3, 100]),
    kept_bytes=st.sampled_from([0, 100, 1 << 20]),
)
def test_rows_left_over_equal_those_of_multisets(
    sides: list[tuple[int, list[tuple[object, ...]]]], rows_at_once: int, kept_bytes: int
) -> None:
    reads = 0

    def read() -> Iterator[SignedRows]:
        nonlocal reads
        reads += 1
        for sign, rows in sides:
            yield sign, pl.DataFrame(rows, SCHEMA, orient="row")

    before, after = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for sign, rows in sides:
        (before if sign < 0 else after).update(rows)
    found = {-1: Counter[tuple[object, ...]](), 1: Counter[tuple[object, ...]]()}
    with resized(kept_change_bytes=kept_bytes):
        for sign, frame in net_rows(read, rows_at_once=rows_at_once):
            assert dict(frame.schema) == SCHEMA
            found[sign].update((a, b, None if c is None else tuple(c)) for a, b, c in frame.iter_rows())
    assert found == {-1: before - after, 1: after - before}
    assert reads == 1 or kept_bytes < 1 << 20  # few rows are kept
