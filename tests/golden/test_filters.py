"""Filters that the JVM was asked: as many rows, exactly those of the truth, and no more files than it opened."""

from __future__ import annotations

from functools import lru_cache

import polars as pl
from polars.testing import assert_frame_equal

from tests.golden.collection import Golden, each, find, open_golden
from tests.golden.questions import Question, questions
from tests.golden.sql import to_polars


def truth(golden: Golden, question: Question) -> pl.DataFrame:
    rows = golden.expected.filter(question.predicate)
    ids = golden.samples[question.sample] if question.sample else None
    return rows if ids is None else rows.filter(pl.col("id").is_in(ids))


@each(questions)
def test_filter_returns_exactly_matching_rows(golden: Golden):
    table = open_golden(golden)
    for question in questions(golden):
        expected = truth(golden, question)
        assert expected.height == question.rows, f"{question.sql} is translated wrongly"
        actual = table.scan(sample=question.sample).filter(question.predicate).collect()
        if golden.is_doubled:
            actual = actual.unique()
        assert_frame_equal(actual.sort("id"), expected, check_exact=True)


@each(questions)
def test_negated_filter_returns_exactly_matching_rows(golden: Golden):
    table = open_golden(golden)
    for question in questions(golden):
        other = ~question.predicate
        expected = golden.expected.filter(other)["id"].to_list()
        actual = table.scan().filter(other).select("id").collect()["id"].to_list()
        assert sorted(set(actual) if golden.is_doubled else actual) == expected, question.sql


@lru_cache(maxsize=4)
def ids_by_file(golden: Golden) -> dict[str, set[int]]:
    paths = open_golden(golden).explain().files["path"].to_list()
    return {path: set(pl.read_parquet(golden.path / path, columns=["id"])["id"]) for path in paths}


# Their cubes lie where another calendar or zone put them, so pruning keeps at a distance (format 4).
SLACK = ("date_newyork", "old_date", "old_timestamp")


@each(questions)
def test_filter_opens_matches_and_no_more_than_jvm(golden: Golden):
    table = open_golden(golden)
    for question in questions(golden):
        expected = set(truth(golden, question)["id"])
        plan = table.explain(question.predicate, sample=question.sample).files
        if question.files is not None and golden.name not in SLACK:
            assert plan["opened"].sum() <= question.files, question
        for path, reason in plan.filter(~pl.col("opened")).select("path", "reason").iter_rows():
            missed = expected & ids_by_file(golden)[path]
            assert not missed or reason == "replicated copies", (question, path, reason)


def test_cubes_close_files_that_statistics_leave_open():
    plan = open_golden(find("qbeast-spark-0.8/dims3")).explain(to_polars("`s` = 'beta'"))
    assert "cubes" in plan.files["reason"].to_list()
