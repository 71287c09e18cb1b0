"""Texts that are not conditions: queries that try to read files, and noise."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.query.sql.texts import COLUMNS

PLACE = "@place@"
"""Stands in `queries` for what they try to read."""


def queries() -> st.SearchStrategy[str]:
    """Draw texts that try to read `PLACE`: queries and table functions anywhere in an expression."""
    function = st.sampled_from(
        ["read_csv", "read_parquet", "read_ipc", "read_json", "READ_CSV", '"read_csv"']
    )
    source = st.one_of(
        st.builds(f"{{}}('{PLACE}')".format, function),
        st.just(f"'{PLACE}'"),
    )
    query = st.one_of(
        st.builds("SELECT * FROM {}".format, source),
        st.builds("select nope from {} x".format, source),
        st.builds("FROM {}".format, source),
        st.builds("WITH w AS (SELECT * FROM {}) SELECT * FROM w".format, source),
        st.builds("VALUES ((SELECT 1 FROM {}))".format, source),
        st.builds("TABLE {}".format, source),
        source,
    )
    hidden = st.one_of(
        st.builds("i IN ({})".format, query),
        st.builds("({}) = i".format, query),
        st.builds("EXISTS({})".format, query),
        st.builds("i = ANY ({})".format, query),
        st.builds("COALESCE(({}), 1) = 1".format, query),
        st.builds("CASE WHEN c THEN ({}) END".format, query),
        st.builds("ARRAY({})".format, query),
        st.builds("i BETWEEN ({}) AND 2".format, query),
        st.builds("i = 1 UNION {}".format, query),
        st.builds("i = 1; {}".format, query),
        st.builds("i = 'x' {}".format, query),
        st.builds("i = 1 --\n OR a IN ({})".format, query),
        st.builds("{}".format, query),
    )
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
