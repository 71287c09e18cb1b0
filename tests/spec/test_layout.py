"""The page layout tag: exact, compact, and ignored where it is newer."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.spec.layout import PageLayout, dump_layout, parse_layout

layouts = st.builds(
    PageLayout,
    page_rows=st.integers(1, 2**40),
    tail_bytes=st.integers(8, 2**30),
    weights=st.lists(st.integers(-(2**15), 2**15 - 1)).map(tuple),
)


@given(layouts)
def test_layout_round_trips(layout):
    assert parse_layout(dump_layout(layout)) == layout


@given(layouts)
def test_weights_are_16_bits_little_endian(layout):
    stored = json.loads(dump_layout(layout))
    packed = base64.b64decode(stored["w"])
    pairs = [packed[i : i + 2] for i in range(0, len(packed), 2)]
    assert tuple(int.from_bytes(two, "little", signed=True) for two in pairs) == layout.weights
    assert list(stored)[:4] == ["v", "rows", "tail", "w"]


def test_unknown_layout_version_is_ignored():
    for text in ('{"v":3}', '{"v":0,"rows":"x"}', '{"rows":1,"v":99999999999999999999}'):
        assert parse_layout(text) is None


def test_keys_added_to_this_version_are_ignored():
    text = '{"v":1,"rows":8,"tail":9,"w":"","new":[1]}'
    assert parse_layout(text) == PageLayout(page_rows=8, tail_bytes=9, weights=())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "EOF"),
        ("[]", "object"),
        ("\ud800", "unicode"),
        ("{}", "v must be an integer"),
        ('{"v":"1"}', "v must be an integer"),
        ('{"v":true}', "v must be an integer"),
        ('{"v":1}', "rows"),
        ('{"v":1,"rows":0,"tail":9,"w":""}', "rows"),
        ('{"v":1,"rows":1,"tail":7,"w":""}', "tail"),
        ('{"v":1,"rows":1,"tail":9,"w":[]}', "w:"),
        ('{"v":1,"rows":1,"tail":9,"w":"AAA"}', "w:"),
        ('{"v":1,"rows":1,"tail":9,"w":"AA=="}', "w:"),
        ('{"v":1,"rows":1,"tail":9,"w":"A?AA"}', "w:"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_broken_layout_raises_with_reason(text, problem):
    with pytest.raises(InvalidMetadataError) as caught:
        parse_layout(text)
    assert str(caught.value).startswith("a page layout tag does not follow the Qbeast format: ")
    assert problem in str(caught.value)


@given(st.text(st.characters()))
def test_any_text_parses_or_raises(text):
    with pytest.raises(InvalidMetadataError):
        parse_layout(text)
