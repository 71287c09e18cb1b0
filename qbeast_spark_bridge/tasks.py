"""Reads as tasks: each reads its files and pages by itself, exactly as Polars would, into Arrow batches for Spark."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from qbeast_core.io.pages import PageReader
from qbeast_core.io.store import Store, open_store
from qbeast_core.table.portion import Place, Portion, Wanted, read_portion
from qbeast_core.table.reader import Job, Reader, Sample
from qbeast_core.table.shares import cut_read
from qbeast_spark_bridge.schema import nullable_schema, spark_schema
from qbeast_spark_bridge.workers import WorkerCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TASK_BYTES", "ReadTask", "arrow_schema", "plan_tasks", "read_tasks", "run_tasks", "tasks_of"]

TASK_BYTES: Final = 64 << 20
"""Stored bytes that a task reads, about."""

_BATCH_ROWS: Final = 1 << 17
_BATCH_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ReadTask:
    """A part of a read of one version. It pickles and needs no log: a worker has all it must know.

    Attributes
    ----------
    uri : str
        The table; local ones as absolute paths.
    version : int
        What was planned, for messages.
    portion : Portion
        Files and pages to open.
    wanted : Wanted
        Rows and columns to return.
    schema : pyarrow.Schema
        Types to return them in.
    storage_options : Mapping
        For the store.
    """

    uri: str
    version: int
    portion: Portion = field(repr=False)
    wanted: Wanted = field(repr=False)
    schema: pa.Schema = field(repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; no batch for no rows.

        Raises
        ------
        StorageError, FileNotFoundError
            If a file cannot be read, say because the version was vacuumed.
        """
        store = open_store(self.uri, self.storage_options)
        place = Place(store, PageReader(store), self.storage_options)
        held: list[pl.DataFrame] = []
        for frame in read_portion(self.portion, self.wanted, place):
            held.append(frame)
            if sum(f.height for f in held) >= _BATCH_ROWS or _bytes(held) >= _BATCH_BYTES:
                yield from self._cut(pl.concat(held))
                held = []
        if held:
            yield from self._cut(pl.concat(held))

    def _cut(self, frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
        """Give rows in batches that the other side can hold, in its types."""
        row_bytes = _bytes([frame]) // max(frame.height, 1) + 1
        for rows in frame.iter_slices(min(_BATCH_ROWS, max(_BATCH_BYTES // row_bytes, 1))):
            table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self.schema)
            yield from table.combine_chunks().to_batches()


def plan_tasks(
    reader: Reader,
    *,
    predicate: pl.Expr | None = None,
    sample: Sample | None = None,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
) -> list[ReadTask]:
    """Cut a read into tasks of about equal bytes.

    Parameters
    ----------
    reader : Reader
        Of the version to read.
    predicate : polars.Expr, optional
        Rows to keep, exactly.
    sample : float or tuple of float, optional
        Rows to keep by weight.
    columns : sequence of str, optional
        Columns to return, in order, at least one; all by default.
    task_bytes : int
        Stored bytes a task aims at; larger files are cut between pages where their pages are known.
    schema : StructType, optional
        The columns' Spark types; by default those of the table, all nullable.

    Returns
    -------
    list of ReadTask
        Empty if no file can hold a wanted row.

    Raises
    ------
    InvalidInputError
        If the sample is no fraction or pair of fractions in [0, 1].
    """
    job = reader.plan(predicate, sample)
    return tasks_of(reader, job, columns=columns, task_bytes=task_bytes, schema=schema)


def tasks_of(
    reader: Reader,
    job: Job,
    *,
    columns: Sequence[str] | None = None,
    task_bytes: int = TASK_BYTES,
    schema: StructType | None = None,
) -> list[ReadTask]:
    """Cut a read that is planned already into tasks, see `plan_tasks`.

    Parameters
    ----------
    reader : Reader
        Of the version to read.
    job : Job
        What is opened, and which rows are kept.
    columns, task_bytes, schema
        As for `plan_tasks`.
    """
    names = list(reader.snapshot.schema) if columns is None else list(columns)
    whole = schema or nullable_schema(spark_schema(reader.snapshot.schema_json))
    types = arrow_schema(StructType([whole[name] for name in names]))
    wanted = reader.wanted(job, names)
    wanted = replace(wanted, schema=pl.Schema({name: wanted.schema[name] for name in wanted.needed}))
    return [
        ReadTask(
            uri=_anywhere(reader.store),
            version=reader.snapshot.version,
            portion=portion,
            wanted=wanted,
            schema=types,
            storage_options=dict(reader.snapshot.storage_options),
        )
        for portion in cut_read(reader, job, task_bytes=task_bytes)
    ]


def run_tasks(spark: SparkSession, reader: Reader, job: Job, schema: StructType) -> DataFrame:
    """Return what a planned read keeps, read by Python workers, a task each.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    reader : Reader
        Of the version to read.
    job : Job
        What is opened, and which rows are kept.
    schema : StructType
        The table's columns as they shall come, all of them.
    """
    tasks = tasks_of(reader, job, schema=schema)
    rows = spark.createDataFrame([(pickle.dumps(task),) for task in tasks], "task binary")
    return rows.repartition(max(len(tasks), 1)).mapInArrow(WorkerCall.of(read_tasks, None), schema)


def read_tasks(_: object, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read pickled tasks, in a worker.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Tasks as `run_tasks` sends them.
    """
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from pickle.loads(task).batches()  # noqa: S301 -- bytes of our own driver


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types in which Spark hands over and takes rows; timestamps are in UTC.

    Parameters
    ----------
    schema : StructType
        Any Spark schema.
    """
    zoned: dict[str, Any] = {
        "timezone": "UTC"
    }  # of every Spark before 4.2, which cannot be asked for another
    known = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **(zoned if known else {}))


def _anywhere(store: Store) -> str:
    """Name a table for a process in another working directory."""
    return store.uri if store.local_root is None else str(store.local_root.absolute())


def _bytes(frames: Sequence[pl.DataFrame]) -> int:
    return sum(int(frame.estimated_size()) for frame in frames)
