"""The change data feed of a table, as deltalake reads it, against the rows of two versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
from deltalake import DeltaTable

from tests.helpers.row_ids import commits
from tests.helpers.stored_names import names_of
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows
from tests.helpers.vectors import hidden_rows, shown

ADDED = ["_commit_version", "_commit_timestamp"]


def enable_feed(path: Path) -> None:
    """Let deltalake enable the feed, with the protocol that it needs."""
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def read_feed(path: Path, version: int) -> pl.DataFrame:
    """Return the changed rows of a version, with `_change_type`."""
    feed = DeltaTable(path).load_cdf(starting_version=version, ending_version=version)
    return pl.DataFrame(feed).drop(ADDED)


def feed_of(path: Path, version: int) -> pl.DataFrame | None:
    """Return the feed of a version, None without change of rows.

    deltalake reads it, except of tables that map columns, of encoded paths, which it does not decode, and of files
    with deletion vectors, where it crashes. The commits and files of these are read, without nested columns.
    """
    actions = commits(path)[version]
    kinds = {"cdc": None, "add": "insert", "remove": "delete"}
    files = [
        (kind, action[kind])
        for action in actions
        for kind in kinds
        if kind in action and (kind == "cdc" or action[kind]["dataChange"])
    ]
    if not files:
        return None
    if any(kind == "cdc" for kind, _ in files):
        files = [(kind, file) for kind, file in files if kind == "cdc"]
    is_mapped = "delta.columnMapping.mode" in DeltaTable(path, version=version).metadata().configuration
    is_plain = all(
        unquote(file["path"]) == file["path"] and "deletionVector" not in file for _, file in files
    )
    if not is_mapped and is_plain:
        return read_feed(path, version)
    hidden = {"add": hidden_rows(path, version), "remove": hidden_rows(path, version - 1), "cdc": {}}
    names = names_of(path, version)
    changed = [_changed(path, file, kinds[kind], names, hidden[kind]) for kind, file in files]
    return pl.concat(changed, how="diagonal")


def apply_feed(path: Path, version: int, before: pl.DataFrame, after: pl.DataFrame, key: str = "id") -> None:
    """Assert that the feed of a version has rows of the version before, and maps them to its rows."""
    feed = feed_of(path, version)
    if feed is None or key not in before.columns or key not in after.columns:
        return  # nothing changed, or the key has another name
    shared = [name for name in after.columns if name in feed.columns]
    both = [name for name in shared if name in before.columns]
    before = before.cast({name: after.schema[name] for name in both})  # structs may have new fields
    feed = feed.select(*shared, "_change_type").cast({name: after.schema[name] for name in shared})
    gone = feed.filter(pl.col("_change_type").is_in(["delete", "update_preimage"]))
    come = feed.filter(pl.col("_change_type").is_in(["insert", "update_postimage"]))
    assert gone.height + come.height == feed.height
    assert_same_rows(gone.select(both), before.join(gone, on=key, how="semi").select(both), key)
    rest = before.join(gone, on=key, how="anti").select(both)
    result = pl.concat([rest, come.select(shared)], how="diagonal").select(shared)
    assert_same_rows(result, after.select(shared), key)


def _changed(
    path: Path,
    file: dict[str, Any],
    change: str | None,
    names: Mapping[str, str],
    hidden: Mapping[str, list[int]],
) -> pl.DataFrame:
    """Return the rows of a file with their names in the table; those of files of the feed have their own change."""
    name = unquote(file["path"])
    rows = pl.read_parquet(path / name, hive_partitioning=False)
    if "deletionVector" in file:
        rows = shown(rows, hidden[name])
    texts = (file.get("partitionValues") or {}).items()
    rows = rows.with_columns(pl.lit(text, pl.String).alias(stored) for stored, text in texts)
    if change is not None:
        rows = rows.with_columns(_change_type=pl.lit(change))
    flat = {name for name, dtype in rows.schema.items() if not dtype.is_nested()}
    found = {stored: name for stored, name in names.items() if stored in flat}
    return rows.select(*found, "_change_type").rename(found)


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
