"""Filters that the JVM was asked, and what it found."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from tests.format.collection import Golden
from tests.format.sql import to_polars


class Question(NamedTuple):
    """A filter, perhaps on a sample, and what the JVM found."""

    sql: str
    sample: float | None
    rows: int
    files: int | None
    """Distinct files that the JVM opened; None: not recorded."""

    @property
    def predicate(self) -> pl.Expr:
        return to_polars(self.sql)


def questions(golden: Golden) -> list[Question]:
    meta = golden.meta
    check = meta.get("filter_check")
    request = [Question(check["predicate"], None, check["true_rows"], None)] if check else []
    request += [
        Question(item["sql"], None, item["expected_count"], files(item)) for item in meta.get("filters", [])
    ]
    return request + [
        Question(item["sql"], item["fraction"], item["expected"], files(item))
        for item in meta.get("sample_filters", [])
    ]


def files(answer: dict[str, Any]) -> int | None:
    listed = answer.get("files_opened")
    return answer.get("files") if listed is None else len(set(listed))
