"""Time travel: every version of a table holds the rows that its log tells of."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq

import qbeast
from tests.format.collection import COPIES, FAST, Golden, each, load_golden, newest_adds, open_golden


def configuration(golden: Golden, version: int) -> dict[str, str]:
    actual: dict[str, str] = {}
    for commit in golden.commits[: version + 1]:
        for action in commit:
            actual = action.get("metaData", {}).get("configuration", actual)
    return actual


def rows_of(golden: Golden, add: dict[str, Any]) -> int:
    return pq.read_metadata(golden.path / add["path"]).num_rows


def is_copy(add: dict[str, Any]) -> bool:
    return (add.get("tags") or {}).get("state") in COPIES


@each(lambda golden: len(golden.commits) > 1)
def test_older_versions_have_rows_and_samples_of_their_log(golden: Golden):
    newest, ids = set(golden.samples[0.1]), set(golden.expected["id"])
    for version in range(len(golden.commits) - 1):
        expected = sum(
            rows_of(golden, add)
            for add in newest_adds(golden.commits[: version + 1]).values()
            if not is_copy(add)
        )
        table = qbeast.open_table(golden.path, version=version)
        assert table.version == version
        rows = table.rows().lazy().select("id").collect()["id"]
        assert len(rows) == expected
        if "qbeast.lastRevisionID" not in configuration(golden, version):
            assert table.indexed_columns == ()
            continue
        existing = ids.intersection(rows)
        assert (
            existing.intersection(table.rows(sample=0.1).lazy().select("id").collect()["id"])
            == newest & existing
        )


@each()
def test_live_files_equal_log_except_copies(golden: Golden):
    """A commit that removes and adds one path is no valid Delta: `deltalake` takes the remove.

    Only the optimize of old releases did it, and only to files that it made REPLICATED, which no read wants.
    """
    live = newest_adds(golden.commits)
    seen = set(load_golden(golden).logged_files["path"])
    assert seen <= set(live)
    assert all((live[path]["tags"] or {})["state"] == "REPLICATED" for path in set(live) - seen)
    if not golden.is_legacy:
        assert seen == set(live)


@each(lambda golden: golden.is_legacy)
def test_jvm_reader_saw_the_log_replayed(golden: Golden):
    adds = newest_adds(golden.commits).values()
    assert sum(rows_of(golden, add) for add in adds) == golden.meta["delta_rows"]


@each(fast=FAST)
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
