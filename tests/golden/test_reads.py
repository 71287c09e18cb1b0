"""What the JVM wrote is read back: every row once, the same samples, as many rows as Delta sees."""

from __future__ import annotations

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

from tests.golden.collection import Golden, each, open_golden


@each()
def test_full_read_returns_every_row_once(golden: Golden):
    actual = open_golden(golden).scan().collect()
    if golden.is_doubled:
        assert actual.height == golden.meta["qbeast_rows"]
        actual = actual.unique()
    assert_frame_equal(actual.sort("id"), golden.expected, check_exact=True)


@pytest.mark.filterwarnings("ignore::qbeast.EmptySampleWarning")
@each()
def test_sample_equals_rows_of_the_jvm(golden: Golden):
    table = open_golden(golden)
    for fraction, ids in golden.samples.items():
        actual = table.scan(sample=fraction).collect()
        if golden.is_doubled:
            actual = actual.unique()
        expected = golden.expected.filter(pl.col("id").is_in(ids))
        assert_frame_equal(actual.sort("id"), expected, check_exact=True)


@each()
def test_samples_allow_ranges_and_column_subsets(golden: Golden):
    ids = open_golden(golden).scan(sample=(0.1, 0.5)).select("id").collect()["id"].to_list()
    kept = set(ids) if golden.is_doubled else ids
    assert sorted(kept) == sorted(set(golden.samples[0.5]) - set(golden.samples[0.1]))


@each()
def test_delta_readers_count_equal_rows_without_copies(golden: Golden):
    rows = DeltaTable(golden.path).to_pyarrow_dataset().count_rows()
    ours = open_golden(golden).scan().select(pl.len()).collect().item()
    copies = open_golden(golden).blocks().filter("replicated")["element_count"].sum()
    assert rows == ours + copies
    assert golden.is_legacy or rows == golden.meta["count"]


@each()
def test_rows_have_types_of_the_log(golden: Golden):
    table = open_golden(golden)
    assert table.schema == golden.expected.schema
    assert table.scan().head(0).collect().schema == table.schema
    assert list(table.indexed_columns) == golden.indexed


@pytest.mark.parametrize("sample", [0.0, 1.0])
@each()
def test_samples_of_zero_and_one(golden: Golden, sample: float):
    rows = open_golden(golden).scan(sample=sample).select(pl.len()).collect().item()
    everything = open_golden(golden).scan().select(pl.len()).collect().item()
    assert rows == (everything if sample else 0)
