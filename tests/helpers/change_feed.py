"""The change data feed of a table, as deltalake reads it, against the rows of two versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows

ADDED = ["_commit_version", "_commit_timestamp"]


def enable_feed(path: Path) -> None:
    """Let deltalake enable the feed, with the protocol that it needs."""
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def read_feed(path: Path, version: int) -> pl.DataFrame:
    """Return the changed rows of a version, with `_change_type`."""
    feed = DeltaTable(path).load_cdf(starting_version=version, ending_version=version)
    return pl.DataFrame(feed).drop(ADDED)


def feed_actions(path: Path, version: int) -> list[dict[str, Any]]:
    """Return the `cdc` actions of a version."""
    lines = map(json.loads, (path / "_delta_log" / f"{version:020}.json").read_text().splitlines())
    return [line["cdc"] for line in lines if "cdc" in line]


def change_files(path: Path) -> set[str]:
    """Return the paths of the files of the feed, with or without a version."""
    return {file.relative_to(path).as_posix() for file in (path / "_change_data").rglob("*.parquet")}


def check_feed(
    path: Path, version: int, before: pl.DataFrame, after: pl.DataFrame, keys: Mapping[str, pl.Series]
) -> None:
    """Assert that the feed of a version has the rows with these keys, by kind, and maps `before` to `after`."""
    feed = read_feed(path, version).cast(before.schema)
    by_kind = {
        kind: feed.filter(_change_type=kind).drop("_change_type") for kind in feed["_change_type"].unique()
    }
    none = before.clear()
    for kind, version_rows in (("delete", before), ("insert", after)):
        expected = version_rows.filter(pl.col(ROW).is_in(keys.get(kind, none[ROW]).implode()))
        assert_same_rows(by_kind.get(kind, none).select(before.columns), expected)
    for kind, version_rows in (("update_preimage", before), ("update_postimage", after)):
        expected = version_rows.filter(pl.col(ROW).is_in(keys.get("update", none[ROW]).implode()))
        assert_same_rows(by_kind.get(kind, none).select(before.columns), expected)
    gone = feed.filter(pl.col("_change_type").is_in(["delete", "update_preimage"]))
    come = feed.filter(pl.col("_change_type").is_in(["insert", "update_postimage"]))
    rest = before.join(gone, on=ROW, how="anti")
    assert_same_rows(pl.concat([rest, come.select(before.columns)]), after)
    assert all(action["dataChange"] is False for action in feed_actions(path, version))
