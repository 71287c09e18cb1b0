"""The golden tables themselves: none is lost unnoticed, and they cover what JVMs write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlglot

from qbeast_core.spec.revision import Revision
from tests.format.collection import BUNDLE, VARIABLE, WRITERS, each, load_golden, open_golden, read_collection
from tests.format.sql import to_polars

ALL = read_collection(BUNDLE)
MOST_BYTES = 4_500_000


@pytest.fixture(scope="module", autouse=True)
def _opened() -> None:
    for golden in ALL:
        open_golden(golden)


def f64(value: float) -> pl.Expr:
    return pl.lit(value, dtype=pl.Float64)


def revisions() -> Iterator[Revision]:
    for golden in ALL:
        yield from open_golden(golden).revisions


def tags() -> Iterator[dict[str, Any]]:
    for golden in ALL:
        for action in (action for commit in golden.commits for action in commit):
            yield action.get("add", {}).get("tags") or {}


def test_empty_folder_fails(tmp_path):
    with pytest.raises(AssertionError, match="holds no golden tables of legacy"):
        read_collection(tmp_path)
    for writer in WRITERS[:2]:
        (tmp_path / writer / "t" / "table").mkdir(parents=True)
    with pytest.raises(AssertionError, match=r"golden tables of qbeast-spark-0\.8"):
        read_collection(tmp_path)


@pytest.mark.sweep
def test_collection_is_complete():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} does not name the folder of the whole collection: only its bundled part is tested"
        )
    swept = {str(golden) for golden in read_collection(Path(folder))}
    assert {str(golden) for golden in ALL} <= swept


def test_parametrization_without_tables_fails():
    with pytest.raises(AssertionError, match="what the test wants"):
        each(lambda golden: golden.name == "no such table")


def test_collection_is_small_and_consistent():
    assert sum(path.stat().st_size for path in BUNDLE.rglob("*") if path.is_file()) <= MOST_BYTES
    assert len(ALL) == 44
    for golden in ALL:
        assert golden.meta["name"] == golden.name
        assert golden.expected["id"].is_unique().all()
        assert set(golden.samples) == {0.01, 0.1, 0.5}


def test_every_transformation_is_covered():
    actual = {type(space).__name__ for revision in revisions() for space in revision.transformations}
    assert actual == {
        "CDFNumericQuantilesTransformation",
        "CDFStringQuantilesTransformation",
        "EmptyTransformation",
        "HashTransformation",
        "IdentityToZeroTransformation",
        "IdentityTransformation",
        "LinearTransformation",
        "NullToZeroTransformation",
        "StringHistogramTransformation",
    }


def test_collection_covers_all_jvm_indexed_types():
    actual = {open_golden(golden).schema[name] for golden in ALL for name in golden.indexed}
    decimals = {dtype for dtype in actual if isinstance(dtype, pl.Decimal)}
    assert {dtype.precision > 18 for dtype in decimals} == {True, False}
    numbers = {pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64()}
    assert actual - decimals == numbers | {pl.Date(), pl.Datetime("us", "UTC"), pl.String()}


def test_values_at_the_edges_are_covered():
    columns = [golden.expected[name] for golden in ALL for name in golden.indexed]
    floats = [column for column in columns if column.dtype.is_float()]
    assert any(column.is_nan().any() for column in floats)
    assert any(column.is_infinite().any() for column in floats)
    assert any(0 < column.null_count() < len(column) for column in columns)
    assert any(column.null_count() == len(column) > 0 for column in columns)
    assert any(column.n_unique() == 1 and column.null_count() == 0 for column in columns)
    moments = [column.cast(pl.Date) for column in columns if column.dtype.is_temporal()]
    assert any(column.min() < date(1582, 10, 15) for column in moments if column.min() is not None)
    assert any(column.max() > date(2262, 4, 12) for column in moments if column.max() is not None)
    assert {golden.meta.get("jvm_time_zone", "UTC") for golden in ALL} == {"UTC", "America/New_York"}


def test_every_layout_of_tags_is_covered():
    actual = list(tags())
    assert {tag.get("state") for tag in actual} == {None, "FLOODED", "ANNOUNCED", "REPLICATED"}
    spelled = [tag["blocks"] for tag in actual if "blocks" in tag]
    assert {'"replicated"' in text for text in spelled} == {True, False}
    assert any(not tag for tag in actual), "staged files have none"


def test_every_shape_of_table_is_covered():
    dimensions = {len(golden.indexed) for golden in ALL}
    assert {1, 2, 3, 7} <= dimensions
    numbers = [{item.revision_id for item in open_golden(golden).revisions} for golden in ALL]
    assert {0} in numbers
    assert {0, 1} in numbers
    assert {0, 1, 2} in numbers
    assert {2} in numbers, "a first write beyond columnStats"
    live = [load_golden(golden).files for golden in ALL]
    assert any(files.height == 0 for files in live)
    assert any((golden.path / "_delta_log" / "_last_checkpoint").exists() for golden in ALL)
    actions = [action for golden in ALL for commit in golden.commits for action in commit]
    operations = {action["commitInfo"]["operation"] for action in actions if "commitInfo" in action}
    assert {"CONVERT", "DELETE", "WRITE"} <= operations
    assert {action["add"]["dataChange"] for action in actions if "add" in action} == {True, False}, (
        "optimized"
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a < 2705", pl.col("a") < 2705),
        ("`y` >= -0.47D AND `y` < 1.5E10D", (pl.col("y") >= f64(-0.47)) & (pl.col("y") < f64(1.5e10))),
        (
            "(`x` >= 1 AND `x` < 2) OR `x` IS NULL",
            (pl.col("x").ge(1) & pl.col("x").lt(2)) | pl.col("x").is_null(),
        ),
        ("`x` < 1 OR `x` >= 2 AND `y` = 3", pl.col("x").lt(1) | (pl.col("x").ge(2) & pl.col("y").eq(3))),
        ("`s` IN ('a','日 本')", pl.col("s").is_in(["a", "日 本"])),
        ("`d` = DATE'2956-08-22'", pl.col("d") == date(2956, 8, 22)),
        (
            "`t` = TIMESTAMP'1850-11-19 03:22:14.5'",
            pl.col("t") == datetime(1850, 11, 19, 3, 22, 14, 500_000, UTC),
        ),
        ("`dec` = -1.20BD", pl.col("dec") == Decimal("-1.20")),
    ],
)
def test_sql_is_translated(sql: str, expected: pl.Expr):
    assert to_polars(sql).meta.eq(expected)


@pytest.mark.parametrize("sql", ["`x` LIKE 'a'", "`x` = 1 `y` = 2", "(`x` = 1", "NOT `x` = 1"])
def test_unsupported_sql_raises(sql: str):
    with pytest.raises((KeyError, sqlglot.ParseError)):
        to_polars(sql)
