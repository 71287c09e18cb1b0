"""Heavy keys of files are listed with all their rows, which lie in an order that says nothing of their values."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.tree.keys import HEAVY_SHARE, HeavyKeys, KeySketch, dump_keys, parse_heavy, parse_keys

RUNS = st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 400)), max_size=12)


def file_of(runs: list[tuple[int, int]]) -> np.ndarray:
    """The weights of a file's rows."""
    return np.repeat([w for w, _ in runs], [n for _, n in runs]).astype(np.int32)


@given(RUNS)
def test_heavy_keys_have_all_their_rows(runs: list[tuple[int, int]]) -> None:
    weights = file_of(runs)
    heavy = HeavyKeys.of(weights, together=True)
    keys, counts = np.unique(weights, return_counts=True)
    assert set(keys[(counts * HEAVY_SHARE >= len(weights)) & (counts > 1)]) <= set(heavy.weights)
    assert np.diff(heavy.weights).min(initial=1) > 0
    rest = len(weights)
    for weight, count in sorted(zip(keys, counts, strict=True), key=lambda item: -item[1]):
        if weight not in heavy.weights:
            assert count == 1 or count * HEAVY_SHARE < rest
            break
        assert heavy.rows[heavy.weights == weight] == count >= rest / HEAVY_SHARE
        rest -= count
    for weight, rows, first in zip(heavy.weights, heavy.rows, heavy.firsts, strict=True):
        places = np.flatnonzero(weights == weight)
        assert first == (places[0] if np.ptp(places) + 1 == rows else -1)


@given(RUNS)
def test_rows_shuffle_within_key(runs: list[tuple[int, int]]) -> None:
    weights = file_of(runs)
    order = HeavyKeys.of(weights, together=True).shuffled(len(weights))
    if order is not None:
        assert (np.sort(order) == np.arange(len(weights))).all()
        assert (weights[order] == weights).all()


def test_part_of_heavy_key_is_random_sample() -> None:
    """Means of stretches of rows that came in the order of their values vary as those of random rows do."""
    rows, length = 200_000, 500
    order = HeavyKeys.of(np.full(rows, 7, np.int32), together=True).shuffled(rows)
    assert order is not None
    means = (order / rows).reshape(-1, length).mean(axis=1)
    assert np.std(means) == pytest.approx((1 / 12 / length) ** 0.5, rel=0.12)
    assert abs(means - 0.5).max() < 4.5 * (1 / 12 / length) ** 0.5


@given(RUNS)
def test_tag_round_trips(runs: list[tuple[int, int]]) -> None:
    weights = file_of(runs)
    sketch, heavy = KeySketch.of(weights), HeavyKeys.of(weights, together=True)
    tag = dump_keys(sketch, heavy)
    read, listed = parse_keys(tag), parse_heavy(tag, len(weights))
    assert read is not None
    assert (read.rows, read.squares, read.numbers.tolist()) == (
        sketch.rows,
        sketch.squares,
        sketch.numbers.tolist(),
    )
    assert listed is not None
    for name in ("weights", "rows", "firsts"):
        assert getattr(listed, name).tolist() == getattr(heavy, name).tolist()


def test_file_without_heavy_keys_lists_none() -> None:
    sketch = KeySketch.of(np.arange(5000, dtype=np.int32))
    heavy = parse_heavy(dump_keys(sketch), 5000)
    assert heavy is not None
    assert not len(heavy)
    assert dump_keys(sketch, heavy) == dump_keys(sketch)


def packed(data: bytes) -> str:
    crc = zlib.crc32(data).to_bytes(4, "little")
    return "2:x:" + base64.b64encode(crc + zlib.compress(data, wbits=-15)).decode()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "1:e40uu2NmZWVkZQADJkYA",
        "3:e40uu2NmZWVkZQADJkYA:e1V2tWNkZGBgYGIEAA==",
        "2:e40uu2NmZWVkZQADJkYA:",
        "2:e40uu2NmZWVkZQADJkYA:e1V2tWNkZGBgYGIEAA=",
        packed(b""),
        packed(b"\x00"),
        packed(b"\x01\x07\x00\x00\x00\x04\x01"),  # more rows than there are
        packed(b"\x01\x07\x00\x00\x00\x02\x03"),  # behind the end
        packed(b"\x01\x07\x00\x00\x00\x00\x01"),  # no rows
        packed(b"\x01\x07\x00\x00\x00\x02"),
        packed(b"\x01\x07\x00\x00\x00\x02\x01\x01"),
        packed(b"\x02\x07\x07\x00\x00\x00\x00\x00\x00\x01\x01\x01\x02"),  # a key twice
        packed(b"\x02\x07\x08\x00\x00\x00\x00\x00\x00\x02\x01\x01\x02"),  # one on top of the other
        packed(b"\xff" * 40),
    ],
)
def test_invalid_list_lists_nothing(text: str | None) -> None:
    assert parse_heavy(text, 3) is None


def test_valid_list_is_read() -> None:
    actual = parse_heavy(packed(b"\x02\x07\x08\x00\x00\x00\x00\x00\x00\x02\x01\x01\x03"), 3)
    assert actual is not None
    assert (actual.weights.tolist(), actual.firsts.tolist()) == ([7, 8], [0, 2])
