"""Restored versions: rows, index and properties as they were, and a future that knows what was used before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.io.store import LocalStore
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, sampled

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def rows_from(start: int, count: int = 60) -> pl.DataFrame:
    numbers = pl.int_range(start, start + count, eager=True).alias("row")
    return pl.select(numbers, a=((numbers * 7919) % 101).cast(pl.Float64))


def index_of(log: Any) -> dict[str, Any]:
    return {path: (add.get("tags"), add["stats"]) for path, add in log.adds.items()}


def test_restore_brings_back_rows_tags_and_properties(tmp_path: Path) -> None:
    qbeast.write_table(rows_from(0), tmp_path, columns=["row", "a:quantiles"], cube_size=7)
    before = read_log(tmp_path)
    opened = qbeast.open_table(tmp_path)
    opened.set_properties({"owner": "us"})
    opened.add_columns({"note": pl.String})
    write_deltalake(tmp_path, rows_from(60).with_columns(note=pl.lit("x")), mode="append")
    DeltaTable(tmp_path).delete("a > 50")
    result = opened.restore(0)
    assert (result.version, result.restored_version) == (5, 0)
    gone = load_snapshot(tmp_path, version=4).files.height
    assert (result.files_added, result.files_removed) == (len(before.adds), gone)
    after = read_log(tmp_path)
    assert index_of(after) == index_of(before)
    assert (after.configuration, after.schema) == (before.configuration, before.schema)
    assert opened.version == 5
    assert_same_rows(opened.read(), rows_from(0))
    assert pl.scan_delta(str(tmp_path)).collect().height == 60
    lines = [json.loads(line) for line in (tmp_path / f"_delta_log/{5:020d}.json").read_text().splitlines()]
    assert (lines[0]["commitInfo"]["operation"], lines[0]["commitInfo"]["isBlindAppend"]) == (
        "RESTORE",
        False,
    )
    assert all(item["dataChange"] for line in lines for key, item in line.items() if key in ("add", "remove"))
    again = opened.restore(0)
    assert (again.version, again.files_added, again.files_removed) == (5, 0, 0)


def append_far(path: Path, power: int) -> int:
    """Append rows that no revision so far has a place for; return the new one's id."""
    result = qbeast.write_table(rows_from(10**power), path, columns=["row:linear"], mode="append")
    assert result.new_revision
    return result.revision_id


def test_revision_ids_are_not_reused(tmp_path: Path) -> None:
    assert [append_far(tmp_path, power) for power in (1, 4, 7)] == [1, 2, 3]
    opened = qbeast.open_table(tmp_path)
    opened.restore(0)
    assert [revision.revision_id for revision in opened.revisions] == [0, 1]
    assert append_far(tmp_path, 8) == 4
    assert sorted(read_log(tmp_path).revisions) == [0, 1, 4]
    opened.restore(2)
    assert [revision.revision_id for revision in opened.revisions] == [0, 1, 2, 3]
    assert append_far(tmp_path, 10) == 5
    assert_same_rows(qbeast.read_table(tmp_path), pl.concat(rows_from(10**power) for power in (1, 4, 7, 10)))
    check_invariants(tmp_path)
    opened.restore(0)
    assert qbeast.write_table(rows_from(0), tmp_path, mode="overwrite").revision_id == 6


def test_concurrent_changes_are_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qbeast.write_table(rows_from(0), tmp_path, columns=["row"])
    qbeast.write_table(rows_from(60), tmp_path, mode="append")
    opened, put = qbeast.open_table(tmp_path), LocalStore.put_if_absent

    def raced(store: LocalStore, path: str, data: bytes) -> None:
        monkeypatch.setattr(LocalStore, "put_if_absent", put)
        write_deltalake(tmp_path, rows_from(120), mode="append")
        put(store, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", raced)
    assert opened.restore(0).version == 3
    assert_same_rows(opened.read(), rows_from(0))


def test_tags_are_restored_from_a_checkpoint(tmp_path: Path) -> None:
    qbeast.write_table(rows_from(0), tmp_path, columns=["row", "a"], cube_size=7)
    opened = qbeast.open_table(tmp_path)
    opened.set_properties({"delta.checkpointInterval": "3"})
    tags = load_snapshot(tmp_path).files.select("path", "blocks", "layout", "rules")
    write_deltalake(tmp_path, rows_from(60), mode="append")
    opened.switch_dialect("qbeast-spark", jvm="0.8")
    opened.switch_dialect("documented")
    opened.restore(1)
    for number in range(5):
        opened.set_properties({"n": str(number)})
    (newest,) = (tmp_path / "_delta_log").glob(f"{9:020d}.*.parquet")
    for log in (tmp_path / "_delta_log").iterdir():
        if log != newest and log.name != f"{10:020d}.json":
            log.unlink()
    actual = load_snapshot(tmp_path)
    assert actual.version == 10
    assert actual.files.select(tags.columns).equals(tags)
    assert_same_rows(qbeast.read_table(tmp_path, sample=0.3), sampled(rows_from(0), ["row", "a"], 0.3))
    qbeast.open_table(tmp_path).switch_dialect("qbeast-spark", jvm="0.8")
    assert_same_rows(qbeast.read_table(tmp_path, sample=0.3), sampled(rows_from(0), ["row", "a"], 0.3))


def test_invalid_restores_raise_and_change_nothing(tmp_path: Path) -> None:
    rows_from(0).write_delta(tmp_path)
    qbeast.convert_table(tmp_path, ["row"])
    opened = qbeast.open_table(tmp_path)
    with pytest.raises(qbeast.NotQbeastTableError, match=r"version 0 .* has no Qbeast index"):
        opened.restore(0)
    with pytest.raises(qbeast.VersionNotFoundError):
        opened.restore(7)
    qbeast.write_table(rows_from(0), tmp_path, mode="overwrite", columns=["row"])
    opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    with pytest.raises(qbeast.VersionNotFoundError, match=r"1 of its files are gone.*a vacuum took them"):
        opened.restore(1)
    opened.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(qbeast.UnsupportedTableError, match="appendOnly"):
        opened.restore(2)
    assert load_snapshot(tmp_path).version == 3
