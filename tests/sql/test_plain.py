"""Plain conditions, which are read without sqlglot, mean what its tree means."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.sql.plain import plain_condition
from tests.helpers.examples import examples
from tests.sql.hostile import noise
from tests.sql.oracle import sql_expression
from tests.sql.texts import ROWS, conditions

# Columns that are words of SQL, or are not plain words.
ODD = ["date", "timestamp", "user", "order", "table", "end", "Käse", "a b", "_", "as", "TIMESTAMPTZ", "any", "group"]
WORDS = ["and", "In", "between", "is", "null", "where", "xor", "case"]
SCHEMA = pl.Schema({**ROWS.schema, **dict.fromkeys(ODD, pl.Int64()), "f": pl.Float32(), "w": pl.UInt64()})
COLUMNS = [*ROWS.columns, *ODD, "f", "w", "missing"]
NAMES = st.sampled_from([*COLUMNS, *(f'"{name}"' for name in COLUMNS), '"a""b"', "`i`", "g.f"])
CONSTANTS = st.sampled_from(
    ["0", "-1", "7", "007", "1.5", "-0.25", "300", "2147483648", "-9223372036854775808", "1e3", "1.", ".5", "--1"]
    + ["- 1", "1_0", "0x1", "9" * 18, "9" * 19, "'x'", "''", "'it''s'", "'ü'", "'a\\'", "'1'", "'-1.5'", "'true'"]
    + ["DATE '2024-05-01'", "date'2024-02-30'", "DATE 5", "Timestamp '2024-05-01 12:00:00'", "'2024-05-01'", "NULL"]
    + ["TRUE", "i", "'a' 'b'", "(1)", "1 /* one */", "'2024-05-01 12:00:00+01'", "TIMESTAMP '2024-05-01'"]
)
# Most texts are plain, so that more than one comparison often is.
MOSTLY_NUMBERS = st.one_of(*[st.sampled_from(["t", "i", "b", "x", "m", "date", "f", '"a b"'])] * 9, NAMES)
MOSTLY_PLAIN = st.one_of(*[st.sampled_from(["0", "-1", "7", "007", "1.5", "300", "2147483648", "'1'"])] * 9, CONSTANTS)
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
    for place, values in (("{n}", MOSTLY_NUMBERS), ("{c}", MOSTLY_PLAIN), ("{s}", SPACES)):
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
    assert plain_condition("i IN (" + "1, " * 400 + "1)", SCHEMA) is None
