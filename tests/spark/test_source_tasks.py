# ruff: noqa: S301 -- what is unpickled was pickled here
"""Tasks of a read return together what Polars returns, whatever they are cut into; no session is needed."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import qbeast
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.snapshot.snapshot import load_snapshot
from qbeast_spark_bridge.datasource.source import QbeastDataSource
from qbeast_spark_bridge.engine.engine import arrow_schema, tasks_of
from qbeast_spark_bridge.spark_types import nullable_schema, spark_schema
from qbeast_spark_bridge.worker import read_task
from tests.helpers.examples import examples
from tests.helpers.planned import planned
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW, Case, cases
from tests.helpers.tables import assert_same_rows, folder, small_files, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


def numbers(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    return pl.DataFrame({"id": np.arange(rows), "x": rng.normal(size=rows), "s": ["text"] * rows})


def plan_tasks(
    planner: Planner, *, predicate: pl.Expr | None = None, sample: Any = None, **options: Any
) -> list[read_task.ReadTask]:
    return tasks_of(planner, planner.plan(predicate, sample), **options)


def read(table: Path, **options: Any) -> tuple[pl.DataFrame, int]:
    """Read by tasks that went through pickle, as to another machine."""
    planner = Planner(load_snapshot(table))
    tasks = [pickle.loads(pickle.dumps(task)) for task in plan_tasks(planner, **options)]
    batches = [batch for task in tasks for batch in task.batches()]
    names = options.get("columns") or list(planner.snapshot.schema)
    whole = nullable_schema(spark_schema(planner.snapshot.schema_json))
    types = arrow_schema(StructType([whole[name] for name in names]))
    assert all(batch.schema.equals(types) for batch in batches)
    rows = pl.DataFrame(pa.Table.from_batches(batches, types))
    return rows.cast({name: planner.snapshot.schema[name] for name in names}), len(tasks)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tasks") / "table"
    qbeast.write_table(numbers(200_000), place, columns=["id", "x"])
    return place


@examples(2, sweep=100)
@given(case=cases(), task_bytes=st.sampled_from([1, 5_000, 1 << 26]), sample=st.sampled_from([None, 0.3]))
def test_tasks_return_every_row_of_every_type(case: Case, task_bytes: int, sample: float | None) -> None:
    with folder() as place, small_files():
        write(place, case)
        actual, _ = read(place, task_bytes=task_bytes, sample=sample)
        assert_same_rows(actual, qbeast.read_table(place, sample=sample), key=ROW)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sample": 0.01},
        {"sample": (0.1, 0.5)},
        {"predicate": pl.col("x") > 2},
        {"predicate": pl.col("x") > 1, "sample": 0.3, "columns": ["s", "id"]},
    ],
    ids=["all", "sample", "range", "filter", "filter and sample"],
)
def test_splitting_changes_no_row(table: Path, options: dict[str, Any]) -> None:
    whole, item = read(table, **options)
    cut, many = read(table, **options, task_bytes=100_000)
    assert item == 1
    assert many > 1 or "sample" in options
    lazy = qbeast.scan_table(table, sample=options.get("sample"))
    lazy = lazy.filter(options["predicate"]) if "predicate" in options else lazy
    expected = lazy.select(options.get("columns") or pl.all()).collect()
    assert_same_rows(whole, expected, key="id")
    assert_same_rows(cut, expected, key="id")


def test_tasks_are_of_about_equal_bytes(table: Path) -> None:
    _, count = read(table, task_bytes=500_000)
    total = int(load_snapshot(table).files["size_bytes"].sum())
    assert count == pytest.approx(total / 500_000 + 2, abs=3)


def test_batches_are_large(table: Path) -> None:
    (task,) = plan_tasks(Planner(load_snapshot(table)))
    sizes = [batch.num_rows for batch in task.batches()]
    assert (max(sizes), sum(sizes)) == (1 << 17, 200_000)
    assert len(sizes) < 6  # Polars returns the row groups of a file in some parts


def test_wide_rows_come_in_smaller_batches(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(1000), "s": ["x" * 10_000] * 1000})
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    (task,) = plan_tasks(Planner(load_snapshot(tmp_path / "t")))
    with resized(source_batch_bytes=1_000_000):
        sizes = [batch.num_rows for batch in task.batches()]
    assert sum(sizes) == 1000
    assert max(sizes) < 120


def test_empty_reads_have_no_task(table: Path) -> None:
    assert read(table, sample=0.0)[1] == 0
    assert read(table, predicate=pl.col("id") < 0)[1] == 0


def test_foreign_files_are_read_whole(tmp_path: Path) -> None:
    place = tmp_path / "t"
    qbeast.write_table(numbers(10_000), place, columns=["id"])
    write_deltalake(place, numbers(5_000).with_columns(pl.col("id") + 10_000), mode="append")
    actual, _ = read(place, task_bytes=1, sample=0.5)
    assert_same_rows(actual, qbeast.read_table(place, sample=0.5), key="id")
    planner = Planner(load_snapshot(place))
    scans = [scan for task in plan_tasks(planner, task_bytes=1) for scan in task.task.parts]
    assert sum(scan.pages is None for scan in scans) == 1


def test_deleted_rows_stay_hidden(tmp_path: Path) -> None:
    place = tmp_path / "t"
    qbeast.write_table(numbers(1_000), place, columns=["id"])
    DeltaTable(place).delete("id >= 500")
    actual, _ = read(place)
    assert sorted(actual["id"]) == list(range(500))


@pytest.mark.parametrize("where", [None, "id < 90 OR id > 370", "id < 0"])
def test_source_of_a_planned_table_has_the_same_rows(tmp_path: Path, where: str | None) -> None:
    with small_files(file_rows=40):
        qbeast.write_table(numbers(400), tmp_path / "t", columns=["id"], cube_size=20)
    write_deltalake(tmp_path / "t", numbers(50).with_columns(pl.col("id") + 1000), mode="append")
    with planned(tmp_path / "t") as copy:
        options = {"path": str(copy), "sample": "0.5", **({"where": where} if where else {})}
        source = QbeastDataSource(CaseInsensitiveDict(options))
        tasks = source.reader(source.schema()).partitions()
        read_rows = [batch for part in tasks for batch in source.reader(source.schema()).read(part)]
    expected = qbeast.read_table(tmp_path / "t", where=where, sample=0.5)
    actual = pl.concat([pl.DataFrame(schema=expected.schema), *map(pl.DataFrame, read_rows)])
    assert_same_rows(actual, expected, key="id")


def test_task_finds_its_table_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    qbeast.write_table(numbers(10), "t", columns=["id"])
    (task,) = plan_tasks(Planner(load_snapshot("t")))
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for batch in task.batches()) == 10


@pytest.mark.parametrize(
    ("rows", "task_bytes"), [(160, 8 << 20), pytest.param(4_000, 64 << 20, marks=pytest.mark.sweep)]
)
def test_tasks_of_many_files_stay_small(tmp_path: Path, rows: int, task_bytes: int) -> None:
    place = tmp_path / "t"
    with small_files(file_rows=4):
        qbeast.write_table(numbers(rows), place, columns=["id"], cube_size=2)
    planner = Planner(load_snapshot(place))
    files = len(planner.paths)
    assert files > rows / 8
    sizes = [len(pickle.dumps(task)) for task in plan_tasks(planner, task_bytes=task_bytes)]
    opened = task_bytes >> 20  # opening a file counts as a megabyte
    assert len(sizes) == pytest.approx(files / opened, rel=0.2)
    assert max(sizes) < 2_000 + opened * 400


def test_source_takes_the_schema_of_sail(table: Path) -> None:
    options = CaseInsensitiveDict(
        {"path": str(table), "where": "id < 500", "columns": "s,id", "sample": "0.5"}
    )
    reader = QbeastDataSource(options).reader(pa.schema({"s": pa.string(), "id": pa.int64()}))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    expected = qbeast.read_table(table, where="id < 500", columns=["s", "id"], sample=0.5)
    assert_same_rows(pl.DataFrame(pa.Table.from_batches(batches)), expected, "id")


def test_secrets_do_not_show(table: Path) -> None:
    (task,) = plan_tasks(Planner(load_snapshot(table, storage_options={"secret": "hush"})))
    assert task.task.storage_options == {"secret": "hush"}
    assert "hush" not in repr(task)
