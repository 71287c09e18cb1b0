"""Sketches of keys: exact for one file and for few keys, near the truth for many, and never wrong by damage."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.tree.keys import MAX_LISTED, KeySketch, KeyTotal, dump_keys, fold, parse_keys, to_counters

WEIGHTS = np.random.default_rng(7).integers(-(2**31), 2**31, 400_000, dtype=np.int32)


def exact(parts: list[np.ndarray]) -> float:
    _, counts = np.unique(np.concatenate(parts), return_counts=True)
    return float((counts.astype(np.float64) ** 2).sum() / counts.sum())


def design_effect(parts: list[np.ndarray]) -> float:
    total = KeyTotal()
    for part in parts:
        sketch = parse_keys(dump_keys(KeySketch.of(np.sort(part))))
        assert sketch is not None
        total.add(sketch)
    return total.design_effect()


def drawn(keys: int, rows: int, files: int) -> list[np.ndarray]:
    random = np.random.default_rng(keys)
    return [WEIGHTS[random.integers(0, keys, rows)] for _ in range(files)]


def zipf(exponent: float) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [WEIGHTS[np.minimum(random.zipf(exponent, 2000), 10_000)] for _ in range(30)]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="no file"),
        pytest.param([WEIGHTS[:0]], id="no row"),
        pytest.param([WEIGHTS[:1000]], id="one file, all keys differ"),
        pytest.param([np.repeat(WEIGHTS[:1000], 7)], id="one file, each key seven times"),
        pytest.param([WEIGHTS[:2000]] * 60, id="the same keys every night"),
        pytest.param([np.repeat(WEIGHTS[:30], 9), WEIGHTS[20:40], WEIGHTS[:1]], id="few keys"),
    ],
)
def test_small_design_effects_are_exact(parts) -> None:
    expected = exact(parts) if sum(map(len, parts)) else 1.0
    assert design_effect(parts) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(np.split(WEIGHTS[:200_000], 100), id="all keys differ"),
        pytest.param(np.split(WEIGHTS[:30_000], 100), id="all keys differ, tiny files"),
        pytest.param(drawn(400_000, 2000, 100), id="keys thinly spread"),
        pytest.param(drawn(50_000, 2000, 100), id="keys spread over all files"),
        pytest.param(drawn(60, 500, 20), id="sixty keys"),
        pytest.param(zipf(1.5), id="heavy keys"),
        pytest.param(zipf(3.0), id="one heavy key"),
        pytest.param(
            [*drawn(400_000, 100_000, 1), *drawn(20_000, 300, 60), WEIGHTS[:9]], id="large and small"
        ),
        pytest.param(
            [np.append(WEIGHTS[i * 999 :][:999], np.repeat(WEIGHTS[-1:], 20)) for i in range(50)], id="nulls"
        ),
    ],
)
def test_large_design_effects_are_approximate(parts) -> None:
    assert design_effect(parts) == pytest.approx(exact(parts), rel=0.15)


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1), max_size=90), st.integers(1, 40))
def test_sketch_survives_its_tag_and_is_small(values, times) -> None:
    sketch = KeySketch.of(np.sort(np.repeat(np.array(values, np.int32), times)))
    again = parse_keys(dump_keys(sketch))
    assert again is not None
    assert (again.rows, again.squares) == (sketch.rows, sketch.squares)
    assert again.weights.tolist() == sketch.weights.tolist()
    assert again.numbers.tolist() == sketch.numbers.tolist()
    assert sketch.is_listed == (len(set(values)) <= MAX_LISTED)
    assert len(dump_keys(sketch)) < 400


@pytest.mark.parametrize(("rows", "characters"), [(100, 160), (2_000, 500), (400_000, 1300)])
def test_tags_are_small(rows, characters) -> None:
    assert len(dump_keys(KeySketch.of(np.sort(WEIGHTS[:rows])))) <= characters


def test_counters_add_up_and_fold() -> None:
    both, first, second = (to_counters(part, None, 1024) for part in (WEIGHTS, WEIGHTS[:999], WEIGHTS[999:]))
    assert (first + second == both).all()
    assert (fold(both, 256) == to_counters(WEIGHTS, np.ones(len(WEIGHTS), np.int64), 256)).all()


def test_joined_sketch_equals_the_sum() -> None:
    parts = [*drawn(20_000, 2000, 20), *drawn(20_000, 500, 20), WEIGHTS[:9]]
    total = KeyTotal()
    for part in parts:
        total.add(KeySketch.of(np.sort(part)))
    joined = KeyTotal()
    joined.add(total.joined())
    assert joined.design_effect() == pytest.approx(total.design_effect(), abs=0.001)
    few = KeyTotal()
    few.add(KeySketch.of(WEIGHTS[:3]))
    few.add(KeySketch.of(WEIGHTS[2:4]))
    assert few.joined().squares == 7


def test_rows_of_unknown_keys_give_lower_bound() -> None:
    total = KeyTotal()
    total.add(KeySketch.of(np.repeat(WEIGHTS[:1], 10)))
    assert total.design_effect(unknown_rows=10) == pytest.approx(110 / 20)


def packed(data: bytes) -> str:
    crc = zlib.crc32(data).to_bytes(4, "little")
    return "1:" + base64.b64encode(crc + zlib.compress(data, wbits=-15)).decode()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "1:",
        "3:e40uu2NmZWVkZQADJkYA",
        '{"v":1}',
        "1:\ud800",
        "1:" + "A" * 20_000,
        packed(b""),
        packed(b"\xff" * 40),
        packed(bytes(1 << 20)),  # a small text that unpacks to a megabyte
        packed(b"\x03\x04\x01"),  # rows without keys
        packed(b"\x03\x05\x02\x01\x01"),  # one counter
        packed(b"\x03\x02\x03\x00\x00\x00\x00\x03"),  # fewer squares than rows
        packed(b"\x03\x09\x03\x00\x00\x00\x00\x02"),  # a key of fewer rows than there are
        packed(b"\x03\x09\x03\x00\x00\x00"),
        packed(b"\x03\x04\x80\x08" + b"\x09" * 512),  # counters beyond the rows
    ],
)
def test_damaged_tag_is_ignored(text) -> None:
    assert parse_keys(text) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_ignored(data) -> None:
    for text in (packed(data), "1:" + base64.b64encode(data).decode()):
        sketch = parse_keys(text)
        assert sketch is None or sketch.rows <= sketch.squares


@given(st.integers(0, 10**6), st.sampled_from("AQgw09+/"))
def test_changed_character_is_ignored_or_harmless(place, character) -> None:
    tag = dump_keys(KeySketch.of(np.sort(WEIGHTS[:2000])))
    at = 2 + place % (len(tag) - 2)
    actual = parse_keys(tag[:at] + character + tag[at + 1 :])
    if actual is not None:  # the bits that base64 leaves over
        again = parse_keys(tag)
        assert again is not None
        assert (actual.numbers == again.numbers).all()


def test_counter_size_must_be_signed_number() -> None:
    """Taken for signed, its size is below zero, and the tag would agree with itself."""
    numbers = np.zeros(512, np.int64)
    least = KeySketch(1000, 1000, np.zeros(0, np.int32), numbers)
    assert parse_keys(dump_keys(least)) is not None
    numbers[7] = np.iinfo(np.int64).min
    assert parse_keys(dump_keys(least)) is None
