from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.plan.bounds import number_bounds
from qbeast_core.space.values import NumberColumn, number_values
from qbeast_core.tree.grid import to_index_column
from tests.plan.tables import VALUES

NARROW, WIDE = pl.Decimal(18, 4), pl.Decimal(38, 10)


@given(st.lists(VALUES[WIDE], min_size=1, max_size=20))
def test_bounds_enclose_decimals_under_any_rounding(values: list[Decimal]) -> None:
    bounds = number_bounds(pl.Series(values, dtype=WIDE), WIDE)
    assert bounds is not None
    for low, high, value in zip(*bounds, values, strict=True):
        assert (Fraction(low) < Fraction(value) < Fraction(high)) or value == 0


@given(st.sampled_from([dtype for dtype in VALUES if dtype not in (NARROW, WIDE, pl.String())]), st.data())
def test_literal_bounds_enclose_column_values(dtype: pl.DataType, data: st.DataObject) -> None:
    series = pl.Series(data.draw(st.lists(VALUES[dtype], min_size=1)), dtype=dtype)
    column, bounds = to_index_column(series), number_bounds(series, dtype)
    assert isinstance(column, NumberColumn)
    assert bounds is not None
    numbers = number_values(column)
    assert not (bounds[0] > numbers).any()
    assert not (bounds[1] < numbers).any()


def test_types_without_common_numbers_have_no_bounds() -> None:
    assert number_bounds(pl.Series(["a"]), pl.Int64()) is None
    assert number_bounds(pl.Series([1]), pl.Date()) is None
