"""Queries over one table have the rows of DuckDB, and read only what they need; others are left to Polars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.sql.aggregates import sql_query
from qbeast_core.sql.select import selected
from qbeast_core.sql.values import InvalidSqlError, UnknownColumnError
from tests.helpers.examples import examples
from tests.sql.oracle import with_rows
from tests.sql.texts import ROWS, conditions, form, one_of

QUERIES = (
    "SELECT * FROM self ORDER BY id",
    "SELECT id, i FROM self WHERE i > 1 ORDER BY i DESC, id",
    "SELECT id, x FROM self ORDER BY x DESC NULLS FIRST, id LIMIT 4",
    "SELECT id, x FROM self ORDER BY x, id LIMIT 4 OFFSET 2",
    "SELECT g.f, g.w FROM self ORDER BY 1, 2",
    "SELECT s.id, s.g.f AS q FROM self AS s WHERE s.g.f > 0 ORDER BY s.id",
    "SELECT c, count(*) AS n, sum(i) AS si, avg(i) AS ai, min(x) AS mi, max(x) AS ma FROM self GROUP BY c ORDER BY c",
    "SELECT c, k, count(i) AS n, count(DISTINCT t) AS d FROM self GROUP BY ALL ORDER BY 1, 2 NULLS FIRST",
    "SELECT sum(i) / count(*) AS a, sum(i) // 2 AS b, round(avg(i), 1) AS r FROM self WHERE id < 3",
    "SELECT sum(m) AS s, avg(m) AS a, min(m) AS mi, max(m) AS ma, median(m)::DOUBLE AS me FROM self",
    "SELECT year(d) AS y, count(*) AS n FROM self GROUP BY y HAVING n > 1 ORDER BY y",
    "SELECT year(d) AS y FROM self GROUP BY year(d) HAVING count(*) > 1 AND year(d) > 2000 ORDER BY count(*), y",
    "SELECT date_trunc('month', z) AS m, sum(t) AS s FROM self WHERE z >= '1970-01-01 02:00+02' GROUP BY 1 ORDER BY 1",
    "SELECT DISTINCT c FROM self ORDER BY c",
    "SELECT DISTINCT c, k FROM self ORDER BY k, c LIMIT 3",
    "SELECT DISTINCT year(d) AS y FROM self ORDER BY y DESC",
    "SELECT count(*) AS n FROM self",
    "SELECT count(*) AS n FROM self WHERE i > 1000000000000",
    "SELECT sum(i) AS s, min(i) AS m, count(i) AS n, avg(i) AS a FROM self WHERE id < 0",
    "SELECT count() AS self FROM self",
    "SELECT 1 AS one FROM self",
    "SELECT 1 AS one, 'a' AS b FROM self WHERE id > 5",
    "SELECT 'all' AS label, count(*) AS n FROM self",
    "SELECT 'all' AS label, c, count(*) AS n FROM self GROUP BY ALL ORDER BY c",
    "SELECT CASE WHEN sum(i) > 0 THEN 'pos' ELSE 'neg' END AS sign, coalesce(sum(t), 0) AS st FROM self",
    "SELECT sum(CASE WHEN c THEN 1 ELSE 0 END) * 100.0 / count(*) AS share FROM self",
    "SELECT count(*) FILTER (WHERE c) AS nc, sum(i) FILTER (WHERE k) AS sk, count_if(c) AS ci FROM self",
    "SELECT count(DISTINCT (c, k)) AS n, sum(DISTINCT t) AS st, count(DISTINCT s) AS ns FROM self",
    "SELECT stddev(i) AS a, var_pop(i) AS b, quantile_cont(i, 0.3) AS d, quantile_disc(i, 0.3) AS e FROM self",
    "SELECT quantile(i, 0.3) AS q, quantile(d, 0.5) AS r FROM self",
    "SELECT quantile_disc(d, 0.5) AS q, min(d) AS mi, max(z) AS ma, min(s) AS ms, max(u) AS mu FROM self",
    "SELECT -id AS i FROM self ORDER BY i",
    "SELECT -id AS i FROM self ORDER BY i % 3, 1",
    "SELECT id + 1 AS a, a * 2 AS b FROM self ORDER BY b, a",
    "SELECT id + 1 AS a FROM self WHERE a > 2 ORDER BY a",
    "SELECT c, sum(i) AS i FROM self GROUP BY c HAVING i > 2 ORDER BY c",
    "SELECT c, sum(i) AS i FROM self GROUP BY c HAVING sum(i) < 2 ORDER BY sum(i)",
    "SELECT s AS i, i AS s FROM self ORDER BY s, i",
    "SELECT c FROM self GROUP BY c ORDER BY max(id)",
    "SELECT c, count(*) AS n FROM self GROUP BY c ORDER BY count(*) DESC, c LIMIT 2",
    "SELECT upper(s) AS u2, count(*) AS n FROM self GROUP BY upper(s) ORDER BY 1",
    "SELECT id FROM self WHERE z > TIMESTAMP '2024-05-01 12:00:00' - INTERVAL '310 days' ORDER BY id",
    "SELECT id FROM self WHERE l[1] = 1 OR list_contains(l, 7) ORDER BY id",
    "SELECT length(l) AS n, count(*) AS c FROM self GROUP BY ALL ORDER BY n",
    "SELECT sum(t > 1) AS n FROM self",
    "SELECT g.f AS f, count(*) AS n FROM self GROUP BY g.f ORDER BY f",
    "SELECT count(*) AS n FROM self HAVING count(*) > 100",
    "SELECT 1 AS one FROM self GROUP BY c",
    "SELECT sum(x) AS s, avg(x) AS a FROM self WHERE x = x",
    "SELECT id, c AND k AS b FROM self ORDER BY b, id",
    "SELECT id FROM self ORDER BY c DESC NULLS LAST, id DESC LIMIT 0",
    "SELECT min(c) AS a, max(c) AS b FROM self",
    "SELECT max(b) - min(b) > 0 AS q FROM self WHERE id > 3",
    'SELECT "g.f" AS gf, id FROM self WHERE "g.f" IS NOT NULL ORDER BY gf, id',
    "FROM self SELECT id ORDER BY id LIMIT 1;",
    "SELECT t::VARCHAR || '-' || s AS v FROM self ORDER BY v",
)
OURS = ROWS.lazy()


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with with_rows(ROWS) as connection:
        connection.execute("CREATE VIEW self AS SELECT * FROM rows")
        yield connection


def plain(value: Any) -> Any:
    """Return a value that is equal for both engines."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (float, int, Decimal)):
        return "NaN" if math.isnan(value) else pytest.approx(float(value), rel=1e-9, abs=1e-9)
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
    return (
        datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        if isinstance(value, date)
        else value
    )


def check(oracle: duckdb.DuckDBPyConnection, query: str) -> None:
    """Compare the rows of a query, in order."""
    result = selected(query, OURS, "self")
    assert result is not None
    expected = oracle.execute(query)
    names = [column[0] for column in expected.description or ()]
    rows = [tuple(map(plain, row)) for row in expected.fetchall()]
    frame = result.collect()
    assert [tuple(map(plain, row)) for row in frame.rows()] == rows
    assert [name for name in frame.columns if name.isidentifier()] == [
        name for name in names if name.isidentifier()
    ]


def test_queries_have_the_rows_of_duckdb(oracle: duckdb.DuckDBPyConnection) -> None:
    for query in QUERIES:
        check(oracle, query)


_KEYS = one_of(
    "c", "k", "t", "year(d)", "upper(s)", "g.w", "i > 1", "date_trunc('month', z)", "coalesce(s, u)", "l[1]"
)
_VALUES = one_of("i", "t", "x", "m", "n", "id", "g.f", "i + t", "abs(t)", "CASE WHEN c THEN t ELSE 0 END")
_ANY = one_of("i", "s", "d", "z", "c", "m", "upper(u)", "g.w", "t % 3")
_AGGREGATES = st.one_of(
    form("{}({})", one_of("sum", "avg", "stddev", "var_pop"), _VALUES),
    form("median({})", one_of("i", "t", "x", "id")),
    form("{}({})", one_of("min", "max", "count"), st.one_of(_ANY, _VALUES)),
    form("count(DISTINCT {})", _ANY),
    form("quantile_cont({}, 0.3)", one_of("i", "t", "x", "id")),
    form("quantile_disc({}, {})", _ANY, one_of("0", "0.5", "0.9", "1")),
    form("count(*) FILTER (WHERE {})", one_of("c", "i > 1", "s LIKE 'a%'")),
    form("sum({}) FILTER (WHERE {})", _VALUES, one_of("c", "t > 1", "k IS NULL")),
    one_of("count(*)", "count(1)"),
)
_COLUMNS = st.one_of(
    _AGGREGATES,
    form("coalesce({}, 0)", form("sum({})", one_of("i", "t"))),
    form("{} / count(*)", form("sum({})", _VALUES)),
    form("{} - {}", form("sum({})", one_of("i", "t")), form("count({})", _ANY)),
    form("CASE WHEN {} > 1 THEN 'many' ELSE 'few' END", form("count({})", _ANY)),
)
_ENDS = one_of("", " DESC", " ASC", " NULLS FIRST", " DESC NULLS FIRST", " DESC NULLS LAST")
_LIMITS = one_of("", "", " LIMIT 2", " LIMIT 3 OFFSET 1", " LIMIT 0")


def queries() -> st.SearchStrategy[str]:
    """Draw queries over `ROWS` whose rows have one order."""
    plain_ones = form(
        "SELECT id, {} AS v FROM self WHERE {} ORDER BY {}{}, id{}",
        st.one_of(_ANY, _VALUES, conditions()), conditions(), st.one_of(one_of("v", "2"), _ANY), _ENDS, _LIMITS
    )  # fmt: skip
    groups = form(
        "SELECT {} AS key, {} AS v, count(*) AS rows_, {} FROM self WHERE {} GROUP BY {}{} ORDER BY {}key{}{}",
        _KEYS, _COLUMNS, form("{} AS w", _COLUMNS), conditions(), one_of("1", "key"),
        one_of("", " HAVING count(*) > 1", " HAVING rows_ < 3 AND key IS NOT NULL", " HAVING sum(t) > 0 OR min(i) < 0"),
        one_of("", "v, ", "rows_ DESC, ", "count(i), "), _ENDS, _LIMITS
    )  # fmt: skip
    distinct = form(
        "SELECT DISTINCT {} AS a, {} AS b FROM self ORDER BY a{}, b{}", _KEYS, _ANY, _ENDS, _LIMITS
    )
    totals = form("SELECT {} AS v, {} AS w FROM self WHERE {}", _COLUMNS, _COLUMNS, conditions())
    return st.one_of(plain_ones, groups, distinct, totals)


HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@examples(6, sweep=1_500, parent=settings(suppress_health_check=HEALTH, deadline=None))
@given(queries())
def test_random_queries_have_the_rows_of_duckdb(oracle: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        oracle.execute(query).fetchall()
        check(oracle, query)
    except duckdb.Error:
        event("DuckDB fails")
    except InvalidSqlError as error:
        assert "128 bits" in str(error) or "out of range" in str(error)  # noqa: PT017 - most queries raise nothing
    except pl.exceptions.InvalidOperationError as error:
        assert "from `i128` to `i64` failed" in str(error)  # noqa: PT017 - as above


POLARS = (
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM self",
    "WITH q AS (SELECT id FROM self) SELECT * FROM q",
    "SELECT id FROM self UNION ALL SELECT id FROM self",
    "SELECT a.id FROM self AS a JOIN self AS b ON a.id = b.id",
    "SELECT id FROM (SELECT id FROM self) AS q",
    "SELECT id FROM self WHERE id IN (SELECT max(id) FROM self)",
    "SELECT * EXCLUDE (id) FROM self",
    "SELECT id FROM other",
    "SELECT initcap(s) FROM self",
    "SELECT id FROM self QUALIFY row_number() OVER (ORDER BY id) = 1",
    "SELECT id FROM self LIMIT 1 + 1",
    "SELECT DISTINCT ON (c) c, id FROM self",
    "SELECT c, count(*) FROM self GROUP BY CUBE (c)",
    "SELECT CAST(id AS TIME) FROM self",
    "SELECT FROM self",
)


@pytest.mark.parametrize("query", POLARS)
def test_queries_with_more_are_left_to_polars(query: str) -> None:
    assert selected(query, OURS, "self") is None


REFUSED = {
    "SELECT i, sum(t) FROM self": "neither in GROUP BY nor inside of an aggregate",
    "SELECT i FROM self HAVING i > 1": "neither in GROUP BY nor inside of an aggregate",
    "SELECT i, i FROM self": "two columns",
    "SELECT sum(s) FROM self": "takes numbers",
    "SELECT DISTINCT c FROM self ORDER BY i": "not a column of SELECT DISTINCT",
    "SELECT count(*) FROM self GROUP BY 'x'": "names no column",
    "SELECT sum(1) FROM self": "names no column",
    "SELECT min(l) FROM self": "not an aggregate of",
    "SELECT id FROM self WHERE c = 1": "BOOLEAN|Boolean|compare",
    "SELECT id FROM self WHERE i < t = c": "parentheses",
    "SELECT avg(sum(i)) FROM self": "several columns or rows",
    "SELECT quantile_cont(i, 2) FROM self": "from 0 to 1",
    "SELECT INTERVAL 3 DAY AS i FROM self": "interval",
    "SELECT id FROM self ORDER BY 7": "not the position",
}


@pytest.mark.parametrize("query", REFUSED)
def test_faults_of_queries_are_named(query: str) -> None:
    with pytest.raises(InvalidSqlError, match=REFUSED[query]):
        selected(query, OURS, "self")


def test_query_reads_only_what_it_needs(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(20_000), "x": [n % 97 for n in range(20_000)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"], cube_size=500)
    table = qbeast.open_table(tmp_path / "t")
    for query, columns in {
        "SELECT count(*) FROM self WHERE id >= 0": "SELECTION",
        "SELECT sum(x) AS s FROM self WHERE id < 100": 'SELECTION: col("id") < 100',
        "SELECT x FROM self LIMIT 3": "len: 3",
    }.items():
        assert columns in table.sql(query).explain()
    data = next((tmp_path / "t").glob("*.parquet"))
    data.rename(tmp_path / "moved")
    assert table.sql("SELECT count(*) AS n FROM self").collect().item() == 20_000
    assert table.sql("SELECT count(*) AS n FROM self WHERE id >= 0").collect().item() == 20_000


def test_types_of_results_fit_arrow(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": [1, 2], "u": pl.Series([1, 2], dtype=pl.UInt8), "c": ["a", "b"]})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    result = qbeast.open_table(tmp_path / "t").sql(
        "SELECT c, sum(id * id) AS s, count(*) AS n FROM self GROUP BY c"
    )
    assert result.collect_schema() == {"c": pl.String, "s": pl.Int64, "n": pl.Int64}
    assert result.collect().to_arrow().num_rows == 2


WORDS = (
    *(
        "HAVING",
        "ORDER BY",
        "LIMIT",
        "3",
        "(",
        ")",
        ",",
        "sum(i)",
        "count()",
        "NULL",
        "'a'",
        "AS",
        "x",
        ".",
        "*",
        "-",
    ),
    *(
        "DISTINCT",
        "JOIN o USING (id)",
        "GROUP BY",
        "AND",
        "NOT",
        "c",
        "OVER ()",
        "ALL",
        "DESC",
        "self",
        "BETWEEN",
    ),
    *(
        "IS NULL",
        "[1]",
        "CASE",
        "END",
        "INTERVAL",
        "median(x)",
        "FROM (SELECT id, sum(i) AS q FROM self GROUP BY id)",
    ),
)


@examples(40, sweep=10_000, parent=settings(deadline=None))
@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False), st.integers(1, 4))
def test_wrong_texts_raise_one_kind_of_error(query: str, random: Random, changes: int) -> None:
    words = re.findall(r"\w+|'[^']*'|[^\w\s]", query)
    for _ in range(changes):
        index = random.randrange(len(words) + 1)
        if random.random() < 0.4:
            del words[index : index + 1]
        else:
            words.insert(index, random.choice(WORDS))
    text = " ".join(words)
    for read in (lambda: selected(text, OURS, "self"), lambda: sql_query(text, ROWS.schema)):
        try:
            read()
        except (InvalidSqlError, UnknownColumnError, pl.exceptions.PolarsError) as error:
            assert not re.search(r"Expression|Identifier\(", str(error))  # noqa: PT017 - many texts raise nothing
