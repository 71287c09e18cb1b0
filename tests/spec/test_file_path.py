"""Paths of a log: whatever can be spelled is decoded and compared right, and encoded as Spark does."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.spec.blocks import FilePath

NAMES = st.text(st.sampled_from(string.printable[:-5] + "é日😀\u00a0\u0301"), min_size=1, max_size=12).filter(
    lambda text: FilePath(text).kind == "inside"
)


@given(NAMES)
def test_name_round_trips(name: str) -> None:
    path = FilePath(name)
    assert FilePath.of_log(path.encoded) == path
    assert FilePath.of_log(quote(name)) == path
    assert FilePath.of_log(path.encoded).kind == "inside"
    assert not set(path.encoded) & set(' "#<>?[\\]^`{|}\u00a0')


# A delete by delta-rs 1.6.6 writes these too (but not the star, nor letters beyond ASCII); of names with a colon it
# writes what it cannot read.
@pytest.mark.parametrize("plain", "!$&'()+,-.;=@_~")
def test_delta_rs_does_not_encode_these_characters(plain: str) -> None:
    assert FilePath(f"a{plain}b.parquet").encoded == f"a{plain}b.parquet"


@pytest.mark.parametrize(
    ("spelled", "text", "kind"),
    [
        ("a%2Bb", "a+b", "inside"),
        ("a%2bb", "a+b", "inside"),
        ("a+b", "a+b", "inside"),
        ("a%2520b", "a%20b", "inside"),
        ("a%b", "a%b", "inside"),
        ("k%2Fa", "k/a", "inside"),
        ("..a", "..a", "inside"),
        ("a:b", "a:b", "inside"),
        ("events-2024-05-01T00:00:00.parquet", "events-2024-05-01T00:00:00.parquet", "inside"),
        ("file:x", "file:x", "inside"),
        ("/x/a%20b", "/x/a b", "absolute"),
        ("file:/x/a%20b", "/x/a b", "absolute"),
        ("file:///x/a%2520b", "/x/a%20b", "absolute"),
        ("FILE://localhost/x", "/x", "absolute"),
        ("%2Fetc/passwd", "/etc/passwd", "absolute"),
        ("s3://b/a%20b", "s3://b/a b", "address"),
        ("abfss://c@h.net/x", "abfss://c@h.net/x", "address"),
        ("s3://u:p@b/x", "s3://u:p@b/x", "astray"),
        ("http://h/x", "http://h/x", "astray"),
        ("HTTPS://h/x", "HTTPS://h/x", "astray"),
        ("file://h/x", "file://h/x", "astray"),
        ("file%3A///etc/x", "file:///etc/x", "astray"),
        ("file:////x", "file:////x", "astray"),
        ("a:/x", "a:/x", "astray"),
        ("../x", "../x", "astray"),
        ("%2e%2e/x", "../x", "astray"),
        ("..%2fx", "../x", "astray"),
        ("a/%2E./x", "a/../x", "astray"),
        ("./x", "./x", "astray"),
        ("a//x", "a//x", "astray"),
        ("//h/x", "//h/x", "astray"),
        ("x/", "x/", "astray"),
        ("", "", "astray"),
        ("a%00b", "a\0b", "astray"),
        ("a%ffb", "a\ufffdb", "astray"),
    ],
)
def test_encoded_path_leads_to_expected_file(spelled: str, text: str, kind: str) -> None:
    actual = FilePath.of_log(spelled)
    assert (actual.text, actual.kind) == (text, kind)


@given(st.text(max_size=30))
def test_every_encoded_path_parses(spelled: str) -> None:
    actual = FilePath.of_log(spelled)
    if actual.kind == "inside":
        assert FilePath.of_log(actual.encoded) == actual
