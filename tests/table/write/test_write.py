"""Whatever is written and appended: no row is lost, none is there twice, and the index keeps its invariants."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def check_written(case: Case, file_rows: int, page_rows: int) -> None:
    with folder() as path:
        with small_files(file_rows=file_rows, page_rows=page_rows):
            results = write(path, case)
        assert_same_rows(qbeast.read_table(path), case.rows)
        if case.dialect == "qbeast-spark":
            check_jvm_can_read(path, asked=case.columns)
        assert sum(block.rows for block in check_invariants(path)) == case.rows.height
        assert [result.version for result in results] == list(range(len(case.frames)))
        assert [result.rows for result in results] == [frame.height for frame in case.frames]
        for version in range(len(case.frames)):
            before = case.frames[: version + 1]
            assert qbeast.open_table(path, version=version).scan().collect().height == sum(
                frame.height for frame in before
            )


JVM_KNOWS = {"LinearTransformation", "HashTransformation", "NullToZeroTransformation$"}


def check_jvm_can_read(path: Path, *, asked: tuple[str, ...]) -> None:
    """A released JVM knows three transformations, and fails on a float where it wants an integer."""
    configuration = read_log(path).configuration
    assert configuration["qbeast.blocksDialect"] == "qbeast-spark"
    for key, text in configuration.items():
        if key.startswith("qbeast.revision.") and key != "qbeast.revision.0":
            for spec, space in zip(asked, json.loads(text)["transformations"], strict=True):
                name = space["className"].rpartition(".")[2]
                assert name in {
                    "LinearTransformation",
                    "HashTransformation",
                    "NullToZeroTransformation$",
                } or spec.endswith(":quantiles")
                if space.get("orderedDataType") in WHOLE_TYPES and name == "LinearTransformation":
                    assert all(isinstance(space[end], int) for end in ("minNumber", "maxNumber", "nullValue"))


WHOLE_TYPES = {"IntegerDataType", "LongDataType", "TimestampDataType", "DateDataType"}
SHAPES = {"file_rows": st.sampled_from([5, 30, 1 << 16]), "page_rows": st.sampled_from([1, 4, 32])}


@examples(8, sweep=200)
@given(case=cases(most_rows=200) if is_sweep() else cases(), **SHAPES)
def test_rows_are_complete_and_index_holds(case: Case, file_rows: int, page_rows: int) -> None:
    check_written(case, file_rows, page_rows)


def test_large_table_has_every_row_in_place(tmp_path: Path) -> None:
    rng, count = np.random.default_rng(5), 300_000
    rows = pl.DataFrame(
        {
            ROW: np.arange(count),
            "price": rng.lognormal(3, 1, count).round(2),
            "day": rng.integers(19_000, 20_000, count).astype(np.int32),
            "brand": rng.zipf(1.5, count) % 1000,
            "note": rng.integers(0, 10**6, count),
        }
    ).with_columns(
        pl.col("day").cast(pl.Date),
        pl.format("brand {}", "brand").alias("brand"),
        pl.when(pl.col("note") % 3 == 0).then(pl.format("note {}", "note")).alias("note"),
        price=pl.when(pl.col(ROW) % 11 != 0).then("price"),
    )
    indexed = ["price", "day:linear", "brand", ROW]
    for number, part in enumerate(rows.iter_slices(120_000)):
        qbeast.write_table(part, tmp_path / "t", columns=indexed, mode="append" if number else "error")
    assert sum(block.rows for block in check_invariants(tmp_path / "t")) == count
    table = qbeast.open_table(tmp_path / "t")
    assert_same_rows(table.scan().collect(), rows)
    for expr in (
        (pl.col("price") < 5) & (pl.col("brand") == "brand 7"),
        pl.col("price").is_null() & (pl.col(ROW) < 5000),
        pl.col("day").is_between(date(2024, 1, 1), date(2024, 1, 9)),
        pl.col("brand").str.starts_with("brand 99"),
    ):
        expected = rows.filter(expr)
        assert_same_rows(table.scan().filter(expr).collect(), expected)
        kept = sampled(expected, ["price", "day", "brand", ROW], 0.1)
        assert_same_rows(table.scan(sample=0.1).filter(expr).collect(), kept)
        assert table.explain(expr).share < 0.6
