"""Plain conditions, which are read without sqlglot, mean what its tree means."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.sql.plain import plain_condition
from tests.helpers.examples import examples
from tests.helpers.small_files import resized
from tests.sql.hostile import noise
from tests.sql.oracle import sql_expression
from tests.sql.texts import ROWS, conditions

# Columns that are words of SQL, or are not plain words.
ODD = ["date", "timestamp", "user", "order", "table", "end", "Käse", "a b", "_", "as", "TIMESTAMPTZ", "any"]
WORDS = ["and", "In", "between", "is", "null", "where", "xor", "case"]
SCHEMA = pl.Schema({**ROWS.schema, **dict.fromkeys(ODD, pl.Int64()), "f": pl.Float32(), "w": pl.UInt64()})
COLUMNS = [*ROWS.columns, *ODD, "f", "w", "missing"]
NAMES = st.sampled_from([*COLUMNS, *(f'"{name}"' for name in COLUMNS), '"a""b"', "`i`", "g.f"])
PLAIN = ["0", "-1", "7", "007", "1.5", "-0.25", "300", "2147483648", "-9223372036854775808", "9" * 18, "'1'"]
OTHERS = [
    "1e3",
    "1.",
    ".5",
    "--1",
    "1_0",
    "0x1",
    "9" * 19,
    "- 1",
    "DATE 5",
    "NULL",
    "TRUE",
    "i",
    "(1)",
    "1 /* */",
]
STRINGS = ["'x'", "''", "'it''s'", "'ü'", "'a\\'", "'1'", "'-1.5'", "'true'", "'2024-05-01'", "'a' 'b'"]
TIMES = [
    "DATE '2024-05-01'",
    "date'2024-02-30'",
    "Timestamp '2024-05-01 12:00:00'",
    "'2024-05-01 12:00:00+01'",
]
CONSTANTS = st.sampled_from([*PLAIN, *OTHERS, *STRINGS, *TIMES])
# Most texts are plain, so that several comparisons often are.
MOSTLY_NAMES = st.one_of(*[st.sampled_from(["t", "i", "b", "x", "m", "date", "f", '"a b"'])] * 9, NAMES)
MOSTLY_NUMBERS = st.one_of(*[st.sampled_from(PLAIN)] * 9, CONSTANTS)
SPACES = st.sampled_from(["", " ", " ", " ", "\n", "\t", "  "])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """Draw a comparison that is plain, or looks like one."""
    forms = ["{n}{s}={s}{c}", "{n}{s}<{s}{c}", "{n} >={s}{c}", "{n} <> {c}", "{n} != {c}"]
    forms += ["{n} BETWEEN {c} AND {c}", "{n} in{s}({c},{s}{c}, {c})", "{n} IN ({c})", "{n} NOT IN ({c},{c})"]
    forms += ["{n} IS NULL", "{n} is not null", "{n} > {c}"]
    forms *= 4
    forms += ["{n} IN ()", "{n} IN ({c},)", "{n} = {c};", "{n} LIKE {c}", "{n} IS {c}", "{n} <= > {c}"]
    forms += ["{n} == {c}", "{c} < {n}", "{n} NOT BETWEEN {c} AND {c}", "NOT {n} = {c}", "{n}", "({n} > {c})"]
    text = draw(st.sampled_from(forms))
    for place, values in (("{n}", MOSTLY_NAMES), ("{c}", MOSTLY_NUMBERS), ("{s}", SPACES)):
        while place in text:
            text = text.replace(place, draw(values), 1)
    return text


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw comparisons with words between them."""
    text = draw(SPACES) + draw(comparisons())
    for other in draw(st.lists(comparisons(), max_size=3)):
        text += draw(st.sampled_from([" AND ", " and ", "\nAND ", " OR ", " AND NOT "])) + other
    return text + draw(SPACES)


def check(text: str) -> None:
    plain = plain_condition(text, SCHEMA)
    if plain is not None:
        parsed = sql_expression(text, SCHEMA)
        assert plain.meta.eq(parsed), (text, str(plain), str(parsed))


@examples(40, sweep=5_000)
@given(texts())
def test_plain_conditions_equal_those_of_the_parser(text: str) -> None:
    check(text)


@examples(10, sweep=2_000)
@given(st.one_of(conditions(), noise()))
def test_other_texts_equal_those_of_the_parser(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "i = 777",
        "b BETWEEN -5 AND 7 AND d >= DATE '2024-03-01'\n  AND d < '2024-09-01' AND s <> 'it is ü'",
        "u = 'c' or s IN ('x', '') OR \"a b\" NOT IN (1, 2)",
        "m > 0.5 AND z < TIMESTAMP '2024-05-01 12:00:00' AND user IS NOT NULL AND x IS NULL",
    ],
)
def test_usual_conditions_need_no_parser(text: str) -> None:
    assert plain_condition(text, SCHEMA) is not None
    check(text)


@pytest.mark.parametrize("name", WORDS)
def test_tables_with_words_of_conditions_need_the_parser(name: str) -> None:
    assert plain_condition("i = 777", pl.Schema({"i": pl.Int64})) is not None
    assert plain_condition("i = 777", pl.Schema({"i": pl.Int64, name: pl.Int64})) is None


def test_long_conditions_go_to_the_parser() -> None:
    with resized(max_plain_characters=9):
        assert plain_condition("i < 12345 ", SCHEMA) is not None
        assert plain_condition("i < 123456", SCHEMA) is None
