from __future__ import annotations

import json
import math
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.log.actions import file_stats, stats_columns
from qbeast_core.log.schema import schema_to_delta
from tests.helpers.handmade_log import add, features, metadata, write_log

TYPES = {
    pl.Int8(): st.integers(-(2**7), 2**7 - 1),
    pl.Int64(): st.integers(-(2**63), 2**63 - 1),
    pl.Float32(): st.floats(width=32),
    pl.Float64(): st.floats(),
    pl.Decimal(38, 10): st.decimals(
        allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27
    ),
    pl.Decimal(9, 2): st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6
    ),
    pl.String(): st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("a\U0010ffff"), max_size=80
    ),
    pl.Date(): st.dates(),
    pl.Datetime("us"): st.datetimes(),
    pl.Boolean(): st.booleans(),
    pl.Binary(): st.binary(max_size=3),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    rows = draw(st.integers(0, 5))
    columns = {}
    for name, dtype in enumerate(draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))):
        values = draw(st.lists(st.none() | TYPES[dtype], min_size=rows, max_size=rows))
        columns[f"c{name}"] = pl.Series(values, dtype=dtype)
    frame = pl.DataFrame(columns)
    # A struct with nulls of its own around the same leaves.
    whole = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    struct = pl.when(pl.Series(whole, dtype=pl.Boolean)).then(pl.struct(pl.all()))
    return frame.with_columns(struct.alias("nested")) if draw(st.booleans()) else frame


def as_delta_reads(frame: pl.DataFrame) -> pl.DataFrame:
    schema = json.loads(schema_to_delta(frame.schema))
    ntz = features("timestampNtz", reader=["timestampNtz"])
    with tempfile.TemporaryDirectory() as root:
        table = write_log(Path(root), [ntz, metadata(schema), add("a", stats=file_stats(frame))])
        return pl.DataFrame(DeltaTable(table).get_add_actions())


def leaves(frame: pl.DataFrame) -> dict[str, pl.Series]:
    if "nested" not in frame.columns:
        return {name: frame[name] for name in frame.columns}
    inner = {
        f"nested.{field}": frame["nested"].struct.field(field) for field in frame["nested"].struct.fields
    }
    return {name: frame[name] for name in frame.columns if name != "nested"} | inner


def stats_value(stats: pl.DataFrame, kind: str, leaf: str):
    value = stats[kind][0] if kind in stats.columns else None  # no column may be able to have bounds
    for name in leaf.split("."):
        value = None if value is None else value.get(name)
    return value


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@given(frames())
def test_bounds_are_safe_and_nulls_are_counted(frame: pl.DataFrame) -> None:
    stats = as_delta_reads(frame)
    assert stats["num_records"].item() == frame.height
    for leaf, column in leaves(frame).items():
        assert stats_value(stats, "null_count", leaf) == column.null_count()
        low, high = stats_value(stats, "min", leaf), stats_value(stats, "max", leaf)
        values = column.drop_nulls().to_list()
        if isinstance(low, float) or isinstance(high, float):
            assert not is_nan(low)
            assert not is_nan(high)
        if low is not None:
            assert all(is_nan(value) or low <= value for value in values)
        if high is not None:
            assert all(not is_nan(value) and value <= high for value in values)


@given(frames())
def test_bounds_exist_where_possible(frame: pl.DataFrame) -> None:
    stats = json.loads(file_stats(frame), parse_constant=pytest.fail)
    for leaf, column in leaves(frame).items():
        values = column.drop_nulls().to_list()
        plain = all(not isinstance(value, float) or math.isfinite(value) for value in values)
        short = all(not isinstance(value, str) or "\U0010ffff" not in value for value in values)
        if (
            values
            and plain
            and short
            and not isinstance(values[0], bool | bytes)
            and not near_the_last_day(values)
        ):
            for kind in ("minValues", "maxValues"):
                actual = stats[kind]
                for name in leaf.split("."):
                    actual = actual[name]
                assert actual is not None


def near_the_last_day(values: list[object]) -> bool:
    return any(isinstance(value, datetime) and value.year == 9999 for value in values)


def test_numbers_keep_digits_and_safe_zero_sign() -> None:
    frame = pl.DataFrame(
        {"d": [Decimal("12345678901234567890.1234567890")], "i": [2**63 - 1], "z": [-0.0], "y": [0.0]},
        schema_overrides={"d": pl.Decimal(38, 10)},
    )
    assert file_stats(frame) == (
        '{"numRecords":1,"minValues":{"d":12345678901234567890.1234567890,"i":9223372036854775807,"z":-0.0,"y":-0.0},'
        '"maxValues":{"d":12345678901234567890.1234567890,"i":9223372036854775807,"z":0.0,"y":0.0},'
        '"nullCount":{"d":0,"i":0,"z":0,"y":0}}'
    )


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.5, math.nan, 2.5], 1.5, None),
        ([math.nan], None, None),
        ([-math.inf, 1.0], None, 1.0),
        ([1.0, math.inf], 1.0, None),
        (["é" * 40], "é" * 32, "é" * 32 + "\U0010ffff"),
        (["a" * 40], "a" * 32, "a" * 32 + "\x7f"),
        (["\U0010ffff" * 65], "\U0010ffff" * 32, None),
        (["\U0010ffff" * 64], "\U0010ffff" * 32, "\U0010ffff" * 64),
        (["\U0010ffff" * 40 + "ab"], "\U0010ffff" * 32, "\U0010ffff" * 40 + "\x7f"),
        ([date(1, 1, 1), date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        (
            [datetime(1969, 12, 31, 23, 59, 59, 999_999)],  # noqa: DTZ001 - a timestamp without zone
            "1969-12-31 23:59:59.999",
            "1970-01-01 00:00:00.000",
        ),
    ],
)
def test_unrepresentable_bounds_are_dropped_or_widened(values, low, high) -> None:
    stats = json.loads(file_stats(pl.DataFrame({"x": values})))
    assert (stats["minValues"].get("x"), stats["maxValues"].get("x")) == (low, high)


def test_instants_are_utc_until_year_9999() -> None:
    frame = pl.DataFrame({"t": [1, 10**18]}).select(
        pl.col("t").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    )
    stats = json.loads(file_stats(frame))
    assert stats["minValues"] == {"t": "1970-01-01T00:00:00.000Z"}
    assert stats["maxValues"] == {}


WIDE = pl.Schema({f"c{i}": pl.Int8() for i in range(40)})
NESTED = pl.Schema(
    {"a.b": pl.Int8(), "s": pl.Struct({"x": pl.Int8, "t": pl.Struct({"y": pl.Int8})}), "l": pl.List(pl.Int8)}
)


@pytest.mark.parametrize(
    ("schema", "configuration", "expected"),
    [
        (WIDE, {}, [(f"c{i}",) for i in range(32)]),
        (WIDE, {"delta.dataSkippingNumIndexedCols": "2"}, [("c0",), ("c1",)]),
        (WIDE, {"delta.dataSkippingNumIndexedCols": "-1"}, [(f"c{i}",) for i in range(40)]),
        (NESTED, {}, [("a.b",), ("s", "x"), ("s", "t", "y"), ("l",)]),
        (NESTED, {"delta.dataSkippingStatsColumns": " s , `a.b`"}, [("a.b",), ("s", "x"), ("s", "t", "y")]),
        (
            NESTED,
            {"delta.dataSkippingStatsColumns": "s.t.y", "delta.dataSkippingNumIndexedCols": "1"},
            [("s", "t", "y")],
        ),
        (NESTED, {"delta.dataSkippingStatsColumns": "gone"}, []),
    ],
)
def test_table_chooses_described_columns(schema, configuration, expected) -> None:
    assert stats_columns(schema, configuration) == expected


def test_deltalake_describes_the_same_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame({f"c{i}": [1] for i in range(40)})
    write_deltalake(tmp_path, frame)
    theirs = json.loads(
        json.loads((tmp_path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[-1])["add"]["stats"]
    )
    assert json.loads(file_stats(frame))["maxValues"] == theirs["maxValues"]


def test_no_columns_still_count_rows() -> None:
    assert file_stats(pl.DataFrame({"x": [1]}), columns=[]) == (
        '{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{}}'
    )
