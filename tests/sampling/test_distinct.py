"""Distinct keys are counted as Polars counts them, from a sample within the error; a trial is another key column."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bench_distinct import QUESTIONS, SIZES, population
from qbeast_core.sampling.recognise import RefusedAggregate, Smooth
from tests.helpers.examples import examples
from tests.sampling.answers import exact, recognised, sample_of

ROWS = pl.DataFrame(
    {
        "user": [1, 1, None, 2, None, 3, 3, -4],
        "shop": ["a", "a", None, "b", "a", None, "c", "b"],
        "x": [1.0, 5.0, 2.0, None, 4.0, 6.0, 7.0, 8.0],
    }
)
USER, LARGE = pl.col("user"), pl.col("x") > 4
COUNTS = {
    "n_unique": USER.n_unique(),
    "approximate": USER.approx_n_unique(),
    "without null": USER.drop_nulls().n_unique(),
    "filter": USER.filter(LARGE).n_unique(),
    "filter by null": USER.filter(pl.col("x").is_null()).n_unique(),
    "filter, without null": USER.filter(pl.col("x") < 5).drop_nulls().n_unique(),
    "no row": USER.filter(pl.col("x") > 9).n_unique(),
    "ratio": pl.col("x").sum() / USER.n_unique(),
    "two counts": 100 * USER.filter(LARGE).n_unique() / USER.n_unique(),
    "struct of one": pl.struct("user").n_unique(),
}
STRUCTS = {
    "struct": pl.struct("user", "shop").n_unique(),
    "other order": pl.struct("shop", "user").filter(LARGE).n_unique(),
    "without null": pl.struct("user", "shop").drop_nulls().n_unique(),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_all_rows_equal_polars(name: str) -> None:
    assert exact(COUNTS[name], ROWS, ["user"]) == [ROWS.select(COUNTS[name].cast(pl.Float64)).item()]


@pytest.mark.parametrize("name", STRUCTS)
def test_counts_of_several_columns_equal_polars(name: str) -> None:
    assert exact(STRUCTS[name], ROWS, ["user", "shop"]) == [ROWS.select(STRUCTS[name]).item()]


@pytest.mark.parametrize(
    ("expr", "key", "message"),
    [
        (USER.n_unique(), (), "no sampling key"),
        (USER.n_unique(), ("user", "shop"), r"sampled by \['user', 'shop'\].*columns=\[\"user\"\]\)\.select"),
        (pl.struct("user", "shop").n_unique(), ("user",), r"pl\.struct\(\"user\", \"shop\"\)\.n_unique\(\)"),
        ((USER + 1).n_unique(), ("user",), r"read it with qbeast.scan_table\(path, columns=\[\"user\"\]\)"),
        (USER.filter(USER).n_unique(), ("user",), "a filter needs a condition"),
    ],
    ids=str,
)
def test_counts_of_other_values_raise(expr: pl.Expr, key: tuple[str, ...], message: str) -> None:
    with pytest.raises(RefusedAggregate, match=message):
        recognised({"it": expr}, ROWS, key)


def keyed(seed: int, count: int, users: int) -> tuple[pl.DataFrame, np.ndarray]:
    """Rows with null keys, and their weights, of which few differ."""
    random = np.random.default_rng(seed)
    user = random.integers(0, users, count)
    weights = (np.random.default_rng(seed + 1).integers(0, 8, users) << 29) - 2**31
    kind = pl.Series(random.choice(["a", "b", "null"], count)).replace("null", None)
    rows = pl.DataFrame({"user": user, "kind": kind, "x": random.random(count)})
    return rows.with_columns(pl.col("user").replace(0, None)), weights[user].astype(np.int32)


@examples(20, sweep=400)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 60),
    whole=st.integers(0, 20),
    users=st.integers(1, 20),
    eighths=st.integers(1, 8),
    by=st.sampled_from([(), ("kind",)]),
    where=st.sampled_from([None, pl.col("x") < 0.6]),
    summed=st.booleans(),
)
def test_estimate_counts_certain_and_sampled_keys(
    seed: int,
    count: int,
    whole: int,
    users: int,
    eighths: int,
    by: tuple[str, ...],
    where: pl.Expr | None,
    *,
    summed: bool,
) -> None:
    """Keys of rows outside of the sample count once, other sampled keys by the inverse of the fraction."""
    rows, weights = keyed(seed, count, users)
    outside, fraction = keyed(seed + 2, whole, users)[0], eighths / 8
    exprs = {"all": USER.n_unique(), "some": USER.filter(pl.col("x") < 0.3).drop_nulls().n_unique()}
    sample = sample_of(
        exprs,
        rows,
        weights,
        fraction,
        by=by,
        where=where,
        whole=outside,
        summed=summed,
        key=["user"],
        known=False,
    )
    inside = rows.filter(pl.Series(weights < fraction * 2**32 - 2**31))
    everything = pl.concat([inside, outside]) if where is None else pl.concat([inside, outside]).filter(where)
    assert sample.groups.height == (everything.select(by).n_unique() if by else 1)
    answers = recognised(exprs, rows, ["user"]).answers
    numbers = [answer.totals[0] for answer in answers if isinstance(answer, Smooth)]
    for group, totals in zip(sample.groups.iter_rows(named=True), sample.totals, strict=True):
        same = [pl.col(name).eq_missing(pl.lit(group[name])) for name in by]
        here, there = (
            frame.filter(*same, *([] if where is None else [where])) for frame in (inside, outside)
        )
        few = pl.col("x") < 0.3, pl.col("user").is_not_null()
        for number, shown in zip(numbers, ((), few), strict=True):
            certain = set(there.filter(*shown)["user"])
            others = set(here.filter(*shown)["user"]) - certain
            assert totals[number] == pytest.approx(len(certain) + len(others) / fraction)


PROBES = [*((sizes, "all") for sizes in SIZES), ("giant", "mixed, by")]


@pytest.mark.parametrize(
    ("sizes", "question", "count"),
    [
        *((sizes, question, 6) for sizes, question in PROBES),
        *(pytest.param(*both, 400, marks=pytest.mark.sweep) for both in product(SIZES, QUESTIONS)),
    ],
)
def test_distinct_counts_keep_the_promise(sizes: str, question: str, count: int) -> None:
    """95 % of the trials, each group by itself; less two standard errors of such a share. Few keys are read."""
    drawn, error = population(sizes, question)
    kept = drawn.promised(error, 0.95, pilot=2_000, count=count)
    assert min(kept.shares.values()) >= 0.95 - 2 * (0.95 * 0.05 / count) ** 0.5, kept
    assert (sizes, question) not in PROBES or kept.fraction < (0.12 if question == "all" else 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize("question", ["all", "where, by", "rows", "mixed"])
@pytest.mark.parametrize("sizes", SIZES)
def test_intervals_of_distinct_counts_hold(sizes: str, question: str) -> None:
    """Of a fixed sample, 94 % of 500 intervals; less two standard errors of such a share."""
    covered = population(sizes, question)[0].covered(0.1, 0.95, count=500)
    assert min(covered.shares.values()) >= 0.94 - 2 * (0.94 * 0.06 / 500) ** 0.5, covered
