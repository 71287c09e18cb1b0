"""Numbers of identity columns: each is drawn once, also in races."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import qbeast
from tests.helpers.change_races import check_no_orphans
from tests.helpers.races import landing_first
from tests.write.rules.tables import IDENTITY, high_water_mark, ruled

SCHEMA = {"id": pl.Int64(), "key": pl.Int64()}


def table(path: Path, **notes: Any) -> Path:
    marks = IDENTITY | {f"delta.identity.{name}": value for name, value in notes.items()}
    return ruled(path, SCHEMA, {"id": marks}, columns=["key"])


def keys(start: int, count: int) -> pl.DataFrame:
    return pl.DataFrame({"key": range(start, start + count)}, schema={"key": pl.Int64})


@pytest.mark.parametrize(
    ("notes", "wanted"),
    [
        ({"start": 10, "step": 5}, [10, 15, 20]),
        ({"start": 10, "step": -5}, [10, 5, 0]),
        ({"start": 10, "step": 5, "highWaterMark": 100}, [105, 110, 115]),
        ({"start": -1, "step": 1}, [-1, 0, 1]),
    ],
)
def test_numbers_follow_start_step_and_mark(notes: dict[str, int], wanted: list[int], tmp_path: Path) -> None:
    path = table(tmp_path / "t", **notes)
    qbeast.write_table(keys(0, 2), path, mode="append")
    qbeast.write_table(keys(2, 1), path, mode="append")
    assert qbeast.read_table(path).sort("key")["id"].to_list() == wanted
    assert high_water_mark(path, "id") == wanted[-1]


@pytest.mark.parametrize("engine", ["memory", "spill"])
def test_rows_that_replace_others_draw_numbers(engine: Any, tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(keys(0, 3), path, mode="append")
    new, resources = keys(2, 2).iter_slices(1), qbeast.Resources(engine=engine)
    qbeast.write_table(new, path, mode="overwrite", where="key >= 2", resources=resources)
    assert qbeast.read_table(path).sort("key").rows() == [(1, 0), (2, 1), (4, 2), (5, 3)]
    assert high_water_mark(path, "id") == 5


def test_explicit_numbers_need_permission(tmp_path: Path) -> None:
    given = keys(0, 2).with_columns(id=pl.Series([7, 8]))
    always = table(tmp_path / "always")
    with pytest.raises(qbeast.InvalidInputError, match="identity column 'id'"):
        qbeast.write_table(given, always, mode="append")
    assert qbeast.read_table(always).is_empty()
    by_default = table(tmp_path / "by default", allowExplicitInsert=True)
    qbeast.write_table(given, by_default, mode="append")
    assert high_water_mark(by_default, "id") is None  # as in Spark: drawn numbers alone count
    qbeast.write_table(keys(2, 1), by_default, mode="append")
    assert qbeast.read_table(by_default).sort("key")["id"].to_list() == [7, 8, 1]


def test_lost_race_writes_nothing(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    with (
        landing_first(lambda: qbeast.write_table(keys(100, 3), path, mode="append")),
        pytest.raises(qbeast.CommitConflictError, match=r"identity|schema"),
    ):
        qbeast.write_table(
            keys(0, 3), path, mode="append"
        )  # as many rows: the same mark, and the same numbers
    assert qbeast.read_table(path)["key"].sort().to_list() == [100, 101, 102]
    check_no_orphans(path)
    qbeast.write_table(keys(0, 3), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [1, 2, 3, 4, 5, 6]


def test_other_commits_are_no_lost_race(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    with landing_first(lambda: qbeast.open_table(path).set_properties({"owner": "us"})):
        qbeast.write_table(keys(0, 3), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [1, 2, 3]
    assert qbeast.open_table(path).properties["owner"] == "us"


def test_merge_is_planned_again_after_a_race(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(keys(0, 5), path, mode="append")
    with landing_first(lambda: qbeast.write_table(keys(100, 5), path, mode="append")):
        qbeast.open_table(path).merge(keys(3, 7), on="key")
    rows = qbeast.read_table(path)
    assert rows["id"].sort().to_list() == [*range(1, 16)]
    assert rows["key"].n_unique() == high_water_mark(path, "id") == 15


def test_changes_keep_numbers(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    qbeast.write_table(keys(0, 5), path, mode="append")
    opened = qbeast.open_table(path)
    with pytest.raises(qbeast.InvalidInputError, match="identity column 'id'"):
        opened.update("key = 1", {"id": "7"})
    with pytest.raises(qbeast.InvalidInputError, match="identity column 'id'"):
        opened.merge(keys(3, 4).with_columns(id=pl.lit(1)), on="key")
    opened.merge(opened.read().with_columns(key=pl.col("key") + 10), on="id", when_not_matched="ignore")
    assert opened.read().sort("id").to_dict(as_series=False) == {
        "id": [*range(1, 6)],
        "key": [*range(10, 15)],
    }


def test_restore_keeps_the_mark(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    for start in range(3):
        qbeast.write_table(keys(start, 1), path, mode="append")
    qbeast.open_table(path).restore(2)
    qbeast.write_table(keys(9, 1), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [1, 4]


def test_restore_keeps_the_mark_of_a_renamed_column(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    for start in range(3):
        qbeast.write_table(keys(start, 1), path, mode="append")
    qbeast.open_table(path).rename_column("id", "number", upgrade_protocol=True)
    qbeast.open_table(path).restore(2)
    qbeast.write_table(keys(9, 1), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [1, 4]


def test_restore_keeps_the_mark_of_a_dropped_column(tmp_path: Path) -> None:
    path = table(tmp_path / "t")
    for start in range(3):
        qbeast.write_table(keys(start, 1), path, mode="append")
    renamed = qbeast.open_table(path).rename_column("id", "number", upgrade_protocol=True).version
    log = Path(path) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{renamed:020d}.json").read_text().splitlines()]
    change = next(action for action in actions if "metaData" in action)
    schema = json.loads(change["metaData"]["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "number"]
    change["metaData"]["schemaString"] = json.dumps(schema)  # as Spark drops a column
    (log / f"{renamed + 1:020d}.json").write_text(json.dumps(change) + "\n")
    qbeast.open_table(path).restore(2)
    qbeast.write_table(keys(9, 1), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [1, 4]


def test_exhausted_numbers_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t", highWaterMark=2**63 - 3)
    qbeast.write_table(keys(0, 1), path, mode="append")
    with pytest.raises(qbeast.InvalidInputError, match="no 2 numbers left"):
        qbeast.write_table(keys(0, 2), path, mode="append")
    qbeast.write_table(keys(0, 1), path, mode="append")
    assert qbeast.read_table(path)["id"].sort().to_list() == [2**63 - 2, 2**63 - 1]
