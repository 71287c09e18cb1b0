"""Names of columns in files by the metadata of a log, which may have checkpoints but all commits."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["names_of", "stored_name"]


def stored_name(path: Path, name: str) -> str:
    """Return the name in files of a column of the newest version."""
    return {logical: stored for stored, logical in names_of(path).items()}[name]


def names_of(path: Path, version: int | None = None) -> dict[str, str]:
    """Return the names of the columns of a version by their names in files."""
    commits = sorted((path / "_delta_log").glob("*.json"))[: None if version is None else version + 1]
    lines = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    newest = next(line["metaData"] for line in reversed(lines) if "metaData" in line)
    is_mapped = newest["configuration"].get("delta.columnMapping.mode", "none") != "none"
    return {
        field["metadata"]["delta.columnMapping.physicalName"] if is_mapped else field["name"]: field["name"]
        for field in json.loads(newest["schemaString"])["fields"]
    }
