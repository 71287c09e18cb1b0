"""Tables that other Delta writers write to as well: their rows are read right, sampled or not, filtered or not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.examples import examples, is_sweep
from tests.helpers.invariants import check_invariants
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

SAMPLES = (0.0, None, 0.3, (0.25, 0.8), 1.0)


def rows_from(start: int, count: int = 40) -> pl.DataFrame:
    numbers = pl.int_range(start, start + count, eager=True).alias("row")
    spread = (numbers * 7919) % 101
    nulls = pl.when(spread % 9 > 0).then(spread)
    texts = pl.format("key {}", spread % 13)
    return pl.select(numbers, a=nulls.cast(pl.Float64), b=texts)


def assert_reads_right(path: Path, model: pl.DataFrame) -> None:
    for sample in SAMPLES if is_sweep() else SAMPLES[1:3]:
        expected = sampled(model, ["row", "a", "b"], sample)
        assert_same_rows(qbeast.read_table(path, sample=sample), expected)
        for predicate in (pl.col("a") < 30, pl.col("b") == "key 3", pl.col("a").is_null()):
            actual = qbeast.read_table(path, sample=sample, where=predicate)
            assert_same_rows(actual, expected.filter(predicate))


@examples(2, sweep=60)
@given(
    begin=st.sampled_from(["converted", "written"]),
    steps=st.lists(
        st.sampled_from(["ours", "theirs", "delete", "update", "compact"]), min_size=1, max_size=5
    ),
)
def test_rows_of_every_writer_are_read_once(begin: str, steps: list[str]) -> None:
    model = rows_from(0)
    with folder() as path, small_files():
        if begin == "written":
            qbeast.write_table(model, path, columns=["row", "a", "b"], cube_size=7)
        else:
            model.write_delta(path)
            qbeast.convert_table(path, ["row", "a", "b"], cube_size=7)
        for number, step in enumerate(steps, start=1):
            more = rows_from(1000 * number)
            match step:
                case "ours":
                    qbeast.write_table(more, path, mode="append")
                    model = pl.concat([model, more])
                case "theirs":
                    write_deltalake(path, more, mode="append")
                    model = pl.concat([model, more])
                case "delete":
                    DeltaTable(path).delete("a > 60")
                    model = model.filter((pl.col("a") > 60).fill_null(value=False).not_())
                case "update":
                    DeltaTable(path).update({"a": "a + 1"}, predicate="a < 10")
                    below = pl.col("a") < 10
                    model = model.with_columns(pl.when(below).then(pl.col("a") + 1).otherwise("a").alias("a"))
                case _:
                    DeltaTable(path).optimize.compact()
        assert_reads_right(path, model)


def test_foreign_rows_are_staged_and_ours_stay_indexed(tmp_path: Path) -> None:
    first, second = rows_from(0, 200), rows_from(200, 200)
    qbeast.write_table(first, tmp_path, columns=["row", "a", "b"], cube_size=20)
    indexed = load_snapshot(tmp_path).files.height
    write_deltalake(tmp_path, second, mode="append")
    actual = load_snapshot(tmp_path).files
    assert (actual["revision"].count(), actual["revision"].null_count()) == (indexed, 1)
    assert_reads_right(tmp_path, pl.concat([first, second]))
    check_invariants(tmp_path, may_stage=True)
    qbeast.write_table(rows_from(400, 200), tmp_path, mode="append")
    check_invariants(tmp_path, may_stage=True)


def test_empty_foreign_table_can_be_converted(tmp_path: Path) -> None:
    nothing = rows_from(0, 0)
    DeltaTable.create(tmp_path, nothing.to_arrow().schema)
    result = qbeast.convert_table(tmp_path, ["row", "a", "b"])
    assert (result.files, result.rows) == (0, 0)
    assert qbeast.read_table(tmp_path).height == 0
    write_deltalake(tmp_path, rows_from(0), mode="append")
    assert_reads_right(tmp_path, rows_from(0))
    qbeast.write_table(rows_from(40), tmp_path, mode="append")
    assert_reads_right(tmp_path, rows_from(0, 80))
