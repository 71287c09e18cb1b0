"""The page layout tag: exact, compact, and ignored where it is of another version."""

from __future__ import annotations

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.spec.blocks import (
    Layout,
    dump_layout,
    dump_shape,
    pack_boxes,
    parse_layout,
    parse_shape,
    unpack_boxes,
)

SMALLEST = '{"v":3,"tail":9,"directory":8,"bands":[[8,8,-5]],"box":[[0,1]],"p":"AwA="}'

first_cells = st.integers(0, 2**32 - 1)
equal_steps = st.tuples(first_cells, st.integers(1, 2**24))
grouped_steps = st.tuples(first_cells, *[st.integers(1, 2**28)] * 16)
layouts = st.builds(
    Layout,
    tail_bytes=st.integers(8, 2**30),
    directory_bytes=st.integers(0, 2**30),
    bands=st.lists(
        st.tuples(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(-(2**31), 2**31 - 1)), min_size=1
    ).map(tuple),
    box=st.lists(equal_steps | grouped_steps).map(tuple),
    boxes=st.binary(max_size=300),
    has_hidden_weights=st.booleans(),
)


@given(layouts)
def test_layout_round_trips(layout):
    assert parse_layout(dump_layout(layout)) == layout


@given(layouts)
def test_bounds_are_deflated_bytes(layout):
    stored = json.loads(dump_layout(layout))
    assert zlib.decompress(base64.b64decode(stored["p"]), wbits=-15) == layout.boxes
    assert list(stored)[:6] == ["v", "tail", "directory", "bands", "box", "p"]
    assert stored.get("hidden", True) == layout.has_hidden_weights


@given(layouts)
def test_shape_has_bands_alone(layout):
    shape = parse_shape(dump_shape(layout))
    assert shape is not None
    assert (shape.bands, shape.has_hidden_weights) == (layout.bands, layout.has_hidden_weights)
    assert len(dump_shape(layout)) <= len(dump_layout(layout))


def test_layout_of_other_version_is_ignored():
    for text in ('{"v":4}', '{"v":1,"rows":8,"tail":9,"w":""}', '{"rows":1,"v":99999999999999999999}'):
        assert parse_layout(text) is None


def test_keys_added_to_this_version_are_ignored():
    layout = parse_layout(SMALLEST[:-1] + ',"new":[1]}')
    assert layout == Layout(tail_bytes=9, directory_bytes=8, bands=((8, 8, -5),), box=((0, 1),), boxes=b"")


def test_layout_before_directories_has_none():
    layout = parse_layout(SMALLEST.replace('"directory":8,', ""))
    assert layout is not None
    assert layout.directory_bytes == 0


@pytest.mark.parametrize(
    ("rows", "dimensions", "fits"),
    [(9, 2, True), (8, 2, False), (10, 2, False), (9, 1, False), (9, 3, False)],
)
def test_layout_fits_rows_and_dimensions(rows, dimensions, fits):
    # Two pages of the first band, one of the second.
    layout = Layout(tail_bytes=9, bands=((5, 4, -5), (4, 4, 7)), box=((0, 1), (0, 1)), boxes=bytes(2 * 2 * 3))
    assert layout.fits(rows, dimensions) == fits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "EOF"),
        ("[]", "object"),
        ("\ud800", "unicode"),
        ("{}", "v must be an integer"),
        ('{"v":"3"}', "v must be an integer"),
        ('{"v":true}', "v must be an integer"),
        ('{"v":3}', "tail"),
        (SMALLEST.replace('"tail":9', '"tail":7'), "tail"),
        (SMALLEST.replace('"directory":8', '"directory":-1'), "directory"),
        (SMALLEST.replace("[[8,8,-5]]", "[]"), "bands"),
        (SMALLEST.replace("[[8,8,-5]]", "[[8,8]]"), "bands"),
        (SMALLEST.replace("[[8,8,-5]]", "[[0,8,-5]]"), "bands"),
        (SMALLEST.replace("[[8,8,-5]]", "[[8,0,-5]]"), "bands"),
        (SMALLEST.replace("[[8,8,-5]]", "[[8,8,2147483648]]"), "bands"),
        (SMALLEST.replace("[[0,1]]", "[[-1,1]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[4294967296,1]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[0,0]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[0,16777217]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[0]]"), "box"),
        (SMALLEST.replace("[[0,1]]", "[[0,1,1]]"), "not a first cell and the widths of steps"),
        (SMALLEST.replace("[[0,1]]", f"[{[0] + [1] * 15 + [0]}]"), "box"),
        (SMALLEST.replace("[[0,1]]", f"[{[0] + [1] * 15 + [2**28 + 1]}]"), "box"),
        (SMALLEST.replace("[[0,1]]", f"[{[0] + [1] * 17}]"), "box"),
        (SMALLEST.replace('"AwA="', "[]"), "p:"),
        (SMALLEST.replace("AwA=", "AwA"), "p:"),  # no base64
        (SMALLEST.replace("AwA=", "A?A="), "p:"),
        (SMALLEST.replace("AwA=", "AAAA"), "p:"),  # no deflated bytes
        (SMALLEST.replace("AwA=", "Aw=="), "p:"),  # the end is missing
        (SMALLEST.replace("AwA=", "AwAA"), "p:"),  # and a byte more
        (SMALLEST.replace('"p"', '"v":3,"p"'), "a key is repeated"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_broken_layout_raises_with_reason(text, problem):
    with pytest.raises(InvalidMetadataError) as caught:
        parse_layout(text)
    assert str(caught.value).startswith("a page layout tag does not follow the Qbeast format: ")
    assert problem in str(caught.value)


def test_bounds_are_unpacked_up_to_limit():
    bounds = bytes(range(10))
    assert unpack_boxes(pack_boxes(bounds), 10) == bounds
    with pytest.raises(ValueError, match="not a text of bounds"):
        unpack_boxes(pack_boxes(bytes(11)), 10)


@given(st.text(st.characters()))
def test_any_text_parses_or_raises(text):
    with pytest.raises(InvalidMetadataError):
        parse_layout(text)
