"""A plan file is a cache: whatever becomes of it or of the log, a version lists the files that `deltalake` lists."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from qbeast_core.errors import QbeastError
from qbeast_core.log.values import joined_files
from qbeast_core.plan.nodes import Unknown
from qbeast_core.table.snapshot.snapshot import load_snapshot, refresh
from tests.format.delta_tables import copied
from tests.helpers.examples import examples
from tests.helpers.handmade_log import PRICE, PROTOCOL, features, metadata, remove, write_log
from tests.helpers.plan_files import (
    assert_lists,
    by_deltalake,
    checkpoint,
    in_parts,
    opened,
    other_place,
    planned,
    plans_in,
    priced,
)
from tests.helpers.random_log import logs, put
from tests.helpers.row_bitmaps import descriptor, roaring
from tests.helpers.tables import folder

FIRST = [PROTOCOL, metadata(), *[priced(f"f{number}", number, 10 + number) for number in range(7)]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with planned(tmp_path / "temporary") as folder:
        yield folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of seven files, which its checkpoint lists."""
    root = Path(write_log(tmp_path / "t", FIRST))
    checkpoint(root)
    return root


def after(table: Path, *commits: list[Any], first: int = 1) -> Path:
    write_log(table, *commits, first=first)
    return table


LATER: dict[str, list[list[Any]]] = {
    "nothing": [],
    "adds": [[priced("g")], [priced("h"), priced("i")]],
    "removes": [[remove("f1"), remove("f6")]],
    "added again": [[remove("f1")], [priced("f1", 50, 3)]],
    "replaced": [[priced("f2", 50, 3)]],
    "removed twice": [[remove("f3")], [remove("f3"), remove("g")], [priced("g")]],
    "all": [[remove(f"f{number}") for number in range(7)], [priced("g")]],
    "configuration": [[metadata(configuration={"delta.appendOnly": "false"}), priced("g")]],
}


@pytest.mark.parametrize("commits", LATER.values(), ids=LATER)
def test_commits_after_the_checkpoint_count(table: Path, commits: list[list[Any]]) -> None:
    assert_lists(opened(table), by_deltalake(table))
    before = opened(table)
    after(table, *commits)
    assert_lists(opened(table), by_deltalake(table))
    assert_lists(refresh(before), by_deltalake(table))
    assert_lists(before, by_deltalake(table, 0))


def test_a_newer_checkpoint_replaces_the_plan(table: Path, cache: Path) -> None:
    first = opened(table)
    after(table, [remove("f1"), priced("g")], [priced("h")])
    checkpoint(table, 1)
    assert_lists(opened(table), by_deltalake(table))
    assert len(plans_in(cache)) == 2
    for version in (0, 1):  # cleaned up
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    assert_lists(opened(table), by_deltalake(table))
    assert_lists(refresh(first), by_deltalake(table))


def test_each_version_is_read_beside_a_checkpoint(table: Path) -> None:
    after(table, [priced("g")], [remove("f2")], [priced("h")], [remove("f5")])
    checkpoint(table, 2)
    for version in range(5):
        snapshot = load_snapshot(table, version=version)
        assert (snapshot.planned is not None) is (version >= 2)
        assert_lists(snapshot, by_deltalake(table, version))


def test_version_is_the_same_after_its_plan_file_is_deleted(table: Path, cache: Path) -> None:
    snapshot, expected = opened(table), by_deltalake(table)
    shutil.rmtree(cache)
    assert_lists(snapshot, expected)
    cache.mkdir()
    assert_lists(opened(table), expected)


def other_format(plan: Path) -> None:
    text = (plan / "facts.json").read_text().replace('"format":1', '"format":2')
    (plan / "facts.json").write_text(text)


USELESS: dict[str, Callable[[Path], object]] = {
    "deleted": shutil.rmtree,
    "empty": lambda plan: [(file.unlink(), file.touch()) for file in plan.iterdir()],
    "without facts": lambda plan: (plan / "facts.json").unlink(),
    "without files": lambda plan: (plan / "files.parquet").unlink(),
    "without other actions": lambda plan: (plan / "rest.parquet").unlink(),
    "another format": other_format,
    "a folder": lambda plan: [(plan / "facts.json").unlink(), (plan / "facts.json").mkdir()],
}


@pytest.mark.parametrize("spoil", USELESS.values(), ids=USELESS)
def test_useless_plan_file_is_made_again(table: Path, cache: Path, spoil: Callable[[Path], object]) -> None:
    after(table, [remove("f1"), priced("g")])
    opened(table)
    (plan,) = plans_in(cache)
    sound = (plan / "files.parquet").read_bytes()
    spoil(plan)
    assert_lists(load_snapshot(table), by_deltalake(table))
    assert_lists(opened(table), by_deltalake(table))
    assert (plan / "files.parquet").read_bytes() == sound


def test_plan_file_of_another_version_is_not_taken(table: Path, cache: Path) -> None:
    opened(table)
    (old,) = plans_in(cache)
    after(table, [remove("f1"), priced("g")])
    checkpoint(table)
    opened(table)
    (new,) = set(plans_in(cache)) - {old}
    shutil.rmtree(new)
    shutil.copytree(old, new)
    assert_lists(load_snapshot(table), by_deltalake(table))


def test_copies_of_a_table_go_their_own_ways(table: Path) -> None:
    opened(table)
    copy = other_place(table, "copy")
    for root, name in ((table, "ours"), (copy, "theirs")):
        after(root, [remove("f1"), priced(name)])
        assert_lists(opened(root), by_deltalake(root))
        checkpoint(root)
        assert_lists(opened(root), by_deltalake(root))


def test_another_table_at_the_same_place_is_another(table: Path) -> None:
    opened(table)
    shutil.rmtree(table)
    other = metadata()
    other["metaData"]["id"] = "0cf1b0c6-2d3a-4b1c-9f57-2ad0a6a0e7b1"
    write_log(table, [PROTOCOL, other, *[priced(f"x{number}", number) for number in range(7)]])
    checkpoint(table)
    snapshot = opened(table)
    assert snapshot.metadata.id == other["metaData"]["id"]
    assert_lists(snapshot, by_deltalake(table))


COLUMN = {"name": "price", "type": "double", "nullable": True, "metadata": {}}
OTHER = {"name": "tax", "type": "double", "nullable": True, "metadata": {}}


@pytest.mark.parametrize(
    ("fields", "fits"),
    [([COLUMN, OTHER], True), ([OTHER, COLUMN], True), ([{**COLUMN, "metadata": {"comment": "x"}}], False)],
)
def test_changed_schema_is_the_newest(table: Path, fields: list[Any], *, fits: bool) -> None:
    after(table, [metadata({"type": "struct", "fields": fields}), priced("g")])
    snapshot = load_snapshot(table)
    assert (snapshot.planned is not None) is fits
    assert list(snapshot.schema) == [field["name"] for field in fields]
    assert_lists(snapshot, by_deltalake(table))


def test_widened_type_has_the_log_decide(tmp_path: Path) -> None:
    protocol = features("typeWidening", reader=["typeWidening"])
    narrow = {**PRICE, "fields": [{**COLUMN, "type": "float"}]}
    root = Path(write_log(tmp_path / "t", [protocol, metadata(narrow), priced("a"), priced("b")]))
    checkpoint(root)
    change = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    after(root, [metadata({**PRICE, "fields": [{**COLUMN, "metadata": change}]}), priced("c")])
    snapshot = load_snapshot(root)
    assert snapshot.planned is None
    assert snapshot.schema == {"price": pl.Float64}
    assert_lists(snapshot, by_deltalake(root))


ODD = ["a%25b", "k%3Dv/%20x", "p+q", "%C3%A9", "ü", "e%2Bf"]


def test_odd_paths_are_removed_in_any_form(tmp_path: Path) -> None:
    """`deltalake` compares paths as they are written; the protocol, and Spark, compare them decoded."""
    root = Path(write_log(tmp_path / "t", [PROTOCOL, metadata(), *map(priced, ODD), priced("plain")]))
    checkpoint(root)
    snapshot = load_snapshot(root)
    assert_lists(snapshot, by_deltalake(root))
    after(root, [remove("a%25b"), remove("e+f"), remove("k=v/ x"), priced("new")])
    live = {"p+q", "%C3%A9", "ü", "plain", "new"}
    for newest in (load_snapshot(root), refresh(snapshot)):
        assert {*newest.narrowed(Unknown()).files["path"]} == {*newest.files["path"]} == live
        assert newest.file_count == len(live)


@pytest.mark.parametrize("early", [False, True])
def test_deletion_vectors_are_those_of_the_log(tmp_path: Path, *, early: bool) -> None:
    vectors = [descriptor(tmp_path, roaring([number])) for number in range(3)]
    protocol = features("deletionVectors", reader=["deletionVectors"])
    first = [priced("a", deletionVector=vectors[0]), priced("b", deletionVector=vectors[1]), priced("c")]
    root = Path(write_log(tmp_path / "t", [protocol, metadata(), *first]))
    checkpoint(root)
    before = opened(root) if early else None
    commits = [
        [remove("a"), remove("c", deletionVector=vectors[0])],  # not the live files of these paths
        [remove("a", deletionVector=vectors[0]), priced("a", deletionVector=vectors[2])],
        [remove("b", deletionVector=vectors[1]), priced("b")],
        [remove("c"), priced("c", deletionVector=vectors[0])],
        [remove("c"), remove("a", deletionVector=vectors[0])],  # they are not live any more
    ]
    for number, commit in enumerate(commits, start=1):
        after(root, commit, first=number)
        newest = opened(root) if before is None else refresh(before)
        expected = load_snapshot(root, version=number, use_plan=False).files
        live = by_deltalake(root)
        assert_lists(newest, live)
        columns = ["path", "deletion_vector"]
        actual = newest.files.select(columns).sort("path")
        assert actual.equals(expected.select(columns).sort("path"))
        assert newest.live_rows == newest.counted_rows - expected["has_deletion_vector"].sum()


def test_checkpoint_of_several_parts_is_one_plan(table: Path, cache: Path) -> None:
    in_parts(table, 0, 3)
    after(table, [remove("f1"), priced("g")])
    assert_lists(opened(table), by_deltalake(table))
    assert len(plans_in(cache)) == 1


def of_log(root: Path, version: int, *, use_plan: bool) -> Any:
    """Return a version, or the error of its log."""
    try:
        with warnings.catch_warnings(action="ignore"):
            snapshot = load_snapshot(root, version=version, use_plan=use_plan)
            parts = [part.files for part in snapshot.parts(Unknown())]
            narrowed = snapshot.narrowed(Unknown()).files
            files = load_snapshot(root, version=version, use_plan=False).files
    except QbeastError as error:
        return type(error), str(error)
    for some in (joined_files([*parts, files.clear()]), joined_files([narrowed, files.clear()])):
        assert_frame_equal(with_fields(some.sort("path")), with_fields(files.sort("path")))
    sums = (snapshot.file_count, snapshot.counted_rows, snapshot.live_rows, snapshot.data_bytes)
    return [*sums, *(getattr(snapshot, name) for name in FIELDS), snapshot.copies.files.rows()]


def with_fields(files: pl.DataFrame) -> pl.DataFrame:
    """Return files with structs that are not null: a plan file has their fields."""
    structs = {name: dtype for name, dtype in files.schema.items() if isinstance(dtype, pl.Struct)}
    return files.with_columns(
        pl.struct(pl.col(name).struct.field(inner) for inner in dtype.to_schema()).alias(name)
        for name, dtype in structs.items()
        if dtype.to_schema()
    )


FIELDS = ("version", "timestamp_ms", "metadata", "protocol", "config", "schema", "schema_json", "domains")


@examples(3, sweep=300)
@given(texts=logs(), at=st.integers(0, 4))
def test_random_logs_are_the_same_by_a_plan(texts: list[str], at: int) -> None:
    with folder() as root, planned(root / "temporary"):
        put(root / "t", texts)
        try:
            checkpoint(root / "t", min(at, len(texts) - 1))
        except Exception:  # noqa: BLE001 -- whatever deltalake does not read
            return
        for version in range(len(texts)):
            expected = of_log(root / "t", version, use_plan=False)
            assert of_log(root / "t", version, use_plan=True) == expected


@pytest.mark.parametrize(
    "name",
    [
        "identity-columns/checkpoint-v2-table",
        "multi-part-checkpoint/multipart_checkpoint",
        "variant/spark-variant-checkpoint",
    ],
)
def test_checkpoints_of_spark_list_the_same(tmp_path: Path, name: str) -> None:
    root = copied(name, tmp_path)
    assert_lists(load_snapshot(root), by_deltalake(root))
