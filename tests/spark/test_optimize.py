"""A table that Spark optimizes is the one that this process makes of it: the same files go, the same blocks come."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings

import qbeast
import qbeast_spark_bridge as bridge
from tests.format.appends import assert_sound_after, copy_of, rows_of
from tests.format.collection import Golden, each
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.races import landing_first
from tests.helpers.small_files import resized
from tests.helpers.strategies import Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, small_files, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
COLUMNS = ["row:linear", "a:linear"]
COMPARED = ("rows", "files", "cubes", "revision_id", "new_revision", "commits", "committed", "files_removed")
few = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)


def rows(start: int, count: int = 300, *, scale: float = 1.0) -> pl.DataFrame:
    rng = np.random.default_rng(start)
    return pl.DataFrame({"row": range(start, start + count), "a": rng.random(count) * scale})


def grown(path: Path) -> pl.DataFrame:
    """Two revisions of small appends, and rows of another writer."""
    frames = [rows(0), rows(300), rows(600, scale=9.0), rows(900, scale=9.0), rows(1200, scale=30.0)]
    for frame in frames[:4]:
        qbeast.write_table(frame, path, columns=COLUMNS, mode="append", cube_size=60)
    write_deltalake(path, frames[4], mode="append")
    return pl.concat(frames)


@contextmanager
def many_tasks() -> Iterator[None]:
    """Cut reads of small files into several tasks."""
    with resized(task_bytes=3 << 20):
        yield


def both(spark: SparkSession, path: Path, twin: Path, **options: Any) -> qbeast.OptimizeResult:
    """Optimize a table with Spark and its twin here, and compare what came of it."""
    by_spark, here = bridge.open_table(spark, path), qbeast.open_table(twin)
    planned = by_spark.optimize(**options, dry_run=True)
    assert shape(planned).equals(shape(here.optimize(**options, dry_run=True)))
    live = set(read_log(path).adds)
    with small_files(file_rows=900), many_tasks():
        result = by_spark.optimize(**options)
        expected = here.optimize(**options)
    assert live - set(read_log(path).adds) == (set(result.plan["path"]) if result.committed else set())
    assert {name: getattr(result, name) for name in COMPARED} == {
        name: getattr(expected, name) for name in COMPARED
    }
    assert shape(result).equals(shape(expected))
    assert (result.engine, expected.engine) == ("spark", "memory")
    assert blocks(path).equals(blocks(twin))
    check_invariants(path, may_stage=True)
    return result


def shape(result: qbeast.OptimizeResult) -> pl.DataFrame:
    """What was chosen, but for names and bytes: one engine's pages are smaller here."""
    return result.plan.drop("path", "bytes").sort(pl.all())


def blocks(path: Path) -> pl.DataFrame:
    return qbeast.open_table(path).blocks().drop("path").sort(pl.all())


@pytest.mark.sweep
def test_optimize_forms_work_as_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    everything = grown(path)
    shutil.copytree(path, twin)
    assert both(spark, path, twin, revision=1, full=True).revision_id == 1
    # What is staged begins a revision; the rows of older ones stay where they are.
    assert both(spark, path, twin, revision=0).new_revision
    assert both(spark, path, twin, revision="all", full=True, fraction=0.5).committed
    assert both(spark, path, twin, into="newest", full=True).committed
    assert not both(spark, path, twin).committed
    table = qbeast.open_table(path)
    assert_same_rows(table.rows().lazy().collect(), everything)
    assert table.rows().files()["revision_id"].n_unique() == 1
    fifth = bridge.read_table(spark, path, sample=0.2).toArrow()
    assert_same_rows(pl.DataFrame(fifth), qbeast.read_table(twin, sample=0.2))


@pytest.mark.classic
@pytest.mark.timeout(1500)
@examples(1, sweep=25, parent=few)
@given(case=cases(most_frames=3).map(with_key_in_rows) | cases(most_frames=3))
def test_any_table_is_optimized_as_without_spark(spark: SparkSession, case: Case) -> None:
    with folder() as path, folder() as other:
        twin = other.parent / "u"
        with small_files():
            write(path, case)
        shutil.copytree(path, twin)
        both(spark, path, twin, full=True, into="newest")
        assert_same_rows(qbeast.read_table(path), case.rows)
        assert_same_rows(pl.scan_delta(path).collect(), case.rows)
        assert_same_rows(qbeast.read_table(path, sample=0.3), qbeast.read_table(twin, sample=0.3))


@pytest.mark.classic
@pytest.mark.sweep
def test_sampled_tree_reads_no_more(spark: SparkSession, tmp_path: Path) -> None:
    path, twin = tmp_path / "t", tmp_path / "u"
    count = 150_000
    everything = rows(0, count)
    for part in range(3):
        qbeast.write_table(everything.gather_every(3, part), path, ["row", "a"], mode="append")
    shutil.copytree(path, twin)
    with resized(domain_rows=30_000):
        result = bridge.open_table(spark, path).optimize(full=True)
    expected = qbeast.open_table(twin).optimize(full=True)
    assert (result.rows, result.files) == (expected.rows, expected.files)
    assert result.bytes == pytest.approx(expected.bytes, rel=0.05)
    assert_same_rows(qbeast.read_table(path), everything.sort("row"), "row")
    check_invariants(path)
    request: list[dict[str, Any]] = [{"sample": 0.05}, {"where": pl.col("a") < 0.1}]
    for ask in request:
        spark_share, here = (qbeast.open_table(item).rows(**ask).explain().share for item in (path, twin))
        assert spark_share <= 1.1 * here


def actions(path: Path) -> list[dict[str, Any]]:
    """Everything that the log of a table says."""
    commits = sorted((path / "_delta_log").glob("*.json"))
    return [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]


@pytest.mark.sweep
def test_concurrent_change_of_same_files_wins(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    everything = grown(path)
    with (
        landing_first(lambda: DeltaTable(path).delete("a <= 0.5")),
        pytest.raises(qbeast.CommitConflictError, match="replaces"),
    ):
        bridge.open_table(spark, path).optimize(into="newest")
    assert read_log(path).version == 5
    assert_same_rows(qbeast.read_table(path), everything.filter(pl.col("a") > 0.5))
    named = {action["add"]["path"] for action in actions(path) if "add" in action}
    assert {file.name for file in path.glob("*.parquet")} == named


@pytest.mark.classic
@pytest.mark.sweep
@each(bundled={"qbeast-spark-0.7.1/delta_delete", "qbeast-spark-0.8/quant_string"})
def test_jvm_tables_stay_jvm_tables(golden: Golden, spark: SparkSession, tmp_path: Path) -> None:
    path = copy_of(golden, tmp_path)
    result = bridge.open_table(spark, path).optimize(into="newest", full=True)
    assert result.committed
    assert_sound_after(path, result)
    table = qbeast.open_table(path)
    assert rows_of(golden, table.rows().lazy()).equals(golden.expected)
    for fraction, ids in golden.samples.items():
        assert rows_of(golden, table.rows(sample=fraction).lazy())["id"].to_list() == ids
