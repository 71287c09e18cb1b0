"""Proposed columns serve the queries, tell rows apart, and come with reasons."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast import suggest_columns

ROWS = pl.select(id=pl.int_range(60_000)).with_columns(
    price=pl.col("id") * 7919 % 10_007,
    day=pl.col("id") // 600,
    noon=(pl.col("id") // 600).cast(pl.Float64) + 0.5,
    store=pl.col("id") * 13 % 20,
    flag=pl.col("id") % 2 == 0,
    text=pl.format("text {}", pl.col("id") * 31 % 977),
)
QUERIES = [
    "price < 100",
    "text = 'text 7'",
    pl.col("price").is_between(500, 600) & (pl.col("text") < "text 2"),
]


def mean_share(path: Path, columns: list[str], queries: list[pl.Expr | str]) -> float:
    qbeast.write_table(ROWS, path, columns=columns, cube_size=500)
    table = qbeast.open_table(path)
    return sum(table.explain(query).share for query in queries) / len(queries)


def test_queries_open_less_of_a_table_indexed_as_proposed(tmp_path: Path) -> None:
    asked = suggest_columns(ROWS, QUERIES)
    assert set(asked.columns) == {"price", "text"}
    assert mean_share(tmp_path / "a", list(asked.columns), QUERIES) < 0.5 * mean_share(
        tmp_path / "b", ["day", "store", "id"], QUERIES
    )


def test_of_columns_that_follow_each_other_one_is_proposed() -> None:
    found = suggest_columns(ROWS)
    assert len({"id", "day", "noon"} & {name.partition(":")[0] for name in found.columns}) == 1
    follows = dict(found.frame.drop_nulls("follows").select("column", "follows").iter_rows())
    assert {"id", "day", "noon"} >= set(follows)
    assert set(follows.values()) < {"id", "day", "noon"}


def test_rows_are_told_apart_by_hash_where_keys_repeat() -> None:
    found = suggest_columns(ROWS, ["day = 3 AND store = 4"], most=2)
    assert {"id:hash", "text:hash", "price:hash"} & set(found.columns)
    assert found.design_effect < 2


def test_times_tell_rows_apart_without_a_hash(tmp_path: Path) -> None:
    """Dates and timestamps have no hash: what is proposed has to be what a write takes."""
    n = pl.int_range(4_000)
    rows = pl.select(store=n % 5, shelf=n * 7 % 8, at=pl.datetime(2020, 1, 1) + pl.duration(minutes=n))
    found = suggest_columns(rows, ["store = 3", "shelf = 2"], most=2)
    assert found.columns[-1] == "at"
    assert found.design_effect == 1.0
    qbeast.write_table(rows, tmp_path / "t", columns=found.columns)


def test_a_query_that_names_no_column_decides_nothing() -> None:
    assert (
        suggest_columns(ROWS, [*QUERIES, "1 = 1", "1 = 2"]).columns == suggest_columns(ROWS, QUERIES).columns
    )


def test_every_column_has_a_reason() -> None:
    found = suggest_columns(ROWS, QUERIES)
    assert sorted(found.frame["column"]) == sorted(ROWS.columns)
    assert found.frame["reason"].null_count() == 0
    assert "its type cannot be indexed" in repr(found)
    assert all(name in found._repr_html_() for name in ROWS.columns)


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
def test_odd_rows_get_a_proposal_that_can_be_written(rows: pl.DataFrame, tmp_path: Path) -> None:
    found = suggest_columns(rows)
    with (
        pytest.warns(qbeast.DesignEffectWarning)
        if found.design_effect > 2 and rows.height > 1
        else nullcontext()
    ):
        qbeast.write_table(rows, tmp_path / "t", columns=list(found.columns))


def test_what_cannot_be_answered_is_refused() -> None:
    with pytest.raises(qbeast.InvalidInputError, match="no rows"):
        suggest_columns(ROWS.clear())
    with pytest.raises(qbeast.InvalidInputError, match="nowhere"):
        suggest_columns(ROWS, ["nowhere = 1"])
    with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated"):
        suggest_columns(ROWS, ["CAST(text AS INT) = 1"])
    with pytest.raises(qbeast.InvalidInputError, match="`most` must be"):
        suggest_columns(ROWS, most=0)
    with pytest.raises(qbeast.InvalidColumnsError, match="can be indexed"):
        suggest_columns(pl.DataFrame({"a": [True]}))
