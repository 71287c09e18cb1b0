"""The bounds of a linear space differ as float64, as a JVM compares them, and hold the data."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbeast_core.spec.revision import ColumnSpec, LinearTransformation
from qbeast_core.tree.fit import (
    Growth,
    IndexWish,
    first_revision,
    identity_or_unit,
    linear_space,
    next_revision,
    value_limits,
)
from qbeast_core.tree.summary import summarise
from tests.helpers.examples import examples

EDGES = [*(sign * 2**power + step for sign in (-1, 1) for power in (52, 53, 54, 62) for step in (-1, 0, 1))]
LONGS = [*EDGES, 0, 2**63 - 1, 2**63 - 2, 2**63 - 1024, -(2**63), -(2**63) + 1]


def near(values: list[int], low: int, high: int) -> st.SearchStrategy[int]:
    around = st.builds(lambda value, step: value + step, st.sampled_from(values), st.integers(-3, 3))
    return (around | st.integers(low, high)).map(lambda value: min(max(value, low), high))


def decimals(digits: int) -> st.SearchStrategy[int]:
    most = 10**digits - 1
    return near([*EDGES, most, -most, 10**17 + 1], -most, most)


KINDS: dict[str, tuple[pl.DataType, st.SearchStrategy[int]]] = {
    "long": (pl.Int64(), near(LONGS, -(2**63), 2**63 - 1)),
    "int": (pl.Int32(), near([0, 2**31 - 1, -(2**31)], -(2**31), 2**31 - 1)),
    "microseconds": (pl.Datetime("us", "UTC"), near(LONGS, -(2**63), 2**63 - 1)),
    "date": (pl.Date(), near([0, 2**31 - 1, -(2**31)], -(2**31), 2**31 - 1)),
    "decimal(18)": (pl.Decimal(18, 4), decimals(18)),
    "decimal(38)": (pl.Decimal(38, 0), decimals(38)),
}


def column(dtype: pl.DataType, values: list[int]) -> pl.Series:
    if isinstance(dtype, pl.Decimal):
        return pl.Series("v", [Decimal(f"{value}E-{dtype.scale}") for value in values], dtype=dtype)
    physical = {pl.Date: pl.Int32}.get(type(dtype), pl.Int64)
    stored = pl.Int32 if dtype == pl.Int32 else physical
    return pl.Series("v", values, dtype=stored).cast(dtype)


def check(space: object, *batches: pl.Series) -> None:
    if not isinstance(space, LinearTransformation):
        return
    assert float(space.min_number) < float(space.max_number)
    least, most = value_limits(space.ordered_data_type)
    assert least <= space.min_number
    assert space.max_number <= most
    for batch in batches:
        actual = summarise(pl.DataFrame(batch), ["v"]).columns[0]
        assert space.min_number <= actual.lowest
        assert actual.highest <= space.max_number


@pytest.mark.parametrize("dialect", ["documented", "qbeast-spark"])
@pytest.mark.parametrize("kind", list(KINDS))
@examples(10, sweep=500)
@given(data=st.data())
def test_bounds_always_differ(kind: str, dialect: str, data: st.DataObject) -> None:
    dtype, values = KINDS[kind]
    anchor = data.draw(values)
    steps = data.draw(st.lists(st.integers(-2, 2), max_size=2)) if kind in {"long", "decimal(38)"} else []
    inside = [value for value in (anchor + step for step in steps) if abs(value) < 2**63 - 1]
    batches = [column(dtype, [anchor, *inside]), column(dtype, data.draw(st.lists(values, max_size=2)))]
    wish = IndexWish(specs=(ColumnSpec("v", "linear"),), cube_size=10, dialect=dialect)
    first, second = (summarise(pl.DataFrame(batch), ["v"]) for batch in batches)
    revision = first_revision(wish, first, table_id="t", timestamp_ms=0)
    check(revision.transformations[0], batches[0])
    revision = next_revision(revision, wish, second, growth=Growth(), timestamp_ms=1)
    check(revision.transformations[0], *(batch for batch in batches if len(batch)))


@given(value=near(LONGS, -(2**63), 2**63 - 1))
@example(value=2**53)
@example(value=2**63 - 1)
@example(value=-(2**63))
def test_single_value_has_bounds_jvm_can_separate(value: int) -> None:
    space = identity_or_unit("LongDataType", value, "qbeast-spark")
    check(space, column(pl.Int64(), [value]))
    assert space == identity_or_unit("LongDataType", value, "qbeast-spark")
    assert isinstance(space, LinearTransformation)
    if abs(value) < 2**53:
        assert (space.min_number, space.max_number) == (value, value + 1)


def test_different_bounds_are_kept() -> None:
    space = linear_space("LongDataType", 2**53, 2**53 + 2)
    assert (space.min_number, space.max_number) == (2**53, 2**53 + 2)
