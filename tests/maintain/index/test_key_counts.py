"""Counting keys with what is known from before gives what counting all files gives."""

from __future__ import annotations

import zlib
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.table.index.counts import KeyCounts, count_keys
from qbeast_core.tree.keys import KeySketch, dump_keys
from tests.helpers.examples import examples
from tests.helpers.small_files import resized

RNG = np.random.default_rng(5)
SKETCHES = [KeySketch.of(RNG.integers(0, keys, 900).astype(np.int32)) for keys in (3, 20, 200, 800, 10**6)]
TAGS: list[tuple[str | None, int | None]] = [
    *((dump_keys(sketch), sketch.rows) for sketch in SKETCHES),
    (dump_keys(SKETCHES[0]), 901),  # contradicted
    (dump_keys(SKETCHES[3]), None),
    (None, 7),
    (None, None),
]


def files_of(tags: list[int]) -> pl.DataFrame:
    said = [TAGS[at] for at in tags]
    return pl.DataFrame(said, schema={"keys": pl.String, "num_records": pl.Int64}, orient="row")


def totals(counts: KeyCounts) -> tuple[object, ...]:
    existing = pytest.approx(counts.total.squares)
    return (
        counts.design_effect,
        counts.lower_bound,
        counts.total.rows,
        existing,
        counts.unknown_files,
        counts.unknown_rows,
    )


STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, len(TAGS) - 1), max_size=4), st.booleans(), st.integers(0, 2**20)),
    min_size=1,
    max_size=12,
)


@given(steps=STEPS)
@examples(15, sweep=500)
def test_later_versions_count_like_the_first(
    steps: list[tuple[list[int], bool, int]],
) -> None:
    live: list[int] = []
    with resized(min_cached_files=1):
        for came, some_go, seed in steps:
            live += came
            if some_go:
                live = live[len(live) // 2 :]
            order = np.random.default_rng(seed).permutation(len(live))
            actual = count_keys(files_of([live[at] for at in order]))
            with resized(min_cached_files=10**9):
                assert totals(actual) == totals(count_keys(files_of(live)))
            actual.total.add(SKETCHES[2])  # a caller counts on: nobody else is to see it


def test_counted_files_are_not_counted_again() -> None:
    tags = RNG.integers(0, 5, 100).tolist()
    count_keys(files_of(tags))
    with mock.patch.object(zlib, "decompressobj", wraps=zlib.decompressobj) as unpacked:
        count_keys(files_of([*tags, 1, 3]))
        assert unpacked.call_count == 2
        count_keys(files_of([*tags, 1, 3]))
        assert unpacked.call_count == 2
