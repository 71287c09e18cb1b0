"""What stays in memory between calls is bounded by its bytes, however large the tables are."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import polars as pl
import pytest

import qbeast
from qbeast_core.io.machine import LruCache, memory_of_machine
from tests.helpers.requests import counted
from tests.helpers.small_files import resized


def test_grown_items_evict_others_on_access() -> None:
    cache = LruCache[str, list[int]](max_items=3, size_of=len, max_bytes=10)
    things = {name: [0] * 3 for name in "abc"}
    for name, thing in things.items():
        cache.put(name, thing)
    things["c"] += [0] * 3
    assert cache.get("c") is things["c"]
    assert [cache.get(name) is not None for name in "abc"] == [False, True, True]
    things["b"] += [0] * 9
    assert cache.get("b") is things["b"]  # once more, and then never
    assert cache.get("b") is None
    assert [cache.get(name) is not None for name in "abc"] == [False, False, True]


def test_concurrently_added_items_stay() -> None:
    meanwhile: list[str] = []
    writers: list[Thread] = []

    def size_of(thing: str) -> int:
        while meanwhile:
            writers.append(Thread(target=cache.put, args=("a", meanwhile.pop())))
            writers[-1].start()
        return len(thing)

    cache = LruCache[str, str](max_items=2, size_of=size_of)
    cache.put("a", "old")
    meanwhile.append("new")
    assert cache.get("a") == "old"
    writers[0].join()
    assert cache.get("a") == "new"


def test_bound_is_a_share_of_memory() -> None:
    cache = LruCache[str, str](max_items=2, size_of=len)
    assert cache.max_bytes == int(memory_of_machine() / 16)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_table_larger_than_cache_is_written_and_read(tmp_path: Path) -> None:
    rows, path = pl.DataFrame({"id": range(100)}), tmp_path / "t"
    with resized(cache_share=0.0, max_short_commits=0), counted() as requests:
        for _ in range(3):
            qbeast.write_table(rows, path, columns=["id"], mode="append")
        assert qbeast.read_table(path).height == 300
    first = f"{0:020d}.json"
    assert sum(request.path.endswith(first) for request in requests) >= 2  # by loads
