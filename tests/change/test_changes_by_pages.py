"""Changes that are read by page equal those of whole files, and those that Polars finds between two versions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.actions import AddFile, RemoveFile
from qbeast_core.table.read.changes import CommitChanges
from tests.helpers.examples import examples
from tests.helpers.small_files import resized
from tests.helpers.steps_of_life import NEW, ROWS, STEPS
from tests.helpers.strategies import ROW
from tests.helpers.tables import folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
LOST, GAINED = ["delete", "update_preimage"], ["insert", "update_postimage"]
COMMIT = ["_commit_version", "_commit_timestamp"]


COPIES = ROWS.filter(pl.col(ROW) % 5 == 0)


def without_pages(path: Path) -> Path:
    """Return a copy of a table whose log does not name the pages of files: these are read whole."""
    copy = copytree(path, path.with_name("copy"))
    for commit in (copy / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            for file in (action.get("add"), action.get("remove")):
                if file is not None and file.get("tags"):
                    file["tags"].pop("qbeast.layout", None)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return copy


def in_order(rows: pl.DataFrame) -> list[str]:
    return sorted(map(repr, rows.drop("_commit_timestamp", strict=False).iter_rows()))


def counted(rows: pl.DataFrame) -> Counter[str]:
    return Counter(map(repr, rows.iter_rows()))


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@examples(3, sweep=60, parent=RELAXED)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    copies=st.booleans(),
    partitions=st.booleans(),
    altered=st.booleans(),
    kept_bytes=st.sampled_from([0, 3_000, 1 << 20]),
)
def test_pages_and_whole_files_hold_equal_changes(
    steps: list[str],
    copies: bool,  # noqa: FBT001 -- drawn
    partitions: bool,  # noqa: FBT001 -- drawn
    altered: bool,  # noqa: FBT001 -- drawn
    kept_bytes: int,
) -> None:
    with folder() as path, small_files():
        options: dict[str, Any] = {"partition_by": ["g"]} if partitions else {}
        rows = pl.concat([ROWS, COPIES]) if copies else ROWS
        check_life(path, rows, steps, altered=altered, kept_bytes=kept_bytes, **options)


def test_growing_vectors_lose_no_change(tmp_path: Path) -> None:
    with small_files():
        check_life(tmp_path / "t", ROWS[:24], ["delete", "update"], kept_bytes=0)


def check_life(
    path: Path,
    rows: pl.DataFrame,
    steps: Sequence[str],
    *,
    kept_bytes: int,
    altered: bool = False,
    **options: Any,
) -> None:
    """Write a table with deletion vectors and change it; compare its changes with two other ways to find them."""
    qbeast.write_table(rows, path, columns=[ROW, "a"], cube_size=10, deletion_vectors=True, **options)
    if altered:  # names in files differ from those in the table, and older files lack a column
        qbeast.open_table(path).rename_column("a", "b", upgrade_protocol=True)
        qbeast.open_table(path).rename_column("b", "a")
        qbeast.write_table(NEW[:1].with_columns(z=1), path, mode="append", schema_mode="merge")
    first = qbeast.open_table(path).version
    for step in steps:
        STEPS[step](qbeast.open_table(path))
    table, whole = qbeast.open_table(path), qbeast.open_table(without_pages(path))
    with resized(kept_change_bytes=kept_bytes):
        changes, net = table.changes(since=first).collect(), diff_of(table, first)
    assert in_order(changes) == in_order(whole.changes(since=first).collect())
    for version in range(first + 1, table.version + 1):
        check(changes.filter(_commit_version=version).drop(COMMIT), table, version - 1, version)
    whole_net = diff_of(whole, first)
    assert (net is None) == (whole_net is None)
    if net is not None and whole_net is not None:
        assert in_order(net) == in_order(whole_net)
        check(net, table, first, table.version)


def diff_of(table: qbeast.Table, version: int) -> pl.DataFrame | None:
    """Return the net changes from a version; None: some changed rows have the same key."""
    try:
        return table.diff(version, key=ROW).collect()
    except qbeast.InvalidInputError as error:
        assert "does not identify rows" in str(error)  # noqa: PT017 -- depends on the steps
        return None


def check(changes: pl.DataFrame, table: qbeast.Table, old: int, new: int) -> None:
    """Assert that changes are exactly the rows in which two versions differ."""
    before, after = (counted(qbeast.read_table(table.uri, version=version)) for version in (old, new))
    lost, gained = (
        counted(changes.filter(pl.col("_change_type").is_in(kinds)).drop("_change_type"))
        for kinds in (LOST, GAINED)
    )
    assert lost.total() + gained.total() == changes.height
    assert (lost, gained) == (before - after, after - before)


PATHS = st.lists(st.sampled_from("abcd"), max_size=5, unique=True)


@examples(20, sweep=500, parent=RELAXED)
@given(removed=PATHS, added=PATHS, keeps_feed=st.booleans())
def test_parts_of_a_commit_have_the_files_of_a_path(
    removed: list[str],
    added: list[str],
    keeps_feed: bool,  # noqa: FBT001 -- drawn
) -> None:
    removes = tuple(RemoveFile(path=path) for path in removed)
    adds = tuple(AddFile(path=path, size=1, modification_time=0) for path in added)
    commit = CommitChanges(
        version=1, timestamp_ms=0, operation=None, removes=removes, adds=adds, keeps_feed=keeps_feed
    )
    parts = [(part.removes, part.adds) for part in commit.split()]
    if removed and added and not keeps_feed:
        assert parts == [(removes, adds)]  # rows that only moved are found together
        return
    assert parts == [
        tuple(tuple(file for file in files if file.path == path) for files in (removes, adds))
        for path in dict.fromkeys(removed + added)
    ]


def test_other_pages_are_not_read(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(40_000)}).with_columns(x=pl.col("id") * 0.5)
    qbeast.write_table(rows, tmp_path, columns=["id"], cube_size=2000, deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    table.delete("id = 77")
    table.update("id = 88", {"x": "x + 1"})
    with file.open("r+b") as stored:  # the first page, where these rows are not
        stored.seek(4)
        stored.write(bytes(200))
    with pytest.raises(qbeast.StorageError):
        qbeast.read_table(tmp_path)
    table = qbeast.open_table(tmp_path)
    updated = [(88, 44.0, "delete"), (88, 45.0, "insert")]
    changes = table.changes(since=0).drop(COMMIT).collect()
    assert changes.rows() == [(77, 38.5, "delete"), *updated]
    kinds = {"delete": "update_preimage", "insert": "update_postimage"}
    net = table.diff(0, key="id").collect()
    assert net.rows() == [(77, 38.5, "delete"), *((n, x, kinds[kind]) for n, x, kind in updated)]
