"""Merges whose source is matched in temporary files: races and bad sources change nothing and leave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import polars as pl
import pytest

import qbeast
from tests.helpers.small_files import resized
from tests.helpers.tables import SPILL, assert_same_rows, small_files, using

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("merged") / "t"
    with small_files(file_rows=25, page_rows=25):
        qbeast.write_table(
            pl.DataFrame({"id": range(100), "value": [0] * 100}), path, columns=["id"], cube_size=10
        )
    return path


@pytest.fixture
def table(master: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[qbeast.Table]:
    """A table whose merges leave no temporary files."""
    spilling = tmp_path / "spilling"
    spilling.mkdir()
    monkeypatch.setenv("QBEAST_SPILL_DIR", str(spilling))
    yield qbeast.open_table(copytree(master, tmp_path / "t"), resources=SPILL)
    assert not list(spilling.iterdir())


def test_outrun_source_is_matched_again(table: qbeast.Table) -> None:
    source = pl.DataFrame({"id": [5, 99, 1000], "value": [1, 2, 3]})
    others = pl.DataFrame({"id": [5, 1000], "value": [8, 9]})
    outrun = [qbeast.write_table]

    def outrun_once(step: qbeast.Progress) -> None:
        if step.stage == "commit" and outrun:
            outrun.pop()(others, table.uri, mode="append")

    done = table.merge(iter([source]), "id", progress=outrun_once)
    assert (done.rows_updated, done.rows_inserted, done.version) == (4, 0, 2)
    actual = table.rows().lazy().filter(pl.col("value") > 0).sort("id", "value").collect()
    assert actual.rows() == [(5, 1), (5, 1), (99, 2), (1000, 3)]


def test_source_that_changes_between_reads_raises(table: qbeast.Table) -> None:
    readings: list[int] = []

    def moving(rows: pl.DataFrame) -> pl.DataFrame:
        readings.append(1)
        return rows.with_columns(pl.col("id") + len(readings))

    source = pl.LazyFrame({"id": [1, 2], "value": [1, 1]}).map_batches(moving, streamable=True)
    with pytest.raises(qbeast.InputChangedError, match=r"It is read twice.* Nothing was changed\.$"):
        table.merge(source, "id")
    assert table.refresh().version == 0


def broken() -> Iterator[pl.DataFrame]:
    yield pl.DataFrame({"id": [1], "value": [1]})
    msg = "the line is cut"
    raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (broken, RuntimeError, "the line is cut"),
        (lambda: iter([]), qbeast.InvalidInputError, "returned no frame"),
        (
            lambda: pl.LazyFrame({"id": [7, 7], "value": [1, 2]}),
            qbeast.InvalidInputError,
            "several rows of the source",
        ),
        (lambda: pl.LazyFrame({"value": [1]}), qbeast.InvalidInputError, "no column.* to match by"),
        (
            lambda: pl.LazyFrame({"id": ["x"], "value": [1]}),
            qbeast.SchemaMismatchError,
            "does not fit the table",
        ),
    ],
)
def test_bad_source_changes_and_leaves_nothing(table: qbeast.Table, source, error, message) -> None:
    with pytest.raises(error, match=message):
        table.merge(source(), "id")
    assert table.refresh().version == 0


def test_small_source_stays_in_memory(table: qbeast.Table) -> None:
    source = pl.LazyFrame({"id": range(70), "value": [1] * 70})
    many = pl.LazyFrame({"id": range(800), "value": [1] * 800})
    with resized(min_memory_bytes=1):
        assert (
            using(table, qbeast.Resources(memory_bytes=1 << 15)).merge(source, "id", dry_run=True).engine
            == "memory"
        )
        done = using(table, qbeast.Resources(memory_bytes=1 << 15)).merge(many, "id")
    assert (done.engine, done.rows_updated, done.rows_inserted) == ("spill", 100, 700)
    assert done.spilled_bytes > 0


@pytest.mark.parametrize("resources", [qbeast.Resources(), SPILL], ids=["memory", "spill"])
def test_file_without_rows_matches_nothing(tmp_path: Path, resources: qbeast.Resources) -> None:
    rows = pl.DataFrame({"id": [1, 2], "value": [3, 4]})
    for name, part in {"some": rows, "none": rows.clear()}.items():
        (tmp_path / "t").mkdir(exist_ok=True)
        part.write_parquet(tmp_path / "t" / f"{name}.parquet")
    qbeast.convert_table(tmp_path / "t", ["id"])
    table = qbeast.open_table(tmp_path / "t", resources=resources)
    source = pl.DataFrame({"id": [2, 5], "value": [8, 9]})
    result = table.merge(source, "id")
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert table.delete("value = 9").rows_deleted == table.update("id = 1", {"value": 7}).rows_updated == 1
    assert_same_rows(table.read(), pl.DataFrame({"id": [1, 2], "value": [7, 8]}), "id")
    assert table.optimize(full=True).rows == table.count() == 2
