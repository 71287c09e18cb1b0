"""A query that nobody reads any more ends, in whichever thread it is dropped."""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Event
from typing import Any

import polars as pl

from qbeast_core.table.data.query_batches import query_batches


class Query:
    """A query that drops its own generator while it runs, as the garbage collector may."""

    def __init__(self) -> None:
        self.batches: list[Generator[pl.DataFrame]] = []
        self.read, self.ended, self.stopped = Event(), Event(), False

    def sink_batches(self, put: Callable[[pl.DataFrame], bool], **_: object) -> None:
        put(pl.DataFrame({"a": [1]}))
        assert self.read.wait(10)
        self.batches.clear()
        self.stopped = put(pl.DataFrame({"a": [2]}))
        self.ended.set()


def test_query_dropped_in_its_thread_ends() -> None:
    query: Any = Query()
    query.batches.append(query_batches(query))
    assert next(query.batches[0])["a"].to_list() == [1]
    query.read.set()
    assert query.ended.wait(10)
    assert query.stopped
