"""Restored versions: rows, index and properties as they were, and a future that knows what was used before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.io.stores.local import LocalStore
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files

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
    assert_same_rows(opened.scan().collect(), rows_from(0))
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
    assert_same_rows(opened.scan().collect(), rows_from(0))


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


@settings(max_examples=8)
@given(
    steps=st.lists(
        st.sampled_from(["append", "far", "overwrite", "theirs", "delete"]), min_size=1, max_size=5
    ),
    back=st.integers(0, 4),
)
def test_any_version_can_be_restored_and_written(steps: list[str], back: int) -> None:
    models = [rows_from(0)]
    with folder() as path, small_files():
        qbeast.write_table(models[0], path, columns=["row:linear", "a"], cube_size=7)
        for number, step in enumerate(steps, start=1):
            now = models[-1]
            more = rows_from(1000 * number * (1000 if step == "far" else 1))
            match step:
                case "delete" if (now["a"] > 60).any():  # else there is no new version
                    DeltaTable(path).delete("a > 60")
                    if load_snapshot(path).version == len(models):  # nothing to delete is no version
                        models.append(now.filter(pl.col("a") <= 60))
                case "theirs":
                    write_deltalake(path, more, mode="append")
                    models.append(pl.concat([now, more]))
                case "delete":
                    DeltaTable(path).delete("a > 60")
                case _:
                    mode: Any = "overwrite" if step == "overwrite" else "append"
                    qbeast.write_table(more, path, mode=mode)
                    models.append(more if step == "overwrite" else pl.concat([now, more]))
        version = min(back, len(models) - 1, load_snapshot(path).version)
        before = load_snapshot(path, version=version)
        opened = qbeast.open_table(path)
        opened.restore(version)
        for sample in (None, 0.4):
            expected = sampled(models[version], ["row", "a"], sample)
            assert_same_rows(opened.scan(sample=sample).collect(), expected)
        restored = load_snapshot(path)
        columns = ["path", "revision", "blocks", "num_records"]
        assert restored.files.select(columns).sort("path").equals(before.files.select(columns).sort("path"))
        assert restored.config.last_revision_id == before.config.last_revision_id
        more = rows_from(9_000_000)
        qbeast.write_table(more, path, mode="append")
        assert_same_rows(qbeast.read_table(path), pl.concat([models[version], more]))
        check_invariants(path, may_stage=True)
