"""Proposed columns serve the queries, make keys unique, and come with reasons."""

from __future__ import annotations

import re
import warnings
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast import suggest_columns
from tests.helpers.examples import is_sweep

ROWS = pl.select(id=pl.int_range(30_000)).with_columns(
    price=pl.col("id") * 7919 % 10_007,
    day=pl.col("id") // 300,
    noon=(pl.col("id") // 300).cast(pl.Float64) + 0.5,
    store=pl.col("id") * 13 % 20,
    flag=pl.col("id") % 2 == 0,
    text=pl.format("text {}", pl.col("id") * 31 % 977),
)
QUERIES: list[pl.Expr | str] = [
    "price < 100",
    "text = 'text 7'",
    pl.col("price").is_between(500, 600) & (pl.col("text") < "text 2"),
]


COUNT = 60_000 if is_sweep() else 30_000
RANDOM = np.random.default_rng(29)
ORDERS = (
    pl.DataFrame(
        {
            "ship": RANDOM.integers(0, 2_500, COUNT),
            "days": RANDOM.integers(1, 31, COUNT),
            "price": RANDOM.gamma(2.0, 1_000.0, COUNT),
            "supplier": RANDOM.integers(0, 1_000, COUNT),
            "mode": RANDOM.choice(["air", "fob", "mail", "rail", "reg air", "ship", "truck"], COUNT),
            "order": np.arange(COUNT) // 4,
            "note": RANDOM.integers(0, 2**62, COUNT),
        }
    )
    .with_columns(ship=pl.date(1992, 1, 1) + pl.duration(days="ship"))
    .with_columns(arrival=pl.col("ship") + pl.duration(days="days"))
)
"""Rows in the order of `order`; `arrival` follows `ship`, the others follow nothing."""

SOME = ORDERS.sample(3_000, seed=1)
SHIPPED = "ship BETWEEN DATE '1995-03-01' AND DATE '1995-04-30'"
FILTERS = [
    SHIPPED,
    "arrival < DATE '1992-06-01'",
    "price > 5000",
    "supplier = 77",
    "mode = 'mail'",
    '"order" < 1000',
    "ship < DATE '1993-01-01' AND supplier < 200",
    "mode IN ('air', 'ship') AND price < 900",
]


def share(path: Path, columns: list[str], query: pl.Expr | str, rows: pl.DataFrame = ROWS) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        qbeast.write_table(rows, path, columns=columns)
    return qbeast.open_table(path).rows(query).explain().share


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[int]]:
    """Bytes that each filter opens of a table of `ORDERS`, by one or two columns that it is indexed by."""
    folder = tmp_path_factory.mktemp("orders")
    kinds = ["price", "supplier", "mode", "supplier:hash", "mode:hash"]
    pairs = [("price", "mode"), ("price", "mode:hash")]
    if is_sweep():
        kinds += ["ship", "arrival", "order"]
        pairs = [item for item in combinations(kinds, 2) if len({name.split(":")[0] for name in item}) == 2]
    actual: dict[tuple[str, ...], list[int]] = {}
    for number, columns in enumerate([*((item,) for item in kinds), *pairs]):
        share(folder / str(number), list(columns), SHIPPED, ORDERS)
        table = qbeast.open_table(folder / str(number))
        actual[columns] = [table.rows(query).explain().bytes_opened for query in FILTERS]
    return actual


QUERIES_OF_ORDERS = [
    pytest.param(query, marks=() if query == FILTERS[3] else pytest.mark.sweep) for query in FILTERS
]
ALL_ROWS = pytest.param(ORDERS, id="all rows", marks=pytest.mark.sweep)
SOME_ROWS = pytest.param(SOME, id="some rows")
FIRST_ROWS = pytest.param(ORDERS.head(3_000), id="first rows", marks=pytest.mark.sweep)


@pytest.mark.parametrize("query", QUERIES_OF_ORDERS)
@pytest.mark.parametrize("rows", [ALL_ROWS, SOME_ROWS, FIRST_ROWS])
def test_suggestion_reads_like_the_best_pair(
    query: str, rows: pl.DataFrame, opened: dict[tuple[str, ...], list[int]], tmp_path: Path
) -> None:
    columns = suggest_columns(rows, [query]).columns
    assert {name.partition(":")[0] for name in columns} <= set(pl.sql_expr(query).meta.root_names())
    share(tmp_path / "t", list(columns), query, ORDERS)
    bytes_opened = qbeast.open_table(tmp_path / "t").rows(query).explain().bytes_opened
    most = 1.25 if query == "mode = 'mail'" else 1.15  # few values: where cubes divide them decides
    assert bytes_opened <= most * min(shares[FILTERS.index(query)] for shares in opened.values())


@pytest.mark.parametrize("query", QUERIES_OF_ORDERS)
@pytest.mark.parametrize("rows", [ALL_ROWS, SOME_ROWS])
def test_claimed_savings_hold_when_written(query: str, rows: pl.DataFrame, tmp_path: Path) -> None:
    actual = suggest_columns(rows, [query], table_rows=ORDERS.height)
    measured = share(tmp_path / "t", list(actual.columns), query, ORDERS)
    assert actual.opened == pytest.approx(measured, rel=0.15)
    alone = share(tmp_path / "alone", [actual.columns[0]], query, ORDERS)
    assert actual.frame["alone"][0] == pytest.approx(alone, rel=0.15)


def test_sample_does_not_know_column_ends() -> None:
    """Rows beyond those of a sample may match: a filter on them is served by its column all the same."""
    some = ORDERS.head(8_000).filter(pl.col("price") < 4_000)
    actual = suggest_columns(some, ["price > 4500", SHIPPED], table_rows=ORDERS.height)
    assert set(actual.columns) == {"price", "ship"}
    assert suggest_columns(some, ["price > 1000000"]).opened == 0


def test_tie_prefers_the_filtered_column() -> None:
    """The first rows of a file show nothing of a later month, and two columns that follow each other tie."""
    first = ORDERS.sort("ship").head(3_000)
    assert suggest_columns(first, [SHIPPED]).columns == ("ship",)
    assert suggest_columns(ORDERS, [SHIPPED]).columns == ("ship",)


def mean_share(path: Path, columns: list[str], queries: list[pl.Expr | str]) -> float:
    qbeast.write_table(ROWS, path, columns=columns, cube_size=500)
    table = qbeast.open_table(path)
    return sum(table.rows(query).explain().share for query in queries) / len(queries)


@pytest.fixture(scope="module")
def suggested() -> qbeast.SuggestedColumns:
    return suggest_columns(ROWS, QUERIES)


def test_queries_read_less_with_suggested_index(suggested: qbeast.SuggestedColumns, tmp_path: Path) -> None:
    assert set(suggested.columns) == {"price", "text"}
    assert mean_share(tmp_path / "a", list(suggested.columns), QUERIES) < 0.5 * mean_share(
        tmp_path / "b", ["day", "store", "id"], QUERIES
    )


def test_only_one_of_correlated_columns_is_suggested() -> None:
    actual = suggest_columns(ROWS.gather_every(6))
    assert len({"id", "day", "noon"} & {name.partition(":")[0] for name in actual.columns}) == 1
    follows = dict(actual.frame.drop_nulls("follows").select("column", "follows").iter_rows())
    assert {"id", "day", "noon"} >= set(follows)
    assert set(follows.values()) < {"id", "day", "noon"}


def test_repeated_keys_suggest_a_hash() -> None:
    actual = suggest_columns(ROWS.select("day", "store", "id"), most=2)
    assert "id:hash" in actual.columns
    assert actual.design_effect < 2


def test_separating_column_is_named_with_cost() -> None:
    """A query pays for a column that it does not name: the proposal leaves it out and says what it costs."""
    actual = suggest_columns(
        ROWS.select("id", "day", "store").gather_every(4), ["day = 3 AND store = 4"], most=2
    )
    assert {name.partition(":")[0] for name in actual.columns} <= {"day", "store"}
    assert actual.design_effect > 2
    reason = actual.frame.row(by_predicate=pl.col("column") == "id", named=True)["reason"]
    report = re.fullmatch(
        r"added as 'id:hash' it makes keys unique, .* (\d+)% of the .* instead of (\d+)%", reason
    )
    assert report is not None
    assert int(report[1]) > int(report[2]) == round(100 * actual.opened)


def test_times_separate_rows_without_hash(tmp_path: Path) -> None:
    """Dates and timestamps have no hash: what is proposed has to be what a write takes."""
    n = pl.int_range(4_000)
    rows = pl.select(store=n % 5, shelf=n * 7 % 8, at=pl.datetime(2020, 1, 1) + pl.duration(minutes=n))
    actual = suggest_columns(rows, most=2)
    assert "at" in actual.columns
    assert actual.design_effect == 1.0
    qbeast.write_table(rows, tmp_path / "t", columns=actual.columns)


def test_query_without_columns_is_ignored() -> None:
    few = ROWS.head(5_000)
    expected = suggest_columns(few, QUERIES[:1]).columns
    assert suggest_columns(few, [QUERIES[0], "1 = 1", "1 = 2"]).columns == expected


def test_every_column_has_a_reason(suggested: qbeast.SuggestedColumns) -> None:
    assert sorted(suggested.frame["column"]) == sorted(ROWS.columns)
    assert suggested.frame["reason"].null_count() == 0
    assert "its type cannot be indexed" in repr(suggested)
    assert all(name in suggested._repr_html_() for name in ROWS.columns)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.select("id"),
        ROWS.select("store"),
        pl.DataFrame({"a": [1, 1, 1]}),
        pl.DataFrame({"a": [None, None]}, schema={"a": pl.Int64}),
        pl.DataFrame({"a": [float("nan"), 1.0, None], "b": ["x", "y", None]}),
        ROWS.head(1),
    ],
)
def test_odd_rows_get_a_writable_suggestion(rows: pl.DataFrame, tmp_path: Path) -> None:
    actual = suggest_columns(rows)
    with (
        pytest.warns(qbeast.DesignEffectWarning)
        if actual.design_effect > 2 and rows.height > 1
        else nullcontext()
    ):
        qbeast.write_table(rows, tmp_path / "t", columns=list(actual.columns))


def test_invalid_requests_raise() -> None:
    with pytest.raises(qbeast.InvalidInputError, match="no rows"):
        suggest_columns(ROWS.clear())
    with pytest.raises(qbeast.InvalidInputError, match="nowhere"):
        suggest_columns(ROWS, ["nowhere = 1"])
    with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated"):
        suggest_columns(ROWS, ["CAST(text AS INT) = 1"])
    with pytest.raises(qbeast.InvalidInputError, match="`most` must be"):
        suggest_columns(ROWS, most=0)
    with pytest.raises(qbeast.InvalidInputError, match="`table_rows` must be"):
        suggest_columns(ROWS, table_rows=10)
    with pytest.raises(qbeast.InvalidColumnsError, match="can be indexed"):
        suggest_columns(pl.DataFrame({"a": [True]}))
