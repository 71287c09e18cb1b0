# ruff: noqa: S301 -- what is unpickled was pickled here
"""What a task of an append does, without a session: parts of bounded size, and nothing left of a failure."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import qbeast
from qbeast_core.errors import SchemaMismatchError
from qbeast_spark_bridge.datasource.writers import AppendMessage, AppendWriter, append_context
from qbeast_spark_bridge.worker.tasks import write_rows
from tests.helpers.invariants import check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = StructType([StructField("id", LongType())])


@pytest.fixture
def table(tmp_path: Path) -> str:
    qbeast.write_table(pl.DataFrame({"id": range(1_000)}), tmp_path / "t", columns=["id:linear"])
    return str(tmp_path / "t")


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for _ in range(count):
        yield pa.record_batch({"id": list(range(100))})


def files(table: str) -> int:
    return len(list(Path(table).glob("*.parquet")))


@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")  # the same rows several times
def test_task_indexes_bounded_parts(table: str) -> None:
    context = append_context({"path": table}, SCHEMA)
    written = write_rows(context, batches(10), part_bytes=2_000)
    parts = pickle.loads(written)
    assert [part.rows for part in parts] == [300, 300, 300, 100]
    nothing = write_rows(append_context({"path": table}, SCHEMA), iter(()))
    AppendWriter(context).publish([AppendMessage(written), AppendMessage(nothing)])
    assert qbeast.read_table(table).height == 2_000
    check_invariants(Path(table))


def test_task_that_fails_deletes_its_parts(table: str) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(5)
        yield pa.record_batch({"id": ["text"]})

    before = files(table)
    with pytest.raises((SchemaMismatchError, pa.ArrowException)):
        write_rows(append_context({"path": table}, SCHEMA), broken(), part_bytes=800)
    assert files(table) == before


def test_abort_deletes_only_before_a_commit(table: str) -> None:
    """With every task's message there was a commit, of which nobody may know whether it landed."""
    task = AppendWriter(append_context({"path": table}, SCHEMA))
    before = files(table)
    message = AppendMessage(write_rows(task.context, batches(1)))
    task.abort([message])
    assert files(table) > before
    task.abort([message, None])
    assert files(table) == before


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(AppendWriter(b"hush"))
