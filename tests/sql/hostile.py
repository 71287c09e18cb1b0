"""Texts that are not conditions: queries that try to read files, and noise."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.sql.texts import COLUMNS

PLACE = "@place@"
"""Stands in `queries` for what they try to read."""


FUNCTIONS = ["read_csv", "read_parquet", "read_ipc", "read_json", "READ_CSV", '"read_csv"']
FORMS = [
    "i IN (SELECT nope FROM {})",
    "i IN ((SELECT nope FROM {}))",
    "EXISTS (SELECT 1 FROM {})",
    "i = (FROM {})",
    "i = ANY(SELECT * FROM {})",
    "i IN (WITH x AS (SELECT * FROM {}) SELECT * FROM x)",
    "{}.a = 1",
    "i IN {}",
    "i IN (TABLE {})",
    "CASE WHEN c THEN (SELECT * FROM {}) END = 1",
    "COALESCE((VALUES ((SELECT 1 FROM {}))), 1) = 1",
    "ARRAY(SELECT * FROM {} x)",
    "i BETWEEN (FROM {}) AND 2",
    "i = 1 UNION SELECT * FROM {}",
    "i = 1; SELECT * FROM {}",
    "i = 'x' {}",
    "i = 1 --\n OR a IN (FROM {})",
    "SELECT * FROM {}",
    "{}",
]
"""Conditions that read what stands in the place of the braces."""


def queries() -> st.SearchStrategy[str]:
    """Draw texts that try to read `PLACE`, anywhere in an expression."""
    source = st.one_of(
        st.builds(f"{{}}('{PLACE}')".format, st.sampled_from(FUNCTIONS)), st.just(f"'{PLACE}'")
    )
    hidden = st.builds(str.format, st.sampled_from(FORMS), source)
    before, after = st.sampled_from(["", "c OR ", "NOT ", "("]), st.sampled_from(["", ")", " AND c"])
    return st.builds("{}{}{}".format, before, hidden, after)


def noise() -> st.SearchStrategy[str]:
    """Draw words and signs of SQL in any order, and any text at all."""
    words = [
        "SELECT",
        "FROM",
        "WHERE",
        "XOR",
        "AND",
        "OR",
        "NOT",
        "IS",
        "IN",
        "BETWEEN",
        "LIKE",
        "CASE",
        "WHEN",
        "END",
        "CAST",
        "AS",
        "DATE",
        "INTERVAL",
        "EXTRACT",
        "NULL",
    ]
    marks = [
        *"()[],.;:?!#@$^{}\\~'\"`",
        "::",
        "--",
        "/*",
        "''",
        "\0",
        "\n",
        "ü",
        "1",
        "1.5",
        "'x'",
        "x'00'",
        *COLUMNS,
    ]
    piece = st.one_of(st.sampled_from(words), st.sampled_from(marks))
    blank = st.sampled_from([" ", " ", ""])
    return st.one_of(
        st.lists(piece, max_size=12).flatmap(lambda pieces: blank.map(lambda space: space.join(pieces))),
        st.text(max_size=40),
    )
