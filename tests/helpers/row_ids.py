"""Tables with row tracking, and the ids of their rows by the protocol, from the commits and the files alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow.parquet as pq

from tests.helpers.handmade_log import add, features, metadata, replay, write_log
from tests.helpers.vectors import hidden_rows

ID_COLUMN = "_row-id-col-4cbc7924"
VERSION_COLUMN = "_row-commit-version-col-2f60dcc1"
NAMES = {
    "delta.rowTracking.materializedRowIdColumnName": ID_COLUMN,
    "delta.rowTracking.materializedRowCommitVersionColumnName": VERSION_COLUMN,
}
ENABLED = {"delta.enableRowTracking": "true", **NAMES}
TYPES = {pl.Int64: "long", pl.Float64: "double", pl.String: "string", pl.Date: "date"}


def tracked(path: Path, rows: pl.DataFrame, *, configuration: dict[str, str] | None = None) -> str:
    """Write a table of another writer with these rows in two files."""
    path.mkdir(parents=True, exist_ok=True)
    half, count = rows.height // 2, rows.height
    commit: list[dict[str, Any]] = [
        features("rowTracking", "domainMetadata", "appendOnly"),
        metadata(
            {"type": "struct", "fields": fields_of(rows)}, ENABLED if configuration is None else configuration
        ),
        domain("delta.rowTracking", {"rowIdHighWaterMark": 10 * count}),
        domain("app.owner", {"name": "us"}),
    ]
    # The second file has rows that were copied from files of before.
    even = pl.int_range(pl.len()) % 2 == 0
    copied = rows[half:].with_columns(
        pl.when(even).then(8 * count - pl.int_range(pl.len())).alias(ID_COLUMN),
        pl.when(even).then(pl.lit(0)).cast(pl.Int64).alias(VERSION_COLUMN),
    )
    for number, (part, base) in enumerate([(rows[:half], 5 * count), (copied, 10)]):
        name = f"part-{number}.parquet"
        part.write_parquet(path / name)
        stats, size = json.dumps({"numRecords": part.height}), (path / name).stat().st_size
        commit.append(add(name, size=size, stats=stats, baseRowId=base, defaultRowCommitVersion=0))
    return write_log(path, commit)


def fields_of(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": TYPES[dtype.base_type()], "nullable": True, "metadata": {}}
        for name, dtype in rows.schema.items()
    ]


def domain(name: str, configuration: dict[str, Any], *, removed: bool = False) -> dict[str, Any]:
    text = json.dumps(configuration)
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


def commits(path: Path) -> list[list[dict[str, Any]]]:
    """Return the actions of each version."""
    files = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def domains(path: Path, *, before: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the domains, those of the versions before one."""
    actions = [
        action["domainMetadata"]
        for commit in commits(path)[:before]
        for action in commit
        if "domainMetadata" in action
    ]
    return {action["domain"]: json.loads(action["configuration"]) for action in actions}


def highest(path: Path, *, before: int | None = None) -> int:
    return int(domains(path, before=before)["delta.rowTracking"]["rowIdHighWaterMark"])


def row_ids(
    path: Path, key: str, names: Sequence[str] = (ID_COLUMN, VERSION_COLUMN)
) -> dict[int, tuple[int, int]]:
    """Return the stable id and the commit version of each row, by a unique column."""
    found: dict[int, tuple[int, int]] = {}
    ids: set[int] = set()
    hidden = hidden_rows(path)
    for name, file in replay(path).items():
        gone = set(hidden.get(unquote(name), ()))
        with pq.ParquetFile(path / unquote(name)) as opened:  # a dataset would take values from the path
            rows = opened.read().to_pydict()
        empty = [None] * len(rows[key])
        stored = zip(rows[key], *(rows.get(name, empty) for name in names), strict=True)
        for index, (value, row_id, version) in enumerate(stored):
            if index in gone:
                continue
            assert value not in found
            found[value] = (
                file["baseRowId"] + index if row_id is None else row_id,
                file["defaultRowCommitVersion"] if version is None else version,
            )
        ids |= {row_id for row_id, _ in found.values()}
    assert len(ids) == len(found)
    return found


def check_log(path: Path) -> None:
    """Assert that each version follows the rules for fresh ids."""
    live: dict[str, dict[str, Any]] = {}
    used: list[tuple[int, int]] = []
    mark = -1
    for version, actions in enumerate(commits(path)):
        before = mark
        for action in actions:
            if action.get("domainMetadata", {}).get("domain") == "delta.rowTracking":
                mark = json.loads(action["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
        assert mark >= before
        for removed in [action["remove"] for action in actions if "remove" in action]:
            gone = live.pop(removed["path"])
            assert removed["baseRowId"] == gone["baseRowId"]
            assert removed["defaultRowCommitVersion"] == gone["defaultRowCommitVersion"]
        for file in [action["add"] for action in actions if "add" in action]:
            first, rows = file["baseRowId"], json.loads(file["stats"])["numRecords"]
            old = live.get(file["path"])
            if old is not None:
                assert (first, file["defaultRowCommitVersion"]) == (
                    old["baseRowId"],
                    old["defaultRowCommitVersion"],
                )
            elif (first, rows) not in used:  # not a file that came back
                assert first > before
                assert file["defaultRowCommitVersion"] == version
                assert all(first + rows <= start or start + count <= first for start, count in used)
                used.append((first, rows))
            assert first + rows - 1 <= mark
            live[file["path"]] = file
