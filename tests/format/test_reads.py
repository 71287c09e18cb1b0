"""The JVM's answers: every row once, the same samples, filters that open no more files than it did."""

from __future__ import annotations

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

from tests.format.collection import FAST, Golden, each, find, open_golden
from tests.format.questions import Question, questions
from tests.format.sql import to_polars

# Their cubes lie where another calendar or zone put them, so pruning keeps at a distance (format 4).
SLACK = ("date_newyork", "old_date", "old_timestamp")


def by_id(golden: Golden, lazy: pl.LazyFrame) -> pl.DataFrame:
    rows = lazy.collect()
    return (rows.unique() if golden.is_doubled else rows).sort("id")


def assert_answered(golden: Golden, question: Question) -> None:
    """Assert that a filter returns the matching rows and opens no more files than the JVM."""
    table, predicate = open_golden(golden), question.predicate
    expected = golden.expected.filter(predicate)
    if question.sample:
        expected = expected.filter(pl.col("id").is_in(golden.samples[question.sample]))
    assert expected.height == question.rows, f"{question.sql} is translated wrongly"
    actual = by_id(golden, table.rows(sample=question.sample).lazy().filter(predicate))
    assert_frame_equal(actual, expected, check_exact=True)
    plan = table.rows(predicate, sample=question.sample).explain().files
    if question.files is not None and golden.name not in SLACK:
        assert plan["opened"].sum() <= question.files, question


@each()
def test_rows_types_and_a_filter_equal_the_jvms(golden: Golden):
    table = open_golden(golden)
    assert table.schema == golden.expected.schema
    assert list(table.indexed_columns) == golden.indexed
    rows = table.read()
    count = sum(pq.read_metadata(path).num_rows for path in DeltaTable(golden.path).file_uris())
    assert count == rows.height + table.blocks().filter("replicated")["element_count"].sum()
    assert golden.is_legacy or count == golden.meta["count"]
    assert not golden.is_doubled or rows.height == golden.meta["qbeast_rows"]
    assert_frame_equal(by_id(golden, rows.lazy()), golden.expected, check_exact=True)
    ids = by_id(golden, table.rows(sample=(0.1, 0.5)).lazy().select("id"))["id"].to_list()
    assert ids == sorted(set(golden.samples[0.5]) - set(golden.samples[0.1]))
    for question in questions(golden)[:1]:
        assert_answered(golden, question)


@pytest.mark.filterwarnings("ignore::qbeast.EmptySampleWarning")
@each(fast=FAST)
def test_samples_equal_those_of_the_jvm(golden: Golden):
    table = open_golden(golden)
    for fraction, ids in {**golden.samples, 0.0: [], 1.0: golden.expected["id"].to_list()}.items():
        expected = golden.expected.filter(pl.col("id").is_in(ids))
        assert_frame_equal(by_id(golden, table.rows(sample=fraction).lazy()), expected, check_exact=True)
    assert table.rows().lazy().head(0).collect().schema == table.schema


@pytest.mark.parametrize("first", [1, 2])
@each(lambda golden: questions(golden)[1:], fast=FAST)
def test_further_filters_are_answered(golden: Golden, first: int):
    for question in questions(golden)[first::2]:
        assert_answered(golden, question)


@each(questions, fast=FAST - {"qbeast-spark-0.8/dims3"})
def test_negated_filter_returns_exactly_matching_rows(golden: Golden):
    for question in questions(golden):
        other = ~question.predicate
        actual = by_id(golden, open_golden(golden).rows().lazy().filter(other).select("id"))["id"]
        assert actual.to_list() == golden.expected.filter(other)["id"].to_list(), question.sql


def test_cubes_close_files_that_statistics_leave_open():
    plan = open_golden(find("qbeast-spark-0.8/dims3")).rows(to_polars("`s` = 'beta'")).explain()
    assert "cubes" in plan.files["reason"].to_list()
