"""Column specs: a name, and perhaps a kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.spec.revision import ColumnSpec, parse_column_spec

kinds = st.sampled_from(["auto", "linear", "hashing", "quantiles", "histogram"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price", ColumnSpec("price", "auto")),
        ("price:auto", ColumnSpec("price", "auto")),
        ("price:linear", ColumnSpec("price", "linear")),
        ("user:hash", ColumnSpec("user", "hashing")),
        ("user:hashing", ColumnSpec("user", "hashing")),
        ("price:quantile", ColumnSpec("price", "quantiles")),
        ("price:quantiles", ColumnSpec("price", "quantiles")),
        ("brand:histogram", ColumnSpec("brand", "histogram")),
        ("a:b", ColumnSpec("a:b", "auto")),
        ("a:b:hash", ColumnSpec("a:b", "hashing")),
        ("a:hash:auto", ColumnSpec("a:hash", "auto")),
        ("a:", ColumnSpec("a:", "auto")),
        ("a:LINEAR", ColumnSpec("a:LINEAR", "auto")),
        ("linear", ColumnSpec("linear", "auto")),
    ],
)
def test_known_suffix_is_the_kind(text, expected):
    assert parse_column_spec(text) == expected


@given(st.text(min_size=1), kinds)
def test_spec_round_trips(name, kind):
    spec = ColumnSpec(name, kind)
    assert parse_column_spec(str(spec)) == spec


@pytest.mark.parametrize("text", ["", ":linear", ":hash"])
def test_spec_without_a_name_raises(text):
    with pytest.raises(InvalidColumnsError, match="has no name"):
        parse_column_spec(text)
