"""Random SQL texts over `ROWS` by a typed grammar: every operator, function and type that a condition may have."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import product

import polars as pl
from hypothesis import strategies as st

TINY, LONG = [1, -1, None, 127, -128, 0, 3, 7], [2**63 - 1, -(2**63), None, 0, -7, 7, 2, 10**12]
DECIMALS = ["1.25", "-0.50", "0.30", "99.99", None, "0", "2", "0.1"]
DAYS = [date(2024, 5, 1), None, date(2024, 2, 29), date(2023, 12, 31), date(1999, 1, 1), date(2026, 11, 5)]
TIMES = [
    datetime(2024, 5, 1, 12, tzinfo=UTC),
    None,
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 5, 1, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 11, 5, tzinfo=UTC),
    datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 0, tzinfo=UTC),
    datetime(2024, 12, 30, tzinfo=UTC),
]
FIELDS = {"f": [1, None, None, 3, -7, 2, 0, 5], "w": ["x", "abc", None, None, "", "a", "x", "y"]}
ROWS = pl.DataFrame(
    {
        "id": range(8),
        "t": pl.Series(TINY, dtype=pl.Int8),
        "i": pl.Series([5, -3, None, 2**31 - 1, -(2**31), 0, 2, 1], dtype=pl.Int32),
        "b": pl.Series(LONG, dtype=pl.Int64),
        "x": [0.5, -1.25, None, float("nan"), 1e300, 0.0, 2.0, -3.0],
        "m": pl.Series(DECIMALS).cast(pl.Decimal(10, 2)),
        "c": [True, False, None, True, False, None, True, False],
        "k": [None, True, True, False, False, None, True, False],
        "s": ["x", "", None, "it's ü", "abc", "ABC", "a_c", "x%y"],
        "u": ["x", None, "abc", "c", "b", "", "a", "y"],
        "d": [*DAYS, date(2024, 1, 31), date(2020, 2, 2)],
        "z": pl.Series(TIMES, dtype=pl.Datetime("us", "UTC")),
        "l": [[1, 2], [], None, [None], [3, 1], [7], [2], [0, None]],
        "g": pl.DataFrame(FIELDS).to_struct(),
        "g.f": pl.Series([9, None, 2, 7, 0, -1, 5, 1], dtype=pl.Int64),
        "n": pl.Series(["1.005", "-1.005", "0.0045", None, "9.9995", "0", "1.125", "-2.5"]).cast(
            pl.Decimal(8, 4)
        ),
    }
).with_columns(pl.when(pl.col("id") != 2).then("g").alias("g"))
"""Few rows with the values that go wrong: limits of integers, NaN, nulls, texts with wildcards, times before 1970."""

COLUMNS = tuple(ROWS.schema)
Texts = st.SearchStrategy[str]


def one_of(*texts: str) -> Texts:
    """Draw one of a few texts."""
    return st.sampled_from(texts)


def form(pattern: str, *parts: Texts) -> Texts:
    """Draw a pattern with its places filled."""
    return st.builds(pattern.format, *parts)


def _integers() -> Texts:
    names = ("t", "i", "i", "b", "g.f", 'g."f"', '"g"."f"', '"g.f"', "(g).f")
    plain = one_of(
        *names, "0", "1", "2", "-3", "7", "300", "3000000000", "NULL", "nullif(1, 1)", "00000000000000000007"
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            form("({} {} {})", inner, one_of("+", "-", "*"), inner),
            form("{} {} {}", one_of("t", "i", "b"), one_of("+", "-", "*"), one_of("1", "2", "t", "i", "b")),
            form("({} {} {})", inner, one_of("//", "%"), one_of("2", "3", "-3", "7", "i", "t")),
            form("-({})", inner),
            form("{}({})", one_of("abs", "sign"), inner),
            form("coalesce({}, {})", inner, inner),
            form("nullif({}, {})", inner, inner),
            form("{}({}, {})", one_of("greatest", "least"), inner, inner),
            form("CASE WHEN {} THEN {} ELSE {} END", one_of("c", "k", "i > 1"), inner, inner),
            form("CASE {} WHEN 1 THEN {} END", one_of("t", "i"), inner),
            form(
                "{}({})",
                one_of("year", "month", "day", "quarter", "dayofyear", "week", "isodow", "dayofweek"), one_of("d", "z")
            ),
            form("{}(z)", one_of("hour", "minute", "second")),
            form("extract({} FROM {})", one_of("year", "dow", "month"), one_of("d", "z")),
            form("CAST({} AS BIGINT)", one_of("t", "i", "b", "x = 0.5", "m")),
            form("TRY_CAST({} AS {})", inner, one_of("SMALLINT", "INTEGER")),
            form("CAST({} AS INTEGER)", one_of("m", "n", "c", "2.5", "3.5", "-2.5")),
            form("length({})", _nullable_texts()),
            form("(d - ({}))", _days()),
            one_of("length(s)", "strpos(s, 'x')", "strpos(s, '')", "l[1]", "l[2]", "len(l)", "(d - DATE '2024-01-01')"),
        ),
        max_leaves=5,
    )  # fmt: skip


def _decimals() -> Texts:
    plain = one_of(
        "m", "n", "0.1", "0.2", "0.3", "1.25", "-0.5", ".5", "2.", "99.99", "1.00000000000000000005"
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            form("({} {} {})", inner, one_of("+", "-", "*"), inner),
            form("({} {} {})", inner, one_of("+", "-"), one_of("t", "i", "1")),
            form("({} % {})", inner, one_of("0.3", "2.", "m")),
            form("-({})", inner),
            form("abs({})", inner),
            form("coalesce({}, {})", inner, inner),
            form("CAST({} AS DECIMAL(12, 1))", one_of("m", "n", "i", "1.25", "-0.55")),
            form("CAST({} AS DECIMAL(9, 2))", one_of("n", "m", "1.005", "-1.005", "0.00499999999999999999")),
            form("round({}, 1)", one_of("m", "1.25")),
            form("trunc({})", inner),
        ),
        max_leaves=4,
    )


def _floats() -> Texts:
    plain = one_of("x", "1e3", "-5e-1", "x")
    numbers = one_of("x", "1e0", "i", "m", "0.5", "3", "t")
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            form("({} {} {})", inner, one_of("+", "-", "*", "/"), numbers),
            form("({} {} {})", numbers, one_of("+", "-", "*", "/"), inner),
            form("({} / {})", one_of("i", "t", "m", "7"), one_of("2", "4", "0.5", "x")),
            form("-({})", inner),
            form("{}({})", one_of("abs", "floor", "ceil", "round"), inner),
            form("sqrt(abs({}))", inner),
            form("coalesce({}, {})", inner, inner),
            form("{}({}, {})", one_of("greatest", "least"), inner, inner),
            form("CAST({} AS DOUBLE)", one_of("i", "b", "m", "t", "c")),
        ),
        max_leaves=4,
    )


def _texts() -> Texts:
    plain = one_of("s", "u", "g.w", '"g"."w"', "''", "'x'", "'it''s ü'", "'abc'", "NULL", "nullif('x', 'x')")
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            form("{}({})", one_of("upper", "lower", "trim", "ltrim"), inner),
            form("substring({}, {}, {})", inner, one_of("1", "2", "NULL"), one_of("0", "1", "2", "NULL")),
            form("{}({}, {})", one_of("left", "right"), inner, one_of("0", "1", "2", "NULL", "99999999999")),
            form("({} || {})", inner, inner),
            form("concat({}, {})", inner, inner),
            form(
                "replace({}, {}, {})",
                inner,
                one_of("'x'", "'a'", "''", "NULL"),
                one_of("'q'", "u", "NULL", "'$0'"),
            ),
            form("{}({}, {})", one_of("trim", "ltrim", "rtrim"), inner, one_of("'x'", "'ax'", "NULL")),
            form("coalesce({}, {})", inner, inner),
            form("CAST({} AS VARCHAR)", one_of("i", "t", "d", "c")),
        ),
        max_leaves=4,
    )


def _nullable_texts() -> Texts:
    return one_of(
        "s", "u", "NULL", "replace(s, 'x', u)", "replace('x', 'x', u)", "trim(s, NULL)", "left(u, NULL)"
    )


def _days() -> Texts:
    """Draw dates, also at the edges of their range."""
    return st.one_of(
        one_of("d", "DATE '0001-01-01'", "DATE '9999-12-31'", "NULL"),
        form("d {} {}", one_of("+", "-"), one_of("1", "t", "t * 700000", "2000000", "90000000", "NULL")),
    )


def _times() -> Texts:
    return st.one_of(
        form("({})", _days()),
        form(
            "({} {} INTERVAL {} {})",
            one_of("d", "z"), one_of("+", "-"), one_of("200000", "99999", "0"), one_of("DAY", "MONTH", "YEAR", "HOUR")
        ),
        one_of("d", "z", "DATE '2024-05-01'", "TIMESTAMP '2024-05-01 12:00:00'"),
        one_of("TIMESTAMPTZ '2024-05-01 12:00:00+02'", "TIMESTAMP '2024-05-01'"),
        form("date_trunc('{}', {})", one_of("month", "year", "week", "quarter", "day"), one_of("d", "z")),
        form("date_trunc('{}', z)", one_of("hour", "minute")),
        form(
            "({} {} INTERVAL {} {})",
            one_of("d", "z"), one_of("+", "-"), one_of("1", "'3'", "29"), one_of("DAY", "MONTH", "YEAR", "HOUR")
        ),
        form("CAST({} AS {})", one_of("d", "z"), one_of("DATE", "TIMESTAMP", "TIMESTAMPTZ")),
    )  # fmt: skip


COMPARED = one_of("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_NOT = one_of("", "NOT ")
_LONG_NUMBERS = one_of(
    "9" * 38, "1" + "0" * 30, "0." + "1" * 37, "0" * 60 + "7", "1" * 19 + ".5", "1e400", "1e-400"
)
_PATTERNS = one_of("'%'", "'x%'", "'%c'", "'%b%'", "'a_c'", "'_'", "''", "'ab%'", "'%''s%'", "'x!%y'")


def _same_kind(kind: Texts) -> Texts:
    return st.one_of(
        form("{} {} {}", kind, COMPARED, kind),
        form("{} {}BETWEEN {} AND {}", kind, _NOT, kind, kind),
        form("{} IS {}DISTINCT FROM {}", kind, _NOT, kind),
        form("{} {}IN ({}, {}, {})", kind, _NOT, kind, kind, kind),
        form("{} IS {}NULL", kind, _NOT),
    )


def conditions() -> Texts:
    """Draw conditions that DuckDB understands over `ROWS`, up to differences that the documentation lists."""
    numbers = st.one_of(_integers(), _decimals(), _floats())
    leaves = st.one_of(
        _same_kind(_integers()),
        _same_kind(numbers),
        _same_kind(_texts()),
        _same_kind(_times()),
        form("{} {} {}", one_of("d", "z"), COMPARED, one_of("'2024-05-01'", "'2023-12-31'", "NULL")),
        form("z {} {}", COMPARED, one_of("'2024-05-01 12:00:00'", "'2026-11-05T00:00:00Z'")),
        form(
            "{} {} {}",
            one_of("t", "i", "b", "x", "m"), COMPARED, one_of("0.5", "'2'", "2.0", "1e0", "NULL", "-0.5", "1.25")
        ),
        form(
            "{} {}IN ({}, {})",
            one_of("t", "i", "b", "m"), _NOT, one_of("1", "2.5", "NULL"), one_of("7", "0.1", "3000000000")
        ),
        form("{} {}{} {}", _texts(), _NOT, one_of("LIKE", "ILIKE"), _PATTERNS),
        form("{} {} {}", one_of("i", "b", "m", "x"), COMPARED, form("{}{}", one_of("", "-"), _LONG_NUMBERS)),
        form("s {}LIKE 'x!%y' ESCAPE '!'", _NOT),
        form("{} {} {}", one_of("s", "u"), one_of("~", "!~"), one_of("'^a'", "'[xy]'", "'c$'", "''")),
        form(
            "{}({}, {})",
            one_of("starts_with", "prefix", "ends_with", "contains"), _texts(), one_of("'a'", "'x'", "u", "''", "NULL")
        ),
        form("list_contains(l, {})", one_of("1", "NULL", "i")),
        form("isnan({})", _floats()),
        one_of("c", "k", "TRUE", "FALSE", "NULL", "c = k", "c <> k", "c < k", "l IS NULL", "g IS NOT NULL"),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            form("{} AND {}", inner, inner),
            form("{} OR {}", inner, inner),
            form("{} AND {} OR {}", inner, inner, inner),
            form("NOT {}", inner),
            form("NOT ({})", inner),
            form("({})", inner),
            form("({}) IS {}{}", inner, _NOT, one_of("TRUE", "FALSE", "NULL", "UNKNOWN")),
            form("({}) {} ({})", inner, one_of("=", "<>"), inner),
            form("({}) IS {}DISTINCT FROM ({})", inner, _NOT, inner),
            form("c IS NOT DISTINCT FROM k AND {}", inner),
            form("if({}, {}, {})", inner, inner, inner),
            form("CASE WHEN {} THEN {} END", inner, inner),
        ),
        max_leaves=6,
    )


_STRINGS = ["s", "u", "NULL", "nullif('x', 'x')", "'x'", "'abc'", "''"]
_REAL = ["i", "x", "m", "NULL", "nullif(1, 1)", "2", "-1"]
_COUNTS = ["NULL", "1", "2", "nullif(1, 1)"]
_DAYS = ["d", "z", "NULL", "DATE '2024-02-29'", "CAST(NULL AS DATE)"]
_CALLS = {
    **dict.fromkeys(("starts_with", "ends_with", "contains", "prefix", "suffix", "strpos"), (_STRINGS, _STRINGS)),
    **dict.fromkeys(("trim", "ltrim", "rtrim", "regexp_matches", "concat"), (_STRINGS, _STRINGS)),
    **dict.fromkeys(("nullif", "greatest", "least"), (_STRINGS, _STRINGS)),
    **dict.fromkeys(("replace", "coalesce"), (_STRINGS, _STRINGS, _STRINGS)),
    **dict.fromkeys(("length", "lower", "upper"), (_STRINGS,)),
    **dict.fromkeys(("left", "right"), (_STRINGS, _COUNTS)),
    **dict.fromkeys(("abs", "sign", "floor", "ceil", "trunc", "-"), (_REAL,)),
    **dict.fromkeys(("year", "month", "dayofweek", "week", "date"), (_DAYS,)),
    "substring": (_STRINGS, _COUNTS, _COUNTS),
    "round": (_REAL, _COUNTS),
    "log": (["2", "NULL", "10"], ["abs(i) + 1", "NULL", "3"]),
    "pow": (["i", "NULL", "2"], ["2", "NULL", "t"]),
    "mod": (["i", "NULL", "t", "7"], ["3", "NULL", "t"]),
    "isnan": (["x", "NULL"],),
    "date_part": (["'year'", "NULL"], _DAYS),
    "date_trunc": (["'month'", "NULL"], _DAYS),
    "strftime": (_DAYS, ["'%Y'", "NULL"]),
    "list_contains": (["l", "NULL"], ["i", "NULL", "1"]),
    "if": (["c", "NULL", "TRUE"], ["i", "NULL"], ["t", "NULL"]),
}  # fmt: skip
NULLS = [
    *(f"{name}({', '.join(values)})" for name, parts in _CALLS.items() for values in product(*parts)),
    *("d + NULL", "d - NULL", "z + INTERVAL (NULL) DAY", "NULL || s", "s LIKE NULL", "NULL LIKE 'a'", "s ~ NULL"),
    *("s ILIKE NULL", "s LIKE nullif('a', 'a')", "l[NULL]", "i IN (NULL)", "NULL IN (1, 2)", "i BETWEEN NULL AND 3"),
    *("extract(year FROM NULL)", "-NULL", "i + NULL", "i // NULL", "NULL % i", "x / NULL", "NULL ^ 2", "NULL AND c"),
    *("i + nullif(1, 1)", "d + nullif(1, 1)", "CASE NULL WHEN 1 THEN 2 ELSE 3 END", "CAST(NULL AS INTEGER)"),
    *("CASE WHEN NULL THEN 2 ELSE 3 END", "NULL OR c", "NOT NULL"),
]  # fmt: skip
"""Calls with null, as a literal or a value, in every position of every function and operator."""
