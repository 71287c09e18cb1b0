"""The changes of commits lead from each version to the next, with and without a feed and deletion vectors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.log.actions import AddFile
from qbeast_core.table.read.changes import CommitChanges, plan_frame
from tests.helpers.examples import examples
from tests.helpers.tables import assert_same_rows, folder, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
ROWS = pl.DataFrame({"id": range(40)}).with_columns(
    x=pl.col("id") % 7,
    g=pl.format("g{}", pl.col("id") % 3),
    tags=pl.concat_list(pl.col("id") % 2, pl.lit(None, pl.Int64)),
)
NEW = ROWS.with_columns(pl.col("id") + 40)
LOST, GAINED = ["delete", "update_preimage"], ["insert", "update_postimage"]
ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]

STEPS: dict[str, Callable[[qbeast.Table], Any]] = {
    "append": lambda table: qbeast.write_table(NEW, table.uri, mode="append"),
    "delete": lambda table: table.delete("x < 2"),
    "delete a partition": lambda table: table.delete("g = 'g1'"),
    "update": lambda table: table.update("x = 3", {"x": "x + 100"}),
    "update to the same": lambda table: table.update("x > 3", {"x": "x"}),
    "merge": lambda table: table.merge(NEW.unique("id"), "id", delete_if="id % 5 = 0", duplicates="insert"),
    "overwrite": lambda table: qbeast.write_table(NEW[:9], table.uri, mode="overwrite"),
    "replace": lambda table: qbeast.write_table(
        ROWS.filter(g="g2"), table.uri, mode="overwrite", where="g = 'g2'"
    ),
    "optimize": lambda table: table.optimize(full=True),
    "restore": lambda table: table.restore(0),
    "vectors": lambda table: table.set_properties({"delta.enableDeletionVectors": "true"}),
    "feed": lambda table: table.set_properties({"delta.enableChangeDataFeed": "true"}),
}


def life(path: Path, steps: list[str], **options: Any) -> list[pl.DataFrame]:
    """Write a table and change it. Return the rows of its versions."""
    qbeast.write_table(ROWS, path, columns=["id"], cube_size=10, **options)
    for step in steps:
        STEPS[step](qbeast.open_table(path))
    newest = qbeast.open_table(path).version
    return [qbeast.read_table(path, version=version) for version in range(newest + 1)]


def counted(rows: pl.DataFrame) -> Counter[str]:
    """Return the rows as texts, with their counts."""
    return Counter(map(repr, rows.iter_rows()))


def check_step(changes: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame) -> None:
    """Assert that the changes are rows of the version before, and that they lead to the next one."""
    lost, gained = (
        counted(changes.filter(pl.col("_change_type").is_in(kinds)).drop(ADDED)) for kinds in (LOST, GAINED)
    )
    assert lost.total() + gained.total() == changes.height
    assert lost <= counted(before)
    assert counted(before) - lost + gained == counted(after)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@examples(25, sweep=25, parent=RELAXED)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    vectors=st.booleans(),
    feed=st.booleans(),
    partitions=st.booleans(),
)
def test_changes_lead_from_version_to_version(
    steps: list[str],
    vectors: bool,  # noqa: FBT001 -- drawn
    feed: bool,  # noqa: FBT001 -- drawn
    partitions: bool,  # noqa: FBT001 -- drawn
) -> None:
    with folder() as path, small_files():
        options = {"deletion_vectors": vectors, "change_feed": feed}
        states = life(path, steps, partition_by=["g"] if partitions else None, **options)
        table = qbeast.open_table(path)
        changes = table.changes(since=-1).collect()
        for version, after in enumerate(states):
            of_version = changes.filter(_commit_version=version)
            check_step(of_version, states[version - 1] if version else after.clear(), after)
        for old, before in enumerate(states):
            if any(rows["id"].is_duplicated().any() for rows in (before, states[-1])):
                continue
            check_diff(table.diff(old, key="id").collect(), before, states[-1])


def check_diff(found: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame) -> None:
    """Assert that a diff is the difference of two frames by their ids, unless ids repeat."""
    kinds = {
        "delete": before.join(after, on="id", how="anti"),
        "insert": after.join(before, on="id", how="anti"),
        "update_preimage": changed(before, after),
        "update_postimage": changed(after, before),
    }
    for kind, rows in kinds.items():
        assert_same_rows(found.filter(_change_type=kind).drop("_change_type"), rows, key="id")


def changed(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    both = rows.join(others, on="id", how="semi")
    same = both.join(others, on=rows.columns, how="semi", nulls_equal=True)
    return both.join(same, on="id", how="anti")


@pytest.mark.parametrize("partitions", [None, pytest.param(["g"], marks=pytest.mark.sweep)])
def test_feed_equals_the_one_of_deltalake(tmp_path: Path, partitions: list[str] | None) -> None:
    steps = ["delete", "update", "merge"] if partitions is None else sorted({*STEPS} - {"vectors", "feed"})
    life(tmp_path, steps, change_feed=True, partition_by=partitions)
    theirs = pl.DataFrame(DeltaTable(tmp_path).load_cdf(starting_version=1))
    ours = qbeast.open_table(tmp_path).changes(since=0).collect()
    assert set(ours["_change_type"]) == {"insert", "delete", "update_preimage", "update_postimage"}
    columns = [name for name in ours.columns if name != "_commit_timestamp"]
    order = ["_commit_version", "_change_type", "id", "x"]
    theirs = theirs.select(columns).cast(dict(ours.select(columns).schema))  # type: ignore[arg-type]
    assert_frame_equal(ours.select(columns).sort(order), theirs.sort(order))


def test_deltalake_tables_need_no_feed(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS, partition_by=["g"])
    DeltaTable(tmp_path).delete("x < 2")
    DeltaTable(tmp_path).optimize.compact()
    table = qbeast.open_table(tmp_path)
    changes = table.changes(since=0).collect()
    assert_same_rows(
        changes.drop(ADDED), ROWS.filter(pl.col("x") < 2).select(changes.drop(ADDED).columns), "id"
    )
    assert set(changes["_change_type"]) == {"delete"}


def test_moved_rows_are_no_changes(tmp_path: Path) -> None:
    with small_files():
        states = life(tmp_path, ["update to the same", "optimize", "delete"])
    table = qbeast.open_table(tmp_path)
    plan = table.explain_changes(since=0)
    assert plan["source"].to_list() == ["compared files", "none", "compared files"]
    changes = table.changes(since=0).collect()
    assert_same_rows(changes.drop(ADDED), states[0].filter(pl.col("x") < 2), "id")
    assert set(changes["_commit_version"]) == {3}


def test_vectors_are_read_by_page(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(40_000)}).with_columns(x=pl.col("id") * 0.5)
    qbeast.write_table(rows, tmp_path, columns=["id"], cube_size=2000, deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    table.delete("id = 77")
    assert table.explain_changes(since=0)["source"].to_list() == ["compared files"]
    assert table.changes(since=0).select("id", "_change_type").collect().rows() == [(77, "delete")]


def test_times_select_versions(tmp_path: Path) -> None:
    life(tmp_path, ["append", "delete"])
    table = qbeast.open_table(tmp_path)
    times = table.versions().sort("version")["timestamp"].to_list()
    for since, expected in (
        (times[0], [1, 2]),
        (times[1], [2]),
        (times[0] - timedelta(days=1), [0, 1, 2]),
        (datetime.now(UTC) + timedelta(days=1), []),
    ):
        assert table.explain_changes(since)["version"].to_list() == expected
    assert table.explain_changes(-1, times[1])["version"].to_list() == [0, 1]
    assert table.changes(since=2).collect().is_empty()
    stamps = table.changes(since=-1).select(pl.col("_commit_timestamp").unique().sort()).collect()
    assert stamps["_commit_timestamp"].to_list() == times


def test_columns_filters_and_limits_are_applied(tmp_path: Path) -> None:
    life(tmp_path, ["append", "delete"], change_feed=True)
    changes = qbeast.open_table(tmp_path).changes(since=-1)
    rows = changes.collect()
    condition = (pl.col("_change_type") == "delete") & (pl.col("x") == 1)
    assert_frame_equal(changes.filter(condition).select("id").collect(), rows.filter(condition).select("id"))
    assert changes.head(3).collect().height == 3
    assert (
        changes.select("_commit_version").collect()["_commit_version"].to_list()
        == rows["_commit_version"].to_list()
    )
    assert changes.select(pl.len()).collect().item() == rows.height


def test_new_and_renamed_columns_are_shown_by_today(tmp_path: Path) -> None:
    qbeast.write_table(ROWS[:3], tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    table.rename_column("x", "y", upgrade_protocol=True)
    qbeast.write_table(
        ROWS[:1].rename({"x": "y"}).with_columns(z=1), tmp_path, mode="append", schema_mode="merge"
    )
    changes = table.refresh().changes(since=-1).collect()
    assert changes.columns == ["id", "y", "g", "tags", "z", *ADDED]
    assert changes.sort("_commit_version", "id").select("id", "y", "z").rows() == [
        (0, 0, None),
        (1, 1, None),
        (2, 2, None),
        (0, 0, 1),
    ]


def test_missing_versions_raise(tmp_path: Path) -> None:
    life(tmp_path, ["append", "delete"])
    table = qbeast.open_table(tmp_path)
    for since in (5, "tomorrow", None, -2):
        with pytest.raises(qbeast.InvalidInputError, match="`since`"):
            table.changes(since=since)  # type: ignore[arg-type]
    (tmp_path / "_delta_log" / f"{1:020}.json").rename(tmp_path / "moved")
    with pytest.raises(qbeast.VersionNotFoundError, match="from 1 to 2 any more"):
        table.changes(since=0)


def test_columns_of_the_feed_are_refused(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.rename({"x": "_change_type"}), tmp_path, columns=["id"])
    with pytest.raises(qbeast.InvalidInputError, match="Rename them first"):
        qbeast.open_table(tmp_path).changes(since=-1)


def test_key_must_identify_rows(tmp_path: Path) -> None:
    life(tmp_path, ["append"])
    table = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match=r"does not identify rows: .*'g': 'g"):
        table.diff(0, key="g").collect()
    for key in ("nothing", [], ["id", "id"]):
        with pytest.raises(qbeast.InvalidInputError, match="key"):
            table.diff(0, key=key)


def test_diff_reads_files_if_the_log_is_gone(tmp_path: Path) -> None:
    states = life(tmp_path / "t", ["append", "delete", "update"])
    table = qbeast.open_table(tmp_path / "t")
    expected = table.diff(1, key="id").collect().sort("id")
    check_diff(expected, states[1], states[-1])
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()
    table = qbeast.open_table(tmp_path / "t")
    with pytest.raises(qbeast.VersionNotFoundError):
        table.changes(since=1)
    assert_frame_equal(table.diff(1, key="id").collect().sort("id"), expected)


@pytest.mark.parametrize("feed", [True, False])
def test_changes_after_log_cleanup_equal_those_before(tmp_path: Path, feed: bool) -> None:  # noqa: FBT001
    qbeast.write_table(ROWS, tmp_path, columns=["id"], change_feed=feed, deletion_vectors=False)
    since = qbeast.open_table(tmp_path).version
    table = qbeast.open_table(tmp_path)
    table.set_properties({"delta.logRetentionDuration": "interval 1 days"})
    DeltaTable(tmp_path).create_checkpoint()
    table.refresh().update("x = 3", {"x": "x + 100"})
    qbeast.write_table(NEW, tmp_path, mode="append")
    key = [*ROWS.columns[:3], *ADDED]
    expected = qbeast.open_table(tmp_path).changes(since=since).select(key).collect().sort("id", *ADDED)
    commit = tmp_path / "_delta_log" / f"{since:020}.json"
    commit.unlink()
    actual = qbeast.open_table(tmp_path).changes(since=since).select(key).collect().sort("id", *ADDED)
    assert_frame_equal(actual, expected)
    assert actual.height == NEW.height + 2 * ROWS.filter(x=3).height


@pytest.mark.parametrize("gone", [False, True])
def test_later_feed_does_not_change_earlier_changes(tmp_path: Path, gone: bool) -> None:  # noqa: FBT001
    qbeast.write_table(ROWS, tmp_path, columns=["id"], deletion_vectors=False)
    table = qbeast.open_table(tmp_path)
    table.set_properties({"a": "b"})
    DeltaTable(tmp_path).create_checkpoint()
    table.refresh().delete("id = 7")  # moves the other rows to a new file
    table.refresh().set_properties({"delta.enableChangeDataFeed": "true"})
    if gone:
        (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    rows = qbeast.open_table(tmp_path).changes(since=0 if gone else 1, until=2).collect()
    assert rows.select("id", "_change_type").rows() == [(7, "delete")]


COUNTS = [2**63, 2**70, 10**400, -1, "7", 1.5, 1e300, True, None, [7], {}]


def claim(path: Path, count: object) -> None:
    """Change the number of rows of each file in the log."""
    for commit in (path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                stats = json.loads(action["add"]["stats"])
                action["add"]["stats"] = json.dumps(stats | {"numRecords": count})
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize(
    "count", [COUNTS[0], *(pytest.param(count, marks=pytest.mark.sweep) for count in COUNTS[1:])]
)
def test_impossible_counts_of_rows_change_no_change(tmp_path: Path, count: object) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"], deletion_vectors=True)
    table = qbeast.open_table(tmp_path)
    table.delete("id % 9 = 3")
    expected = table.refresh().changes(since=0).collect().sort("id")
    claim(tmp_path, count)
    table = qbeast.open_table(tmp_path)
    assert_frame_equal(table.changes(since=0).collect().sort("id"), expected)
    assert table.explain_changes(since=0)["files"].to_list() == [1]
    assert table.diff(0, key="id").collect().height == expected.height


def test_impossible_sizes_of_files_are_not_added() -> None:
    add = AddFile(path="a", size=2**63, modification_time=1)
    commit = CommitChanges(
        version=1, timestamp_ms=0, operation=None, adds=(add, add.model_copy(update={"path": "b", "size": 7}))
    )
    assert plan_frame([commit])["bytes"].to_list() == [7]
