"""Values per key: equal to two aggregations of Polars if all rows are read, and near them from samples."""

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
from qbeast_core.table.estimate.question import Limits, question_of
from qbeast_core.table.estimate.reading import Reading
from qbeast_core.table.estimate.summing import split_plan
from qbeast_core.table.read.planner import scan_tasks
from qbeast_core.tree.grid import frame_weights
from tests.helpers.examples import examples
from tests.helpers.tables import (
    assert_same_rows,
    estimated,
    estimated_rounds,
    folder,
    sampled,
    small_files,
    using,
)

PER = {
    "spend": pl.col("fare").sum(),
    "trips": pl.len(),
    "longest": pl.col("km").max(),
    "shops": pl.col("shop").n_unique(),
    "first_shop": pl.col("shop").sort_by("row").first(),
}
ANSWERS = {
    "median": pl.col("spend").median(),
    "p90": pl.col("spend").quantile(0.9),
    "mean": pl.col("spend").mean(),
    "keys": pl.len(),
    "buyers": (pl.col("spend") > 40).sum() / pl.len(),
    "trips": pl.col("trips").sum(),
    "spread": pl.col("longest").std(),
    "loyal": pl.col("spend").filter(pl.col("shops") == 1).count(),
}
SMALL = 1 << 22  # bytes of memory, of which a quarter is for rows


def clicks(count: int, users: int = 40, first: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(first)
    user = (users * random.random(count) ** 3).astype(np.int64)
    return pl.DataFrame(
        {
            "row": np.arange(first, first + count),
            "user": pl.Series(user).replace(7, None),
            "fare": random.gamma(2.0, 5.0, count),
            "km": random.gamma(2.0, 3.0, count),
            "shop": random.choice(["a", "b", "c", "d"], count),
        }
    )


def create(path: Path, rows: pl.DataFrame, **options: Any) -> qbeast.Table:
    options = {"sample_by": "user", "columns": ["fare", "km"], **options}
    qbeast.write_table(rows, path, cube_size=20, **options)
    return qbeast.open_table(path)


def expected(
    rows: pl.DataFrame,
    *,
    per: dict[str, pl.Expr] | None = None,
    rows_by: str | None = None,
    keys_by: pl.Expr | None = None,
    answers: dict[str, pl.Expr] | None = None,
) -> pl.DataFrame:
    """Aggregate twice by Polars."""
    keys = ["user"] if rows_by is None else ["user", rows_by]
    values = rows.group_by(keys).agg(**(PER if per is None else per))
    answers = ANSWERS if answers is None else answers
    by = rows_by if keys_by is None else keys_by
    if by is None:
        return values.select(**answers)
    result = values.group_by(by).agg(**answers)
    return result.sort(result.columns[0], nulls_last=True)


def assert_answers(actual: qbeast.Estimate, truth: pl.DataFrame) -> None:
    frame = actual.frame.select(truth.columns)
    numbers = truth.cast(dict.fromkeys(actual.names, pl.Float64)).with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )
    assert_frame_equal(frame, numbers, rel_tol=1e-9)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
@examples(1, sweep=90)
@given(st.integers(0, 150), st.integers(1, 40), st.sampled_from(["key", "index"]), st.data())
def test_values_per_key_equal_two_aggregations(count: int, users: int, key: str, data: st.DataObject) -> None:
    """For tables with a sampling key or an index of the key, after appends, deletes, and with staged files."""
    rows = [clicks(count, users, first) for first in (0, 1000, 2000)]
    options = {} if key == "key" else {"sample_by": None, "columns": ["user"]}
    where = data.draw(st.sampled_from([None, pl.col("fare") > 8, pl.col("shop").is_in(["a", "b"])]))
    with folder() as path, small_files():
        create(path, rows[0], **options)
        qbeast.write_table(rows[1], path, mode="append")
        if data.draw(st.booleans()):
            qbeast.open_table(path).delete("row % 7 = 0")
            rows = [part.filter(pl.col("row") % 7 != 0) for part in rows[:2]] + rows[2:]
        kept = pl.concat(rows[:2])
        if data.draw(st.booleans()):
            write_deltalake(path, rows[2], mode="append")
            kept = pl.concat(rows)
        kept = kept if where is None else kept.filter(where)
        table = qbeast.open_table(path)
        request: dict[str, Any] = {"per": PER, "where": where}
        for sample in (1.0, (0.0, 1.0)):
            assert_answers(estimated(table, ANSWERS, sample=sample, **request), expected(kept))
        by_shop = estimated(table, ANSWERS, sample=1.0, **request, by="shop")
        assert_answers(by_shop, expected(kept, rows_by="shop"))
        by_first = estimated(table, ANSWERS, **request, by="first_shop", error=1e-9)
        assert_answers(by_first, expected(kept, keys_by=pl.col("first_shop")))


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return clicks(60_000, 3_000, 5)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pl.DataFrame) -> qbeast.Table:
    path = tmp_path_factory.mktemp("per") / "t"
    qbeast.write_table(rows, path, columns=["fare", "km"], sample_by="user", cube_size=500)
    return qbeast.open_table(path)


def heavy_keys(table: qbeast.Table) -> pl.Series:
    """Return the users whose rows are read apart."""
    limits, per = Limits.of(sample=0.2), {"trips": pl.len()}
    heavy = Reading(table.planner, question_of(table.planner, {"n": pl.len()}, limits, per=per)).heavy.keys
    users = table.rows().lazy().select(pl.col("user").unique()).collect()
    return users["user"].filter(pl.Series(np.isin(frame_weights(users, ("user",)), heavy)))


def test_samples_have_one_row_per_sampled_key(table: qbeast.Table, rows: pl.DataFrame) -> None:
    actual = table.rows(sample=0.2).estimate(
        {"n": pl.len(), "trips": pl.col("trips").sum()}, per={"trips": pl.len()}
    )
    keys, apart = sampled(rows, ["user"], 0.2)["user"].unique(), heavy_keys(table)
    counted = pl.concat([keys, apart]).unique()  # keys that are read apart are exact
    low, n, high, count = actual.frame.select("n_low", "n", "n_high", "rows_sampled").row(0)
    assert count == len(counted)
    assert n == pytest.approx(len(apart) + (len(counted) - len(apart)) / 0.2)
    assert low <= rows["user"].n_unique() <= high


@pytest.mark.parametrize(
    "by",
    [
        {"big": pl.col("spend") > 30},
        {"parity": pl.col("user") % 2},
        {"letter": pl.col("shop").str.to_uppercase()},
    ],
    ids=["value", "key", "row"],
)
def test_groups_use_values_keys_or_rows(
    table: qbeast.Table, rows: pl.DataFrame, by: dict[str, pl.Expr]
) -> None:
    per, (name, expr) = {"spend": pl.col("fare").sum()}, next(iter(by.items()))
    answers = {"n": pl.len(), "mean": pl.col("spend").mean()}
    actual = table.rows(sample=1.0).estimate(answers, per=per, by=by)
    if "shop" in expr.meta.root_names():
        truth = expected(rows.with_columns(**by), per=per, rows_by=name, answers=answers)
    else:
        truth = expected(rows, per=per, keys_by=expr.alias(name), answers=answers)
    assert_answers(actual, truth)


@pytest.mark.parametrize("sample", [0.3, 1.0])
def test_little_memory_changes_no_answer(table: qbeast.Table, sample: float) -> None:
    plenty = table.rows(sample=sample).estimate(ANSWERS, per=PER, by="shop")
    little = (
        using(table, qbeast.Resources(memory_bytes=SMALL))
        .rows(sample=sample)
        .estimate(ANSWERS, per=PER, by="shop")
    )
    assert_frame_equal(little.frame, plenty.frame, rel_tol=1e-9)
    assert little.rows_read == plenty.rows_read
    assert little.bytes_opened > plenty.bytes_opened


def test_texts_larger_than_expected_are_read_in_narrower_ranges(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": np.arange(4_000) // 4, "x": np.arange(4_000), "note": ["n" * 2_000] * 4_000})
    qbeast.write_table(rows, tmp_path, columns=["x"], sample_by="user", cube_size=100)
    request: dict[str, Any] = {
        "aggregates": {"n": pl.len(), "longest": pl.col("length").mean()},
        "per": {"length": pl.col("note").str.len_bytes().sum()},
        "sample": 1.0,
    }
    actual = estimated(qbeast.open_table(tmp_path, resources=qbeast.Resources(memory_bytes=SMALL)), **request)
    assert actual.frame.select("n", "longest").row(0) == (1_000, 8_000)
    assert actual.rows_read == 4_000


def test_key_larger_than_memory_is_refused(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {"user": np.arange(100_000) % 100, "x": np.arange(100_000), "note": ["n" * 30] * 100_000}
    )
    rows = rows.with_columns(user=pl.when(pl.col("x") < 60_000).then(-1).otherwise("user"))
    qbeast.write_table(rows, tmp_path, columns=["x"], sample_by="user")
    table = qbeast.open_table(tmp_path)
    per = {"notes": pl.col("note").n_unique()}
    with pytest.raises(qbeast.InvalidInputError, match="rows of one key need") as error:
        using(table, qbeast.Resources(memory_bytes=SMALL)).rows(sample=1.0).estimate(
            pl.col("notes").mean(), per=per
        )
    assert error.value.argument == "memory_bytes"
    small = (
        using(table, qbeast.Resources(memory_bytes=SMALL))
        .rows("user >= 0", sample=1.0)
        .estimate(pl.col("notes").mean(), per=per)
    )
    assert small.frame["notes"].item() == 1


def test_keys_with_equal_weights_stay_apart(tmp_path: Path) -> None:
    users = pl.Series("user", np.random.default_rng(1).integers(0, 1 << 62, 200_000))
    weights = pl.Series(frame_weights(users.to_frame(), ("user",)))
    twins = users.filter(weights.is_duplicated())[:6]
    assert len(twins) >= 2
    rows = pl.DataFrame({"user": pl.concat([twins, twins, users[:50]])}).with_columns(
        x=pl.int_range(pl.len())
    )
    qbeast.write_table(rows, tmp_path, columns=["x"], sample_by="user")
    actual = qbeast.open_table(tmp_path).rows(sample=1.0).estimate({"n": pl.len()}, per={"trips": pl.len()})
    assert actual.frame["n"].item() == rows["user"].n_unique()


def test_join_adds_columns_before_values_are_computed(table: qbeast.Table, rows: pl.DataFrame) -> None:
    shops = pl.DataFrame({"shop": ["a", "b", "c"], "tax": [0.1, 0.2, 0.3]})
    per = {"tax": (pl.col("fare") * pl.col("tax")).sum()}
    where = "tax < 0.25 AND km > 1"
    actual = table.rows(where, sample=1.0).estimate(
        {"mean": pl.col("tax").mean()}, per=per, join=(shops, "shop")
    )
    joined = rows.join(shops, on="shop", how="left").filter(pl.sql_expr(where))
    assert_answers(actual, expected(joined, per=per, answers={"mean": pl.col("tax").mean()}))


QUERIES = {
    "plain": "SELECT median(spend) AS m, count(*) AS n FROM (SELECT user, sum(fare) AS spend FROM t GROUP BY user)",
    "conditions": "SELECT avg(spend) AS m, count(*) AS n FROM (SELECT user, sum(fare) AS spend, max(km) AS far FROM t "
    "WHERE shop <> 'a' GROUP BY user) WHERE spend > 3 AND far < 10",
    "groups": "SELECT shop, quantile_cont(spend, 0.9) AS q, count(*) AS n FROM (SELECT user, shop, sum(fare) AS spend "
    "FROM t GROUP BY 1, 2) AS x GROUP BY shop",
    "sums of nulls": "SELECT count(s) AS n, avg(s) AS m FROM (SELECT user, sum(nullif(shop, 'a') = 'b') AS s FROM t "
    "GROUP BY user)",
    "distinct": "SELECT k, count(*) AS n FROM (SELECT user, count(DISTINCT nullif(shop, 'a')) AS k, first(row) AS f "
    "FROM t WHERE row < 5000 GROUP BY user) GROUP BY k",
    "keys only": "SELECT count(*) AS n FROM (SELECT user FROM t WHERE km > 5 GROUP BY user)",
    "names of columns": "SELECT km, count(*) AS n FROM (SELECT user, max(row) AS km FROM t GROUP BY user) GROUP BY km",
    "keys by expression": "SELECT big, count(*) AS n, avg(spend) AS m FROM (SELECT user, km > 5 AS big, sum(fare) AS "
    "spend FROM t GROUP BY user, km > 5) GROUP BY big",
}


@pytest.mark.parametrize("query", QUERIES)
def test_nested_queries_equal_duckdb(table: qbeast.Table, rows: pl.DataFrame, query: str) -> None:
    text = QUERIES[query]
    if query == "sums of nulls":
        text = text.replace("sum(nullif(shop, 'a') = 'b')", "sum(CASE WHEN shop = 'b' THEN row END)")
    actual = table.rows(sample=1.0).estimate(text.replace("FROM t", "FROM self"))
    with duckdb.connect() as connection:
        connection.register("t", rows.to_arrow())
        truth = connection.sql(text).pl()
    keys = [name for name in truth.columns if name not in actual.names]
    assert_frame_equal(
        actual.frame.select(truth.columns).sort(keys) if keys else actual.frame.select(truth.columns),
        (truth.sort(keys) if keys else truth).cast(dict.fromkeys(actual.names, pl.Float64)),
        rel_tol=1e-9,
        check_dtypes=False,
    )


INNER = "SELECT avg(x) FROM (SELECT {} AS x FROM self {})"
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "not an aggregate": ({"per": {"x": pl.col("fare") * 2}}, "per", "several values per key"),
    "unknown column": ({"per": {"x": pl.col("price").sum()}}, "per", "price"),
    "named like the key": ({"per": {"user": pl.len()}}, "per", "another column"),
    "empty": ({"per": {}}, "per", "at least one"),
    "column of rows": ({"aggregates": pl.col("km").mean(), "per": {"x": pl.len()}}, "aggregates", "km"),
    "ambiguous group": ({"per": {"shop": pl.col("shop").first()}, "by": "shop"}, "by", "both a value"),
    "mixed group": ({"per": {"x": pl.len()}, "by": pl.col("x") + pl.col("row")}, "by", "combines 'x'"),
    "list": (
        {"aggregates": pl.col("x").sum(), "per": {"x": pl.col("fare").implode()}},
        "aggregates",
        "numbers",
    ),
    "query and per": (
        {"aggregates": "SELECT avg(x) FROM self", "per": {"x": pl.len()}},
        "aggregates",
        "instead of",
    ),
}
QUERIES_REFUSED = {
    "no key": (INNER.format("sum(fare)", "GROUP BY shop"), r"does not group by \['user'\]"),
    "part of the key": (INNER.format("sum(fare)", "GROUP BY user % 2"), "does not group by"),
    "window": (INNER.format("sum(fare) OVER ()", "GROUP BY user"), "cannot be read as SQL"),
    "type": (INNER.format("stddev(shop)", "GROUP BY user"), "SQL"),
    "having": (INNER.format("sum(fare)", "GROUP BY user HAVING sum(fare) > 1"), "WHERE and GROUP BY only"),
    "no groups": (INNER.format("sum(fare)", ""), "FROM .* is not supported"),
    "two levels": (
        INNER.replace("self", "(SELECT 1)").format("sum(fare)", "GROUP BY user"),
        "FROM .* is not",
    ),
    "join": (
        INNER.format("sum(fare)", "FULL JOIN t USING (user) GROUP BY user"),
        "FULL JOIN is not supported",
    ),
}


@pytest.mark.parametrize("case", QUERIES_REFUSED)
def test_invalid_inner_queries_are_refused(table: qbeast.Table, case: str) -> None:
    query, message = QUERIES_REFUSED[case]
    with pytest.raises(qbeast.InvalidInputError, match=message) as error:
        table.rows(sample=0.5).estimate(query)
    assert error.value.argument == "aggregates"


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_values_per_key_are_refused(table: qbeast.Table, case: str) -> None:
    options, argument, message = REFUSED[case]
    request = dict(options)
    with pytest.raises(qbeast.QbeastError, match=message) as error:
        estimated(table, request.pop("aggregates", pl.len()), sample=0.5, **request)
    assert getattr(error.value, "argument", argument) == argument


@pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
def test_table_without_key_needs_sample_by(tmp_path: Path, rows: pl.DataFrame) -> None:
    write_deltalake(tmp_path, rows)
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="sample_by"):
        table.rows().estimate({"n": pl.len()}, per={"x": pl.len()}, error=0.1)
    actual = (
        using(table, qbeast.Resources(memory_bytes=SMALL))
        .rows(sample_by=["user"])
        .estimate(ANSWERS, per=PER, error=0.1)
    )
    assert_answers(actual, expected(rows))


@pytest.mark.filterwarnings("ignore::qbeast.UnindexedSampleWarning")
def test_other_sampling_key_reads_all_rows(table: qbeast.Table, rows: pl.DataFrame) -> None:
    per = {"spend": pl.col("fare").sum()}
    answers = {"n": pl.len(), "mean": pl.col("spend").mean()}
    actual = table.rows(sample_by=["shop"]).estimate(answers, per=per, error=0.1)
    assert_answers(actual, rows.group_by("shop").agg(**per).select(**answers))


def test_rounds_end_with_the_promised_answer(table: qbeast.Table, rows: pl.DataFrame) -> None:
    request: dict[str, Any] = {"aggregates": {"m": pl.col("trips").median()}, "per": {"trips": pl.len()}}
    steps = list(estimated_rounds(table, **request, error=0.1))
    assert_frame_equal(steps[-1].frame, qbeast.estimate(table.uri, **request, error=0.1).frame)
    truth = rows.group_by("user").len()["len"].median()
    assert steps[-1].met
    assert steps[-1].frame["m"].item() == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("where", [None, pytest.param("fare > 4", marks=pytest.mark.sweep)])
def test_staged_giant_does_not_break_the_promise(tmp_path: Path, where: str | None) -> None:
    """No tag lists a heavy key of a file of another writer; half of the samples lack its rows."""
    random, keys = np.random.default_rng(2), 3_000
    rows = pl.DataFrame({"user": random.integers(0, keys, 60_000), "fare": random.gamma(2.0, 5.0, 60_000)})
    giant = pl.DataFrame({"user": np.full(20_000, -5), "fare": random.gamma(2.0, 5.0, 20_000)})
    qbeast.write_table(rows, tmp_path, columns=["fare"], sample_by="user")
    write_deltalake(tmp_path, giant, mode="append")
    kept = pl.concat([rows, giant])
    kept = kept if where is None else kept.filter(pl.sql_expr(where))
    per, answers = {"spend": pl.col("fare").sum()}, {"mean": pl.col("spend").mean()}
    truth = kept.group_by("user").agg(**per).select(**answers).item()
    table = qbeast.open_table(tmp_path)
    for sample in ((0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8)):
        found = table.rows(where, sample=sample).estimate(answers, per=per).frame.row(0, named=True)
        assert not found["reliable"] or found["mean_low"] <= truth <= found["mean_high"]
    met = table.rows(where).estimate(answers, per=per, error=0.05)
    assert met.frame["mean"].item() == pytest.approx(truth, rel=0.05)


def test_centres_of_few_rows_keep_variances_exact(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": np.arange(3_000) % 100, "x": np.arange(3_000) * 1e-3 + 1e9})
    qbeast.write_table(rows, tmp_path, columns=["x"], sample_by="user", cube_size=50)
    answers = {"std": pl.col("mean").std()}
    per = {"mean": pl.col("x").mean()}
    actual = qbeast.open_table(tmp_path).rows(sample=1.0).estimate(answers, per=per).frame["std"].item()
    assert actual == pytest.approx(rows.group_by("user").agg(**per).select(**answers).item(), rel=1e-4)


def test_ranges_keep_the_limit_of_bytes(table: qbeast.Table) -> None:
    request: dict[str, Any] = {"aggregates": pl.len(), "per": {"trips": pl.len()}, "error": 0.001}
    at_once, in_ranges = (
        estimated(using(table, qbeast.Resources(memory_bytes=size)), **request).bytes_opened
        for size in (None, SMALL)
    )
    limit = in_ranges - 1
    actual = estimated(using(table, qbeast.Resources(memory_bytes=SMALL)), **request, max_bytes=limit)
    assert 0 < actual.bytes_opened <= limit
    assert not actual.met
    assert estimated(table, **request, max_bytes=limit).met
    with pytest.raises(qbeast.InvalidInputError, match="too small for any sample"):
        estimated(using(table, qbeast.Resources(memory_bytes=SMALL)), **request, max_bytes=at_once // 2)


@pytest.mark.parametrize("start", [0.0, 0.1])
def test_ranges_hold_each_sampled_row_once(table: qbeast.Table, rows: pl.DataFrame, start: float) -> None:
    limits, per = Limits.of(sample=(start, 0.7)), {"trips": pl.len()}
    reading = Reading(table.planner, question_of(table.planner, {"n": pl.len()}, limits, per=per))
    window = reading.between(start, 0.7, by_key=True)
    assert window is not None
    parts = split_plan(window.plan, table.planner.of_filter(None), 7)
    assert len(parts) == 7
    frames = [
        frame for part in parts for task in scan_tasks(table.planner, part.scan_plan) for frame in task.read()
    ]
    apart = heavy_keys(table)
    expected_rows = sampled(rows, ["user"], (start, 0.7)).filter(
        ~pl.col("user").is_in(apart, nulls_equal=True)
    )
    assert_same_rows(pl.concat(frames), expected_rows, "row")
    users = [set(frame["user"]) for frame in frames]
    assert sum(map(len, users)) == expected_rows["user"].n_unique()
