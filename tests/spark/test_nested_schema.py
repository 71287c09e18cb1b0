"""Fields inside of columns that Spark adds, also where columns have other names in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge
from tests.spark.frames import of_spark
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")]

ROWS = pl.DataFrame(
    {
        "id": range(2000),
        "s": [{"x": number, "y": str(number)} for number in range(2000)],
        "l": [[{"q": number}, None] for number in range(2000)],
    }
)
INNER = pl.Struct({"q": pl.Int64, "new": pl.Int64})
MERGED = pl.Schema(
    {"id": pl.Int64, "s": pl.Struct({"x": pl.Int64, "y": pl.String, "new": pl.Float64}), "l": pl.List(INNER)}
)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("way", ["append", "merge"])
def test_spark_adds_nested_fields(
    way: str,
    mapped: bool,  # noqa: FBT001
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=["id"], cube_size=200)
    if mapped:
        table = qbeast.open_table(tmp_path)
        table.rename_column("s.y", "z", upgrade_protocol=True)
        table.rename_column("s.z", "y")
        table.rename_column("id", "key")
        table.rename_column("key", "id")
    more = spark.range(1900, 3000).selectExpr(
        "id",
        "named_struct('new', id / 2, 'y', string(id), 'x', int(id % 100)) AS s",
        "array(named_struct('new', id, 'q', int(id)), NULL) AS l",
    )
    with small_tasks():
        if way == "append":
            more = more.where("id >= 2000")
            bridge.write_table(more, tmp_path, mode="append", schema_mode="merge")
        else:
            bridge.open_table(spark, tmp_path).merge(more, "id", schema_mode="merge")
    old = 2000 if way == "append" else 1900
    wanted = pl.DataFrame(
        [
            (
                number,
                {"x": number, "y": str(number), "new": None}
                if number < old
                else {"x": number % 100, "y": str(number), "new": number / 2},
                [{"q": number, "new": None if number < old else number}, None],
            )
            for number in range(3000)
        ],
        schema=MERGED,
        orient="row",
    )
    table = qbeast.open_table(tmp_path)
    assert table.schema == MERGED
    assert_frame_equal(table.read().sort("id"), wanted)
    assert table.check().ok
    found = of_spark(bridge.read_table(spark, tmp_path)).sort("id")
    assert_frame_equal(found, wanted)
