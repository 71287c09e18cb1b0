"""Texts of SQL: what Polars' own reading of them means, or a refusal that read nothing."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbeast_core.errors import InvalidInputError
from qbeast_core.sql.values import InvalidSqlError
from qbeast_core.table.data.expressions import condition_of, value_of
from tests.helpers.examples import examples
from tests.sql.hostile import FORMS, FUNCTIONS, PLACE, noise, queries
from tests.sql.oracle import sql_expression
from tests.sql.texts import ROWS, conditions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
tries = examples(10, sweep=1_500, parent=settings(suppress_health_check=HEALTH))
SCHEMA = ROWS.schema
TEXTS = st.one_of(queries(), noise(), conditions())
KEYWORDS = [
    "SELECT",
    "ORDER",
    "GROUP",
    "TABLE",
    "USER",
    "DATE",
    "END",
    "ARRAY",
    "AS",
    "MAX",
    "IN",
    "LIKE",
    "IS",
    "FROM",
]


def test_columns_named_like_keywords_need_no_quotes() -> None:
    texts = ("{} = 42", "x AND {} <> 42", "{} IS NULL OR {} IN (1, 42)", "({}) > 1 AND ({}) > 1")
    texts += ("ABS({}) + {} >= 84", "CASE WHEN x THEN {} ELSE {} END > 2", "NOT {} = 42", "- {} < -1")
    for name in [*KEYWORDS, *map(str.lower, KEYWORDS), "Käse", "größe$", "_"]:
        rows = pl.DataFrame({name: [1, 42, None], "x": [True, False, None]})
        for text in texts:
            plain = rows.select(sql_expression(text.replace("{}", name), rows.schema).alias(""))
            quoted = rows.select(sql_expression(text.replace("{}", f'"{name}"'), rows.schema).alias(""))
            assert plain.equals(quoted), (text, name)


def test_keywords_stay_keywords_elsewhere() -> None:
    rows = pl.DataFrame({"date": [1], "max": [3], "length": ["abc"], "end": [4], "interval": [2]})
    for text in (
        "DATE '2024-05-01' > DATE '2024-04-01'",
        "CASE interval WHEN 2 THEN end END = 4",
        "LENGTH(length) = 3",
        "date::BIGINT = 1",
        "CAST(date AS DOUBLE) = 1",
        "DATE '2024-05-02' = DATE '2024-05-01' + INTERVAL 1 DAY",
    ):
        assert rows.filter(sql_expression(text, rows.schema)).height == 1, text


def test_columns_named_like_values_need_quotes() -> None:
    for name in ("null", "true", "FALSE"):
        schema = pl.Schema({name: pl.Int64})
        with pytest.raises(InvalidSqlError, match="double quotes"):
            sql_expression(f"{name} = 1", schema)
        assert sql_expression(f'"{name}" = 1', schema).meta.root_names() == [name]
        assert sql_expression(f"{name.swapcase()} IS NULL", schema).meta.root_names() == []


INVALID = {
    "i IN (SELECT nope FROM read_csv('/etc/passwd'))": "uses QUERY",
    "(SELECT 1) = i": "is a query",
    "i = ((SELECT 1))": "is a query",
    "EXISTS (SELECT 1)": "is a query",
    "i IN (VALUES (1))": "several columns or rows",
    "i IN (TABLE x)": "uses QUERY",
    "i IN (FROM read_parquet('http://localhost/x'))": "uses QUERY",
    "i = 1 UNION SELECT 2": "unexpected 'UNION' at character 6",
    "i FROM read_csv('x')": "unexpected 'FROM'",
    "read_csv('/etc/passwd') = 1": "the function 'read_csv' is not supported",
    "i = 1; c": "second statement",
    "unnest(l) = 1": "several columns or rows",
    "generate_series(1, 1000000000) = 1": "not supported",
    "lpad(s, 1000000000) = 'x'": "not supported",
    "rank() OVER (ORDER BY i) = 1": "several columns or rows",
    "sum(i) > 1": "several columns or rows",
    "COLUMNS('.*') > 1": "not supported",
    "* = 1": "several columns or rows",
    '"^i.*$" = 1': "no such column",
    "i = $1": "write the value itself",
    "s = 'x": "does not end",
    "i >": "ends too early",
    "": "ends too early",
    "WHERE i = 1": "leave WHERE out",
    "c XOR k": "(a) <> (b)",
    "c XOR (k)": "(a) <> (b)",
    "c & (k)": "write AND",
    "c & k": "write AND",
    "c | k": "write OR",
    "CAST(i AS DECIMAL(99, 98)) = 1": "38 digits",
    "CAST(i AS DECIMAL(5, 6)) = 1": "after the point",
    "CAST(i AS NOTHING) = 1": "not supported",
    "i = 1 i": "unexpected 'i' at character 6",
    "i": "not a condition|neither true nor false",
    "i = 's'": "not a value of type",
    "s = 5": "cast one of them",
    "d = '2024-05-01 10:00:00'": "not a value of type DATE",
    "g.nope = 1": "field 'nope' does not exist",
    "x % 2 = 1": "cast the operands",
    "s ~ '('": "regular expression",
    "z - z > INTERVAL 1 MONTH": "exact length",
}


@pytest.mark.parametrize("text", INVALID)
def test_invalid_texts_name_the_reason(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    assert any(reason in str(caught.value) for reason in INVALID[text].split("|")), str(caught.value)


LONG = {
    "many conditions": (" OR ".join(f"i = {n}" for n in range(1000)), "column IN (1, 2, 3)"),
    "additions": ("+".join(["i"] * 2_000) + " > 1", "100 operators"),
    "parentheses": ("(" * 50_000, "30 levels"),
    "closed parentheses": ("(" * 5000 + "i" + ")" * 5000, "30 levels"),
    "calls": ("ABS(" * 5000 + "i" + ")" * 5000, "30 levels"),
    "signs": ("- " * 20_000 + "i = 1", "30 levels"),
    "negations": ("NOT " * 20_000 + "c", "30 levels"),
    "ranges": ("i BETWEEN " * 10_000, "ends too early"),
    "branches": ("CASE " + "WHEN c THEN 1 " * 900 + "END = 1", "100 branches"),
    "branches in branches": ("CASE WHEN " * 5000, "30 levels"),
    "casts": ("i" + "::INT" * 2_000 + " = 1", "100 operators"),
    "types": ("CAST(i AS INT" + "[]" * 2_000 + ") IS NULL", "100 operators"),
    "fields": ("i" + ".b" * 2_000, "100 operators"),
    "elements": ("l" + "[1]" * 5000, "too deeply"),
    "arrays": ("[" * 20_000, "30 levels"),
    "lists of columns": ("1 IN (" + "i, " * 5000 + "i)", "1,000 values"),
    "arguments": ("COALESCE(" + "i, " * 5000 + "i) = 1", "1,000 values"),
    "characters": ("s = '" + "x" * 1_000_000 + "'", "1,000,000 characters"),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.sweep if kind == "elements" else ()) for kind in LONG]
)
def test_long_and_deep_texts_raise_at_once(kind: str) -> None:
    text, message = LONG[kind]
    start = time.thread_time()  # other processes on this machine do not count
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.thread_time() - start < 5  # usually 0.2 s


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["i"] * 90) + " > 1",
        "(" * 29 + "i" + ")" * 29 + " = 1",
        " OR ".join(f"i = {n}" for n in range(500)),
        " OR ".join(["NOT (i = 1 AND b < 2)"] * 120),
        f"i IN ({', '.join(map(str, range(3_000)))})",
        "CASE " + "WHEN i = 1 THEN 1 " * 90 + "END = 1",
    ],
)
def test_longest_allowed_texts_need_little_stack(text: str) -> None:
    actual: list[int] = []
    before = threading.stack_size(512 * 1024)  # that of a thread on macOS
    try:
        thread = threading.Thread(
            target=lambda: actual.append(ROWS.filter(condition_of(text, SCHEMA).expr).height)
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(actual) == 1


class Bait:
    """A file, a missing one and an address that queries may try to read."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret.csv"
        self.secret.write_text("hidden-words\n1\n")
        self.socket = socket.create_server(("127.0.0.1", 0))  # nobody answers there
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}/secret.parquet"
        self.places = [str(self.secret), f"{self.secret}.missing", self.address]

    def was_contacted(self, seconds: float = 0) -> bool:
        """Tell whether anything was asked of the address."""
        return bool(select.select([self.socket], [], [], seconds)[0])


@pytest.fixture(scope="module")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bait]:
    actual = Bait(tmp_path_factory.mktemp("bait"))
    yield actual
    actual.socket.close()


def refused_unread(text: str) -> None:
    """Check that a text is refused in our words: those of a file, and that one is missing, are not among them."""
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    report: BaseException | None = caught.value
    while report is not None:
        assert "hidden" not in str(report)
        assert "os error" not in str(report)
        report = report.__cause__


@pytest.mark.parametrize("form", FORMS)
def test_texts_never_open_files(bait: Bait, form: str) -> None:
    for place in bait.places:
        for source in [f"'{place}'", *(f"{function}('{place}')" for function in FUNCTIONS)]:
            refused_unread(form.format(source))
    assert not bait.was_contacted()


@pytest.mark.sweep
def test_polars_would_read_the_file(tmp_path: Path) -> None:
    """Show that the tests around this one can fail."""
    bait = Bait(tmp_path)
    for place, words in ((bait.secret, "hidden-words"), (bait.places[1], "os error 2")):
        with pytest.raises((pl.exceptions.PolarsError, OSError), match=words):
            pl.sql_expr(FORMS[0].format(f"read_csv('{place}')"))
    query = FORMS[0].format(f"read_parquet('{bait.address}')")
    code = f'import polars; polars.sql_expr("{query}")'
    with subprocess.Popen(
        [sys.executable, "-c", code]
    ) as reader:  # it waits for an answer, all threads with it
        assert bait.was_contacted(seconds=60)
        reader.kill()
    bait.socket.close()


def judge(text: str) -> None:
    """Understand a text as a condition and as a value, or see it refused, by nothing else than our own error."""
    for understand in (condition_of, partial(value_of, dtype=pl.String(), column="s")):
        try:
            understand(text, SCHEMA)
        except InvalidInputError as error:
            assert "hidden" not in str(error)  # noqa: PT017 - most texts raise none


@tries
@given(TEXTS, st.sampled_from(range(3)))
def test_texts_raise_only_the_documented_error(bait: Bait, text: str, place: int) -> None:
    judge(text.replace(PLACE, bait.places[place]))
    assert not bait.was_contacted()


@pytest.mark.parametrize("text", ["i.(0)", "i.0()", "i.(s) = 1", "i.s() = 1", "i.0", "i.*", "i.s.0() = 1"])
def test_dots_take_names_only(text: str) -> None:
    with pytest.raises(InvalidInputError):
        condition_of(text, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "1 < i < 3",
        "c = k = c",
        "NOT i < 1 <= b",
        "c = i BETWEEN 1 AND 2",
        "i = b IS NULL",
        "c = NOT k",
        "i IS NULL = c",
        "s LIKE 'x' = c",
        "i IN (1) = c",
        "c IS DISTINCT FROM i > 1",
    ],
)
def test_comparisons_of_comparisons_need_parentheses(text: str) -> None:
    """Dialects differ in them: other rows than intended would be read or deleted."""
    with pytest.raises(InvalidSqlError, match="parentheses"):
        sql_expression(text, SCHEMA)


def test_comparisons_in_parentheses_are_compared() -> None:
    sql_expression("1 < i AND i < 3 OR (i > 1) = (b > 1) OR (i IS NULL) = c", SCHEMA)


def test_time_of_one_text_stands_still() -> None:
    condition = condition_of("now() = now() AND current_date = CAST(now() AS DATE)", ROWS.schema)
    assert ROWS.filter(condition.expr).height == ROWS.height
