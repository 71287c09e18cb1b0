"""Copies of golden tables to write to, and what must hold of the files that a write added."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import qbeast
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.tree.space.columns import frame_weights, to_index_column
from tests.golden.blocks import assert_above_its_ancestors, assert_holds_its_rows
from tests.golden.collection import Golden

__all__ = [
    "KEYS",
    "SHIFT",
    "assert_sound",
    "assert_sound_after",
    "copy_of",
    "has_copies",
    "last_commit",
    "rows_of",
    "shifted",
]

KEYS = ["cubeId", "minWeight", "maxWeight", "elementCount", "replicated"]
"""Of a block in the tags, as the JVM spells them."""
SHIFT = 10_000_000


def copy_of(golden: Golden, folder: Path) -> Path:
    target = folder / "table"
    shutil.copytree(golden.path, target, copy_function=shutil.copyfile)
    for path in (target, target / "_delta_log"):
        path.chmod(0o755)
    return target


def shifted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("id") + SHIFT)


def last_commit(path: Path) -> list[dict[str, Any]]:
    log = max((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def assert_sound(path: Path, before: set[str], result: qbeast.WriteResult) -> None:
    """Assert the invariants of format 8 for the files that a write added."""
    table, snapshot = qbeast.open_table(path), load_snapshot(path)
    (revision,) = (item for item in table.revisions if item.revision_id == result.revision_id)
    blocks = table.blocks()
    live = blocks.filter((pl.col("revision_id") == result.revision_id) & ~pl.col("replicated"))
    new = snapshot.files.filter(~pl.col("path").is_in(before))
    assert new.height == result.files
    assert new["rules"].to_list() == ["1"] * new.height
    for name, records in new.select("path", "num_records").iter_rows():
        added = blocks.filter(pl.col("path") == name)
        rows = scan_files(snapshot.source.store, [name], list(table.schema), table.schema).collect()
        pairs = zip(revision.columns, revision.transformations, strict=True)
        points = [to_coordinates(space, to_index_column(rows[column])) for column, space in pairs]
        assert_holds_its_rows(added, np.stack(points, axis=1), frame_weights(rows, revision.columns))
        assert added["element_count"].sum() == rows.height == records
        assert_above_its_ancestors(added, live, dimensions=len(points))


def rows_of(golden: Golden, lazy: pl.LazyFrame) -> pl.DataFrame:
    actual = lazy.collect()
    return (actual.unique() if golden.is_doubled else actual).sort("id")


def has_copies(path: Path) -> bool:
    return bool(qbeast.open_table(path).blocks()["replicated"].any())


def assert_sound_after(path: Path, result: qbeast.OptimizeResult) -> None:
    log = sorted((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log[-1].read_text("utf-8").splitlines()]
    added = {action["add"]["path"] for action in actions if "add" in action}
    live = set(load_snapshot(path).files["path"])
    assert_sound(path, live - added, result)
