"""Distinct keys of tables: exact where all rows are read, and as in the sample that `read_table` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.plan.weights import sample_to_weights
from tests.helpers.examples import examples
from tests.helpers.tables import folder, sampled, small_files, using

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

USER = pl.col("user")
COUNTS: dict[str, pl.Expr] = {
    "users": USER.n_unique(),
    "named": USER.drop_nulls().n_unique(),
    "large": USER.filter(pl.col("fare") > 12).n_unique(),
}
MIXED = COUNTS | {"fares": pl.col("fare").sum(), "per user": pl.col("fare").sum() / USER.n_unique()}


def rides(seed: int, count: int, users: int = 60) -> pl.DataFrame:
    """Rides of users, of whom some have many; one user is null."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": pl.Series(random.zipf(1.4, count) % users).replace(7, None),
            "fare": random.gamma(2.0, 5.0, count),
            "km": random.gamma(2.0, 3.0, count),
            "kind": random.integers(0, 3, count),
            "row": np.arange(count) + 10_000 * seed,
        }
    )


def create(path: Path, rows: pl.DataFrame, layout: str, **options: Any) -> qbeast.Table:
    if layout == "index":  # heavy users have stretches of rows
        qbeast.write_table(rows, path, columns=["user"], **options)
    else:
        qbeast.write_table(rows, path, columns=["fare", "km"], sample_by=["user"], **options)
    return qbeast.open_table(path)


@examples(1, sweep=90)
@given(
    layout=st.sampled_from(["index", "key"]),
    count=st.integers(1, 400),
    by=st.sampled_from([None, "kind"]),
    where=st.sampled_from([None, pl.col("fare") < 9, USER > 3]),
    operations=st.lists(st.sampled_from(["append", "stage", "delete", "optimize"]), max_size=4),
    sample=st.sampled_from([0.25, (0.2, 0.7), 1.0]),
)
def test_distinct_keys_equal_polars_after_any_operation(
    layout: str, count: int, by: str | None, where: pl.Expr | None, operations: list[str], sample: Any
) -> None:
    with folder() as path, small_files():
        rows = rides(1, count)
        create(path, rows, layout, cube_size=20)
        for number, operation in enumerate(operations, start=2):
            match operation:
                case "append":
                    qbeast.write_table(rides(number, count // 2), path, mode="append")
                case "stage":
                    write_deltalake(path, rides(number, count // 2).to_arrow(), mode="append")
                case "delete":
                    qbeast.open_table(path).delete("km < 1.5")
                    rows = rows.filter(pl.col("km") >= 1.5)
                case _:
                    qbeast.open_table(path).optimize()
            if operation in ("append", "stage"):
                rows = pl.concat([rows, rides(number, count // 2)])
        table = qbeast.open_table(path)
        kept = rows if where is None else rows.filter(where)
        for request in (COUNTS, MIXED):
            assert_exact(table, kept, request, by, where)
        assert_sampled(table, kept, sample, where)


def assert_exact(
    table: qbeast.Table,
    rows: pl.DataFrame,
    request: dict[str, pl.Expr],
    by: str | None,
    where: pl.Expr | None,
) -> None:
    actual = table.rows(where).estimate(request, by=by, error=1e-6)
    assert actual.met
    exprs = {name: expr.cast(pl.Float64) for name, expr in request.items()}
    truth = rows.select(**exprs).fill_nan(None) if by is None else rows.group_by(by).agg(**exprs).sort(by)
    frame = actual.frame if by is None else actual.frame.sort(by)
    assert_frame_equal(frame.select(truth.columns), truth)


def assert_sampled(table: qbeast.Table, rows: pl.DataFrame, sample: Any, where: pl.Expr | None) -> None:
    """Assert that keys of staged rows count once, and other keys of the sample by the inverse of its probability."""
    files = table.rows().files()
    numbers = [pl.read_parquet(path)["row"] for path in files.filter(pl.col("revision_id").is_null())["path"]]
    is_staged = pl.col("row").is_in(pl.concat([pl.Series(dtype=pl.Int64), *numbers]).implode())
    actual = table.rows(where, sample=sample).estimate(COUNTS).frame
    staged, drawn = rows.filter(is_staged), sampled(rows.filter(~is_staged), ["user"], sample)
    conditions = {"users": [], "named": [USER.is_not_null()], "large": [pl.col("fare") > 12]}
    probability = sample_to_weights(sample).probability
    for name, condition in conditions.items():
        certain = set(staged.filter(*condition)["user"])
        others = set(drawn.filter(*condition)["user"]) - certain
        assert actual[name].item() == pytest.approx(len(certain) + len(others) / probability)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(4)
    counts = np.append(random.poisson(10, 20_000), 100_000)  # one giant
    user = np.repeat(np.arange(len(counts)), counts)
    return pl.DataFrame({"user": user, "fare": random.gamma(2, 5, len(user)), "km": random.random(len(user))})


@pytest.fixture(scope="module", params=["key", pytest.param("index", marks=pytest.mark.sweep)])
def giant(
    request: pytest.FixtureRequest, rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> qbeast.Table:
    return create(tmp_path_factory.mktemp("giant") / "t", rows, request.param)


def test_giant_is_no_obstacle(rows: pl.DataFrame, giant: qbeast.Table) -> None:
    """It is one of the users, and its rows are read only if it is in the sample."""
    table = giant
    actual = table.rows().estimate({"n": USER.n_unique()}, error=0.05)
    assert actual.met
    assert actual.fraction < 0.2
    assert actual.frame["n"].item() == pytest.approx(rows["user"].n_unique(), rel=0.05)
    mixed = table.rows().estimate({"it": pl.col("fare").sum() / USER.n_unique()}, error=0.05)
    assert mixed.met
    assert mixed.fraction < 0.2
    expected = rows["fare"].sum() / rows["user"].n_unique()
    assert mixed.frame["it"].item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("trials", "least"), [(8, 7), pytest.param(20, 16, marks=pytest.mark.sweep)])
def test_intervals_of_samples_hold_true_counts(
    rows: pl.DataFrame, giant: qbeast.Table, trials: int, least: int
) -> None:
    """Disjoint samples are independent trials."""
    truth, held = rows.filter(pl.col("km") < 0.1)["user"].n_unique(), 0
    for step in range(trials):
        sample = (step / 20, (step + 1) / 20)
        frame = giant.rows("km < 0.1", sample=sample).estimate({"n": USER.n_unique()}).frame
        held += frame["n_low"].item() <= truth <= frame["n_high"].item()
    assert held >= least


def test_sql_counts_distinct_values_without_null(tmp_path: Path) -> None:
    rows = rides(1, 2_000)
    table = create(tmp_path / "t", rows, "key")
    columns = "kind, count(DISTINCT user) AS n, count(DISTINCT user) FILTER (WHERE km > 5) AS f"
    text = f"SELECT {columns} FROM self GROUP BY kind"  # noqa: S608 - a text of this test
    actual = table.rows().estimate(text, error=1e-6).frame.select("kind", "n", "f").sort("kind")
    query = text.replace("self", "rows").replace("user", '"user"') + " ORDER BY kind"
    with duckdb.connect() as connection:
        assert actual.rows() == connection.sql(query).fetchall()


def test_keys_of_several_columns_are_counted_together(tmp_path: Path) -> None:
    rows = rides(2, 3_000)
    qbeast.write_table(rows, tmp_path / "t", columns=["fare"], sample_by=["user", "kind"])
    table = qbeast.open_table(tmp_path / "t")
    request = {"pairs": pl.struct("kind", "user").n_unique(), "sql": "count(DISTINCT (user, kind))"}
    with duckdb.connect() as connection:
        in_sql = connection.sql('SELECT count(DISTINCT ("user", kind)) FROM rows').fetchall()[0][0]
    actual = table.rows().estimate(request, error=1e-6).frame
    assert actual["pairs"].item() == rows.select(pl.struct("user", "kind").n_unique()).item()
    assert actual["sql"].item() == in_sql
    with pytest.raises(
        qbeast.InvalidInputError, match=r"sampled by \['user', 'kind'\].*columns=\[\"user\"\]"
    ):
        table.rows().estimate({"n": USER.n_unique()}, error=0.1)


@pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
def test_keys_of_another_sample_are_exact(tmp_path: Path) -> None:
    rows = rides(3, 3_000)
    table = create(tmp_path / "t", rows, "key")
    actual = table.rows(sample_by=["kind"]).estimate({"n": pl.col("kind").n_unique()}, error=0.1)
    assert (actual.fraction, actual.frame["n"].item()) == (1.0, 3.0)
    write_deltalake(tmp_path / "plain", rows.to_arrow())
    plain = qbeast.open_table(tmp_path / "plain")
    with pytest.raises(qbeast.InvalidInputError, match="no sampling key"):
        plain.rows().estimate({"n": USER.n_unique()}, error=0.1)
    assert (
        plain.rows(sample_by=["user"]).estimate({"n": USER.n_unique()}, error=0.1).frame["n"].item()
        == rows["user"].n_unique()
    )


def test_too_many_keys_for_memory_raise(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": range(300_000), "fare": 1.0})
    table = create(tmp_path / "t", rows.with_columns(km=pl.col("user") * 0.5), "key")
    with pytest.raises(
        qbeast.InvalidInputError, match=r"distinct keys take .* request no distinct keys"
    ) as raised:
        using(table, qbeast.Resources(memory_bytes=4 << 20)).rows().estimate(
            {"n": USER.n_unique()}, error=1e-6
        )
    assert raised.value.argument == "memory_bytes"
