"""Integers become longs and floats doubles by new files: every reader of Delta reads them, and the index stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.helpers.deletion_vectors import GONE, ROWS, delete
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NARROW = pl.DataFrame({"id": range(600)}).with_columns(
    n=(pl.col("id") * 7919 % 601).cast(pl.Int32),
    b=(pl.col("id") % 100).cast(pl.Int8),
    f=pl.lit(0.5, pl.Float32),
)
WIDE = NARROW.cast({"n": pl.Int64, "b": pl.Int64, "f": pl.Float64})
NEW_TYPES = {"n": pl.Int64, "b": pl.Int64(), "f": pl.Float64}
FAR = WIDE.with_columns(pl.col("id") + 600, n=pl.lit(2**40))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("narrow")
    with small_files(file_rows=200, page_rows=32):
        qbeast.write_table(NARROW, path, columns=["id"], cube_size=50)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "t"))


def test_rows_samples_and_cubes_stay(path: Path) -> None:
    table = qbeast.open_table(path)
    drawn, cubes = table.read(sample=0.2)["id"].sort(), table.metrics().revisions[-1].cubes
    with pytest.raises(qbeast.SchemaMismatchError):
        qbeast.write_table(FAR, path, mode="append")
    assert table.widen_columns(NEW_TYPES).version == 1
    assert table.schema == WIDE.schema
    assert_same_rows(table.read(), WIDE, "id")
    assert table.read(sample=0.2)["id"].sort().equals(drawn)
    assert table.metrics().revisions[-1].cubes == cubes
    assert len(table.revisions) == len(qbeast.open_table(path, version=0).revisions)
    assert_same_rows(table.read("n < 40 AND b > 3"), WIDE.filter(pl.col("n") < 40, pl.col("b") > 3), "id")
    qbeast.write_table(FAR, path, mode="append")
    assert table.refresh().count("n > 4000000000") == 600
    assert table.refresh().check().ok
    assert_same_rows(qbeast.read_table(path, version=0), NARROW, "id")
    assert table.widen_columns(NEW_TYPES).version == 2, "nothing to do"


def test_hidden_rows_stay_hidden(tmp_path: Path) -> None:
    rows = ROWS.with_columns(pl.col("x").cast(pl.Int32))
    qbeast.write_table(rows, tmp_path, columns=["id"], cube_size=100)
    delete(tmp_path, GONE)
    table = qbeast.open_table(tmp_path)
    left = table.read()
    table.widen_columns({"x": pl.Int64})
    assert_same_rows(table.read(), left.cast({"x": pl.Int64}), "id")


@pytest.mark.parametrize("faster", ["append", "delete"])
def test_rows_of_a_faster_writer_are_widened(path: Path, faster: str) -> None:
    def other() -> object:
        if faster == "append":
            return qbeast.write_table(NARROW.with_columns(pl.col("id") + 600), path, mode="append")
        return qbeast.open_table(path).delete("id < 100")

    table = qbeast.open_table(path)
    with landing_first(other):
        assert table.widen_columns(NEW_TYPES).version == 2
    assert table.count() == (1200 if faster == "append" else 500)
    types = {pl.read_parquet_schema(path / file)["n"] for file in table.rows().files()["path"]}
    assert types == {pl.Int64()}


def test_empty_table_changes_only_its_schema(tmp_path: Path) -> None:
    qbeast.write_table(NARROW, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    table.delete(where=True)
    assert table.widen_columns(NEW_TYPES).version == 2
    qbeast.write_table(FAR, tmp_path, mode="append")
    assert_same_rows(qbeast.read_table(tmp_path), FAR, "id")
