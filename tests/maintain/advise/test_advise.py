"""The advice of a table opens as few bytes as the best of all pairs, and as many as it claims."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.support.sizing import Sizing
from qbeast_core.table.advise.advise import table_sample
from tests.helpers.deletion_vectors import delete
from tests.helpers.examples import is_sweep
from tests.helpers.small_files import resized

RANDOM = np.random.default_rng(7)
ROWS = 40_000 if is_sweep() else 10_000
ORDERS = pl.DataFrame(
    {
        "ship": RANDOM.integers(0, 2_500, ROWS),
        "price": RANDOM.gamma(2.0, 1_000.0, ROWS).round(2),
        "supplier": RANDOM.integers(0, 1_000, ROWS),
        "mode": RANDOM.choice(["air", "fob", "mail", "rail", "ship", "truck"], ROWS),
        "order": np.arange(ROWS) // 4,
        "urgent": RANDOM.random(ROWS) < 0.1,
    }
).with_columns(ship=pl.date(1992, 1, 1) + pl.duration(days="ship"))
COLUMNS = ["ship", "price", "supplier", "mode", "order"]
WORKLOADS: list[list[str]] = [
    ["price > 5000"],
    ["ship BETWEEN DATE '1995-03-01' AND DATE '1995-04-30'", "supplier < 30"],
    ["mode = 'mail' AND price < 900", "mode IN ('air', 'ship') AND price < 500", '"order" < 1000'],
]


def write(
    path: Path, columns: list[str], rows: pl.DataFrame = ORDERS, cube_size: int | None = None
) -> qbeast.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.DesignEffectWarning)
        qbeast.write_table(
            rows, path, columns=columns, cube_size=cube_size, mode="overwrite", schema_mode="overwrite"
        )
    return qbeast.open_table(path)


def names(advice: qbeast.Advice) -> list[str]:
    return [text.partition(":")[0] for text in advice.columns]


def opened(table: qbeast.Table, queries: list[str]) -> list[int]:
    return [table.rows(query).explain().bytes_opened for query in queries]


@pytest.mark.parametrize("query", ["nope > 1", "price >", "price", "mode + 1 > 0", pl.col("nope") > 1, 3])
def test_invalid_query_is_named_as_the_argument(tmp_path: Path, query: Any) -> None:
    table = write(tmp_path / "t", ["price"], ORDERS.head(100))
    for ask in (table.advise, partial(qbeast.suggest_columns, ORDERS.head(100))):
        with pytest.raises(qbeast.InvalidInputError, match=r"^`queries` ") as caught:
            ask([query])
        assert caught.value.argument == "queries"


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_advice_leaves_out_partition_columns(tmp_path: Path) -> None:
    qbeast.write_table(ORDERS.head(6_000), tmp_path, columns=["order"], partition_by="mode", cube_size=300)
    table = qbeast.open_table(tmp_path)
    queries = ["mode = 'mail'", "mode = 'air' AND price > 5000"]
    advice = table.advise(queries)
    assert names(advice) == ["price"]
    table.reindex(advice.columns, cube_size=advice.cube_size)
    table.optimize(full=True)
    assert opened(table, queries)[0] == pytest.approx(advice.queries["bytes_advised"][0], rel=0.2)
    with pytest.raises(qbeast.InvalidInputError, match="partition columns"):
        table.advise(["mode = 'mail'"])


@pytest.fixture(scope="module")
def by_order(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    return write(tmp_path_factory.mktemp("orders") / "t", ["order"])


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Fewest mean bytes of each workload, over tables indexed by one column, in a sweep by two as well."""
    folder = tmp_path_factory.mktemp("best")
    sets = [*combinations(COLUMNS, 1), *(combinations(COLUMNS, 2) if is_sweep() else ())]
    means = [
        [float(np.mean(opened(table, queries))) for queries in WORKLOADS]
        for table in (write(folder / "t", list(columns)) for columns in sets)
    ]
    return [min(column) for column in zip(*means, strict=True)]


@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(number, marks=pytest.mark.sweep) for number in (1, 2))],
)
def test_advised_index_opens_what_is_expected(
    number: int, by_order: qbeast.Table, best: list[float], tmp_path: Path
) -> None:
    queries = WORKLOADS[number]
    advice = by_order.advise(queries)
    written = opened(write(tmp_path / "t", list(advice.columns), cube_size=advice.cube_size), queries)
    assert not advice.keep
    assert np.mean(written) <= 1.1 * best[number]
    assert advice.bytes_opened == pytest.approx(np.mean(written), rel=0.15)
    now = opened(by_order, queries)
    assert advice.bytes_opened_now == np.mean(now)
    assert advice.queries["query"].to_list() == queries
    assert advice.queries["bytes_now"].to_list() == now
    assert advice.queries["bytes_advised"].mean() == pytest.approx(advice.bytes_opened, abs=1)
    assert advice.alternatives["bytes_opened"].is_sorted()


def test_best_index_is_kept(tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["price"])
    advice = table.advise(["price > 5000", pl.col("price") < 100])
    assert (advice.keep, advice.columns, advice.cube_size) == (True, ("price",), table.cube_size)
    assert advice.bytes_opened == advice.bytes_opened_now
    assert advice.queries["bytes_advised"].equals(advice.queries["bytes_now"], check_names=False)
    assert repr(advice).startswith("keep columns=['price']")


@pytest.mark.parametrize(("prices", "suppliers", "column"), [(8, 1, "price"), (1, 8, "supplier")])
def test_repeated_query_counts_more(by_order: qbeast.Table, prices: int, suppliers: int, column: str) -> None:
    queries = ["supplier < 10"] * suppliers + ["price > 5000"] * prices
    assert names(by_order.advise(queries, most=1)) == [column]


def test_files_without_index_are_compared(tmp_path: Path) -> None:
    """A converted table has no cubes: its sample is taken of all rows, and what it opens now is the whole table."""
    write_deltalake(str(tmp_path / "t"), ORDERS.to_arrow())
    qbeast.convert_table(tmp_path / "t", columns=["order"])
    table = qbeast.open_table(tmp_path / "t")
    advice = table.advise(["price > 5000"])
    assert advice.bytes_opened_now == table.rows("price > 5000").explain().bytes_opened
    assert names(advice) == ["price"]
    assert not advice.keep


def test_deleted_rows_do_not_count(tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["order"])
    delete(tmp_path / "t", list(range(0, ROWS // 5, 2)))
    table.refresh()
    sample = table_sample(table.planner, rows=10_000)
    assert sample.table_rows == table.count() == ROWS - ROWS // 10
    assert set(sample.rows.rows()) <= set(table.read().rows())
    assert names(table.advise(["price > 5000"])) == ["price"]


def test_hashed_column_of_table_gets_its_kind(tmp_path: Path) -> None:
    """A rewrite keeps a column hashed if no kind is named."""
    advice = write(tmp_path / "t", ["price:hash"]).advise(["price BETWEEN 100 AND 150"])
    assert advice.columns == ("price:quantiles",)


@pytest.mark.parametrize(
    ("count", "most"),
    [(24_000, 8_000), pytest.param(300_000, Sizing().advised_rows, marks=pytest.mark.sweep)],
)
def test_sample_by_own_columns_is_like_the_table(count: int, most: int, tmp_path: Path) -> None:
    """A sample has the lowest weights of the index of its table: an index on these columns needs other weights."""
    rows = pl.select(id=pl.int_range(count)).with_columns(price=pl.col("id") * 7919 % 100_003)
    rows = rows.sample(
        count, shuffle=True, seed=3
    )  # pages keep the order of their rows, and a table has another
    table, other = write(tmp_path / "t", ["price"], rows), write(tmp_path / "u", ["id"], rows)
    with resized(advised_rows=most):
        advice, again = table.advise(["price < 20000"]), other.advise(["price < 20000"])
    assert advice.keep
    assert again.bytes_opened == pytest.approx(advice.bytes_opened_now, rel=0.15)


def test_sample_of_clustered_table_has_all_keys(tmp_path: Path) -> None:
    rows = pl.select(key=pl.int_range(60_000) % 20, id=pl.int_range(60_000))
    table = write(tmp_path / "t", ["key"], rows)
    sample = table_sample(table.planner, rows=6_000)
    counts = sample.rows["key"].value_counts()["count"]
    assert sample.table_rows == 60_000
    assert len(counts) == 20
    assert counts.min() > 150  # of 300 expected  # type: ignore[operator]


def test_sample_stays_within_bytes(by_order: qbeast.Table) -> None:
    sample = table_sample(by_order.planner, rows=ROWS, max_bytes=200_000)
    assert 0 < sample.rows.estimated_size() <= 200_000
    assert sample.table_rows == ROWS
    assert sample.rows["order"].mean() == pytest.approx(ROWS / 8, rel=0.2)


def test_advice_shows_queries_and_alternatives(by_order: qbeast.Table) -> None:
    advice = by_order.advise(["price > 5000", "supplier = 7", "supplier = 8", "price < 100"])
    assert "bytes now" in repr(advice)
    assert "and 1 more" in repr(advice)
    assert all(text in advice._repr_html_() for text in ("supplier = 8", "cube_size"))


def test_invalid_requests_raise(by_order: qbeast.Table, tmp_path: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="at least one condition"):
        by_order.advise([])
    with pytest.raises(qbeast.InvalidInputError, match="list of conditions"):
        by_order.advise("price > 1")
    with pytest.raises(qbeast.InvalidInputError, match="`most` must be"):
        by_order.advise(["price > 1"], most=9)
    with pytest.raises(qbeast.InvalidInputError, match="column that can be indexed"):
        by_order.advise(["urgent"])
    with pytest.raises(qbeast.InvalidInputError, match="nowhere"):
        by_order.advise(["nowhere = 1"])
    with pytest.raises(qbeast.InvalidInputError, match="has no rows"):
        write(tmp_path / "t", ["price"], ORDERS.clear()).advise(["price > 1"])


def test_advice_is_the_same_if_few_trials_are_kept(tmp_path: Path) -> None:
    table = write(tmp_path / "t", ["price"])
    advice = table.advise(["price > 5000"], most=1)
    with resized(kept_trial_rows=1):
        assert table.advise(["price > 5000"], most=1).bytes_opened == advice.bytes_opened
