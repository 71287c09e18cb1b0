"""Files of other writers: another clock, calendar, order of strings, text of floats and kind of statistics."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.plan.select import select
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.spec.revision import (
    CDFStringQuantilesTransformation,
    CDFStringQuantilesTransformer,
    HashTransformation,
    HashTransformer,
    IdentityTransformation,
    LinearTransformation,
    LinearTransformer,
    Revision,
    Transformation,
    Transformer,
)
from tests.plan.small import block, file, files_frame
from tests.space.cube_reference import points_to_cells

HOUR, DAY = 3_600_000, 86_400_000


def space(transformer: Transformer, transformation: Transformation) -> Revision:
    return Revision(
        revision_id=1,
        timestamp_ms=0,
        table_id="t",
        desired_cube_size=10,
        column_transformers=(transformer,),
        transformations=(transformation,),
    )


def deep_cube(coordinate: float) -> str:
    depth = np.array([32], np.uint8)
    return encode_cubes(Cubes(depth, points_to_cells(np.array([[coordinate]]), depth)))[0]


def opened(
    dtype: pl.DataType, revision: Revision, coordinate: float, predicate: pl.Expr
) -> tuple[bool, bool]:
    """Whether a row at the coordinate is looked for in a file of ours, and in one of others."""
    schema = pl.Schema({"x": dtype})
    item = file(block(deep_cube(coordinate)))
    files = files_frame([item, {**item, "rules": None}], schema)
    actual = select(build_block_table(files, {1: revision}, schema), parse_predicate(predicate, schema))
    ours, foreign = actual.opened.tolist()
    return ours, foreign


def linear(data_type: Any, first: date, last: date) -> tuple[Revision, Any]:
    low, high = (item.toordinal() * DAY - date(1970, 1, 1).toordinal() * DAY for item in (first, last))
    transformation = LinearTransformation(
        min_number=low, max_number=high, null_value=low, ordered_data_type=data_type
    )
    revision = space(LinearTransformer(column_name="x", data_type=data_type), transformation)
    return revision, lambda when: (when - low) * (1 / (high - low))


def millis(day: date) -> int:
    return (day.toordinal() - date(1970, 1, 1).toordinal()) * DAY


@pytest.mark.parametrize(("hours", "actual"), [(0, True), (-36, True), (36, True), (37, False), (-37, False)])
def test_dates_may_be_midnight_of_any_zone(*, hours: int, actual: bool) -> None:
    day = date(2020, 6, 15)
    revision, scale = linear("DateDataType", date(2000, 1, 1), date(2040, 1, 1))
    coordinate = scale(millis(day) + hours * HOUR)
    assert opened(pl.Date(), revision, coordinate, pl.col("x") == day) == (hours == 0, actual)


@pytest.mark.parametrize("dtype", [pl.Date(), pl.Datetime("us")])
@pytest.mark.parametrize("days", [-14, 14])
def test_old_dates_may_be_two_weeks_off(dtype: pl.DataType, days: int) -> None:
    kind = "DateDataType" if dtype == pl.Date else "TimestampDataType"
    revision, scale = linear(kind, date(1, 1, 1), date(2040, 1, 1))
    for day, actual in ((date(1500, 1, 1), True), (date(1600, 1, 1), False)):
        moved = scale(millis(day + timedelta(days=days)))
        for predicate in (
            pl.col("x") == day,
            pl.col("x").is_in([day]) if dtype == pl.Date else pl.col("x") == day,
        ):
            assert opened(dtype, revision, moved, predicate) == (False, actual)


def test_modern_timestamp_needs_no_slack() -> None:
    when = datetime(2020, 6, 15)  # noqa: DTZ001 -- timestamps without a zone are a type to test
    revision, scale = linear("TimestampDataType", date(2000, 1, 1), date(2040, 1, 1))
    coordinate = scale(millis(when.date()) + HOUR)
    assert opened(pl.Datetime("us"), revision, coordinate, pl.col("x") == when) == (False, False)


@pytest.mark.parametrize(
    ("quantiles", "literal", "trusted"),
    [
        (("a", "b", "c"), "b", True),
        (("a", "b", "\ue000"), "b", False),
        (("a", "b", "c"), "\U0001f600", False),
        (("a", "b", "\ud7ff"), "b", True),
    ],
)
def test_strings_sorted_otherwise_by_java_never_prune(
    *, quantiles: tuple[str, ...], literal: str, trusted: bool
) -> None:
    revision = space(
        CDFStringQuantilesTransformer(column_name="x"), CDFStringQuantilesTransformation(quantiles=quantiles)
    )
    for predicate in (
        pl.col("x") == literal,
        pl.col("x").str.starts_with(literal),
        pl.col("x").is_in([literal]),
    ):
        assert opened(pl.String(), revision, 0.0, predicate) == (False, not trusted)


def test_hashes_of_foreign_floats_never_prune() -> None:
    transformer = HashTransformer(column_name="x", data_type="DoubleDataType")
    revision = space(transformer, HashTransformation(null_value=1))
    assert opened(pl.Float64(), revision, 0.0, pl.col("x") == 1.5) == (False, True)


def test_foreign_nan_may_be_at_single_value() -> None:
    transformation = IdentityTransformation(identity_value=1.0, ordered_data_type="DoubleDataType")
    revision = space(LinearTransformer(column_name="x", data_type="DoubleDataType"), transformation)
    assert opened(pl.Float64(), revision, 0.0, pl.col("x").is_nan()) == (False, True)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "predicate", "kept"),
    [
        (pl.String(), "a", "abc", pl.col("x") == "abcd", (False, True)),  # perhaps cut
        (pl.String(), "a", "abc", pl.col("x") == "abd", (False, False)),
        (pl.Decimal(15, 2), 1, 2, pl.col("x") > 3, (False, False)),
        (pl.Decimal(16, 2), 1, 2, pl.col("x") > 3, (False, True)),  # perhaps rounded
        (pl.Int64(), 1, 2, pl.col("x") > 3, (False, False)),
        (pl.Float64(), 1.0, 2.0, pl.col("x") > 3, (False, True)),  # perhaps a NaN
        (pl.Float64(), 1.0, 2.0, pl.col("x") != 3, (True, True)),
        (pl.Float64(), 1.0, 1.0, pl.col("x") != 1, (False, True)),
        (pl.Float64(), 1.0, 2.0, pl.col("x") == 3, (False, False)),
    ],
)
def test_foreign_statistics_prune_only_where_safe(
    dtype: pl.DataType, low: Any, high: Any, predicate: pl.Expr, kept: tuple[bool, bool]
) -> None:
    schema = pl.Schema({"x": dtype})
    item = {"num_records": 10, "min": {"x": low}, "max": {"x": high}, "null_count": {"x": 0}}
    files = files_frame([{**item, "rules": "1"}, item], schema)
    actual = select(build_block_table(files, {}, schema), parse_predicate(predicate, schema))
    assert tuple(actual.opened.tolist()) == kept


def test_largest_timestamp_has_millisecond_precision() -> None:
    schema = pl.Schema({"x": pl.Datetime("us")})
    bound = datetime(2020, 1, 1, 0, 0, 0, 1_000)  # noqa: DTZ001 -- timestamps without a zone are a type to test
    item = {"num_records": 1, "rules": "1", "min": {"x": bound}, "max": {"x": bound}, "null_count": {"x": 0}}
    actual = build_block_table(files_frame([item], schema), {}, schema)
    for micros, kept in ((0, True), (999, True), (1_001, False)):
        predicate = parse_predicate(pl.col("x") == bound + timedelta(microseconds=micros), schema)
        assert select(actual, predicate).opened.tolist() == [kept]
