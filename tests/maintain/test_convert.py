# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""Delta tables and folders of Parquet files, converted: the same rows, no file touched, an index to come."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from polars.testing import assert_frame_equal

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.collection import find
from tests.helpers.examples import examples
from tests.helpers.handmade_log import features, write_log
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

ROWS = pl.DataFrame(
    {"id": range(900), "b": [f"key {i % 31}" for i in range(900)], "x": [i / 7 for i in range(900)]}
)


def delta(path: Path, rows: pl.DataFrame = ROWS, **options: Any) -> Path:
    rows.write_delta(path, **options)
    return path


def parquet(path: Path, *frames: pl.DataFrame) -> Path:
    path.mkdir()
    for number, frame in enumerate(frames):
        frame.write_parquet(path / f"part {number}é.parquet")
    return path


def stamps(path: Path) -> dict[str, tuple[int, int]]:
    return {item.name: (item.stat().st_mtime_ns, item.stat().st_ino) for item in path.glob("*.parquet")}


def test_delta_table_is_converted_in_one_commit(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    DeltaTable(path).alter.set_table_properties({"mine": "yes"}, raise_if_not_exists=False)
    before = stamps(path)
    result = qbeast.convert_table(
        path, ["id", "b:hash", "x:quantiles"], cube_size=50, commit_metadata={"why": "so"}
    )
    assert (result.version, result.committed, result.created_log, result.cube_size) == (2, True, False, 50)
    assert (result.files, result.rows, result.columns) == (1, 900, ("id", "b", "x"))
    assert stamps(path) == before
    info, metadata = (
        json.loads(line) for line in (path / f"_delta_log/{2:020d}.json").read_text().splitlines()
    )
    assert (info["commitInfo"]["operation"], info["commitInfo"]["why"]) == ("CONVERT", "so")
    configuration = metadata["metaData"]["configuration"]
    revision = json.loads(configuration.pop("qbeast.revision.0"))
    assert configuration == {
        "mine": "yes",
        "qbeast.blocksDialect": "documented",
        "qbeast.lastRevisionID": "0",
        "qbeast.columnSpecs": '["id","b:hashing","x:quantiles"]',
    }
    name = "io.qbeast.core.transform.Empty"
    assert revision.pop("timestamp") > 0
    assert revision == {
        "revisionID": 0,
        "tableID": str(path),
        "desiredCubeSize": 50,
        "columnTransformers": [
            {"className": f"{name}Transformer", "columnName": item} for item in ("id", "b", "x")
        ],
        "transformations": [{"className": f"{name}Transformation"}] * 3,
    }


def test_parquet_folder_is_converted_in_one_commit(tmp_path: Path) -> None:
    more = ROWS.with_columns(pl.col("id") + 900, new=pl.lit(1.5))
    path = parquet(tmp_path / "p", ROWS, more)
    (path / "_SUCCESS").touch()
    (path / "notes.txt").touch()
    before = stamps(path)
    result = qbeast.convert_table(path, ["id", "x"])
    assert (result.version, result.created_log, result.files, result.rows) == (0, True, 2, 1800)
    assert stamps(path) == before
    assert_frame_equal(
        qbeast.read_table(path).sort("id"), pl.concat([ROWS, more], how="diagonal"), check_column_order=False
    )
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == list(range(1800))
    actual = load_snapshot(path).files
    assert actual["max"].struct.field("id").sort().to_list() == [899, 1799]
    times = [item.stat().st_mtime_ns // 1_000_000 for item in sorted(path.glob("*.parquet"))]
    assert actual.sort("path")["modification_time"].cast(pl.Int64).to_list() == times


def test_second_conversion_needs_the_same_columns(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    qbeast.convert_table(path, ["id", "b:quantiles"])
    again = qbeast.convert_table(path, ["id", "b:quantiles"], cube_size=7)
    assert (again.version, again.committed, again.columns) == (1, False, ("id", "b"))
    for columns in (["id"], ["b", "id"], ["id", "b:hash"]):
        with pytest.raises(qbeast.InvalidColumnsError, match="is a qbeast table already"):
            qbeast.convert_table(path, columns)
    with pytest.raises(qbeast.InvalidInputError, match="switch_dialect"):
        qbeast.convert_table(path, ["id", "b:quantiles"], dialect="qbeast-spark")
    qbeast.write_table(ROWS, path, mode="append")
    assert not qbeast.convert_table(path, ["id", "b"]).committed
    assert load_snapshot(path).version == 2


def test_first_rows_follow_options_of_the_conversion(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    qbeast.convert_table(path, ["id", "b:hash", "x:quantiles"], cube_size=50)
    result = qbeast.write_table(ROWS, path, mode="append")
    assert (result.revision_id, result.new_revision, result.cube_size) == (1, True, 50)
    assert result.transformers == {"id": "linear", "b": "hash", "x": "quantiles"}
    log = read_log(path)
    assert "qbeast.columnSpecs" not in log.configuration
    assert list(log.revisions) == [0, 1]
    check_invariants(path, may_stage=True)
    second = delta(tmp_path / "u")
    qbeast.convert_table(second, ["id"])
    assert (
        qbeast.write_table(ROWS, second, mode="append", columns=["id:quantiles"], cube_size=9).cube_size == 9
    )


def test_jvm_dialect_matches_tables_it_converts(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    qbeast.convert_table(path, ["id", "b"], dialect="qbeast-spark", cube_size=300)
    qbeast.write_table(ROWS, path, mode="append")
    log = read_log(path)
    assert log.configuration["columnsToIndex"] == "id,b"
    assert log.configuration["qbeast.blocksDialect"] == "qbeast-spark"
    texts = [add["tags"]["blocks"] for add in log.adds.values() if add.get("tags")]
    assert texts
    assert all('"cubeId"' in text for text in texts)
    small = delta(tmp_path / "u", pl.DataFrame({"i": [1]}, schema={"i": pl.Int16}))
    with pytest.raises(qbeast.InvalidColumnsError, match="qbeast-spark cannot index"):
        qbeast.convert_table(small, ["i"], dialect="qbeast-spark")
    assert qbeast.convert_table(small, ["i"]).committed


def test_revision_0_is_written_as_by_jvm(tmp_path: Path) -> None:
    golden = find("qbeast-spark-0.7.1/convert_parquet")
    (theirs,) = [action["metaData"] for action in golden.commits[1] if "metaData" in action]
    path = delta(tmp_path / "t", golden.expected)
    qbeast.convert_table(path, golden.indexed, cube_size=300, dialect="qbeast-spark")
    ours = read_log(path).configuration
    revisions = [json.loads(item["qbeast.revision.0"]) for item in (ours, theirs["configuration"])]
    for revision in revisions:
        revision.update(timestamp=0, tableID="")
    assert json.dumps(revisions[0]) == json.dumps(revisions[1])
    assert ours["qbeast.lastRevisionID"] == theirs["configuration"]["qbeast.lastRevisionID"]


INSTANT = datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
TYPES: dict[str, tuple[pa.Array, Any]] = {
    "nanoseconds": (
        pa.array([1_000, None], pa.timestamp("ns")),
        [datetime(1970, 1, 1) + timedelta(microseconds=1), None],
    ),
    "milliseconds": (pa.array([5], pa.timestamp("ms")), [datetime(1970, 1, 1, microsecond=5_000)]),
    "zoned": (pa.array([INSTANT], pa.timestamp("us", "Europe/Berlin")), [INSTANT]),
    "categories": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "decimals": (pa.array([Decimal("-1.25")]), [Decimal("-1.25")]),
    "NaN": (pa.array([1.5, float("nan")]), [1.5, float("nan")]),
    "bytes": (pa.array([3], pa.int8()), [3]),
    "fixed": (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    "lists": (pa.array([[1, None], []]), [[1, None], []]),
    "nothing": (pa.array([], pa.date32()), []),
}


@pytest.mark.parametrize("kind", TYPES)
def test_other_parquet_types_are_read_correctly(tmp_path: Path, kind: str) -> None:
    values, expected = TYPES[kind]
    pq.write_table(
        pa.table({"id": pa.array(range(len(values)), pa.int64()), "c": values}), tmp_path / "f.parquet"
    )
    qbeast.convert_table(tmp_path, ["id"])
    actual = qbeast.read_table(tmp_path).sort("id")["c"]
    assert_frame_equal(actual.to_frame(), pl.DataFrame({"c": expected}, schema={"c": actual.dtype}))
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == len(values)


def test_old_timestamps_of_spark_are_instants(tmp_path: Path) -> None:
    moments = [INSTANT, None, datetime(2024, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "f.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    qbeast.convert_table(tmp_path, ["t"])
    actual = qbeast.read_table(tmp_path)["t"]
    assert actual.dtype == pl.Datetime("us", "UTC")
    assert actual.to_list() == [INSTANT, None, datetime(2023, 12, 31, 15, tzinfo=UTC)]
    assert qbeast.read_table(tmp_path, where=pl.col("t") == INSTANT).height == 1


def test_old_timestamps_are_found_by_whole_names(tmp_path: Path) -> None:
    moments = pa.array([INSTANT], pa.timestamp("us", "UTC"))
    nested = pa.StructArray.from_arrays([moments, pa.array([1])], ["t", "n"])
    columns = {"a.t": moments, "a": pa.array([datetime(2024, 1, 1)]), "s": nested}
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True, store_schema=False)
    qbeast.convert_table(tmp_path, ["a.t"])
    assert qbeast.read_table(tmp_path)["a.t"].to_list() == [INSTANT]
    assert qbeast.read_table(tmp_path)["s"].struct.field("t").to_list() == [INSTANT]


def refused(path: Path, error: type[Exception], told: str, columns: Any = ("id",), **options: Any) -> None:
    before = sorted(path.rglob("*"))
    with pytest.raises(error, match=told):
        qbeast.convert_table(path, list(columns), **options)
    assert sorted(path.rglob("*")) == before, "nothing was written"


def test_unsupported_conversion_raises_and_changes_nothing(tmp_path: Path) -> None:
    hive = tmp_path / "h"
    (hive / "year=2024" / "day=1").mkdir(parents=True)
    ROWS.write_parquet(hive / "year=2024" / "day=1" / "f.parquet")
    ROWS.with_columns(day=date(2024, 1, 1)).write_parquet(hive / "year=2024" / "day=1" / "g.parquet")
    refused(hive, qbeast.SchemaMismatchError, "their folders name other values")
    (hive / "year=2024").rename(hive / "old")
    (hive / "old" / "day=1").rename(hive / "old" / "day")
    refused(hive, qbeast.UnsupportedTableError, "folders below it")
    protected = delta(tmp_path / "c")
    write_log(protected, [features("checkpointProtection")], first=1)
    refused(protected, qbeast.UnsupportedTableError, "checkpointProtection")
    empty = tmp_path / "e"
    empty.mkdir()
    refused(empty, qbeast.TableNotFoundError, "no Delta table")
    refused(tmp_path / "missing", qbeast.TableNotFoundError, "nothing is there")
    plain = delta(tmp_path / "p", ROWS.with_columns(flag=pl.lit(value=True)))
    refused(plain, qbeast.InvalidColumnsError, "no such column.*'y'", ["y"])
    refused(plain, qbeast.InvalidColumnsError, "flag", ["flag"], dry_run=True)
    refused(plain, qbeast.InvalidColumnsError, "named twice", ["id", "id"])
    refused(plain, qbeast.InvalidInputError, "cube_size", cube_size=0)
    refused(plain, qbeast.InvalidInputError, "dialect", dialect="jvm")


@pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning", "ignore::qbeast.DesignEffectWarning")
@pytest.mark.parametrize("in_files", [True, False])
def test_folders_of_hive_become_partitions(tmp_path: Path, *, in_files: bool) -> None:
    days, cities = [date(2024, 1, 1), date(2024, 3, 1), None], ["a/b=c %", "é", "b"]
    rows = pl.DataFrame({"id": range(90), "n": [n % 2 for n in range(90)]}).with_columns(
        day=pl.Series(days).gather([n % 3 for n in range(90)]),
        city=pl.Series(cities).gather([n * n % 3 for n in range(90)]),
    )
    rows.write_parquet(pl.PartitionBy(tmp_path, key=["day", "city", "n"], include_key=in_files), mkdir=True)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    planned = qbeast.convert_table(tmp_path, ["id"], dry_run=True)
    assert (planned.files, planned.rows, planned.created_log) == (len(files), 90, True)
    assert qbeast.convert_table(tmp_path, ["id"], cube_size=20).committed
    table = qbeast.open_table(tmp_path)
    assert DeltaTable(tmp_path).metadata().partition_columns == ["day", "city", "n"]

    def same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
        assert found.select(rows.columns).sort("id").equals(wanted.sort("id"))

    same(table.read(), rows)
    same(pl.scan_delta(str(tmp_path)).collect(), rows)
    assert {path: path.read_bytes() for path in files} == files
    plan = table.rows(pl.col("city") == "a/b=c %").explain()
    assert plan.files["opened"].sum() == sum("a%2Fb" in str(path) for path in files)
    if not in_files:
        return
    qbeast.write_table(rows.with_columns(pl.col("id") + 90), tmp_path, mode="append")
    table.refresh().optimize(full=True)
    more = pl.concat([rows, rows.with_columns(pl.col("id") + 90)])
    same(table.read(), more)
    same(pl.scan_delta(str(tmp_path)).collect(), more)
    assert table.check().ok


def test_invalid_parquet_folder_raises_before_a_log(tmp_path: Path) -> None:
    good = parquet(tmp_path / "a", ROWS)
    refused(good, qbeast.InvalidColumnsError, "no such column", ["y"])
    pl.DataFrame({"id": ["x"]}).write_parquet(good / "z.parquet")
    refused(good, qbeast.SchemaMismatchError, "'id' is String in 'z.parquet', Int64 in others")
    (good / "z.parquet").write_bytes(b"PAR1 no more")
    refused(good, qbeast.InvalidInputError, "not a readable Parquet file")
    wide = parquet(
        tmp_path / "b", pl.DataFrame({"id": [1], "u": [2]}, schema={"id": pl.Int64, "u": pl.UInt32})
    )
    refused(wide, qbeast.InvalidInputError, "u .UInt32.")
    ours = tmp_path / "c"
    qbeast.write_table(ROWS, ours, columns=["id"])
    (ours / "_delta_log" / f"{0:020d}.json").unlink()
    (ours / "_delta_log").rmdir()
    refused(ours, qbeast.InvalidInputError, "whose log was lost")


def test_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "p", ROWS)
    next(path.glob("*.parquet")).rename(os.fsdecode(os.fsencode(path) + b"/\xff.parquet"))
    refused(path, qbeast.InvalidInputError, "is not valid UTF-8")


def test_converted_statistics_lose_no_row(tmp_path: Path) -> None:
    days = [date(2024, 1, 1), None, date(2024, 3, 1)]
    path = parquet(
        tmp_path / "p", pl.DataFrame({"x": [1.0, float("nan"), 2.0], "d": days, "s": ["a" * 50, "b", None]})
    )
    qbeast.convert_table(path, ["x"])
    stats = json.loads(read_log(path).adds["part%200é.parquet"]["stats"])
    assert "x" not in stats["maxValues"]
    assert stats["minValues"]["d"] == "2024-01-01"
    assert qbeast.read_table(path, where=pl.col("x") > 100).height == 1
    assert pl.scan_delta(str(path)).filter(pl.col("x") > 100).collect().height == 1


@examples(2, sweep=200)
@given(case=cases(most_frames=3, most_rows=30).map(with_key_in_rows))
def test_any_table_converts_with_rows_and_samples(case: Case) -> None:
    with folder() as path, small_files():
        path.mkdir()
        for number, frame in enumerate(case.frames):
            frame.write_parquet(path / f"{number}.parquet")
        qbeast.convert_table(path, case.columns, cube_size=case.cube_sizes[0], dialect=case.dialect)
        more = case.frames[0].with_columns(pl.col(ROW) + case.rows.height)
        qbeast.write_table(more, path, mode="append")
        rows = pl.concat([case.rows, more])
        assert_same_rows(qbeast.read_table(path), rows)
        assert_same_rows(qbeast.read_table(path, sample=(0.2, 0.7)), sampled(rows, case.indexed, (0.2, 0.7)))
        check_invariants(path, may_stage=True)
