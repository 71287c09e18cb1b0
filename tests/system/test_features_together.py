"""Tables with several features of Delta at once, which were tested one by one elsewhere."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

import qbeast
from tests.helpers.change_feed import apply_feed
from tests.helpers.handmade_log import replay
from tests.helpers.others import rows_of_others
from tests.helpers.row_ids import check_log, commits, row_ids
from tests.helpers.stateful_features import Features, MappingMode
from tests.helpers.stateful_model import KEYS
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")


def rows(first: int, count: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"id": range(first, first + count)}, schema={"id": pl.Int32})
    return numbers.with_columns(
        a=pl.col("id") * 7 % 31,
        s=pl.when(pl.col("id") % 9 > 0).then(pl.format("k {}", pl.col("id") % 3)),
        x=pl.col("id") / 3,
    ).cast(dict(KEYS))


def begin(path: Path, features: Features) -> qbeast.Table:
    features.create(path)
    qbeast.convert_table(path, ["a", "s"], cube_size=10)
    qbeast.write_table(rows(0, 100), path, mode="append")
    return qbeast.open_table(path)


@pytest.mark.parametrize("how", [MEMORY, SPILL], ids=["memory", "spill"])
@pytest.mark.parametrize(
    "mode", ["name", *(pytest.param(mode, marks=pytest.mark.sweep) for mode in ("none", "id"))]
)
def test_changes_of_rows_keep_all_features(tmp_path: Path, mode: MappingMode, how: qbeast.Resources) -> None:
    path = tmp_path / "t"
    is_changed, source = pl.col("id") % 4 == 1, rows(90, 20).with_columns(s=pl.lit("k 0"))
    with small_files(file_rows=40):
        table = begin(path, Features(partitioned=True, mapping=mode, feed=True, tracked=True))
        stored = "id" if mode == "none" else "col-id"
        before, ids = rows(0, 100), row_ids(path, stored)
        after = [
            before.with_columns(s=pl.when(is_changed).then(pl.lit("new")).otherwise("s")),
            before.filter(~is_changed),
            pl.concat([before.filter(~is_changed & (pl.col("id") < 90)), source]),
        ]
        for step, expected in enumerate(after):
            if step == 0:
                table.update(is_changed, {"s": "'new'"}, resources=how)
            elif step == 1:
                table.delete(is_changed, resources=how)
            else:
                table.merge(source, "id", resources=how)
            assert_same_rows(qbeast.read_table(path), expected, "id")
            assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
            apply_feed(path, table.version, before, expected)
            check_log(path)
            found = row_ids(path, stored)
            kept = found.keys() & ids.keys() & set(before["id"])
            assert kept
            assert {key: found[key][0] for key in kept} == {key: ids[key][0] for key in kept}
            before = expected
    assert table.check().ok


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_fields_that_older_files_lack_are_null(tmp_path: Path, mode: MappingMode) -> None:
    path = tmp_path / "t"
    table = begin(path, Features(mapping=mode))
    first = rows(100, 40).with_columns(n=pl.struct(p="id"))
    second = rows(200, 40).with_columns(n=pl.struct(p="id", q="a"))
    for frame in (first, second):
        qbeast.write_table(frame, path, mode="append", schema_mode="merge")
    empty = rows(0, 100).with_columns(n=pl.lit(None, second.schema["n"]))
    wider = first.with_columns(n=pl.struct(p="id", q=pl.lit(None, pl.Int32)))
    expected = pl.concat([empty, wider, second])
    assert_same_rows(table.refresh().read(), expected, "id")
    table.optimize(full=True)
    assert_same_rows(table.read(), expected, "id")
    assert table.check().ok


def test_protocol_without_reader_features_keeps_its_list(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = begin(path, Features(tracked=True))
    table.add_constraint("low", "a >= 0")
    (protocol,) = [action["protocol"] for action in commits(path)[-1] if "protocol" in action]
    assert protocol["readerFeatures"] == []
    assert {"rowTracking", "checkConstraints"} <= set(protocol["writerFeatures"])
    assert DeltaTable(path).version() == table.version


@pytest.mark.parametrize("how", [MEMORY, SPILL], ids=["memory", "spill"])
def test_generated_partition_column_follows_its_source(tmp_path: Path, how: qbeast.Resources) -> None:
    path = tmp_path / "t"
    day = Field("d", PrimitiveType("date"), metadata={"delta.generationExpression": "CAST(t AS DATE)"})
    fields = [Field("id", PrimitiveType("long")), Field("t", PrimitiveType("timestamp")), day]
    DeltaTable.create(path, Schema(fields), partition_by=["d"])
    qbeast.convert_table(path, ["id"])
    given = pl.DataFrame({"id": range(60)}).with_columns(
        t=pl.lit(datetime(2024, 1, 1, tzinfo=UTC)).dt.cast_time_unit("us")
        + pl.duration(hours=pl.col("id") * 2)
    )
    qbeast.write_table(given, path, mode="append", resources=how)
    table = qbeast.open_table(path)
    later = pl.col("t") + timedelta(days=100)
    table.update("id < 10", {"t": later}, resources=how)
    table.merge(given.tail(5).with_columns(t=later), "id", resources=how)
    moved = (pl.col("id") < 10) | (pl.col("id") >= 55)
    expected = given.with_columns(t=pl.when(moved).then(later).otherwise("t"))
    expected = expected.with_columns(d=pl.col("t").dt.date())
    assert_same_rows(table.read().select(expected.columns), expected, "id")
    assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
    wrong = expected.with_columns(d=pl.lit(date(1999, 1, 1)))
    with pytest.raises(qbeast.ConstraintViolationError):
        qbeast.write_table(wrong, path, mode="append", resources=how)


def test_renamed_partition_column_is_written_and_pruned(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = begin(path, Features(partitioned=True))
    table.rename_column("s", "text", upgrade_protocol=True)
    qbeast.write_table(rows(100, 50).rename({"s": "text"}), path, mode="append")
    table.optimize(full=True)
    table.update("id < 20", {"text": "text || '!'"})
    text = pl.when(pl.col("id") < 20).then(pl.col("text") + "!").otherwise("text")
    expected = rows(0, 150).rename({"s": "text"}).with_columns(text=text)
    assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
    where = pl.col("text") == "k 1!"
    assert_same_rows(table.read(where=where), expected.filter(where), "id")
    assert table.explain(where).files["opened"].sum() < len(replay(path))
