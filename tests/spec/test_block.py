"""Blocks: two spellings, one meaning."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.replay import block_from_flat_tags
from qbeast_core.spec.blocks import Block, blocks_dialect, dump_blocks, parse_blocks

weights = st.integers(-(2**31), 2**31 - 1)
cubes = st.text("ABCwgQ+/09", max_size=6)
blocks = st.builds(Block, cubes, weights, weights, st.integers(0, 2**40), st.booleans())
dialects = st.sampled_from(["documented", "qbeast-spark"])

ONE = '{"cube":"w","minWeight":-5,"maxWeight":7,"replicated":false,"elementCount":2}'


@given(st.lists(blocks), dialects)
def test_blocks_round_trip_in_both_dialects(many, dialect):
    text = dump_blocks(many, dialect=dialect)
    assert parse_blocks(text) == many
    assert blocks_dialect(text) == (dialect if many else None)
    assert text == json.dumps(json.loads(text), separators=(",", ":"))


def test_trailing_comma_in_list_is_accepted():
    for end in (",]", ", ]", ",\n]", ",]\n", "]"):
        assert parse_blocks(f"[{ONE}{end}") == [Block("w", -5, 7, 2)]


def test_unknown_keys_and_any_order_are_accepted():
    text = '[{"elementCount":2,"new":{"a":[1,]},"maxWeight":7,"cubeId":"w","minWeight":-5}]'.replace(
        "1,", "1"
    )
    assert parse_blocks(text) == [Block("w", -5, 7, 2, replicated=False)]


def test_no_blocks_are_an_empty_list():
    assert parse_blocks("[]") == []
    assert blocks_dialect("[]") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "EOF"),
        ("{}", "array"),
        ("\ud800", "unicode"),
        ("[,]", "expected"),
        (f"[{ONE},,]", "expected value"),
        ("[1]", "0"),
        (f"[{ONE},{{}}]", "1.cube"),
        (f"[{ONE}]".replace('"elementCount":2', '"x":2'), "0.elementCount"),
        (f"[{ONE}]".replace(":2", ":-2"), "0.elementCount"),
        (f"[{ONE}]".replace(":2", ":2.5"), "0.elementCount"),
        (f"[{ONE}]".replace("-5", "-2147483649"), "0.minWeight"),
        (f"[{ONE}]".replace("7", "2147483648"), "0.maxWeight"),
        (f"[{ONE}]".replace("7", '"7"'), "0.maxWeight"),
        (f"[{ONE}]".replace("7", "true"), "0.maxWeight"),
        (f"[{ONE}]".replace('"w"', "null"), "0.cube"),
        (f"[{ONE}]".replace("false", "null"), "0.replicated"),
    ],
)
def test_malformed_blocks_raise_with_reason(text, problem):
    with pytest.raises(InvalidMetadataError) as caught:
        parse_blocks(text)
    assert str(caught.value).startswith("a blocks tag does not follow the Qbeast format: ")
    assert problem in str(caught.value)
    assert repr(text[:60])[:-1] in str(caught.value)


def test_error_lists_many_problems_briefly():
    with pytest.raises(InvalidMetadataError, match=r"and 15 more\. It begins with") as caught:
        parse_blocks(json.dumps([{}] * 5))
    assert len(str(caught.value)) < 500


@given(st.text(st.characters()))
def test_any_text_parses_or_raises(text):
    with suppress(InvalidMetadataError):
        assert parse_blocks(text) == []


def test_copies_are_replicated_in_the_older_layout():
    tags = {"cube": "", "revision": "1", "minWeight": "-5", "maxWeight": "7", "elementCount": "2"}
    for state, replicated in [("FLOODED", False), ("ANNOUNCED", True), ("REPLICATED", True)]:
        assert block_from_flat_tags({"state": state, **tags}) == Block("", -5, 7, 2, replicated=replicated)


@pytest.mark.parametrize("missing", ["cube", "minWeight", "maxWeight", "elementCount"])
def test_older_tags_without_a_field_raise(missing):
    tags = {"cube": "", "revision": "1", "minWeight": "-5", "maxWeight": "7", "elementCount": "2"}
    for broken in ({**tags, missing: "x"}, {key: text for key, text in tags.items() if key != missing}):
        if broken.get("cube") == "x":
            continue
        with pytest.raises(InvalidMetadataError, match=missing):
            block_from_flat_tags(broken)
