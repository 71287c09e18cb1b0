"""Files of the change data feed, as deltalake reads them; `test_changes` compares its rows with those of Polars."""

from __future__ import annotations

import json
import os
import shutil
from datetime import date
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.dml import change as feed
from qbeast_core.table.dml.change import Update
from qbeast_core.table.engine.local import MemoryEngine
from qbeast_core.table.rewrite.replace import Replaced
from tests.helpers.change_feed import change_files, check_feed, enable_feed, feed_actions, read_feed
from tests.helpers.change_races import CONDITION, beside
from tests.helpers.change_races import rows as more_rows
from tests.helpers.changes import spread, written
from tests.helpers.small_files import resized
from tests.helpers.stores import failing_puts, located_files
from tests.helpers.strategies import ROW
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, small_files, using

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
GOLDEN = Path(__file__).parents[1] / "format" / "delta" / "change-data-feed"
ROWS = spread(100)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of several small files with a feed."""
    path = tmp_path_factory.mktemp("feed") / "t"
    with small_files():
        qbeast.write_table(ROWS, path, columns=[ROW], cube_size=30)
    enable_feed(path)
    return path


@pytest.fixture
def path(master: Path, tmp_path: Path) -> Path:
    return shutil.copytree(master, tmp_path / "t")


def test_dropped_files_alone_need_no_feed(path: Path) -> None:
    with located_files() as files:
        result = qbeast.open_table(path).delete(where=True)
    assert [file for file in files if file.endswith(".parquet")] == []
    assert (set(result.plan["action"]), feed_actions(path, result.version)) == ({"drop"}, [])
    check_feed(path, result.version, ROWS, ROWS.clear(), {"delete": ROWS[ROW]})


def test_rows_of_dropped_files_are_in_the_feed(path: Path) -> None:
    result = qbeast.open_table(path).delete(f"{ROW} < 80")
    assert set(result.plan["action"]) == {"drop", "rewrite"}
    assert feed_actions(path, result.version)
    check_feed(path, result.version, ROWS, ROWS.filter(pl.col(ROW) >= 80), {"delete": ROWS[ROW][:80]})


def test_merge_that_only_inserts_needs_no_feed(path: Path) -> None:
    new = spread(3, 9000)
    with small_files():
        result = qbeast.open_table(path).merge(new, on=ROW, when_matched="ignore")
    assert result.plan.is_empty()
    assert feed_actions(path, result.version) == []
    check_feed(path, result.version, ROWS, pl.concat([ROWS, new]), {"insert": new[ROW]})


@pytest.fixture(scope="module")
def appended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("appended") / "t"
    written(path, appends=4, count=100)
    enable_feed(path)
    return path


def test_files_rewritten_for_their_order_are_not_in_the_feed(appended: Path) -> None:
    path, rows = appended, spread(400)
    before = qbeast.read_table(path)
    with small_files():
        result = qbeast.open_table(path).delete("a BETWEEN 3 AND 5")
    assert "order of weights" in set(result.plan["action"])
    gone = rows.filter(pl.col("a").is_between(3, 5))
    assert result.rows_deleted == gone.height
    check_feed(path, result.version, before, rows.join(gone, on=ROW, how="anti"), {"delete": gone[ROW]})


@pytest.mark.parametrize("engine", [MEMORY, SPILL], ids=["memory", "spill"])
def test_merge_with_new_columns_and_missing_rows(path: Path, engine: qbeast.Resources) -> None:
    source = pl.concat([ROWS[:40], spread(20, 9000)]).with_columns(f=pl.lit(0.5), new=pl.lit("x"))
    table = qbeast.open_table(path)
    result = using(table, engine).merge(
        source if engine is MEMORY else iter(source.iter_slices(25)),
        on=ROW,
        schema_mode="merge",
        when_not_matched_by_source="delete",
        not_matched_by_source_if="d < '2024-02-01'",
    )
    wide = ROWS.with_columns(new=pl.lit(None, pl.String))
    lost = wide[40:].filter(pl.col("d") < date(2024, 2, 1))
    after = pl.concat([wide[40:].join(lost, on=ROW, how="anti"), source])
    keys = {"delete": lost[ROW], "update": source[ROW][:40], "insert": source[ROW][40:]}
    check_feed(path, result.version, wide, after, keys)


def test_many_rows_are_split_into_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame({ROW: range(3000), "text": ["x" * 1000] * 3000})
    qbeast.write_table(rows, path, columns=[ROW])
    enable_feed(path)
    with resized(feed_file_bytes=1 << 20):
        result = qbeast.open_table(path).update(f"{ROW} > 0", {"text": "'y'"})
    assert len(feed_actions(path, result.version)) > 2
    after = rows.with_columns(pl.when(pl.col(ROW) > 0).then(pl.lit("y")).otherwise("text").alias("text"))
    check_feed(path, result.version, rows, after, {"update": rows[ROW][1:]})


def test_few_changed_rows_of_many_files_share_a_file(path: Path) -> None:
    before = qbeast.open_table(path).rows().files()
    result = qbeast.open_table(path).update(f"{ROW} % 25 = 0", {"f": "1.0"})
    assert before.height > 3
    assert result.plan.height > len(feed_actions(path, result.version)) > 0
    after = ROWS.with_columns(pl.when(pl.col(ROW) % 25 == 0).then(1.0).otherwise("f").alias("f"))
    check_feed(path, result.version, ROWS, after, {"update": ROWS.filter(pl.col(ROW) % 25 == 0)[ROW]})


def test_feed_has_values_of_the_sample_column(tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(ROWS, path, columns=[ROW], sample_column="share")
    enable_feed(path)
    table = qbeast.open_table(path)
    before = table.read().sort(ROW)
    source = pl.concat([before[:20], before[:5].with_columns(pl.col(ROW) + 9000)]).drop("share")
    for change, keys in (
        (lambda: table.update(f"{ROW} < 20", {"f": "0.0"}), {"update": pl.Series(range(20))}),
        (lambda: table.update(f"{ROW} >= 80", {ROW: f"{ROW} + 1000"}), None),
        (lambda: table.merge(source, on=ROW), {"update": source[ROW][:20], "insert": source[ROW][20:]}),
    ):
        result = change()
        after = table.read()
        if keys is None:
            new = read_feed(path, result.version).filter(_change_type="update_postimage")
            assert_same_rows(new.select(after.columns), after.filter(pl.col(ROW) >= 1080))
        else:
            check_feed(path, result.version, before, after, keys)
        before = after


def test_feed_hides_rows_of_deletion_vectors(tmp_path: Path) -> None:
    source = GOLDEN / "cdf-table-with-dv"
    path = tmp_path / "t"
    shutil.copytree(source, path)
    before = pl.read_parquet(source.with_suffix(".expected.parquet"))
    qbeast.convert_table(path, columns=["value"])
    version = qbeast.open_table(path).update("value < 5", {"value": "value + 100"}).version
    files = [pl.read_parquet(path / action["path"]) for action in feed_actions(path, version)]
    rows = pl.concat(files).sort("_change_type", "value")
    old = before.filter(pl.col("value") < 5).select(pl.col("value").sort())
    assert rows.filter(_change_type="update_preimage")["value"].to_list() == old["value"].to_list()
    assert rows.filter(_change_type="update_postimage")["value"].to_list() == (old["value"] + 100).to_list()


def test_failed_feed_leaves_no_file_and_no_version(path: Path) -> None:
    files, version = set(path.rglob("*.parquet")), qbeast.open_table(path).version
    feed_files = list[str]()

    def is_third(name: str) -> bool:
        if name.startswith("_change_data/"):
            feed_files.append(name)
        return len(feed_files) > 2

    with (
        resized(feed_file_bytes=1000),
        failing_puts(is_third, OSError("no space")),
        pytest.raises(OSError, match="no space"),
    ):
        qbeast.open_table(path).update(f"{ROW} < 95", {"f": "1.0"})
    assert len(feed_files) > 2
    assert set(path.rglob("*.parquet")) == files
    assert_same_rows(qbeast.read_table(path), ROWS)
    assert DeltaTable(path).version() == version


def test_feed_follows_concurrent_commits(grown_path: Path) -> None:
    path, more = grown_path, more_rows(5000)
    everything = qbeast.read_table(path)
    result = beside(path, lambda: enable_feed(path), lambda table: table.delete("row < 9"))
    assert feed_actions(path, result.version)
    kept, gone = everything.filter(pl.col(ROW) >= 9), pl.Series(range(9))
    check_feed(path, result.version, everything, kept, {"delete": gone})
    old, expected = change_files(path), pl.concat([kept, more])
    result = beside(path, lambda: qbeast.write_table(more, path, mode="append"))
    assert change_files(path) - old == {action["path"] for action in feed_actions(path, result.version)}
    gone = expected.filter(CONDITION)[ROW]
    check_feed(path, result.version, expected, expected.filter(~CONDITION), {"delete": gone})


def test_property_without_the_feature_writes_no_feed(path: Path) -> None:
    log = path / "_delta_log" / f"{qbeast.open_table(path).version:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 2}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = qbeast.open_table(path).update(f"{ROW} < 9", {"f": "1.0"})
    assert result.committed
    assert not change_files(path)


def test_vacuum_deletes_only_old_files_of_the_feed(path: Path) -> None:
    table = qbeast.open_table(path)
    table.update(f"{ROW} < 9", {"f": "1.0"})
    old = change_files(path)
    for name in old:
        os.utime(path / name, (0, 0))
    last = table.update(f"{ROW} < 9", {"f": "2.0"})
    assert set(table.vacuum(dry_run=False).files) >= old
    assert change_files(path) == {action["path"] for action in feed_actions(path, last.version)}
    assert read_feed(path, last.version).height == 18
    qbeast.drop_table(path, confirm=True)
    assert not path.exists()


def test_feed_files_have_one_partition(tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = pl.DataFrame(
        {ROW: range(60), "day": [f"{n % 3}/ä" if n % 4 else None for n in range(60)], "f": [0.5] * 60}
    )
    write_deltalake(path, rows, partition_by=["day"], configuration={"delta.enableChangeDataFeed": "true"})
    qbeast.convert_table(path, columns=[ROW])
    snapshot = qbeast.open_table(path).snapshot
    change = Update("row < 30", {"day": "CASE WHEN row % 2 = 0 THEN 'new' ELSE day END", "f": "1.5"})
    plan = change.plan(snapshot, MemoryEngine())
    replaced = Replaced(np.ones(snapshot.files.height, np.bool_), [], None, is_new=False, rows=0, cubes=0)
    files = feed.write_feed(snapshot, plan, replaced, MemoryEngine())
    found = []
    for file in files:
        stored = pl.read_parquet(path / unquote(file.path), hive_partitioning=False)
        assert (file.size, file.data_change) == ((path / unquote(file.path)).stat().st_size, False)
        assert set(stored.columns) == {ROW, "f", "_change_type"}
        assert set(file.partition_values) == {"day"}
        day = pl.lit(file.partition_values["day"], dtype=pl.String)
        found.append(stored.with_columns(day=day))
    actual = pl.concat(found)
    before = rows[:30]
    even = pl.col(ROW) % 2 == 0
    after = before.with_columns(day=pl.when(even).then(pl.lit("new")).otherwise("day"), f=pl.lit(1.5))
    for kind, expected in (("update_preimage", before), ("update_postimage", after)):
        assert_same_rows(actual.filter(_change_type=kind).select(rows.columns), expected)
    assert {day for file in files for day in file.partition_values.values()} == {
        "1/ä",
        "2/ä",
        "0/ä",
        "new",
        None,
    }
