"""Tables with rules for their rows, made through the log, and what rows keep these rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

import qbeast
from tests.helpers.handmade_log import features, metadata, write_log

__all__ = ["IDENTITY", "TYPES", "high_water_mark", "ruled", "schema_of"]

FEATURES = ("checkConstraints", "invariants", "generatedColumns", "identityColumns", "allowColumnDefaults")
TYPES = {
    pl.Int32(): "integer",
    pl.Int64(): "long",
    pl.Float64(): "double",
    pl.String(): "string",
    pl.Date(): "date",
    pl.Datetime("us", "UTC"): "timestamp",
}
IDENTITY: dict[str, Any] = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}


def ruled(
    path: Path,
    schema: Mapping[str, pl.DataType],
    notes: Mapping[str, dict[str, Any]],
    *,
    columns: list[str],
    constraints: Mapping[str, str] | None = None,
    required: tuple[str, ...] = (),
) -> Path:
    """Make an empty table with notes on its columns, and give it an index."""
    fields = [
        {
            "name": name,
            "type": TYPES[dtype],
            "nullable": name not in required,
            "metadata": notes.get(name, {}),
        }
        for name, dtype in schema.items()
    ]
    configuration = {f"delta.constraints.{name}": text for name, text in (constraints or {}).items()}
    write_log(path, [features(*FEATURES), metadata({"type": "struct", "fields": fields}, configuration)])
    qbeast.convert_table(path, columns=columns)
    return path


def schema_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the notes of each column in the newest metadata of the log."""
    for commit in sorted((path / "_delta_log").glob("*.json"), reverse=True):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                return {field["name"]: field["metadata"] for field in fields}
    raise AssertionError


def high_water_mark(path: Path, column: str) -> int | None:
    return schema_of(path)[column].get("delta.identity.highWaterMark")
