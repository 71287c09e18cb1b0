"""CarbonData tables on Spark: the rows that this process reads, and the table that it makes of them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import functions as F  # noqa: N812 -- the name everybody gives it

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_carbondata.files.open_file import V3File
from tests.foreign.carbondata.collection import IMPORTED, in_order, table_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
NAMES = ["tx230_partitioned", "tx230_complex_tx", "sdk230_multifile", "cd111_v3_types"]


def collected(rows: DataFrame) -> pl.DataFrame:
    """Rows in Polars, instants in UTC."""
    return pl.DataFrame(rows.toArrow()).with_columns(
        pl.selectors.datetime(time_zone="*").dt.convert_time_zone("UTC")
    )


def damaged_but_for_id(folder: Path) -> Path:
    """A copy of a folder of files in which the bytes of all columns but `id` are gone."""
    shutil.copytree(table_path("sdk230_multifile"), folder)
    reader = qbeast.open_carbondata(folder).reader
    for live in reader.files:
        file = reader.open(live)
        assert isinstance(file, V3File)
        data = bytearray((folder / live.path).read_bytes())
        for info in file.footer.blocklets:
            ends = [*info.offsets[1:], info.measures_end]
            for column in file.columns:
                if column.schema.name != "id":
                    begin, end = info.offsets[column.number], ends[column.number]
                    data[begin:end] = b"\xff" * (end - begin)
        (folder / live.path).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.sweep) for name in NAMES[1:])]
)
def test_rows_equal_a_read_without_spark(spark: SparkSession, name: str) -> None:
    actual = collected(bridge.read_carbondata(spark, table_path(name)))
    assert_frame_equal(actual.sort("id"), qbeast.read_carbondata(table_path(name)).sort("id"))


@pytest.mark.sweep
@pytest.mark.classic
@pytest.mark.filterwarnings("ignore::qbeast.LostValuesWarning")
@pytest.mark.parametrize("name", IMPORTED)
def test_imported_tables_read_equally_on_spark(spark: SparkSession, name: str, tmp_path: Path) -> None:
    qbeast.import_carbondata(table_path(name), tmp_path / "new")
    actual = collected(bridge.read_table(spark, tmp_path / "new"))
    assert_frame_equal(in_order(actual), in_order(qbeast.read_carbondata(table_path(name))))


def test_filters_and_columns_reach_the_executors(spark: SparkSession) -> None:
    path = table_path("tx230_delete_multiblocklet")
    rows = bridge.read_carbondata(spark, path, where="id BETWEEN 100 AND 120", columns=["id", "name"])
    expected = qbeast.read_carbondata(path, columns=["id", "name"], where="id >= 100 AND id <= 120")
    assert_frame_equal(collected(rows).sort("id"), expected.sort("id"))
    with pytest.raises(qbeast.InvalidInputError, match="no such column"):
        bridge.read_carbondata(spark, path, columns=["nothing"])


def test_executors_decode_only_requested_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = damaged_but_for_id(tmp_path / "old")
    rows = bridge.read_carbondata(spark, path, where="id < 10", columns=["id"])
    assert sorted(collected(rows)["id"]) == list(range(10))
    by_expression = bridge.read_carbondata(spark, path, where=pl.col("id") < 10, columns=["id", "id"])
    assert by_expression.columns == ["id", "id"]
    assert by_expression.count() == 10
    with pytest.raises(Exception, match="damaged"):
        bridge.read_carbondata(spark, path).count()


@pytest.mark.sweep
def test_spark_column_may_name_any_column(spark: SparkSession) -> None:
    path = table_path("tx230_delete_multiblocklet")
    name = qbeast.read_carbondata(path, columns=["id", "name"], where="id = 100")["name"][0]
    rows = bridge.read_carbondata(spark, path, where=F.upper("name") == name.upper(), columns=["id"])
    assert 100 in collected(rows)["id"]
    assert rows.columns == ["id"]


@pytest.mark.sweep
def test_import_by_executors_makes_same_table(spark: SparkSession, tmp_path: Path) -> None:
    path = table_path("tx230_minor_compaction")
    result = bridge.import_carbondata(spark, path, tmp_path / "new", ["id"], segments="history")
    twin = qbeast.import_carbondata(path, tmp_path / "twin", ["id"], segments="history")
    assert (result.commits, result.segments, result.rows) == (twin.commits, twin.segments, twin.rows)
    assert result.engine == "spark"
    table = qbeast.open_table(tmp_path / "new")
    assert table.check().ok
    assert_frame_equal(
        collected(bridge.read_table(spark, tmp_path / "new")).sort("id"),
        qbeast.open_table(tmp_path / "twin").rows().lazy().collect().sort("id"),
    )
    assert table.history()["metadata"].struct.field("carbondata.segments").sort().to_list() == [*"0123"]
