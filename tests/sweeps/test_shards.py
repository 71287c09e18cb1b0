"""The shards hold every test once, and the shards that did not run for longest come first."""

from __future__ import annotations

from collections import Counter

from tests.sweeps.run import ROOT, Shard, load_shards, stalest


def test_every_test_file_is_in_one_shard() -> None:
    shards = [shard for shard in load_shards().values() if "--connect" not in shard.tests]
    paths = [ROOT / name for shard in shards for name in shard.arguments() if not name.startswith("-")]
    held = Counter(file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    assert held == Counter(
        set((ROOT / "tests").rglob("test_*.py")) - set(ROOT.glob("tests/sweeps/test_*.py"))
    )


def test_oldest_records_come_first() -> None:
    shards = {number: _Dated(number, f"shard {number}") for number in range(1, 6)}
    assert [shard.number for shard in stalest(shards)] == [2, 4, 5, 1, 3]


class _Dated(Shard):
    @property
    def date(self) -> str:
        return {1: "2026-11-27T08:00:00+00:00", 3: "2026-11-27T09:00:00+00:00", 5: "2025-01-01"}.get(
            self.number, ""
        )
