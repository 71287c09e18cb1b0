"""A repair restores the index of files whose tags another program dropped, and never makes a wrong index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import PHYSICAL_NAME, StoredColumns
from qbeast_core.log.replay import digest_of, parse_copy
from qbeast_core.spec.revision import Revision
from tests.helpers import damage as d
from tests.helpers.examples import examples
from tests.helpers.faults import DATA_FAULTS, LOG_FAULTS
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.spoiled_copies import Copy, spoiled_copies
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

INDEXED = ["a", "b", "s"]
HALF = pl.col("a") < 500


def make_rows(rows: int, *, seed: int = 4, first: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            ROW: np.arange(first, first + rows),
            "a": rng.integers(0, 1000, rows),
            "b": rng.normal(size=rows).clip(-3, 3),
            "s": [f"key {value}" for value in rng.integers(0, 90, rows)],
        }
    )


def drop_tags(table: Path, paths: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
    """Let delta-rs add live files again, which it does without tags. Return all adds from before."""
    before = read_log(table).adds
    opened = DeltaTable(table)
    again: list[AddAction | RemoveAction] = [
        AddAction(path, add["size"], {}, add["modificationTime"], data_change=False, stats=add["stats"])
        for path, add in before.items()
        if paths is None or path in paths
    ]
    opened.create_write_transaction(again, "append", opened.schema())
    dropped = {path for path, add in read_log(table).adds.items() if not add.get("tags")}
    assert dropped >= {action.path for action in again}
    return before


def tags_of(table: Path) -> dict[str, dict[str, str]]:
    return {path: add.get("tags") or {} for path, add in read_log(table).adds.items()}


def bytes_read(table: Path) -> list[Any]:
    opened = qbeast.open_table(table)
    plans = [
        opened.rows(sample=0.05).explain(),
        opened.rows(HALF).explain(),
        opened.rows(HALF, sample=0.3).explain(),
    ]
    return [(plan.bytes_opened, plan.files.sort("path").to_dict(as_series=False)) for plan in plans]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table after appends, changes of rows and an optimize."""
    path = tmp_path_factory.mktemp("changed") / "t"
    with small_files(file_rows=150, page_rows=16):
        for number in range(2):
            part = make_rows(150, seed=number, first=150 * number)
            qbeast.write_table(part, path, columns=INDEXED, mode="append", cube_size=40)
        opened = qbeast.open_table(path)
        opened.delete(pl.col("a") > 950)
        opened.update(pl.col("a") < 30, {ROW: pl.col(ROW) + 10_000})
        opened.optimize(full=True)
    return path


@pytest.fixture
def table(changed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(changed, tmp_path / "t"))


def test_check_names_files_without_tags(table: Path) -> None:
    before = drop_tags(table)
    opened = qbeast.open_table(table)
    assert opened.blocks().is_empty()
    by_log = opened.check(data=False)  # opens no file for tags
    assert by_log.ok
    assert "staging" in by_log.notes[0]
    report = opened.check()
    assert report.faults["code"].unique().to_list() == ["tags-lost"]
    assert report.faults["severity"].unique().to_list() == ["warning"]
    assert sorted(report.faults["path"]) == sorted(before)


def test_repair_restores_tags_that_another_tool_dropped(table: Path) -> None:
    rows, plans = qbeast.read_table(table), bytes_read(table)
    files = {path.name: path.read_bytes() for path in table.glob("*.parquet")}
    before = drop_tags(table)
    opened = qbeast.open_table(table)
    result = opened.repair()
    assert result.committed
    assert result.repaired_files["actions"].explode().unique().to_list() == ["restore tags"]
    after = read_log(table).adds
    assert after == {path: add | {"dataChange": False} for path, add in before.items()}
    assert opened.check().ok, opened.check()
    assert bytes_read(table) == plans
    assert_same_rows(opened.read(), rows)
    assert_same_rows(
        opened.rows(sample=0.3).lazy().filter(HALF).collect(), sampled(rows, INDEXED, 0.3).filter(HALF)
    )
    assert {path.name: path.read_bytes() for path in table.glob("*.parquet")} == files


DAMAGED = [
    "a cube that is none",
    "a revision of nobody",
    "no JSON",
    "no blocks",
    "no blocks tag",
    "a block too few",
    "a smaller least weight",
    "another first weight",
    "a tail of other length",
    "a layout of no JSON",
]


@pytest.mark.parametrize("name", DAMAGED)
def test_repair_restores_damaged_tags(name: str, table: Path) -> None:
    path, before = table, tags_of(table)
    change, _ = (LOG_FAULTS | DATA_FAULTS)[name]
    d.spoil(path, change, indexed=INDEXED, at=-1)
    assert tags_of(path) != before
    opened = qbeast.open_table(path)
    assert "restore tags" in opened.repair().repaired_files["actions"][0]
    assert tags_of(path) == before
    assert opened.check().ok


def test_repair_after_checkpoint_and_restore(table: Path) -> None:
    tags = tags_of(table)
    drop_tags(table)
    qbeast.open_table(table).repair()
    version = DeltaTable(table).version()
    DeltaTable(table).create_checkpoint()
    drop_tags(table)
    DeltaTable(table).restore(version)  # the same files live, so delta-rs adds none again
    opened = qbeast.open_table(table)
    assert opened.blocks().is_empty()
    opened.repair()
    DeltaTable(table).create_checkpoint()
    assert tags_of(table) == tags


def rewrite_upper_files(table: Path, tags: Mapping[str, Any]) -> None:
    """Index the files with rows of the root again, alone: its threshold becomes too large for the other files."""
    upper = [path for path, texts in tags.items() if '"cube":""' in texts["blocks"]]
    assert 0 < len(upper) < len(tags)
    with small_files(file_rows=150, page_rows=16):
        qbeast.open_table(table).optimize(files=upper)


def test_files_without_place_in_newer_tree_stay_staged(table: Path) -> None:
    tags = tags_of(table)
    drop_tags(table)
    rewrite_upper_files(table, tags)
    rows = qbeast.read_table(table)
    opened = qbeast.open_table(table)
    opened.repair()
    assert any(not texts for texts in tags_of(table).values())
    check_invariants(table, may_stage=True)
    assert opened.check().ok, opened.check()
    assert_same_rows(opened.read(sample=0.3), sampled(rows, INDEXED, 0.3))
    opened.optimize(revision=0)
    assert_same_rows(opened.read(), rows)


def test_race_that_changes_tree_fails_repair(table: Path) -> None:
    tags = tags_of(table)
    drop_tags(table)
    opened = qbeast.open_table(table)
    with (
        landing_first(lambda: rewrite_upper_files(table, tags)),
        pytest.raises(qbeast.CommitConflictError, match="tree of files with lost tags"),
    ):
        opened.repair()
    opened = qbeast.open_table(table)
    opened.repair()
    assert opened.check(data=False).ok
    check_invariants(table, may_stage=True)


def test_race_that_keeps_tree_keeps_repair(table: Path) -> None:
    tags = tags_of(table)
    drop_tags(table)
    opened = qbeast.open_table(table)
    late = make_rows(200, seed=9, first=5000)
    with landing_first(lambda: qbeast.write_table(late, table, mode="append")):
        assert set(opened.repair().repaired_files["path"]) == set(tags)
    assert tags_of(table).items() >= tags.items()
    assert opened.check().ok, opened.check()
    check_invariants(table)


HOSTILE: dict[str, list[Callable[[Copy], Mapping[str, str]]]] = {
    "unreadable blocks": [
        lambda copy: copy | {"blocks": '[["'},
        lambda copy: copy | {"blocks": "{}"},
        lambda copy: copy | {"blocks": "[]"},
        lambda copy: _edited(copy, 0, "!!"),
        lambda copy: copy | {"qbeast.rules": "2"},
    ],
    "wrong blocks": [
        lambda copy: copy | {"blocks": '[["",-5,-9]]'},
        lambda copy: copy | {"blocks": '[["",-5,1099511627776]]'},
        lambda copy: _edited(copy, 0, "PPPP"),
        lambda copy: _edited(copy, 1, 5),
        lambda copy: _edited(copy, 3, -(2**31)),
    ],
    "wrong layouts": [
        lambda copy: {key: text for key, text in copy.items() if key != "qbeast.layout"},
        lambda copy: copy | {"qbeast.layout": '{"v":9}'},
        lambda copy: copy | {"qbeast.layout": '{"v":1,"rows":3}'},
        lambda copy: copy | {"qbeast.layout": '{"v":3,"bands":[[1099511627776,1,0]]}'},
        lambda copy: copy | {"qbeast.layout": '{"v":3,"bands":[]}'},
    ],
    "revisions of nobody": [
        lambda copy: copy | {"qbeast.revision": "0" * 32},
        lambda copy: copy | {"qbeast.revision": copy["revision"]},
    ],
}


def _edited(copy: Copy, at: int, value: Any) -> Copy:
    blocks = json.loads(copy["blocks"])
    blocks[0][at:] = [value, *blocks[0][at + 1 :]]
    return copy | {"blocks": json.dumps(blocks)}


def write_copies(path: Path, spoil: Callable[[Copy], Mapping[str, str]]) -> pl.DataFrame:
    """Write a table whose files hold spoiled copies of their tags."""
    rows = make_rows(200)
    with small_files(file_rows=40, page_rows=16), spoiled_copies(spoil):
        qbeast.write_table(rows, path, columns=INDEXED, cube_size=20)
    return rows


@pytest.mark.parametrize("name", HOSTILE)
def test_wrong_copies_are_never_restored(name: str, tmp_path: Path) -> None:
    spoils, wrong = cycle(HOSTILE[name]), list[bool]()

    def spoil(copy: Copy) -> Mapping[str, str]:
        spoiled = next(spoils)(copy)
        wrong.append(spoiled != copy)
        return spoiled

    path = tmp_path / "t"
    rows = write_copies(path, spoil)
    assert len(wrong) >= len(HOSTILE[name])
    assert all(wrong)
    assert qbeast.open_table(path).check().ok
    drop_tags(path)
    opened = qbeast.open_table(path)
    opened.repair()
    assert not any(tags_of(path).values())
    assert opened.check().ok, opened.check()
    assert_same_rows(opened.read(sample=0.3), sampled(rows, INDEXED, 0.3))
    assert_same_rows(opened.rows().lazy().filter(HALF).collect(), rows.filter(HALF))


def test_copy_of_another_file_is_never_restored(tmp_path: Path) -> None:
    path, first = tmp_path / "t", Copy()

    def spoil(copy: Copy) -> Mapping[str, str]:
        first.update(first or copy)
        return dict(first)

    rows = write_copies(path, spoil)
    before = drop_tags(path)
    opened = qbeast.open_table(path)
    opened.repair()
    ((restored, tags),) = ((path, tags) for path, tags in tags_of(path).items() if tags)
    assert without_thresholds(tags) == without_thresholds(before[restored]["tags"])
    assert_same_rows(opened.read(sample=0.3), sampled(rows, INDEXED, 0.3))


def test_file_of_another_table_stays_staged(tmp_path: Path) -> None:
    rows = make_rows(500)
    paths = tmp_path / "one", tmp_path / "two"
    for path in paths:
        qbeast.write_table(rows, path, columns=INDEXED)
    one, two = (read_log(path) for path in paths)
    (name, add), *_ = two.adds.items()
    shutil.copy(paths[1] / name, paths[0] / name)
    opened = DeltaTable(paths[0])
    action = AddAction(name, add["size"], {}, 1, data_change=True, stats=add["stats"])
    opened.create_write_transaction([action], "append", opened.schema())
    table = qbeast.open_table(paths[0])
    assert table.check().ok
    assert not table.repair().committed
    assert_same_rows(table.read(sample=0.5), sampled(pl.concat([rows, rows]), INDEXED, 0.5))
    assert set(one.adds) < set(read_log(paths[0]).adds)


def test_number_of_revision_comes_from_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with spoiled_copies(lambda copy: copy | {"revision": "99"}):
        qbeast.write_table(make_rows(300), path, columns=INDEXED)
        qbeast.write_table(make_rows(300, first=300), path, columns=INDEXED, mode="overwrite")
    before = drop_tags(path)
    copies = [parse_copy(pq.read_metadata(path / name).metadata) for name in before]
    digests = {revision.digest for revision in qbeast.open_table(path).revisions}
    assert all(copy is not None and copy.revision_digest in digests for copy in copies)
    qbeast.open_table(path).repair()
    assert tags_of(path) == {name: add["tags"] for name, add in before.items()}


def test_digest_of_revision_survives_rename() -> None:
    def columns(name: str) -> StoredColumns:
        field = {"name": name, "type": "long", "nullable": True, "metadata": {PHYSICAL_NAME: "col-1"}}
        schema = json.dumps({"type": "struct", "fields": [field]})
        configuration = {"delta.columnMapping.mode": "name"}
        return StoredColumns.of(Metadata(id="", schema_string=schema, configuration=configuration))

    def revision(name: str, **fields: Any) -> Revision:
        whole = {
            "revisionID": 3,
            "timestamp": 1,
            "tableID": "t",
            "desiredCubeSize": 9,
            "columnTransformers": [
                {"className": "io.qbeast.core.transform.EmptyTransformer", "columnName": name}
            ],
            "transformations": [],
        }
        return Revision.from_json(json.dumps(whole | fields))

    digest = digest_of(revision("old"), columns("old"))
    assert digest_of(revision("new", revisionID=7), columns("new")) == digest
    for other in ({"timestamp": 2}, {"tableID": "u"}, {"desiredCubeSize": 10}):
        assert digest_of(revision("old", **other), columns("old")) != digest


@given(cases(), st.data())
@examples(2, sweep=100)
def test_repair_after_any_changes_restores_sound_index(case: Case, data: st.DataObject) -> None:
    with folder() as path:
        write(path, case)
        opened = qbeast.open_table(path)
        if data.draw(st.booleans()):
            opened.delete(pl.col(ROW) % 5 == 0)
        if data.draw(st.booleans()):
            opened.optimize()
        rows = opened.read()
        adds = list(read_log(path).adds)
        lost = set(data.draw(st.lists(st.sampled_from(adds), unique=True))) if adds else set[str]()
        lost &= {name for name, tags in tags_of(path).items() if "blocks" in tags}
        if not lost:
            return
        before = {name: add["tags"] for name, add in drop_tags(path, lost).items() if name in lost}
        appended = data.draw(st.booleans())
        if appended:
            qbeast.write_table(case.frames[0], path, mode="append")
        opened = qbeast.open_table(path)
        opened.repair()
        assert opened.check().ok, opened.check()
        check_invariants(path, may_stage=True)
        after = tags_of(path)
        if not appended:
            assert all("blocks" in after[name] for name in lost)
        for name, tags in before.items():
            if after[name]:
                assert without_thresholds(after[name]) == without_thresholds(tags)
        if not appended:
            assert_same_rows(opened.read(), rows)
            assert_same_rows(opened.read(sample=0.4), sampled(rows, case.indexed, 0.4))


def without_thresholds(tags: Mapping[str, str]) -> dict[str, Any]:
    blocks = [{**block, "maxWeight": None} for block in json.loads(tags["blocks"])]
    return {**tags, "blocks": blocks}
