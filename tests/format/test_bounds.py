# ruff: noqa: DTZ001 -- timestamps without a zone are texts of a log
"""Statistics as other writers write them, which do not enclose their rows: no filter, count or delete loses a row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.handmade_log import add, metadata, write_log
from tests.helpers.tables import assert_same_rows


@dataclass(frozen=True)
class Log:
    """A file of another writer: its values, and the text of its statistics of them."""

    type: str
    values: pl.Series
    stats: str
    # A value that is in none of its files, so the file is skipped; None: no value lets it be skipped.
    outside: Any = None


def times(*values: datetime, zone: str | None = "UTC") -> pl.Series:
    return pl.Series(values, dtype=pl.Datetime("us", zone))


def without_seconds(local: datetime, offset: timedelta) -> tuple[datetime, str]:
    """Return a time in a zone, and the text of it that Delta 3.2 and 3.3 write: the offset lost its seconds."""
    sign, minutes = ("-" if offset < timedelta(0) else "+"), int(abs(offset).total_seconds()) // 60
    text = f"{local.isoformat(timespec='milliseconds')}{sign}{minutes // 60:02}:{minutes % 60:02}"
    return local.replace(tzinfo=timezone(offset)).astimezone(UTC), text


def cut_offset(local: datetime, **offset: int) -> Log:
    time, text = without_seconds(local, timedelta(**offset))
    stats = (
        f'{{"numRecords":1,"minValues":{{"x":"{text}"}},"maxValues":{{"x":"{text}"}},"nullCount":{{"x":0}}}}'
    )
    return Log("timestamp", times(time), stats, outside=time + timedelta(days=60))


def bounds(low: Any, high: Any, rows: int, nulls: int | None = 0) -> str:
    kinds = {"minValues": low, "maxValues": high, "nullCount": nulls}
    fields = {kind: {} if value is None else {"x": value} for kind, value in kinds.items()}
    return json.dumps({"numRecords": rows, **fields}, ensure_ascii=False)


LONG = "a" * 32
LOGS = {
    # Spark, Delta 3.2 and 3.3
    "offset of Monrovia": cut_offset(datetime(1965, 6, 1, 12), minutes=-44, seconds=-30),
    "offset of Riyadh": cut_offset(datetime(1940, 6, 1, 12), hours=3, minutes=6, seconds=52),
    "offset of Jakarta": cut_offset(datetime(1920, 6, 1, 12), hours=7, minutes=7, seconds=12),
    "offset of Stockholm": cut_offset(datetime(1850, 1, 1, 1, 1, 1), minutes=53, seconds=28),
    "offset of a session": cut_offset(datetime(2024, 6, 1, 12), hours=1, minutes=0, seconds=59),
    # Spark, every version; Trino
    "cut to milliseconds": Log(
        "timestamp",
        times(datetime(2024, 5, 1, 1, 2, 3, 456789, UTC)),
        bounds("2024-05-01T01:02:03.456Z", "2024-05-01T01:02:03.456Z", 1),
        outside=datetime(2024, 5, 1, 1, 4, tzinfo=UTC),
    ),
    "local, cut to milliseconds": Log(
        "timestamp_ntz",
        times(datetime(2024, 5, 1, 1, 2, 3, 456789), zone=None),
        bounds("2024-05-01 01:02:03.456", "2024-05-01 01:02:03.456", 1),
        outside=datetime(2024, 5, 1, 1, 2, 4),
    ),
    # Spark, older Delta
    "cut before an emoji": Log(
        "string", pl.Series([f"{LONG}😀b"]), bounds(LONG, f"{LONG}\ufffd", 1), outside="b"
    ),
    "cut in the middle of an emoji": Log(
        "string", pl.Series([f"{LONG[1:]}😀b"]), bounds(f"{LONG[1:]}?", f"{LONG[1:]}?\ufffd", 1), outside="b"
    ),
    # Spark, Delta 4
    "cut text": Log("string", pl.Series([f"{LONG}zz"]), bounds(LONG, f"{LONG}\x7f", 1), outside="b"),
    # pyarrow and the first delta-rs: cut without a tie-breaker
    "cut without tie-breaker": Log("string", pl.Series([f"{LONG}zz"]), bounds(LONG, LONG, 1), outside="b"),
    # delta-rs
    "decimal as float": Log(
        "decimal(38,10)",
        pl.Series([Decimal("1234567890123456789012345678.0123456789")], dtype=pl.Decimal(38, 10)),
        bounds(1.2345678901234567e27, 1.2345678901234567e27, 1),
    ),
    "hidden NaN": Log("double", pl.Series([0.1, float("nan")]), bounds(0.1, 0.1, 2)),
    "null bounds of infinities": Log(
        "double", pl.Series([float("inf"), float("-inf")]), bounds(None, None, 2)
    ),
    # Spark
    "NaN as text": Log("double", pl.Series([0.1, float("nan")]), bounds(0.1, "NaN", 2)),
    "infinities as texts": Log(
        "double", pl.Series([float("inf"), float("-inf")]), bounds("-Infinity", "Infinity", 2)
    ),
    "zeros of two signs": Log("double", pl.Series([-0.0, 0.0]), bounds(0.0, -0.0, 2)),
    # arrow-rs before 4.2: null counts of columns without values
    "nulls counted as none": Log("long", pl.Series([None, None], dtype=pl.Int64), bounds(None, None, 2)),
    "no null counts": Log(
        "long", pl.Series([None, 7], dtype=pl.Int64), bounds(7, 7, 2, nulls=None), outside=8
    ),
    # Julian days before 1582, see old dates
    "date of the old calendar": Log(
        "date",
        pl.Series([date(1500, 1, 10)]),
        bounds("1500-01-01", "1500-01-01", 1),
        outside=date(1700, 1, 1),
    ),
}


def table_of(path: Path, log: Log) -> pl.DataFrame:
    rows = pl.DataFrame([pl.Series("id", range(len(log.values))), log.values.alias("x")])
    path.mkdir()
    rows.write_parquet(path / "a.parquet")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("x", log.type))
    ]
    names = ["timestampNtz"] if log.type == "timestamp_ntz" else []
    versions = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": names,
        "writerFeatures": names,
    }
    size = (path / "a.parquet").stat().st_size
    schema = {"type": "struct", "fields": fields}
    write_log(path, [{"protocol": versions}, metadata(schema), add("a.parquet", size=size, stats=log.stats)])
    return rows


def conditions(rows: pl.DataFrame) -> list[pl.Expr]:
    x, dtype = pl.col("x"), rows["x"].dtype
    asked = [x.is_null(), x.is_not_null()]
    for value in rows["x"].drop_nulls():
        literal = pl.lit(value, dtype)
        asked += [
            x == literal,
            x >= literal,
            x <= literal,
            x != pl.lit(rows["x"].max(), dtype),
            x.is_in([value]),
        ]
        asked += [x > pl.lit(value[:-1])] if isinstance(value, str) else []
        asked += [x.str.starts_with(value)] if isinstance(value, str) else []
        asked += [x.is_nan()] if dtype.is_float() else []
    return asked


@pytest.mark.parametrize("name", LOGS)
def test_no_filter_loses_a_row(name: str, tmp_path: Path) -> None:
    log = LOGS[name]
    rows = table_of(tmp_path / "t", log)
    table = qbeast.open_table(tmp_path / "t")
    for condition in conditions(rows):
        expected = rows.filter(condition)
        assert_same_rows(table.rows().lazy().filter(condition).collect(), expected, "id")
        assert table.rows().lazy().filter(condition).select(pl.len()).collect().item() == expected.height, (
            condition
        )
    assert {"stats-bounds"}.isdisjoint(table.check().faults["code"])
    if log.outside is not None:  # the bounds are still of use
        assert (
            table.rows(pl.col("x") == pl.lit(log.outside, rows["x"].dtype)).explain().files["opened"].sum()
            == 0
        )


@pytest.mark.parametrize("name", ["offset of Monrovia", "cut before an emoji", "nulls counted as none"])
def test_delete_finds_every_row(name: str, tmp_path: Path) -> None:
    rows = table_of(tmp_path / "t", LOGS[name])
    value = rows["x"][0]
    condition = pl.col("x").is_null() if value is None else pl.col("x") == pl.lit(value, rows["x"].dtype)
    assert qbeast.open_table(tmp_path / "t").delete(condition).rows_deleted == rows.height
    assert qbeast.read_table(tmp_path / "t").is_empty()


def test_bounds_of_our_files_are_not_widened(tmp_path: Path) -> None:
    start = datetime(2024, 5, 1, tzinfo=UTC)
    rows = pl.DataFrame({"id": range(100), "x": [start + timedelta(seconds=i) for i in range(100)]})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    near = pl.col("x") == pl.lit(start + timedelta(seconds=99, milliseconds=2))
    assert qbeast.open_table(tmp_path / "t").rows(near).explain().files["opened"].sum() == 0
