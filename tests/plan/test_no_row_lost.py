from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from polars.io.plugins import register_io_source

from qbeast_core.plan.nodes import Unknown
from qbeast_core.plan.predicate import parse_complement, parse_predicate
from qbeast_core.plan.select import Selection, files_that_may_match, select
from qbeast_core.plan.weights import ALL_WEIGHTS, WeightRange, sample_to_weights
from tests.helpers.examples import examples as tries
from tests.helpers.examples import is_sweep
from tests.plan.filters import filters
from tests.plan.sides import sides
from tests.plan.tables import FAMILIES, SETTINGS, Example, examples, kept_rows


def as_pushed_down(frame: pl.DataFrame, predicate: pl.Expr) -> pl.Expr | None:
    """The filter as Polars' optimizer hands it to an IO source; None where it keeps it to itself."""
    seen: list[pl.Expr | None] = []

    def source(
        _columns: list[str] | None, pushed: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        seen.append(pushed)
        yield frame.clear()

    register_io_source(source, schema=frame.schema).filter(predicate).collect()
    return seen[0] if seen else None


def assert_none_lost(example: Example, rows: np.ndarray, weights: WeightRange, chosen: Selection) -> None:
    inside = (example.weight[rows] >= weights.from_) & (example.weight[rows] < weights.to)
    rows = rows[inside]
    assert chosen.opened[example.file[rows]].all()
    assert chosen.blocks[example.block[rows]].all()
    for row in rows.tolist():
        file = int(example.file[row])
        assert not chosen.pages_total[file] or example.page[row] in chosen.pages(file)


@pytest.mark.parametrize("family", FAMILIES)
@tries(5, sweep=400, parent=SETTINGS)
@given(data=st.data())
def test_closed_blocks_and_pages_hold_no_match(family: str, data: st.DataObject) -> None:
    example = data.draw(examples(FAMILIES[family]))
    predicate = data.draw(filters(example, depth=2))
    rows = kept_rows(example.frame, predicate)
    assume(rows is not None)
    bounds = sorted(data.draw(st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), min_size=2, max_size=2)))
    weights = data.draw(st.sampled_from([ALL_WEIGHTS, sample_to_weights((bounds[0], bounds[1]))]))
    schema = example.frame.schema
    node = parse_predicate(predicate, schema)
    assert_none_lost(example, rows, weights, select(example.table, node, weights))
    assert files_that_may_match(example.table.files, node)[example.file[rows]].all()
    others = np.setdiff1d(np.arange(example.frame.height), rows)  # false or null: what counts leave out
    assert_none_lost(
        example, others, weights, select(example.table, parse_complement(predicate, schema), weights)
    )
    pushed = as_pushed_down(example.frame, predicate)
    node = Unknown() if pushed is None else parse_predicate(pushed, schema)
    assert_none_lost(example, rows, weights, select(example.table, node, weights))


def own_filters(name: str, dtype: pl.DataType, value: Any) -> list[pl.Expr]:
    """Filters that keep rows of this value, or nearly so."""
    column = pl.col(name)
    if value is None:
        return [column.is_null(), column.eq_missing(None), column.is_in([None], nulls_equal=True)]
    pairs = sides(name, dtype, value)
    actual = [op(left, right) for op in (pl.Expr.eq, pl.Expr.le, pl.Expr.ge) for left, right in pairs]
    actual += [left.is_in(pl.select(right).to_series().implode()) for left, right in pairs]
    listed = pl.Series("", [value, None], dtype=dtype).implode()
    actual += [
        column.is_in(listed),
        column.is_not_null(),
        column.is_between(*[pl.lit(value, dtype=dtype)] * 2),
    ]
    if dtype == pl.String:
        actual += [column.str.starts_with(value[:size]) for size in range(min(len(value), 3) + 1)]
    return actual


@pytest.mark.parametrize("family", FAMILIES)
@tries(2, sweep=50, parent=SETTINGS)
@given(data=st.data())
def test_filter_on_own_value_finds_row(family: str, data: st.DataObject) -> None:
    example = data.draw(examples(FAMILIES[family]))
    schema = example.frame.schema
    for row in example.frame.head(3 if is_sweep() else 1).iter_rows(named=True):
        name = data.draw(st.sampled_from([name for name in row if name.startswith("c")]))
        for predicate in own_filters(name, schema[name], row[name]):
            kept = kept_rows(example.frame, predicate)
            if kept is not None:
                chosen = select(example.table, parse_predicate(predicate, schema))
                assert_none_lost(example, kept, ALL_WEIGHTS, chosen)
