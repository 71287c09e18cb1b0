"""Time travel: every version of a table holds the rows that its log tells of."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.golden.collection import Golden, each, open_golden

COPIES = ("REPLICATED", "ANNOUNCED")


def replay(golden: Golden, version: int) -> dict[str, dict[str, Any]]:
    """Return the adds of the live files; of a remove and an add in one commit the add counts (format 11)."""
    live: dict[str, dict[str, Any]] = {}
    for commit in golden.commits[: version + 1]:
        for action in commit:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    return live


def configuration(golden: Golden, version: int) -> dict[str, str]:
    actual: dict[str, str] = {}
    for commit in golden.commits[: version + 1]:
        for action in commit:
            actual = action.get("metaData", {}).get("configuration", actual)
    return actual


def rows_of(golden: Golden, add: dict[str, Any]) -> int:
    return pl.scan_parquet(golden.path / add["path"]).select(pl.len()).collect().item()


def is_copy(add: dict[str, Any]) -> bool:
    return (add.get("tags") or {}).get("state") in COPIES


@each(lambda golden: len(golden.commits) > 1)
def test_every_version_has_rows_of_its_log(golden: Golden):
    for version in range(len(golden.commits)):
        expected = sum(rows_of(golden, add) for add in replay(golden, version).values() if not is_copy(add))
        if "qbeast.lastRevisionID" not in configuration(golden, version):
            plain = qbeast.open_table(golden.path, version=version)
            assert plain.indexed_columns == ()
            assert plain.scan().select("id").collect().height == expected
            continue
        table = qbeast.open_table(golden.path, version=version)
        assert table.version == version
        assert table.scan().select("id").collect().height == expected


@each(lambda golden: len(golden.commits) > 1)
def test_every_version_samples_its_rows(golden: Golden):
    newest = set(golden.samples[0.1])
    for version in range(len(golden.commits)):
        if "qbeast.lastRevisionID" not in configuration(golden, version):
            continue
        table = qbeast.open_table(golden.path, version=version)
        rows, drawn = (
            set(lazy.select("id").collect()["id"]) for lazy in (table.scan(), table.scan(sample=0.1))
        )
        existing = rows & set(golden.expected["id"])
        assert drawn & existing == newest & existing


@each()
def test_live_files_equal_log_except_copies(golden: Golden):
    """A commit that removes and adds one path is no valid Delta: `deltalake` takes the remove.

    Only the optimize of old releases did it, and only to files that it made REPLICATED, which no read wants.
    """
    live = replay(golden, len(golden.commits) - 1)
    seen = set(load_snapshot(golden.path).files["path"])
    assert seen <= set(live)
    assert all((live[path]["tags"] or {})["state"] == "REPLICATED" for path in set(live) - seen)
    if not golden.is_legacy:
        assert seen == set(live)


@each(lambda golden: golden.is_legacy)
def test_jvm_reader_saw_the_log_replayed(golden: Golden):
    adds = replay(golden, len(golden.commits) - 1).values()
    assert sum(rows_of(golden, add) for add in adds) == golden.meta["delta_rows"]


@each()
def test_history_describes_every_version(golden: Golden):
    reports = [
        action["commitInfo"] for commit in golden.commits for action in commit if "commitInfo" in action
    ]
    actual = open_golden(golden).history()
    assert actual["version"].to_list() == [*range(len(reports))][::-1]
    assert actual["timestamp"].dt.epoch("ms").to_list() == [item["timestamp"] for item in reports][::-1]
    assert actual["operation"].to_list() == [item["operation"] for item in reports][::-1]
    for column, key in (("metrics", "operationMetrics"), ("parameters", "operationParameters")):
        assert [_texts(item) for item in actual[column]] == [_texts(item.get(key)) for item in reports][::-1]
    assert open_golden(golden).history(limit=1)["version"].to_list() == [len(reports) - 1]
    if "qbeast.lastRevisionID" in configuration(golden, 0):
        assert qbeast.open_table(golden.path, version=0).history()["version"].to_list() == [0]


def _texts(named: dict[str, Any] | None) -> dict[str, str]:
    """Spell all values alike; those that other commits have are null."""
    existing = {name: value for name, value in (named or {}).items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in existing.items()}
