"""Groups of an expression are those of a column that holds its values; names are those of Polars and SQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.small_files import resized
from tests.helpers.tables import estimated

ROWS = 120_000
ASKED = {"n": pl.len(), "mean": pl.col("x").mean(), "high": pl.col("x").quantile(0.9)}
GROUPS: dict[str, pl.Expr] = {
    "bins": pl.col("x") // 4,
    "months": pl.col("ts").dt.truncate("1mo"),
    "texts": pl.col("ts").dt.strftime("%A"),
    "many nulls": pl.when(pl.col("x") > 12).then(pl.col("id") % 3),
    "floats": pl.when(pl.col("x") > 12).then(-0.0).when(pl.col("x") > 10).then(0.0).otherwise(float("nan")),
    "a condition": pl.col("x") > 15,
    "of two columns": (pl.col("id") % 2) * 10 + pl.col("ts").dt.month(),
    "a category": pl.col("ts").dt.strftime("%A").cast(pl.Categorical),
}


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    random = np.random.default_rng(7)
    seconds = random.integers(0, 120 * 86_400, ROWS).tolist()
    start = datetime(2026, 1, 1)  # noqa: DTZ001 -- of no zone
    x = pl.Series(random.normal(12, 4, ROWS)).set(pl.Series(random.random(ROWS) < 0.05), None)
    rows = pl.DataFrame(
        {"id": random.permutation(ROWS), "x": x, "ts": [start + timedelta(seconds=item) for item in seconds]}
    )
    return rows.with_columns(expr.alias(f"group {name}") for name, expr in GROUPS.items()).cast(
        {"group a category": pl.String}
    )


@pytest.fixture(scope="module")
def table(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = str(tmp_path_factory.mktemp("groups") / "table")
    qbeast.write_table(frame, path, columns=["id", "x"], cube_size=3000)
    return qbeast.open_table(path)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"error": 0.1}, marks=pytest.mark.sweep),
        {"sample": 0.2, "where": "id < 60000"},
        pytest.param({"sample": 1.0}, marks=pytest.mark.sweep),
    ],
)
def test_expression_groups_equal_column_groups(
    table: qbeast.Table, name: str, options: dict[str, Any]
) -> None:
    actual = estimated(table, ASKED, by={"g": GROUPS[name]}, **options)
    expected = estimated(table, ASKED, by={"g": f"group {name}"}, **options)
    assert actual.met == expected.met
    text = pl.col("g").cast(pl.String) if actual.frame["g"].dtype == pl.Categorical else pl.col("g")
    assert_frame_equal(actual.frame.with_columns(text).sort("g"), expected.frame.sort("g"))


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("ts", ["ts"]),
        (pl.col("ts").dt.truncate("1mo"), ["ts"]),
        (pl.col("ts").dt.truncate("1mo").alias("month"), ["month"]),
        (["id", pl.col("ts").dt.hour()], ["id", "ts"]),
        ({"month": pl.col("ts").dt.month(), "x": "x > 3"}, ["month", "x"]),
        ("x > 3", ["x > 3"]),
        ("group a condition", ["group a condition"]),
        ("date_trunc('month', ts)", ["date_trunc('month', ts)"]),
        ("date_trunc('month', ts) AS month, id", ["month", "id"]),
        ({"month": "extract(month FROM ts)"}, ["month"]),
        ([], []),
        ({}, []),
        (None, []),
    ],
)
def test_groups_have_names_of_polars_and_sql(table: qbeast.Table, by: Any, names: list[str]) -> None:
    actual = table.rows(where="id < 20", sample=0.05).estimate({"n": pl.len()}, by=by)
    assert actual.frame.columns == [*names, "n", "n_low", "n_high", "rows_sampled", "reliable"]


@pytest.mark.parametrize(
    ("aggregates", "names"),
    [
        (pl.len(), ["len"]),
        ("avg(x)", ["avg(x)"]),
        ([pl.col("x").mean(), pl.len().alias("n")], ["x", "n"]),
        (["avg(x)", pl.col("id").sum()], ["avg(x)", "id"]),
        ("avg(x) AS mean, count(*)", ["mean", "count(*)"]),
        (
            ["avg(x) AS mean, sum(x)", "count(*) FILTER (WHERE x > 3)"],
            ["mean", "sum(x)", "count(*) FILTER (WHERE x > 3)"],
        ),
        ("SELECT avg(x), sum(id) AS total", ["avg(x)", "total"]),
        ((pl.col("x").sum() / pl.len()).alias("per row"), ["per row"]),
    ],
)
def test_aggregates_have_names_in_any_form(table: qbeast.Table, aggregates: Any, names: list[str]) -> None:
    actual = table.rows().estimate(aggregates, error=0.2)
    assert actual.names == tuple(names)
    absolute = dict.fromkeys(names, 10.0**9)
    assert table.rows().estimate(aggregates, absolute=absolute).names == tuple(names)


QUERIES = [
    "SELECT count(*) AS n, avg(x) AS mean FROM rows WHERE x > 8",
    "SELECT date_trunc('month', ts) AS month, avg(x) AS mean, count(*) AS n FROM rows GROUP BY 1",
    "SELECT month(ts) AS m, x > 12 AS high, sum(x) / count(x) AS s FROM rows WHERE id % 3 <> 1 GROUP BY m, x > 12",
    "SELECT CASE WHEN x > 12 THEN id % 3 END AS g, sum(x) FILTER (WHERE ts < '2026-02-01') AS s FROM rows GROUP BY g",
]


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_everything_equals_duckdb(table: qbeast.Table, frame: pl.DataFrame, query: str) -> None:
    rows = frame.select("id", "x", "ts")  # noqa: F841 -- DuckDB finds it by its name
    expected = duckdb.sql(query).pl()
    actual = table.rows(sample=1.0).estimate(query).frame.select(expected.columns)
    assert_frame_equal(
        actual,
        expected.cast(dict(actual.schema)),
        check_row_order=False,
        rel_tol=1e-9,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregates": "SELECT avg(x)", "by": "id"}, "is a query: write groups and conditions in it"),
        ({"aggregates": "SELECT avg(x)", "where": "id < 3"}, "is a query: write groups and conditions in it"),
        ({"aggregates": "SELECT avg(z) FROM self"}, r"no such column\(s\): \['z'\]"),
        ({"aggregates": {"a": "avg(x), sum(x)"}}, "takes one expression for the name 'a'"),
        ({"aggregates": ["avg(x)", "avg(x)"]}, r"has two expressions named 'avg\(x\)'"),
        ({"aggregates": "avg(x)", "by": "avg(x)"}, "several columns or rows at once"),
        ({"aggregates": "avg(x)", "by": "id; DROP TABLE x"}, "second statement"),
    ],
)
def test_invalid_sql_lists_and_queries_raise(
    table: qbeast.Table, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=message):
        estimated(table, **options, error=0.1)


@pytest.mark.parametrize("argument", ["by", "aggregates"])
def test_failing_value_names_its_argument(tmp_path: Path, argument: str) -> None:
    frame = pl.DataFrame({"id": range(1000)}).with_columns(s=pl.format("{} kg", pl.col("id")))
    qbeast.write_table(frame, tmp_path, columns=["id"])
    wrong = pl.col("s").cast(pl.Int64)
    request: dict[str, Any] = {"aggregates": pl.len()} | {
        argument: wrong if argument == "by" else wrong.sum()
    }
    with pytest.raises(qbeast.InvalidInputError, match=f"`{argument}` .* cannot be evaluated") as caught:
        estimated(qbeast.open_table(tmp_path), sample=0.5, **request)
    assert caught.value.argument == argument


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """150,000 visits of three shops, of which one had 100."""
    rows = pl.DataFrame({"id": range(150_000)}).with_columns(
        shop=pl.when(pl.col("id") % 1500 == 7).then(2).otherwise(pl.col("id") % 2), x=pl.col("id") % 97
    )
    path = tmp_path_factory.mktemp("visits")
    qbeast.write_table(rows, path, columns=["id"], cube_size=2000)
    return qbeast.open_table(path)


MEAN = {"m": pl.col("x").mean()}


def test_rare_group_does_not_decide_the_read(visits: qbeast.Table) -> None:
    actual = visits.rows().estimate(MEAN, by="shop", error=0.02)
    truth = visits.read().group_by("shop").agg(**MEAN)
    reliable = dict(actual.frame.select("shop", "reliable").rows())
    assert (actual.met, actual.met_groups, reliable) == (True, 2, {0: True, 1: True, 2: False})
    assert actual.fraction < 0.5
    assert 0.999 < (actual.met_share or 0.0) < 1.0
    large = actual.frame.join(truth, on="shop", suffix="_true").filter("reliable")
    assert (large["m"] / large["m_true"] - 1).abs().max() < 0.02  # pyright: ignore[reportOperatorIssue]
    assert "the error holds for 2 of 3 groups, 99.9 % of the rows" in repr(actual)


def test_all_groups_are_precise_on_request(visits: qbeast.Table) -> None:
    actual = list(visits.rows().estimates(MEAN, by="shop", error=0.02, min_group_rows=0))[-1]
    assert actual.met
    assert actual.frame["reliable"].all()
    assert actual.rows_read > 150_000
    assert f"{actual.rows_read:,} rows were read of 150,000" in actual.notes[-1]
    assert "the error holds" not in repr(actual)


def test_share_of_a_deciding_group_is_a_size(visits: qbeast.Table) -> None:
    with resized(deciding_share=1e-4):
        actual = visits.rows().estimate(MEAN, by="shop", error=0.02)
    assert (actual.met_groups, actual.met_share, actual.fraction) == (3, 1.0, 1.0)


def test_many_equal_groups_all_decide(visits: qbeast.Table) -> None:
    actual = visits.rows().estimate(MEAN, by={"k": pl.col("id") % 1500}, error=0.1)
    assert (actual.met, actual.met_groups) == (True, actual.frame.height)


def test_error_is_a_twentieth_by_default(visits: qbeast.Table) -> None:
    answers = {**MEAN, "n": pl.len()}
    default = visits.rows("x < 50").estimate(answers, absolute={"n": 5_000})
    assert_frame_equal(
        default.frame, visits.rows("x < 50").estimate(answers, error=0.05, absolute={"n": 5_000}).frame
    )
    assert default.fraction < 1.0
