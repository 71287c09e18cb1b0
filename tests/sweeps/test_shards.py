"""The shards hold every test once, and the shards that did not run for longest come first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.sweeps.run import ROOT, Record, Shard, add_record, load_shards, rounds, stalest


def test_every_test_file_is_in_one_shard() -> None:
    runs = [run for shard in load_shards().values() for run in shard.runs if "--connect" not in run.tests]
    paths = {ROOT / name: None for run in runs for name in run.arguments() if not name.startswith("-")}
    held = Counter(file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    assert held == Counter(
        set((ROOT / "tests").rglob("test_*.py")) - set(ROOT.glob("tests/sweeps/test_*.py"))
    )


def test_oldest_records_come_first() -> None:
    shards = {number: _Dated(number, f"shard {number}", ()) for number in range(1, 6)}
    assert [shard.number for shard in stalest(shards)] == [2, 4, 5, 1, 3]


def test_round_ends_when_all_shards_ran(tmp_path: Path) -> None:
    for number in (2, 1, 1, 2):
        add_record(number, Record(f"shard {number}", "", "", 0), 2, tmp_path)
    assert [list(found) for found in rounds(tmp_path)] == [["1", "2"], ["1", "2"]]
    add_record(1, Record("again", "", "", 0), 2, tmp_path)
    add_record(1, Record("and again", "", "", 0), 2, tmp_path)
    assert rounds(tmp_path)[2]["1"]["shard"] == "and again"


class _Dated(Shard):
    @property
    def date(self) -> str:
        return {1: "2026-11-27T08:00:00+00:00", 3: "2026-11-27T09:00:00+00:00", 5: "2025-01-01"}.get(
            self.number, ""
        )
