"""A frame with every data type a table can hold, nulls and empty values everywhere."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import polars as pl

from qbeast_core.io.footer import PageCuts


def every_type(rows: int, *, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)

    def some(values: list[object], dtype: pl.DataType) -> pl.Series:
        picked = random.integers(0, len(values) + 1, rows)
        return pl.Series([*values, None], dtype=dtype).gather(picked)

    numbers = random.integers(-(2**62), 2**62, rows)
    columns = {
        "id": pl.Series(np.arange(rows)),
        "i8": some([-128, 0, 127], pl.Int8()),
        "i16": some([-(2**15), 3, 2**15 - 1], pl.Int16()),
        "i32": some([-(2**31), 0, 2**31 - 1, *range(50)], pl.Int32()),
        "i64": pl.Series(numbers),
        "u32": some([0, 2**32 - 1], pl.UInt32()),
        "f32": some([0.0, -0.0, float("inf"), float("nan"), 1.5], pl.Float32()),
        "f64": pl.Series(random.normal(size=rows)),
        "bool": some([True, False], pl.Boolean()),
        "text": some(["", "a", "ü" * 40, "x" * 500, *map(str, range(300))], pl.String()),
        "unique_text": pl.Series([f"row {n:x}" for n in numbers]),
        "binary": some([b"", b"\x00\xff", b"b" * 90], pl.Binary()),
        "dec15": some([Decimal("-12.34"), Decimal("9999999999999.99"), Decimal(0)], pl.Decimal(15, 2)),
        "dec38": some([Decimal("1" * 30 + ".12"), Decimal("-0.01")], pl.Decimal(38, 2)),
        "day": some([date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)], pl.Date()),
        "naive": some(
            list(map(datetime.fromisoformat, ("1900-01-01", "2262-04-12T01:02:03.000004"))), pl.Datetime("us")
        ),
        "utc": some(
            [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=7 * n) for n in range(99)],
            pl.Datetime("us", "UTC"),
        ),
        "all_null": pl.Series([None] * rows, dtype=pl.String()),
        "list": some([[], [1], [None, 2, 3], list(range(30))], pl.List(pl.Int64())),
        "texts": some([[], ["", None], ["a", "b" * 20]], pl.List(pl.String())),
        "struct": some(
            [{"a": 1, "b": ""}, {"a": None, "b": "z"}, {"a": 3, "b": None}],
            pl.Struct({"a": pl.Int32(), "b": pl.String()}),
        ),
        "deep": some(
            [[], [{"x": [1.5, None], "y": "q"}], [None, {"x": [], "y": None}]],
            pl.List(pl.Struct({"x": pl.List(pl.Float64()), "y": pl.String()})),
        ),
    }
    return pl.DataFrame(columns)


def weights(rows: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, rows).astype(np.int32)


def page_cuts(rows: int, page_rows: int, *, groups: int = 1) -> PageCuts:
    """Cut rows into row groups of about equal size."""
    ends = [rows * number // groups for number in range(groups + 1)]
    sizes = [end - start for start, end in itertools.pairwise(ends) if end > start]
    return PageCuts(tuple(sizes), (page_rows,) * len(sizes))
