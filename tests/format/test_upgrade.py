"""Tables of before 0.6.0, upgraded: the same rows and samples, new tags, nothing else of a file changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import KEYS, SHIFT, assert_sound, copy_of, last_commit, shifted
from tests.format.collection import COPIES, Golden, commits_of, each, find, newest_adds
from tests.format.questions import questions
from tests.helpers.handmade_log import features, write_log

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore:.*hold copies of rows:qbeast.QbeastWarning"),
]

COPIED = {"legacy/v050_mixed_states", "legacy/v050_num3_nulls"}
SLICES = (0.01, 0.5, (0.3, 0.7), (0.9, 1.0))


def is_legacy(golden: Golden) -> bool:
    return golden.is_legacy


def adds_of(path: Path) -> dict[str, dict[str, Any]]:
    return newest_adds(commits_of(path))


def rows_of(path: Path, **options: Any) -> pl.DataFrame:
    return qbeast.read_table(path, **options).sort(pl.all())


@each(is_legacy, fast={"legacy/v040_identity_null"})
@pytest.mark.parametrize("replicated", [None, "drop"])
def test_upgrade_keeps_rows_and_is_idempotent(golden: Golden, replicated: Any, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    before = [rows_of(path, sample=part) for part in (None, *SLICES)]
    result = qbeast.open_table(path).upgrade(replicated=replicated)
    assert result.committed
    for part, expected in zip((None, *SLICES), before, strict=True):
        assert_frame_equal(rows_of(path, sample=part), expected)
    if not golden.is_doubled:
        assert_frame_equal(before[0], golden.expected.sort(pl.all()))
    for question in questions(golden):
        if question.sample is None:
            actual = rows_of(path, where=question.predicate)
            assert_frame_equal(actual, before[0].filter(question.predicate))
    again = qbeast.open_table(path).upgrade(replicated=replicated)
    assert (again.committed, again.version, again.retagged_files) == (False, result.version, 0)
    assert load_snapshot(path).version == result.version


@each(is_legacy, fast=COPIED)
def test_upgrade_rewrites_tags_alone(golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    old, configured = adds_of(path), load_snapshot(path).metadata.configuration
    listed = set(load_snapshot(path).logged_files["path"])
    qbeast.open_table(path).upgrade(replicated="keep")
    new = adds_of(path)
    assert set(new) == listed, "readers agree on what is live"
    for name, add in new.items():
        tags, flat = add.pop("tags"), old[name].pop("tags")
        assert add == old[name] | {"dataChange": False}
        assert tags.keys() == {"revision", "blocks"}
        assert tags["revision"] == flat["revision"]
        (block,) = json.loads(tags["blocks"])
        numbers = {key: int(flat[key]) for key in ("minWeight", "maxWeight", "elementCount")}
        assert block == {"cubeId": flat["cube"], "replicated": flat["state"] in COPIES, **numbers}
        assert list(block) == KEYS
    kept = {key: text for key, text in configured.items() if "replicatedSet" not in key}
    assert load_snapshot(path).metadata.configuration == kept


@each(is_legacy, fast=COPIED)
def test_upgrade_without_copies_shows_rows_once(golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    copies = [name for name, add in adds_of(path).items() if add["tags"]["state"] in COPIES]
    result = qbeast.open_table(path).upgrade(replicated="drop")
    assert (result.dropped_copies, result.kept_copies) == (len(copies), 0)
    live = adds_of(path)
    assert live.keys() == set(load_snapshot(path).logged_files["path"])
    assert not live.keys() & set(copies)
    plain = pl.concat([pl.read_parquet(path / name) for name in live]).select(golden.expected.columns)
    assert_frame_equal(plain.sort(pl.all()), pl.scan_delta(str(path)).collect().sort(pl.all()))
    once = plain.unique() if golden.is_doubled else plain
    assert_frame_equal(once.sort("id"), golden.expected, check_dtypes=False)
    for action in last_commit(path):
        if "remove" in action:
            assert not action["remove"]["dataChange"]
            assert action["remove"]["deletionTimestamp"] > 0


def test_copies_are_kept_with_a_warning(tmp_path: Path) -> None:
    path = copy_of(find("legacy/v050_mixed_states"), tmp_path)
    with pytest.warns(qbeast.QbeastWarning, match="5 file.*hold copies of rows.*replicated=") as caught:
        result = qbeast.open_table(path).upgrade()
    assert caught[0].filename == __file__
    assert (result.kept_copies, result.dropped_copies) == (5, 1)
    assert qbeast.open_table(path).blocks()["replicated"].sum() == 5
    later = qbeast.open_table(path).upgrade(replicated="drop")
    assert (later.committed, later.kept_copies, later.dropped_copies, later.retagged_files) == (True, 0, 5, 0)


@each(is_legacy, fast={"legacy/v050_announced_compacted"})
def test_appends_continue_tree_of_old_files(golden: Golden, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    qbeast.open_table(path).upgrade(replicated="drop")
    files = set(load_snapshot(path).logged_files["path"])
    result = qbeast.write_table(shifted(golden.expected), path, mode="append")
    assert_sound(path, files, result)
    actual = qbeast.read_table(path, sample=0.1)["id"].unique().sort().to_list()
    ids = golden.samples[0.1]
    assert actual == [*ids, *(number + SHIFT for number in ids)]


def test_overwrite_removes_files_live_for_spark_only(tmp_path: Path) -> None:
    golden = find("legacy/v050_mixed_states")
    path = copy_of(golden, tmp_path)
    hidden = adds_of(path).keys() - set(load_snapshot(path).logged_files["path"])
    assert hidden
    qbeast.write_table(golden.expected, path, mode="overwrite")
    assert adds_of(path).keys() == set(load_snapshot(path).logged_files["path"])
    assert hidden <= {action["remove"]["path"] for action in last_commit(path) if "remove" in action}


def test_upgrade_restores_disputed_rows_for_all_readers(tmp_path: Path) -> None:
    path = copy_of(find("legacy/v050_num3_nulls"), tmp_path)
    whole = rows_of(path)
    name, add = next(iter(adds_of(path).items()))
    actions = [{"remove": {"path": name, "deletionTimestamp": 1, "dataChange": False}}, {"add": add}]
    log = path / "_delta_log" / f"{1:020d}.json"
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions), "utf-8")
    assert rows_of(path).height < whole.height, "no writer known does so: this file holds no copies"
    qbeast.open_table(path).upgrade()
    assert_frame_equal(rows_of(path), whole)
    assert adds_of(path).keys() == set(load_snapshot(path).logged_files["path"])


@pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning")
def test_unreadable_tags_are_kept(tmp_path: Path) -> None:
    path = copy_of(find("legacy/v050_num3_nulls"), tmp_path)
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text("utf-8").replace('"maxWeight":"', '"maxWeight":"?', 1), "utf-8")
    before = rows_of(path)
    qbeast.open_table(path).upgrade()
    assert_frame_equal(rows_of(path), before)
    assert sum("state" in add["tags"] for add in adds_of(path).values()) == 1
    assert not qbeast.open_table(path).upgrade().committed


def test_unsupported_upgrades_raise(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_delta(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="keep"):
        qbeast.open_table(tmp_path).upgrade(replicated="lose")  # type: ignore[arg-type]
    with pytest.raises(qbeast.NotQbeastTableError, match="Convert"):
        qbeast.open_table(tmp_path).upgrade()
    path = copy_of(find("legacy/v050_num3_nulls"), tmp_path / "other")
    write_log(Path(path), [features("checkpointProtection")], first=DeltaTable(path).version() + 1)
    with pytest.raises(qbeast.UnsupportedTableError, match="checkpointProtection"):
        qbeast.open_table(path).upgrade()


def test_plans_name_files_of_copies() -> None:
    golden = find("legacy/v050_mixed_states")
    plan, blocks = qbeast.open_table(golden.path).rows().explain(), qbeast.open_table(golden.path).blocks()
    copies = plan.files.filter(reason="replicated copies")
    assert sorted(copies["path"]) == sorted(blocks.filter("replicated")["path"])
    assert not copies["opened"].any()
    assert copies["bytes_opened"].sum() == 0
    live = load_snapshot(golden.path)
    assert live.copies.files.height == copies.height > 0
    assert plan.bytes_total == sum((golden.path / path).stat().st_size for path in live.logged_files["path"])
    assert plan.rows_total == blocks["element_count"].sum()
