"""Tables with several features of Delta at once, which were tested one by one elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
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
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")

MODES = ["name", *(pytest.param(mode, marks=pytest.mark.sweep) for mode in ("none", "id"))]


def rows(first: int, count: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"id": range(first, first + count)}, schema={"id": pl.Int32})
    return numbers.with_columns(
        a=pl.col("id") * 7 % 31,
        s=pl.when(pl.col("id") % 9 > 0).then(pl.format("k {}", pl.col("id") % 3)),
        x=pl.col("id") / 3,
    ).cast(dict(KEYS))


def begin(path: Path, features: Features, count: int = 60) -> qbeast.Table:
    features.create(path)
    qbeast.convert_table(path, ["a", "s"], cube_size=10)
    qbeast.write_table(rows(0, count), path, mode="append")
    return qbeast.open_table(path)


CHANGED, SOURCE = pl.col("id") % 4 == 1, rows(50, 20).with_columns(s=pl.lit("k 0"))
CHANGES: dict[str, tuple[Callable[[qbeast.Table], object], Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "update": (
        lambda table: table.update(CHANGED, {"s": "'new'"}),
        lambda before: before.with_columns(s=pl.when(CHANGED).then(pl.lit("new")).otherwise("s")),
    ),
    "delete": (lambda table: table.delete(CHANGED), lambda before: before.filter(~CHANGED)),
    "merge": (
        lambda table: table.merge(SOURCE, "id"),
        lambda before: pl.concat([before.filter(pl.col("id") < 50), SOURCE]),
    ),
}


@pytest.fixture(scope="module", params=MODES)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, MappingMode]:
    """A table with all features, to copy, and how it maps columns."""
    path, mode = tmp_path_factory.mktemp("made") / "t", request.param
    with small_files(file_rows=40):
        begin(path, Features(partitioned=True, mapping=mode, feed=True, tracked=True))
    return path, mode


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_rows_keep_all_features(
    tmp_path: Path, made: tuple[Path, MappingMode], change: str
) -> None:
    path, stored = shutil.copytree(made[0], tmp_path / "t"), "id" if made[1] == "none" else "col-id"
    run, model = CHANGES[change]
    before, ids, table = rows(0, 60), row_ids(path, stored), qbeast.open_table(path)
    with small_files(file_rows=40):
        run(table)
    expected = model(before)
    assert_same_rows(qbeast.read_table(path), expected, "id")
    assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
    apply_feed(path, table.version, before, expected)
    check_log(path)
    found = row_ids(path, stored)
    assert all(found[key][0] == ids[key][0] for key in found.keys() & ids.keys())


@pytest.mark.parametrize("mode", MODES)
def test_fields_that_older_files_lack_are_null(tmp_path: Path, mode: MappingMode) -> None:
    path = tmp_path / "t"
    table = begin(path, Features(mapping=mode))
    first = rows(100, 40).with_columns(n=pl.struct(p="id"))
    second = rows(200, 40).with_columns(n=pl.struct(p="id", q="a"))
    for frame in (first, second):
        qbeast.write_table(frame, path, mode="append", schema_mode="merge")
    empty = rows(0, 60).with_columns(n=pl.lit(None, second.schema["n"]))
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


def test_generated_partition_column_follows_its_source(tmp_path: Path) -> None:
    path = tmp_path / "t"
    day = Field("d", PrimitiveType("date"), metadata={"delta.generationExpression": "CAST(t AS DATE)"})
    fields = [Field("id", PrimitiveType("long")), Field("t", PrimitiveType("timestamp")), day]
    DeltaTable.create(path, Schema(fields), partition_by=["d"])
    qbeast.convert_table(path, ["id"])
    given = pl.DataFrame({"id": range(60)}).with_columns(
        t=pl.lit(datetime(2024, 1, 1, tzinfo=UTC)).dt.cast_time_unit("us")
        + pl.duration(hours=pl.col("id") * 2)
    )
    qbeast.write_table(given, path, mode="append")
    table = qbeast.open_table(path)
    later = pl.col("t") + timedelta(days=100)
    table.update("id < 10", {"t": later})
    table.merge(given.tail(5).with_columns(t=later), "id")
    moved = (pl.col("id") < 10) | (pl.col("id") >= 55)
    expected = given.with_columns(t=pl.when(moved).then(later).otherwise("t"))
    expected = expected.with_columns(d=pl.col("t").dt.date())
    assert_same_rows(table.read().select(expected.columns), expected, "id")
    assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
    wrong = expected.with_columns(d=pl.lit(date(1999, 1, 1)))
    with pytest.raises(qbeast.ConstraintViolationError):
        qbeast.write_table(wrong, path, mode="append")


def test_renamed_partition_column_is_written_and_pruned(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = begin(path, Features(partitioned=True))
    table.rename_column("s", "text", upgrade_protocol=True)
    qbeast.write_table(rows(60, 40).rename({"s": "text"}), path, mode="append")
    table.update("id < 20", {"text": "text || '!'"})
    text = pl.when(pl.col("id") < 20).then(pl.col("text") + "!").otherwise("text")
    expected = rows(0, 100).rename({"s": "text"}).with_columns(text=text)
    assert_same_rows(rows_of_others(path).select(expected.columns), expected, "id")
    where = pl.col("text") == "k 1!"
    assert_same_rows(table.read(where=where), expected.filter(where), "id")
    assert table.rows(where).explain().files["opened"].sum() < len(replay(path))
