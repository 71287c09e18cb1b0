"""Texts of SQL: expressions by a grammar, queries hidden in them, and noise."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import strategies as st

from qbeast_core.query.sql_words import AGGREGATES, FUNCTIONS, QUERIES, SIGNS, TYPED, TYPES, WORD_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = pl.DataFrame(
    {
        "a": [1, -2, None, 300],
        "b": [0.5, None, float("nan"), -1e300],
        "c": [True, False, None, True],
        "s": ["x", "", None, "it's ü"],
        "d": [date(2024, 5, 1), None, date(1, 1, 1), date(9999, 12, 31)],
        "t": [datetime(2024, 5, 1, 12), None, datetime(1970, 1, 1), datetime(2200, 1, 1)],  # noqa: DTZ001 - no zone
        "l": [[1, 2], [], None, [None]],
    }
)
COLUMNS = tuple(ROWS.schema)
PLACE = "@place@"
"""Stands in `queries` for what they try to read."""

_NUMBERS = st.sampled_from(["0", "1", "-7", "2.5", ".5", "1e3", "300", "99999999999999999999", "1.e2"])
_TEXTS = st.sampled_from(
    ["''", "'x'", "'it''s ü'", "'%x_'", "'2024-05-01'", "'a\\'", "'-- no comment'", "'SELECT'"]
)
_MOMENTS = st.sampled_from(
    ["DATE '2024-05-01'", "TIMESTAMP '2024-05-01 12:00:00'", "d", "t", "d + INTERVAL '1 day'"]
)


def _join(parts: Sequence[str], sign: str) -> str:
    return f" {sign} ".join(parts)


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    calls = st.sampled_from(["ABS", "SQRT", "ROUND", "SIGN", "floor", "BIT_COUNT"])
    return st.one_of(
        st.builds(_join, st.lists(inner, min_size=2, max_size=4), signs),
        st.builds("({})".format, inner),
        st.builds("- {}".format, inner),
        st.builds("{}({})".format, calls, inner),
        st.builds("COALESCE({}, {})".format, inner, inner),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(["DOUBLE", "BIGINT", "DECIMAL(20, 2)", "real"])),
        st.builds("{}::double precision".format, st.sampled_from(["a", "b"])),
        st.builds("CASE WHEN c THEN {} WHEN a > 1 THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("CASE a WHEN 1 THEN {} END".format, inner),
    )  # fmt: skip


def _texts() -> st.SearchStrategy[str]:
    plain = st.one_of(st.just("s"), _TEXTS)
    return st.one_of(
        plain,
        st.builds("{}({})".format, st.sampled_from(["UPPER", "lower", "TRIM", "REVERSE"]), plain),
        st.builds("SUBSTRING({} FROM 1 FOR 2)".format, plain),
        st.builds("TRIM(LEADING {} FROM s)".format, _TEXTS),
        st.builds("{} || {}".format, plain, plain),
        st.builds("REPLACE(s, {}, {})".format, _TEXTS, _TEXTS),
    )


def _conditions(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    compared = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
    return st.one_of(
        st.builds("{} {} {}".format, numbers, compared, numbers),
        st.builds("{} {} {}".format, _texts(), compared, _texts()),
        st.builds("{} {} {}".format, _MOMENTS, compared, _MOMENTS),
        st.builds("{} {}BETWEEN {} AND {}".format, numbers, st.sampled_from(["", "NOT "]), numbers, numbers),
        st.builds(
            "{} {}IN ({})".format,
            st.sampled_from(["a", "b"]),
            st.sampled_from(["", "not "]),
            st.lists(_NUMBERS, min_size=1).map(", ".join),
        ),
        st.builds("s {} {}".format, st.sampled_from(["LIKE", "NOT ILIKE", "RLIKE", "~", "!~*", "^@"]), _TEXTS),
        st.builds("{} IS {}NULL".format, st.sampled_from(COLUMNS), st.sampled_from(["", "NOT "])),
        st.builds("{} IS {}DISTINCT FROM {}".format, numbers, st.sampled_from(["", "NOT "]), numbers),
        st.sampled_from(["c", "TRUE", "FALSE", "NULL", "c IS TRUE", "c IS NOT FALSE", "l[1] = 1"]),
        st.sampled_from(["POSITION('x' IN s) > 0", "EXTRACT(year FROM t) = 2024", "a = ANY(l)", "a IN (1, a, b)"]),
    )  # fmt: skip


def expressions() -> st.SearchStrategy[str]:
    """Draw conditions on `ROWS` that are right, at least for a parser."""
    numbers = st.recursive(
        st.one_of(_NUMBERS, st.sampled_from(["a", "b", "`a`", '"b"'])), _numbers, max_leaves=5
    )
    return st.recursive(
        _conditions(numbers),
        lambda inner: st.one_of(
            st.builds(
                _join,
                st.lists(inner, min_size=2, max_size=24),
                st.sampled_from(["AND", "OR", "and", "Or", "XOR"]),
            ),
            st.builds("({})".format, inner),
            st.builds("NOT {}".format, inner),
            st.builds("NOT ({})".format, inner),
            st.builds("({}) = ({})".format, inner, inner),
        ),
        max_leaves=30,
    )


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
        st.builds("a IN ({})".format, query),
        st.builds("({}) = a".format, query),
        st.builds("EXISTS({})".format, query),
        st.builds("a = ANY ({})".format, query),
        st.builds("COALESCE(({}), 1) = 1".format, query),
        st.builds("CASE WHEN c THEN ({}) END".format, query),
        st.builds("ARRAY({})".format, query),
        st.builds("a BETWEEN ({}) AND 2".format, query),
        st.builds("a = 1 UNION {}".format, query),
        st.builds("a = 1; {}".format, query),
        st.builds("a = 'x' {}".format, query),
        st.builds("a = 1 --\n OR a IN ({})".format, query),
        st.builds("{}".format, query),
    )
    before, after = st.sampled_from(["", "c OR ", "NOT ", "("]), st.sampled_from(["", ")", " AND c"])
    return st.builds("{}{}{}".format, before, hidden, after)


def noise() -> st.SearchStrategy[str]:
    """Draw words and signs of SQL in any order, and any text at all."""
    words = sorted(
        AGGREGATES | FUNCTIONS | QUERIES | SIGNS | TYPED | TYPES | WORD_OPERATORS | {"CASE", "WHEN", "END"}
    )
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
