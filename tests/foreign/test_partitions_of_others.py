"""Partitioned tables of other writers: converted in place, read, filtered and sampled as plain Polars does."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import qbeast
from tests.helpers.tables import assert_same_rows, sampled

TIME = datetime(2024, 5, 1, 1, 2, 3, 456, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "texts": ["a", "b c", "d/e=f", "%41", "ü:1", "__HIVE_DEFAULT_PARTITION__", "..", None],
    "integers": [-5, 0, 7, None],
    "booleans": [True, False, None],
    "dates": [date(1582, 1, 1), date(2024, 2, 29), None],
    "times": [TIME, datetime(1960, 1, 1, tzinfo=UTC), None],
    "local times": [TIME.replace(tzinfo=None), datetime.fromisoformat("0001-01-01"), None],
    "decimals": [Decimal("1.50"), Decimal("-20.00"), None],
    "floats": [1.5, -0.25, 1e30, None],
}


def rows_with(values: list[Any]) -> pl.DataFrame:
    days = pl.Series("p", values * 40)
    numbers = pl.int_range(len(days), eager=True).alias("row")
    return pl.DataFrame([numbers, (numbers * 7919 % 97).alias("a"), days])


@pytest.mark.parametrize("kind", VALUES)
def test_filters_and_samples_are_those_of_polars(kind: str, tmp_path: Path) -> None:
    rows, table = rows_with(VALUES[kind]), tmp_path / "t"
    write_deltalake(table, rows, partition_by=["p"])
    columns = ["row", "a"] if kind in ("booleans", "floats") else ["p", "a"]  # booleans cannot be indexed
    qbeast.convert_table(table, columns=columns)
    assert_same_rows(qbeast.read_table(table), rows)
    for fraction in (0.1, 0.5):
        assert_same_rows(qbeast.read_table(table, sample=fraction), sampled(rows, columns, fraction))
    value = rows["p"][0]
    for where in (pl.col("p") == value, pl.col("p") != value, pl.col("p").is_null(), pl.col("p") > value):
        both = where & (pl.col("a") < 50)
        assert_same_rows(qbeast.scan_table(table).filter(where).collect(), rows.filter(where))
        assert_same_rows(qbeast.scan_table(table).filter(both).collect(), rows.filter(both))
    counted = qbeast.scan_table(table).filter(pl.col("p").is_null()).select(pl.len()).collect().item()
    assert counted == rows["p"].null_count()
    # Its files alone are opened.
    plan = qbeast.open_table(table).rows(pl.col("p") == value).explain()
    assert int(plan.files["opened"].sum()) < plan.files.height
    if rows["p"].dtype != pl.Decimal:  # files of other writers may round decimals, so their bounds are wider
        assert plan.rows_opened == rows.filter(pl.col("p") == value).height
    # The column alone can be selected.
    assert_same_rows(qbeast.scan_table(table).select("p").collect(), rows.select("p"), "p")
    sample = qbeast.scan_table(table, sample=0.5).select("p").collect()
    assert_same_rows(sample, sampled(rows, columns, 0.5).select("p"), "p")


def test_several_partition_columns_keep_their_order(tmp_path: Path) -> None:
    rows = rows_with(["a", "b", None]).with_columns(q=pl.col("row") % 4)
    write_deltalake(tmp_path / "t", rows, partition_by=["q", "p"])
    qbeast.convert_table(tmp_path / "t", columns=["a"])
    table = qbeast.open_table(tmp_path / "t")
    assert table.schema == rows.schema
    assert_same_rows(table.read(), rows)
    where = (pl.col("q") == 2) & (pl.col("p") == "b")
    assert_same_rows(table.rows().lazy().filter(where).collect(), rows.filter(where))


def test_partition_columns_are_stored_from_some_version_on(tmp_path: Path) -> None:
    path, rows = tmp_path / "t", rows_with(["a", "b", None])
    write_deltalake(path, rows, partition_by=["p"])
    writer = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["materializePartitionColumns"]}
    (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": writer}))
    qbeast.convert_table(path, columns=["row", "p"])
    more = rows.with_columns(pl.col("row") + 1_000)
    qbeast.write_table(more, path, mode="append")
    expected = pl.concat([rows, more])
    stored = [pq.read_schema(file).names for file in path.rglob("*.parquet")]
    assert [names.count("p") for names in stored].count(1) == len(stored) - 3 > 0
    table = qbeast.open_table(path)
    for where in (pl.col("p") == "a", pl.col("p").is_null() & (pl.col("a") < 50)):
        assert_same_rows(table.rows().lazy().filter(where).collect(), expected.filter(where))
    assert_same_rows(table.read(sample=0.4), sampled(expected, ["row", "p"], 0.4))
    table.update(pl.col("row") < 20, {"a": 5})
    expected = expected.with_columns(a=pl.when(pl.col("row") < 20).then(5).otherwise("a"))
    table.optimize()
    assert_same_rows(table.read(), expected)
    assert_same_rows(pl.read_delta(str(path)).select(rows.columns), expected)
    assert table.check().ok
