"""What stays in memory between calls is bounded by its bytes, however large the tables are."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import polars as pl
import pytest

import qbeast
from qbeast_core.io.machine import memory_of_machine
from qbeast_core.table.snapshot import snapshot
from qbeast_core.table.snapshot.kept import KEPT_SHARE, Kept


def test_things_that_grow_push_others_out_when_they_are_asked_for() -> None:
    kept = Kept[str, list[int]](most=3, size_of=len, most_bytes=10)
    things = {name: [0] * 3 for name in "abc"}
    for name, thing in things.items():
        kept.put(name, thing)
    assert kept.size_bytes == 9
    things["c"] += [0] * 3
    assert kept.get("c") is things["c"]
    assert [kept.get(name) is not None for name in "abc"] == [False, True, True]
    things["b"] += [0] * 9
    assert kept.get("b") is things["b"]  # once more, and then never
    assert kept.get("b") is None
    assert kept.size_bytes == 6


def test_what_was_put_in_meanwhile_stays() -> None:
    meanwhile: list[str] = []

    def size_of(thing: str) -> int:
        while meanwhile:
            kept.put("a", meanwhile.pop())
        return len(thing)

    kept = Kept[str, str](most=2, size_of=size_of)
    kept.put("a", "old")
    meanwhile.append("new")
    assert kept.get("a") == "old"
    assert kept.get("a") == "new"


def test_the_bound_is_a_share_of_the_memory_there_is() -> None:
    kept = Kept[str, str](most=2, size_of=len)
    assert kept.most_bytes == int(memory_of_machine() * KEPT_SHARE)


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_a_table_of_more_bytes_than_may_be_kept_is_written_and_read_all_the_same(tmp_path: Path) -> None:
    rows, path = pl.DataFrame({"id": range(100)}), tmp_path / "t"
    with (
        mock.patch("qbeast_core.table.snapshot.kept.memory_of_machine", return_value=320),
        mock.patch.object(snapshot, "load_snapshot", wraps=snapshot.load_snapshot) as loaded,
    ):
        for _ in range(3):
            qbeast.write_table(rows, path, columns=["id"], mode="append")
        assert qbeast.read_table(path).height == 300
    assert loaded.call_count >= 2
