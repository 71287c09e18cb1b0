"""Rows that are called certain stay in the answer for every truth inside of the intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.sampling.certain import Bounds, keep
from qbeast_core.sql.cut import Cut, Having, SortTerm
from tests.helpers.examples import examples

SIGNS = ("=", "<>", "<", "<=", ">", ">=")
NAMES = ("a", "b")
_LEAVES = st.one_of(
    st.builds(Having, st.sampled_from(SIGNS), st.sampled_from(NAMES), st.integers(0, 6).map(float)),
    st.builds(Having, st.just("null"), st.sampled_from(NAMES)),
    st.just(Having("group", condition=pl.col("g") > 2)),
)
_TESTS: st.SearchStrategy[Having] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(Having, st.just("not"), parts=st.tuples(inner)),
        st.builds(Having, st.sampled_from(("and", "or")), parts=st.tuples(inner, inner)),
    ),
    max_leaves=3,
)
_TERMS = st.builds(
    SortTerm, st.one_of(st.sampled_from(NAMES), st.just(pl.col("g"))), st.booleans(), st.booleans()
)
CUTS = st.builds(
    Cut,
    st.one_of(st.none(), _TESTS),
    st.lists(_TERMS, max_size=2).map(tuple),
    st.one_of(st.none(), st.integers(0, 4)),
)
Values = list[float | None]


def exactly(values: Mapping[str, Values]) -> dict[str, Bounds]:
    """Return bounds of known values."""
    result: dict[str, Bounds] = {}
    for name, items in values.items():
        numbers = np.array([np.nan if item is None else item for item in items], dtype=np.float64)
        result[name] = Bounds(numbers, numbers, np.isnan(numbers), np.ones(len(items), np.bool_))
    return result


@st.composite
def worlds(draw: st.DrawFn) -> tuple[pl.DataFrame, dict[str, Bounds], dict[str, Values], dict[str, Values]]:
    """Draw groups, bounds, and two truths inside of them, of which one is the estimate."""
    count = draw(st.integers(1, 6))
    groups = pl.DataFrame({"g": draw(st.permutations(range(count)))})
    bounds: dict[str, Bounds] = {}
    truths: list[dict[str, Values]] = [{}, {}]
    for name in NAMES:
        kinds = draw(
            st.lists(st.sampled_from(("known", "known", "unknown", "null")), min_size=count, max_size=count)
        )
        ends = [sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))) for _ in kinds]
        bounds[name] = Bounds(
            *(np.array(side, dtype=np.float64) for side in zip(*ends, strict=True)),
            np.array([kind == "null" for kind in kinds]),
            np.array([kind != "unknown" for kind in kinds]),
        )
        for truth in truths:
            truth[name] = [
                None
                if kind == "null"
                else draw(st.one_of(st.none(), st.integers(-3, 9)))
                if kind == "unknown"
                else draw(st.integers(low, high))
                for kind, (low, high) in zip(kinds, ends, strict=True)
            ]
    return groups, bounds, *truths


@examples(40, sweep=3_000)
@given(worlds(), CUTS)
def test_certain_rows_stay_for_every_truth(
    world: tuple[pl.DataFrame, dict[str, Bounds], dict[str, Values], dict[str, Values]], cut: Cut
) -> None:
    groups, bounds, estimate, truth = world
    kept = keep(cut, exactly(estimate), bounds, groups)
    # The true order without a limit; ties are in any order, so all of them are listed.
    everything = Cut(cut.having, cut.order, None)
    passing = keep(everything, exactly(truth), exactly(truth), groups)
    certain = kept.rows[kept.certain].tolist()
    assert set(certain) <= set(passing.rows.tolist())
    for row in certain if cut.limit is not None and cut.order else ():
        # The row can be among the first ones: not too many others come before it.
        earlier = [_compare(cut, truth, groups, other, row) < 0 for other in passing.rows.tolist()]
        assert sum(earlier) < cut.limit
    if kept.is_ordered:
        for first, second in zip(kept.rows[:-1].tolist(), kept.rows[1:].tolist(), strict=True):
            assert _compare(cut, truth, groups, first, second) <= 0


@st.composite
def unseen_groups(draw: st.DrawFn) -> tuple[dict[str, Bounds], list[int | None], dict[str, Values]]:
    """Draw bounds of groups without a sampled row, and some such groups: their column and their truth."""
    bounds, truth = dict[str, Bounds](), dict[str, Values]()
    columns = draw(st.lists(st.one_of(st.none(), st.integers(-2, 8)), max_size=4))
    for name in NAMES:
        low, high = sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
        is_known = draw(st.booleans())
        ends = (np.array([float(end)]) for end in (low, high))
        bounds[name] = Bounds(*ends, np.zeros(1, np.bool_), np.array([is_known]))
        value = st.integers(low, high) if is_known else st.one_of(st.none(), st.integers(-3, 9))
        truth[name] = [draw(value) for _ in columns]
    return bounds, columns, truth


@examples(30, sweep=1_500)
@given(worlds(), unseen_groups(), CUTS)
def test_certain_rows_stay_beside_unseen_groups(
    world: tuple[pl.DataFrame, dict[str, Bounds], dict[str, Values], dict[str, Values]],
    others: tuple[dict[str, Bounds], list[int | None], dict[str, Values]],
    cut: Cut,
) -> None:
    groups, bounds, estimate, truth = world
    unseen, columns, other_truth = others
    kept = keep(cut, exactly(estimate), bounds, groups, unseen)
    every = pl.concat([groups, pl.DataFrame({"g": columns}, schema=groups.schema)])
    truth = {name: [*truth[name], *other_truth[name]] for name in NAMES}
    passing = keep(Cut(cut.having, cut.order, None), exactly(truth), exactly(truth), every)
    certain = kept.rows[kept.certain].tolist()
    assert set(certain) <= set(passing.rows.tolist())
    for row in certain if cut.limit is not None and cut.order else ():
        earlier = [_compare(cut, truth, every, other, row) < 0 for other in passing.rows.tolist()]
        assert sum(earlier) < cut.limit
    alone = keep(cut, exactly(estimate), bounds, groups)
    assert kept.is_ordered == alone.is_ordered
    assert (kept.rows.tolist(), kept.doubtful) == (alone.rows.tolist(), alone.doubtful)
    assert not (kept.certain & ~alone.certain).any()


def _compare(cut: Cut, truth: Mapping[str, Values], groups: pl.DataFrame, first: int, second: int) -> int:
    """Return -1 if the first row comes before the second in SQL, 0 if they are equal, else 1."""
    for item in cut.order:
        values = groups["g"].to_list() if isinstance(item.term, pl.Expr) else truth[item.term]
        left, right = values[first], values[second]
        if left is None or right is None:
            place = (left is None) - (right is None) if item.nulls_last else (right is None) - (left is None)
        else:
            place = ((left > right) - (left < right)) * (-1 if item.descending else 1)
        if place:
            return place
    return 0


@examples(30, sweep=2_000)
@given(worlds(), CUTS)
def test_exact_answers_are_all_certain(
    world: tuple[pl.DataFrame, dict[str, Bounds], dict[str, Values], dict[str, Values]], cut: Cut
) -> None:
    groups, _, estimate, _ = world
    kept = keep(cut, exactly(estimate), exactly(estimate), groups)
    assert kept.certain.all()
    assert kept.doubtful == 0
    assert kept.is_ordered is (True if cut.order else None)
