"""Texts of SQL: what Polars' own reading of them means, or a refusal that read nothing."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.sql_expressions import sql_expression
from qbeast_core.query.sql_tokens import SqlRefused
from qbeast_core.query.sql_words import AGGREGATES, FUNCTIONS, QUERIES, TYPES, WORD_OPERATORS
from qbeast_core.table.data.expressions import condition_of, value_of
from tests.helpers.examples import examples
from tests.query.sql_texts import COLUMNS, PLACE, ROWS, expressions, noise, queries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

tries = examples(60, slow=3_000, parent=settings(suppress_health_check=list(HealthCheck)))
SCHEMA = ROWS.schema
EXPRESSIONS = expressions()
TEXTS = st.one_of(queries(), noise(), EXPRESSIONS)
KEYWORDS = sorted(
    QUERIES | AGGREGATES | FUNCTIONS | TYPES | WORD_OPERATORS | {"USER", "CASE", "END", "ARRAY", "AS"}
)


def outcome(expr: pl.Expr) -> pl.Series | None:
    """Evaluate; None where Polars cannot, be it by an error or by a panic."""
    try:
        return ROWS.lazy().select(expr.alias("")).collect().to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None


def same_as_polars(text: str) -> None:
    try:
        ours = sql_expression(text, COLUMNS)
    except SqlRefused as refused:
        pytest.fail(f"{text!r}: {refused}")
    except pl.exceptions.PolarsError:
        with pytest.raises(pl.exceptions.PolarsError):
            pl.sql_expr(text)
        return
    expected, found = outcome(pl.sql_expr(text)), outcome(ours)
    if (
        expected is not None
    ):  # Polars fails at some long chains of constants that are right in a balanced tree
        assert found is not None, text
        assert_series_equal(found, expected, check_names=False)


@tries
@given(EXPRESSIONS)
@example("a > 1 OR b < 2 AND NOT s LIKE 'x%'")
@example("(a > 1 OR b < 2) AND (NOT c OR (a = 3 AND b IS NULL))")
@example("a BETWEEN 1 AND 2 AND c")
@example("NOT a = 1 AND c")
@example("c XOR a > 1 AND c")
def test_a_text_means_what_it_means_to_polars(text: str) -> None:
    same_as_polars(text)


@pytest.mark.parametrize("join", [" OR ", " AND "])
@pytest.mark.parametrize("form", ["a = {}", "(a = {} AND b < {})", "NOT (a <> {} OR c)"])
def test_long_chains_mean_the_same(join: str, form: str) -> None:
    for count in (2, 16, 17, 40, 200):
        same_as_polars(join.join(form.format(number % 7, number) for number in range(count)))


def test_a_column_called_like_a_word_of_sql_needs_no_quotes() -> None:
    texts = ("{} = 42", "x AND {} <> 42", "{} IS NULL OR {} IN (1, 42)", "({}) > 1 AND ({}) > 1")
    texts += ("ABS({}) + {} >= 84", "CASE WHEN x THEN {} ELSE {} END > 2", "NOT {} = 42", "- {} < -1")
    for name in [*KEYWORDS, *map(str.lower, KEYWORDS), "Käse", "größe$", "#id", "_"]:
        rows = pl.DataFrame({name: [1, 42, None], "x": [True, False, None]})
        for text in texts:
            if name.upper() == "NOT" and text.startswith("- "):
                continue  # NOT is the operator where it can be
            found = rows.select(sql_expression(text.replace("{}", name), rows.columns).alias(""))
            expected = rows.select(pl.sql_expr(text.replace("{}", f'"{name}"')).alias(""))
            assert found.equals(expected), (text, name)


def test_words_stay_words_where_they_are_meant() -> None:
    rows = pl.DataFrame({"date": [1], "not": [True], "case": [2], "max": [3], "length": ["abc"], "end": [4]})
    columns = list(rows.schema)
    for text in (
        "DATE '2024-05-01' > DATE '2024-04-01'",
        "NOT not = FALSE",
        "NOT (not = FALSE)",
        "CASE case WHEN 2 THEN end END = 4",
        "LENGTH(length) = 3",
        "date::BIGINT = 1",
        "CAST(date AS DOUBLE) = 1",
        "not",
    ):
        assert rows.filter(sql_expression(text, columns)).height == 1, text


def test_a_column_called_like_a_value_is_never_guessed() -> None:
    for name in ("null", "true", "FALSE"):
        with pytest.raises(SqlRefused, match="double quotes"):
            sql_expression(f"{name} = 1", [name])
        assert sql_expression(f'"{name}" = 1', [name]).meta.root_names() == [name]
        assert sql_expression(f"{name.swapcase()} IS NULL", [name]).meta.root_names() == []


NO_EXPRESSIONS = {
    "a IN (SELECT nope FROM read_csv('/etc/passwd'))": "'SELECT' at character 7",
    "(SELECT 1) = a": "'SELECT'",
    "a = ((SELECT 1))": "'SELECT'",
    "EXISTS (SELECT 1)": "'EXISTS'",
    "a IN (VALUES (1))": "'VALUES'",
    "a IN (TABLE x)": "'TABLE'",
    "a IN (WITH x AS (SELECT 1) SELECT * FROM x)": "'WITH'",
    "a IN (FROM read_parquet('http://localhost/x'))": "'FROM'",
    "a = 1 UNION SELECT 2": "'UNION'",
    "a FROM read_csv('x')": "'FROM'",
    "read_csv('/etc/passwd') = 1": "'read_csv'",
    "a = 1; DROP TABLE x": "a second statement",
    "a = 1 -- and so on": "a comment",
    "a = /* x */ 1": "a comment",
    "unnest(l) = 1": "several columns or rows",
    "generate_series(1, 1000000000) = 1": "no function",
    "lpad(s, 1000000000) = 'x'": "no function",
    "rank() OVER (ORDER BY a) = 1": "'rank'",
    "a OVER () = 1": "'OVER'",
    "sum(a) > 1": "several columns or rows",
    "COLUMNS('.*') > 1": "no function",
    "* = 1": "no use for '*'",
    '"^a.*$" = 1': "pattern",
    "a = $1": "no use for '$'",
    "a = 'x": "does not end",
    "a >": "ends too early",
    "": "ends too early",
    "CAST(a AS DECIMAL(99, 98)) = 1": "38 at most",
    "CAST(a AS DECIMAL(5, 6)) = 1": "after the point",
    "CAST(a AS NOTHING) = 1": "no type",
    "a = 1 a": "no use for 'a' at character 7",
}


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_what_is_no_expression_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    assert NO_EXPRESSIONS[text] in str(caught.value)


LONG = {
    "many conditions": (" OR ".join(f"a = {n}" for n in range(1000)), "column IN (1, 2, 3)"),
    "additions": ("+".join(["a"] * 20_000) + " > 1", "200 operators"),
    "parentheses": ("(" * 50_000, "30 levels"),
    "closed parentheses": ("(" * 5000 + "a" + ")" * 5000, "30 levels"),
    "calls": ("ABS(" * 5000 + "a" + ")" * 5000, "30 levels"),
    "signs": ("- " * 20_000 + "a = 1", "200 operators"),
    "negations": ("NOT " * 20_000 + "c", "200 operators"),
    "ranges": ("a BETWEEN " * 10_000, "30 levels"),
    "branches": ("CASE " + "WHEN c THEN 1 " * 5000 + "END = 1", "200 operators"),
    "branches in branches": ("CASE WHEN " * 5000, "30 levels"),
    "casts": ("a" + "::INT" * 20_000 + " = 1", "200 operators"),
    "types": ("CAST(a AS INT" + "[]" * 20_000 + ") IS NULL", "30 levels"),
    "fields": ("a" + ".b" * 20_000, "200 operators"),
    "elements": ("l" + "[1]" * 5000, "200 operators"),
    "arrays": ("[" * 20_000, "30 levels"),
    "lists of columns": ("1 IN (" + "a, " * 5000 + "a)", "1,000 values"),
    "arguments": ("COALESCE(" + "a, " * 5000 + "a) = 1", "1,000 values"),
    "characters": ("a = '" + "x" * 1_000_000 + "'", "1,000,000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LONG)
def test_what_is_too_long_or_too_deep_is_refused_at_once(kind: str) -> None:
    text, message = LONG[kind]
    start = time.thread_time()  # what others do on this machine meanwhile does not count
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.thread_time() - start < 5  # usually 0.2 s


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["a"] * 200) + " > 1",
        "(" * 29 + "a" + ")" * 29 + " = 1",
        " OR ".join(f"a = {n}" for n in range(500)),
        " OR ".join(["NOT (a = 1 AND b < 2)"] * 120),
        f"a IN ({', '.join(map(str, range(20_000)))})",
        "CASE " + "WHEN a = 1 THEN 1 " * 90 + "END = 1",
    ],
)
def test_what_is_long_and_allowed_works_on_a_small_stack(text: str) -> None:
    found: list[int] = []
    before = threading.stack_size(512 * 1024)  # that of a thread on macOS
    try:
        thread = threading.Thread(
            target=lambda: found.append(ROWS.filter(condition_of(text, SCHEMA).expr).height)
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(found) == 1


class Bait:
    """A file, a missing one and an address that queries may try to read."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret.csv"
        self.secret.write_text("hidden-words\n1\n")
        self.socket = socket.create_server(("127.0.0.1", 0))  # nobody answers there
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}/secret.parquet"
        self.places = [str(self.secret), f"{self.secret}.missing", self.address]

    def was_asked(self, seconds: float = 0) -> bool:
        """Tell whether anything was asked of the address."""
        return bool(select.select([self.socket], [], [], seconds)[0])


@pytest.fixture(scope="module")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bait]:
    found = Bait(tmp_path_factory.mktemp("bait"))
    yield found
    found.socket.close()


def refused_unread(text: str) -> None:
    """Check that a text is refused in our words: those of a file, and that one is missing, are not among them."""
    with pytest.raises(InvalidInputError) as caught:
        condition_of(text, SCHEMA)
    told: BaseException | None = caught.value
    while told is not None:
        assert "hidden" not in str(told)
        assert "os error" not in str(told)
        told = told.__cause__


FUNCTIONS_OF_FILES = ["read_csv", "read_parquet", "read_ipc", "read_json", "READ_CSV", '"read_csv"']
FORMS = [
    "a IN (SELECT nope FROM {})",
    "a IN ((SELECT nope FROM {}))",
    "EXISTS (SELECT 1 FROM {})",
    "a = (FROM {})",
    "a = ANY(SELECT * FROM {})",
    "a IN (WITH x AS (SELECT * FROM {}) SELECT * FROM x)",
    "{}.a = 1",
    "a IN {}",
    "a IN (TABLE {})",
    "CASE WHEN c THEN (SELECT * FROM {}) END = 1",
]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_read_for_a_text(bait: Bait, form: str) -> None:
    for place in bait.places:
        for source in [f"'{place}'", *(f"{function}('{place}')" for function in FUNCTIONS_OF_FILES)]:
            refused_unread(form.format(source))
    assert not bait.was_asked()


def test_polars_itself_would_read(tmp_path: Path) -> None:
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
        assert bait.was_asked(seconds=60)
        reader.kill()
    bait.socket.close()


def judge(text: str) -> None:
    """Understand a text as a condition and as a value, or see it refused, by nothing else than our own error."""
    for understand in (condition_of, value_of):
        more = {"dtype": pl.String(), "column": "s"} if understand is value_of else {}
        try:
            understand(text, SCHEMA, **more)
        except InvalidInputError as error:
            assert "nothing was changed" in str(error)  # noqa: PT017 - most texts raise none
            assert "hidden" not in str(error)  # noqa: PT017 - the same


@tries
@given(TEXTS, st.sampled_from(range(3)))
def test_no_text_reads_or_raises_anything_else(bait: Bait, text: str, place: int) -> None:
    judge(text.replace(PLACE, bait.places[place]))
    assert not bait.was_asked()


@pytest.mark.parametrize("text", ["1 < a < 3", "a < 3 & b > 2", "a = b = 1", "NOT a < 1 <= b"])
def test_comparisons_in_a_row_are_refused(text: str) -> None:
    """SQL would compare the truth of the first with a number: other rows than were meant, to read or to delete."""
    with pytest.raises(SqlRefused, match="join comparisons by AND"):
        sql_expression(text, COLUMNS)
    sql_expression("1 < a AND a < 3 XOR b = 1 OR (a > 1) = (b > 1)", COLUMNS)
