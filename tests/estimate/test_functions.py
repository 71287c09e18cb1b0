"""Estimates of functions of rows: the rows they get, rounds, bad functions and refused arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast import InvalidInputError
from tests.helpers.small_files import resized
from tests.helpers.tables import estimated, using


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(2)
    user = np.repeat(np.arange(12_000), random.integers(1, 10, 12_000))
    x = random.normal(10, 2, len(user))
    y = x * (1 + 0.2 * random.normal(size=12_000)[user]) + random.normal(size=len(user))
    return pl.DataFrame({"user": user, "x": x, "y": y, "at": random.integers(0, 1_000, len(user))})


@pytest.fixture(scope="module")
def table(rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = str(tmp_path_factory.mktemp("functions") / "table")
    qbeast.write_table(rows, path, columns=["at"], sample_by=["user"])
    return qbeast.open_table(path)


def ratio(rows: pl.DataFrame) -> float:
    return rows.select(pl.col("y").sum() / pl.col("x").sum()).item()


def spread_per_user(rows: pl.DataFrame) -> float:
    spend = rows.group_by("user").agg(pl.col("y").sum())["y"].to_numpy()
    return float(spend.std() / spend.mean())


FUNCTIONS = [
    ratio,
    spread_per_user,
    lambda rows: rows.select(pl.corr("x", "y")).item(),
    lambda rows: np.polyfit(rows["x"].to_numpy(), rows["y"].to_numpy(), 1)[0],
    lambda rows: rows["y"].median(),
]


@pytest.mark.parametrize(
    "where", ["at < 700", *(pytest.param(where, marks=pytest.mark.sweep) for where in (None, "at < 100"))]
)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_gets_the_rows_of_the_sample(
    table: qbeast.Table, function: Callable[[pl.DataFrame], float], where: str | None
) -> None:
    sampled = table.read(sample=0.2, where=where)
    found = table.rows(where, sample=0.2).estimate(function)
    assert found.frame[found.names[0]].item() == pytest.approx(function(sampled))
    assert found.frame["rows_sampled"].item() == sampled.height
    assert found.met is None


@pytest.mark.parametrize("function", FUNCTIONS[:3])
def test_error_is_met_by_a_part_of_the_rows(
    table: qbeast.Table, rows: pl.DataFrame, function: Callable[[pl.DataFrame], float]
) -> None:
    found = table.rows().estimate(function, error=0.04)
    assert found.met
    assert found.fraction < 1
    assert found.rows_read < rows.height
    low, high = (found.frame[f"{found.names[0]}_{end}"].item() for end in ("low", "high"))
    assert low <= function(rows) <= high
    assert max(high, -low) - abs(found.frame[found.names[0]].item()) <= 0.04 * abs(high)


@pytest.mark.parametrize(
    "function",
    [
        lambda rows: rows["x"].sum(),
        lambda rows: rows.height,
        lambda rows: rows["user"].n_unique(),
        lambda rows: rows["x"].max(),
    ],
    ids=["sum", "rows", "users", "max"],
)
def test_functions_that_grow_read_all_rows(
    table: qbeast.Table, rows: pl.DataFrame, function: Callable[[pl.DataFrame], float]
) -> None:
    sampled = table.rows(sample=0.3).estimate(function)
    assert not sampled.frame["reliable"].item()
    assert "is not reliable: " in sampled.notes[0]
    for where, kept in ((None, rows), ("at < 300", rows.filter(pl.col("at") < 300))):
        found = table.rows(where).estimate(function, error=0.1)
        assert found.met
        assert found.frame["value"].item() == pytest.approx(function(kept))
        assert found.frame["value_low"].item() == found.frame["value_high"].item()


def test_limit_leaves_a_growing_function_unreliable(table: qbeast.Table) -> None:
    found = table.rows().estimate(lambda rows: rows.height, error=0.1, max_fraction=0.4)
    assert not found.met
    assert not found.frame["reliable"].item()
    few = table.rows().estimate(ratio, error=0.0001, max_bytes=found.bytes_total // 3)
    assert not few.met
    assert few.bytes_opened <= found.bytes_total // 3


def test_giant_user_is_answered_from_all_rows(rows: pl.DataFrame, tmp_path: Path) -> None:
    giant = pl.select(user=pl.repeat(-1, 15_000), x=1.0, y=9.0, at=pl.int_range(15_000) % 1_000)
    both = pl.concat([rows, giant.cast(dict(rows.schema))])
    qbeast.write_table(both, str(tmp_path / "t"), columns=["at"], sample_by=["user"])
    found = qbeast.estimate(str(tmp_path / "t"), ratio, error=0.1)
    assert found.fraction == 1
    assert found.frame["ratio"].item() == pytest.approx(ratio(both))


def test_staged_rows_are_sampled_by_user(rows: pl.DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    qbeast.write_table(rows[:20_000], path, columns=["at"], sample_by=["user"])
    write_deltalake(path, rows[20_000:], mode="append")
    sampled = qbeast.read_table(path, sample=0.3)
    found = qbeast.estimate(path, spread_per_user, columns=["user", "y"], sample=0.3)
    assert found.frame["spread_per_user"].item() == pytest.approx(spread_per_user(sampled))
    assert found.frame["rows_sampled"].item() == sampled.height


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (lambda rows: {"a": rows["x"].mean(), "b": rows["y"].mean()}, ("a", "b")),
        (lambda rows: (rows["x"].mean(), rows["y"].mean()), ("value_0", "value_1")),
        (lambda rows: np.array([rows["x"].mean(), rows["y"].mean()]), ("value_0", "value_1")),
        (lambda rows: pl.Series([rows["x"].mean(), rows["y"].mean()]), ("value_0", "value_1")),
        (lambda rows: rows.select(pl.col("x", "y").mean()), ("x", "y")),
        (lambda rows: np.float32(rows["x"].mean()), ("value",)),
    ],
)
def test_returned_numbers_are_named(table: qbeast.Table, returned: Any, names: tuple[str, ...]) -> None:
    found = table.rows(columns=["x", "y"], sample=0.2).estimate(returned)
    sampled = table.read(sample=0.2)
    assert found.names == names
    actual = [found.frame[name].item() for name in names]
    assert actual == pytest.approx([sampled["x"].mean(), sampled["y"].mean()][: len(names)], rel=1e-6)


def test_function_gets_only_the_listed_columns(table: qbeast.Table) -> None:
    seen: set[tuple[str, ...]] = set()

    def mean(rows: pl.DataFrame) -> Any:
        seen.add(tuple(rows.columns))
        return rows["y"].mean()

    table.rows(where="x > 9", columns=["y"], sample=0.1).estimate(mean)
    assert seen == {("y",)}


def other_names() -> Callable[[pl.DataFrame], dict[str, float]]:
    calls: list[int] = []

    def function(_: pl.DataFrame) -> dict[str, float]:
        calls.append(1)
        return {f"name {len(calls)}": 1.0}

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: rows["x"].mean() / 0, "raised ZeroDivisionError"),
        (lambda _: "text", "returned 'text'"),
        (lambda _: True, "returned True"),
        (lambda _: [], "returned no number"),
        (lambda _: {1: 2.0}, "the key 1"),
        (lambda rows: rows, "a frame of"),
        (lambda _: {"reliable": 1.0}, "two columns 'reliable'"),
        (lambda _: {"a": 1.0, "a_low": 1.0}, "two columns 'a_low'"),
        (other_names(), "returned ['name 1'] first"),
    ],
)
def test_bad_functions_are_named(table: qbeast.Table, function: Any, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.rows(sample=0.2).estimate(function)
    assert message in str(caught.value)
    assert caught.value.argument == "aggregates"


@pytest.mark.parametrize("value", [np.nan, np.inf, None])
def test_answers_without_a_number_have_no_bound(table: qbeast.Table, value: float | None) -> None:
    found = table.rows(sample=0.2).estimate(lambda _: value)
    assert found.frame.select("value_low", "value_high").row(0) == (None, None)
    assert not found.frame["reliable"].item()
    assert "NaN or an infinity" in found.notes[0]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"by": "at"}, "by"),
        ({"join": (pl.DataFrame({"at": [1]}), "at")}, "join"),
        ({"error": 0.1, "replicates": 31}, "replicates"),
        ({"error": 0.1, "columns": ["z"]}, "columns"),
        ({"absolute": {"other": 1.0}}, "absolute"),
        ({"absolute": {"ratio": 1.0}, "sample": 0.1}, "sample"),
        ({"error": 0.1, "max_bytes": 10}, "max_bytes"),
    ],
)
def test_refused_arguments_are_named(table: qbeast.Table, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        estimated(table, ratio, **options)
    assert caught.value.argument == argument


def test_memory_of_the_table_limits_the_sample(table: qbeast.Table) -> None:
    with resized(min_memory_bytes=1):
        small = using(table, qbeast.Resources(memory_bytes=100_000))
    with resized(min_memory_bytes=1), pytest.raises(InvalidInputError) as caught:
        small.rows().estimate(ratio, error=0.0001)
    assert caught.value.argument == "memory_bytes"


def test_columns_are_refused_without_a_function(table: qbeast.Table) -> None:
    with pytest.raises(InvalidInputError, match="not a function"):
        table.rows(columns=["x"]).estimate(pl.len(), error=0.1)


def test_progressive_estimates_refuse_functions(table: qbeast.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"only `Read\.estimate`"):
        list(table.rows().estimates(ratio, error=0.1))  # type: ignore[arg-type]


def test_absolute_error_of_a_named_answer_is_met(table: qbeast.Table, rows: pl.DataFrame) -> None:
    found = table.rows().estimate(ratio, absolute={"ratio": 0.02})
    assert found.met
    assert abs(found.frame["ratio"].item() - ratio(rows)) <= 0.02


def test_simultaneous_intervals_are_wider(table: qbeast.Table) -> None:
    def several(rows: pl.DataFrame) -> dict[str, float]:
        return {f"above {bound}": (rows["x"] > bound).mean() for bound in range(5, 15)}  # type: ignore[misc]

    one, all_at_once = (
        table.rows(sample=0.2).estimate(several, simultaneous=value) for value in (False, True)
    )
    for name in one.names:
        assert all_at_once.frame[f"{name}_high"].item() > one.frame[f"{name}_high"].item()
        assert all_at_once.frame[name].item() == one.frame[name].item()


def test_no_matching_row_calls_the_function_with_no_rows(table: qbeast.Table) -> None:
    found = table.rows("at > 5000").estimate(lambda rows: rows["x"].mean(), error=0.1)
    assert found.frame["rows_sampled"].item() == 0
    assert not found.frame["reliable"].item()


def test_other_columns_to_sample_by_read_all_rows(table: qbeast.Table, rows: pl.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qbeast.UnindexedSampleWarning)
        found = table.rows(sample_by=["at"]).estimate(ratio, error=0.05)
    assert found.met
    assert found.frame.select("ratio", "ratio_low").row(0) == pytest.approx([ratio(rows)] * 2)
