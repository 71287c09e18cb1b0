"""Tables with liquid clustering: our files beside those of Delta, which optimize leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.changes import ROW, changes, spread
from tests.helpers.clustered import clustered
from tests.helpers.handmade_log import replay
from tests.helpers.tables import assert_same_rows, small_files

COLUMNS = [ROW, "a"]


def converted(path: Path, rows: pl.DataFrame, **options: Any) -> qbeast.Table:
    clustered(path, rows, ["d", "s"], **{"liquid": 2, **options})
    qbeast.convert_table(path, columns=COLUMNS)
    return qbeast.open_table(path)


def providers(path: Path) -> dict[str, str | None]:
    return {name: file.get("clusteringProvider") for name, file in replay(path).items()}


def test_optimize_indexes_files_without_provider_alone(tmp_path: Path) -> None:
    rows = spread(400)
    table = converted(tmp_path / "t", rows)
    assert table.metrics().health.rows_clustered_by_others == 200
    plan = table.optimize(dry_run=True)
    assert (sorted(plan.plan["path"]), plan.files_left) == (["part-2.parquet", "part-3.parquet"], 2)
    result = table.optimize()
    assert result.files_left == 2
    assert "left alone: 2 files" in repr(result)
    found = providers(tmp_path / "t")
    assert {name for name, provider in found.items() if provider == "liquid"} == {
        "part-0.parquet",
        "part-1.parquet",
    }
    assert {provider for name, provider in found.items() if not name.startswith("part-")} == {"qbeast"}
    assert not table.metrics().health.needs_optimize
    assert "200 rows are clustered by another implementation" in str(table.metrics().health)
    assert_same_rows(table.read(), rows)


@pytest.mark.parametrize(
    "options", [{"full": True}, {"into": "new"}, {"revision": "all"}, {"files": ["part-0.parquet"]}], ids=str
)
def test_no_option_rewrites_files_of_others(options: dict[str, Any], tmp_path: Path) -> None:
    rows = spread(400)
    table = converted(tmp_path / "t", rows)
    table.optimize()
    table.optimize(**options)
    table.reindex([ROW, "f"], full=True)
    kept = {name: file for name, file in replay(tmp_path / "t").items() if name.startswith("part-")}
    assert {name: file["clusteringProvider"] for name, file in kept.items()} == dict.fromkeys(
        ("part-0.parquet", "part-1.parquet"), "liquid"
    )
    assert_same_rows(table.read(), rows)


def test_changes_rewrite_files_of_others(tmp_path: Path) -> None:
    rows = spread(80)
    with small_files(file_rows=80):
        table = converted(tmp_path / "t", rows)
        table.delete(pl.col(ROW) == 3)
        table.update(pl.col(ROW) == 35, {"f": "0.5"})
        table.merge(changes(rows), on=ROW)
    assert set(providers(tmp_path / "t").values()) <= {None, "qbeast"}
    assert table.check().ok


def test_our_files_have_statistics_of_clustering_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = converted(path, spread(400), configuration={"delta.dataSkippingNumIndexedCols": "1"})
    more = spread(100, 1000)
    qbeast.write_table(more, path, mode="append")
    new = [file for name, file in replay(path).items() if not name.startswith("part-")]
    assert new
    for file in new:
        stats = json.loads(file["stats"])
        assert {"d", "s"} <= stats["nullCount"].keys()
        assert {"d", "s"} <= stats["minValues"].keys() & stats["maxValues"].keys()
        assert "f" not in stats["nullCount"]
    assert table.refresh().check().ok


def test_overwrite_keeps_clustering_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    converted(path, spread(40))
    with pytest.raises(qbeast.SchemaMismatchError, match="clustered by"):
        qbeast.write_table(
            spread(40).drop("d"), path, columns=COLUMNS, mode="overwrite", schema_mode="overwrite"
        )
    qbeast.write_table(spread(60), path, columns=COLUMNS, mode="overwrite", schema_mode="overwrite")
    assert set(providers(path).values()) == {"qbeast"}
    assert_same_rows(qbeast.read_table(path), spread(60))
