"""Metrics count what the log holds, as plain Python counts it, and fast."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given

import qbeast
from qbeast_core.spec.blocks import BlocksDialect as Dialect
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.inspect.metrics import Health, Metrics, build_metrics, min_levels
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.collection import Golden, each, open_golden
from tests.helpers.examples import examples
from tests.helpers.metrics_reference import reference
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import folder, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def assert_counted_right(path: Path, table: qbeast.Table | None = None) -> Metrics:
    metrics = (table or qbeast.open_table(path)).metrics()
    target = reference(path)
    assert {revision.revision_id for revision in metrics.revisions} == set(target)
    for revision in metrics.revisions:
        actual = revision.model_dump()
        for name, value in target[revision.revision_id].items():
            if name == "levels":
                assert len(actual["levels"]) == len(value)
                for level, expected in zip(actual["levels"], value, strict=True):
                    assert_alike(level, expected)
            else:
                assert_alike({name: actual[name]}, {name: value})
    return metrics


def assert_alike(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert found[name] == (pytest.approx(value) if value is not None else None), name


@examples(2, sweep=150)
@given(case=cases(most_rows=40))
def test_metrics_equal_a_manual_count(case: Case) -> None:
    with folder() as path:
        with small_files(file_rows=30):
            write(path, case)
        metrics = assert_counted_right(path)
        assert sum(revision.rows for revision in metrics.revisions) == case.rows.height


@pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning")
def test_metrics_count_a_tree_per_partition(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": range(3000), "day": [n**2 % 7 for n in range(3000)]})
    qbeast.write_table(rows, tmp_path, columns=["x"], partition_by=["day"], cube_size=100)
    qbeast.write_table(rows, tmp_path, mode="append")
    metrics = assert_counted_right(tmp_path)
    newest = metrics.revisions[-1]
    assert (newest.trees, newest.files) == (rows["day"].n_unique(), 2 * rows["day"].n_unique())
    assert f"{newest.trees} trees" in str(metrics)
    assert "partitioned by day" in repr(qbeast.open_table(tmp_path))
    assert ">partition<" in qbeast.open_table(tmp_path)._repr_html_().replace("&quot;", "")


def can_be_replayed(golden: Golden) -> bool:
    """Whether the reference reads the log right: it knows no checkpoint, and no path removed and added at once."""
    if (golden.path / "_delta_log" / "_last_checkpoint").exists():
        return False
    for commit in golden.commits:
        removed = {action["remove"]["path"] for action in commit if "remove" in action}
        if removed & {action["add"]["path"] for action in commit if "add" in action}:
            return False
    return True


@each(can_be_replayed)
def test_metrics_of_golden_tables_are_right(golden: Golden) -> None:
    metrics = assert_counted_right(golden.path, open_golden(golden))
    assert Metrics.model_validate_json(metrics.to_json()) == metrics
    rows = sum(revision.rows for revision in metrics.revisions)
    assert (
        rows == golden.expected.height
        or golden.is_doubled
        or any(revision.uncounted_files for revision in metrics.revisions)
    )


def test_files_without_index_count_as_staging(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(100)})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    write_deltalake(tmp_path / "t", rows, mode="append")
    staging, first = qbeast.open_table(tmp_path / "t").metrics().revisions
    assert (staging.revision_id, staging.rows, staging.files, staging.cubes, staging.height) == (
        0,
        100,
        1,
        0,
        0,
    )
    assert (first.revision_id, first.rows, first.files, first.cubes, first.height) == (1, 100, 1, 1, 1)
    assert "staging: 100 rows in 1 files" in repr(qbeast.open_table(tmp_path / "t").metrics())


def test_metrics_of_a_missing_revision_raise(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"id": range(9)}), tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    assert [metric.revision_id for metric in table.metrics(revision=1).revisions] == [1]
    with pytest.raises(qbeast.InvalidInputError, match=r"must be one of the table's, \[0, 1\], not 7"):
        table.metrics(revision=7)


def test_many_revisions_fit_a_screen(tmp_path: Path) -> None:
    for size in (100, 50, 200, 40):
        qbeast.write_table(
            pl.DataFrame({"id": range(300)}), tmp_path / "t", ["id"], mode="append", cube_size=size
        )
    metrics = qbeast.open_table(tmp_path / "t").metrics()
    assert len(metrics.revisions) == 5
    shown = repr(metrics)
    assert shown.count("desired cube size") == 4
    assert shown.count("blocks per file") == 1
    assert shown.count("\n") < 40


def test_frames_have_a_column_per_number(tmp_path: Path) -> None:
    with small_files(file_rows=100):
        qbeast.write_table(pl.DataFrame({"id": range(2000)}), tmp_path / "t", columns=["id"], cube_size=100)
    metrics = qbeast.open_table(tmp_path / "t").metrics()
    assert metrics.frame["revision_id"].to_list() == [0, 1]
    assert metrics.frame["rows_per_cube_median"][1] == metrics.revisions[1].rows_per_cube.median
    assert (
        metrics.levels.filter(kind="leaf")["rows"].sum() + metrics.levels.filter(kind="inner")["rows"].sum()
        == 2000
    )
    assert json.loads(metrics.to_json())["revisions"][1]["rows"] == 2000
    assert "rows per cube" in repr(metrics)
    assert "leaf" in str(metrics)


@pytest.mark.parametrize("dialect", ["documented", pytest.param("qbeast-spark", marks=pytest.mark.sweep)])
def test_health_agrees_with_optimize_dry_run(tmp_path: Path, dialect: Dialect) -> None:
    path = tmp_path / "t"

    def health() -> Health:
        table = qbeast.open_table(path)
        reasons = table.optimize(dry_run=True).plan["reason"].unique().sort().to_list()
        health = table.metrics().health
        assert (health.needs_optimize, list(health.reasons)) == (bool(reasons), reasons)
        assert f"needs optimize: {'yes, because' if reasons else 'no'}" in repr(table.metrics())
        return health

    rows = pl.DataFrame({"id": range(500)})
    qbeast.write_table(rows, path, columns=["id"], dialect=dialect)
    assert not health().needs_optimize
    write_deltalake(path, rows, mode="append")
    assert health().reasons == ("small file", "staged")  # it is joined with the staged one
    for _ in range(3):
        qbeast.write_table(rows, path, mode="append")
    assert health().reasons == ("small file", "staged")
    qbeast.open_table(path).optimize()
    assert not health().needs_optimize


@each()
def test_health_of_golden_tables_agrees_with_optimize(golden: Golden) -> None:
    table = open_golden(golden)
    health = table.metrics().health
    try:
        plan = table.optimize(dry_run=True).plan
    except qbeast.UnsupportedTableError:
        assert not health.needs_optimize
        return
    assert list(health.reasons) == plan["reason"].unique().sort().to_list()
    assert health.needs_optimize == bool(plan.height)


def test_minimum_height_is_exact_at_powers() -> None:
    for dimensions in (1, 2, 3, 7):
        r = 2**dimensions
        for levels in range(1, 9):
            full = (r**levels - 1) // (r - 1)
            assert min_levels(full * 10, 10, dimensions) == levels
            assert min_levels(full * 10 + 1, 10, dimensions) == levels + 1


@pytest.mark.sweep
def test_many_blocks_are_counted_under_a_second(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"a": range(100), "b": range(100)}), tmp_path / "t", columns=["a", "b"])
    log = tmp_path / "t" / "_delta_log"
    add = next(
        json.loads(line)
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if line.startswith('{"add"')
    )
    alphabet = "AQgw"  # the four children of a cube of two dimensions, a character each
    with (log / f"{1:020}.json").open("w") as commit:
        for file in range(10_000):
            digits = [file >> 2 * level & 3 for level in range(10)]
            blocks = [
                {
                    "cube": "".join(alphabet[digit] for digit in digits[: depth + 1]),
                    "minWeight": depth,
                    "maxWeight": 2**31 - 1,
                    "replicated": False,
                    "elementCount": 10,
                }
                for depth in range(10)
            ]
            tags = {"revision": "1", "blocks": json.dumps(blocks)}
            body = add["add"] | {"path": f"{file}.parquet", "tags": tags}
            commit.write(json.dumps({"add": body}) + "\n")
    snapshot = load_snapshot(tmp_path / "t")
    start = time.process_time()  # what others do on this machine meanwhile does not count
    metrics = build_metrics(Index(snapshot))
    assert time.process_time() - start < 2.0
    assert metrics.revisions[1].blocks == 100_001
