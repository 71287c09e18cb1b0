"""Copies of golden tables to write to, and what must hold of the files that a write added."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.table.data.scan import FileScan, scan_files
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_core.tree.grid import frame_weights, to_index_column
from tests.format.blocks import assert_above_its_ancestors, assert_holds_its_rows
from tests.format.collection import Golden, commits_of
from tests.format.questions import questions

__all__ = [
    "KEYS",
    "SHIFT",
    "assert_answers",
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
    return commits_of(path)[-1]


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
        scan = FileScan(path=name, size_bytes=snapshot.source.store.size(name))
        rows = scan_files(snapshot.data_files, [scan], list(table.schema), table.schema).collect()
        pairs = zip(revision.columns, revision.transformations, strict=True)
        points = [to_coordinates(space, to_index_column(rows[column])) for column, space in pairs]
        assert_holds_its_rows(added, np.stack(points, axis=1), frame_weights(rows, revision.columns))
        assert added["element_count"].sum() == rows.height == records
        assert_above_its_ancestors(added, live, dimensions=len(points))


def rows_of(golden: Golden, lazy: pl.LazyFrame) -> pl.DataFrame:
    actual = lazy.collect()
    return (actual.unique() if golden.is_doubled else actual).sort("id")


def assert_answers(golden: Golden, table: qbeast.Table, rows: pl.DataFrame) -> None:
    """Assert that a table answers all questions from rows: those of the golden table, some with shifted ids."""
    requests: list[tuple[Any, float | None]] = [(True, None), *((True, part) for part in golden.samples)]
    requests += [(question.predicate, question.sample) for question in questions(golden)]
    for predicate, sample in requests:
        expected = rows.filter(predicate)
        if sample is not None:
            expected = expected.filter((pl.col("id") % SHIFT).is_in(golden.samples[sample]))
        lazy = table.rows(sample=sample).lazy()
        actual = rows_of(golden, lazy if predicate is True else lazy.filter(predicate))
        assert_frame_equal(actual, expected, check_exact=True)


def has_copies(path: Path) -> bool:
    return bool(qbeast.open_table(path).blocks()["replicated"].any())


def assert_sound_after(path: Path, result: qbeast.OptimizeResult) -> None:
    added = {action["add"]["path"] for action in last_commit(path) if "add" in action}
    live = set(load_snapshot(path).files["path"])
    assert_sound(path, live - added, result)
