"""Tasks of a scan: read in other processes they return every row once, whatever they are cut into."""

from __future__ import annotations

import pickle
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import qbeast
from tests.helpers.tables import assert_same_rows

ROWS = 60_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """A table of several files, some of whose rows a deletion took."""
    path = tmp_path_factory.mktemp("tasks") / "table"
    rng = np.random.default_rng(7)
    rows = pl.DataFrame({"id": np.arange(ROWS), "x": rng.normal(size=ROWS), "s": ["text"] * ROWS})
    qbeast.write_table(rows, path, columns=["id", "x"])
    qbeast.write_table(
        rows.head(500).with_columns(pl.col("id") + ROWS, pl.lit("more").alias("s")), path, mode="append"
    )
    opened = qbeast.open_table(path)
    opened.delete("id < 100")
    return opened


def read(task: bytes) -> pl.DataFrame:
    """Read a task, as another process does."""
    return pl.concat(pickle.loads(task).read())  # noqa: S301 - of this test


@pytest.mark.sweep
def test_other_processes_return_every_row_once(table: qbeast.Table, two: Pool) -> None:
    tasks = table.rows().tasks(task_bytes=100_000)
    assert len(tasks) > 2
    assert {path for task in tasks for path in task.paths} == set(table.rows().explain().files["path"])
    actual = pl.concat(two.map(read, map(pickle.dumps, tasks), chunksize=1))
    assert_same_rows(actual, table.read(), key="id")


@pytest.mark.parametrize("task_bytes", [1, 200_000, 1 << 30])
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"sample": 0.1}, None),
        ({"where": "x > 1.5 AND id < 40000"}, ["s", "id"]),
        ({"where": pl.col("s") == "more", "sample": (0.2, 0.9)}, ["id"]),
    ],
    ids=["sample", "SQL", "expression and sample"],
)
def test_tasks_return_rows_of_the_scan(
    table: qbeast.Table, options: dict[str, Any], columns: list[str] | None, task_bytes: int
) -> None:
    tasks = table.rows(columns=columns, **options).tasks(task_bytes=task_bytes)
    actual = pl.concat([read(pickle.dumps(task)) for task in tasks])
    expected = table.rows(sample=options.get("sample")).lazy()
    if (predicate := options.get("where")) is not None:
        expected = expected.filter(pl.sql_expr(predicate) if isinstance(predicate, str) else predicate)
    assert_same_rows(actual, expected.collect().select(columns or pl.all()), key="id")
    assert {task.schema for task in tasks if task.schema != actual.schema} == set()


def test_tasks_have_about_the_requested_size(table: qbeast.Table) -> None:
    size_bytes = int(table.rows().files()["size_bytes"].sum())
    for parts in (3, 7):
        sizes = [
            read(pickle.dumps(task)).height for task in table.rows().tasks(task_bytes=size_bytes // parts)
        ]
        assert parts / 2 <= len(sizes) <= 2 * parts
        assert max(sizes) <= 3 * sum(sizes) / len(sizes)


def test_rows_equal_to_null_are_returned(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(30), "s": ["a", None, "b"] * 10})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    where = pl.col("s").is_in(["a", None], nulls_equal=True)
    (task,) = table.rows(where).tasks()
    assert_same_rows(read(pickle.dumps(task)), rows.filter(where), key="id")
    assert_same_rows(table.rows().lazy().filter(where).collect(), rows.filter(where), key="id")


def test_task_without_rows_yields_empty_frame(table: qbeast.Table) -> None:
    tasks = table.rows(pl.col("s") == "no such", columns=["x"]).tasks()
    assert all(pl.concat(task.read()).equals(pl.DataFrame(schema={"x": pl.Float64})) for task in tasks)
    assert table.rows("id > 1000000").tasks() == []


def test_tasks_need_no_log(tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(pl.DataFrame({"id": range(10)}), path, columns=["id"])
    (task,) = qbeast.open_table(path).rows().tasks()
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    assert pl.concat(task.read()).sort("id")["id"].to_list() == list(range(10))
    (path / task.paths[0]).unlink()
    with pytest.raises(qbeast.StorageError):
        list(task.read())


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"columns": []}, "columns"),
        ({"columns": "id"}, "columns"),
        ({"columns": ["id", "id"]}, "columns"),
        ({"columns": ["nobody"]}, "columns"),
        ({"task_bytes": 0}, "task_bytes"),
        ({"task_bytes": True}, "task_bytes"),
        ({"task_bytes": 1.5}, "task_bytes"),
        ({"sample": 2}, "sample"),
        ({"where": "nobody > 1"}, "where"),
    ],
)
def test_invalid_options_raise(table: qbeast.Table, options: dict[str, Any], argument: str) -> None:
    read = {name: value for name, value in options.items() if name != "task_bytes"}
    with pytest.raises(qbeast.InvalidInputError) as caught:
        table.rows(**read).tasks(task_bytes=options.get("task_bytes", 1000))
    assert caught.value.argument == argument
