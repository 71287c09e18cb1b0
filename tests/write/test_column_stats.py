# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""What callers say about columns in advance becomes the space, in the column's own unit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import qbeast
from qbeast_core.table.write.options import parse_column_stats

DAY_MS = 86_400_000
NEW_YEAR_MS = 946_684_800_000
"""2000-01-01, UTC."""

HALF_EAST = timezone(timedelta(hours=5, minutes=30))
VALUES: list[tuple[pl.DataType, Any, Any]] = [
    (pl.Int64(), 5, 5),
    (pl.Int64(), 5.0, 5),
    (pl.Int64(), 2**63 - 1, 2**63 - 1),
    (pl.Int8(), -128, -128),
    (pl.Float64(), 5, 5.0),
    (pl.Float64(), 0.1, 0.1),
    (pl.Float32(), 0.5, 0.5),
    (pl.Float64(), Decimal("0.25"), 0.25),
    (pl.Decimal(9, 2), Decimal("1.25"), 1.25),
    (pl.Decimal(9, 2), 1.25, 1.25),
    (pl.Decimal(25, 3), 7, 7.0),
    (pl.String(), "x", "x"),
    (pl.Date(), date(2000, 1, 1), NEW_YEAR_MS),
    (pl.Date(), "2000-01-02", NEW_YEAR_MS + DAY_MS),
    (pl.Datetime("us", "UTC"), datetime(2000, 1, 1, tzinfo=UTC), NEW_YEAR_MS),
    (pl.Datetime("us", "UTC"), datetime(2000, 1, 1, 5, 30, tzinfo=HALF_EAST), NEW_YEAR_MS),
    (pl.Datetime("us", "UTC"), datetime(2000, 1, 1), NEW_YEAR_MS),
    (pl.Datetime("us", "UTC"), "2000-01-01T00:00:00.5Z", NEW_YEAR_MS + 500),
    (pl.Datetime("us", "UTC"), "2000-01-01T05:30:00+05:30", NEW_YEAR_MS),
    (pl.Datetime("us", "UTC"), "2000-01-01", NEW_YEAR_MS),
    (pl.Datetime("us", "UTC"), date(2000, 1, 1), NEW_YEAR_MS),
    (pl.Datetime("us"), datetime(2000, 1, 1), NEW_YEAR_MS),
    (pl.Datetime("us"), "2000-01-01 00:00", NEW_YEAR_MS),
]


@pytest.mark.parametrize(("dtype", "options", "expected"), VALUES, ids=str)
def test_values_are_in_the_unit_of_column(dtype: pl.DataType, options: Any, expected: Any) -> None:
    bounds = parse_column_stats({"x_min": options}, pl.Schema({"x": dtype}), ["x"])["x"]
    assert bounds.lowest == expected
    assert type(bounds.lowest) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (pl.Int64(), "5"),
        (pl.Int8(), 128),
        (pl.Float64(), "x"),
        (pl.Float64(), float("-inf")),
        (pl.String(), 5),
        (pl.String(), b"x"),
        (pl.Date(), 5),
        (pl.Date(), "hello"),
        (pl.Datetime("us"), 5),
        (pl.Decimal(5, 2), 10**6),
    ],
    ids=str,
)
def test_values_of_wrong_type_raise(dtype: pl.DataType, options: Any) -> None:
    for stats in ({"x_max": options}, {"x_quantiles": [options, options]}):
        with pytest.raises(qbeast.InvalidInputError, match="does not fit"):
            parse_column_stats(stats, pl.Schema({"x": dtype}), ["x"])


def test_quantiles_mix_number_types_in_any_order() -> None:
    schema = pl.Schema({"x": pl.Float64(), "s": pl.String()})
    bounds = parse_column_stats('{"x_quantiles": [2, 0.5, 1], "s_quantiles": ["b", "a"]}', schema, ["x", "s"])
    assert bounds["x"].quantiles == (2.0, 0.5, 1.0)
    assert bounds["s"].quantiles == ("b", "a")


def test_missing_stats_are_unknown() -> None:
    schema = pl.Schema({"x": pl.Float64()})
    assert parse_column_stats(None, schema, ["x"]) == {}
    assert parse_column_stats({"x_min": None, "x_quantiles": None}, schema, ["x"]) == {}
