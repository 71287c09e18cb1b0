"""Reads as tasks: each reads its files and pages by itself, exactly as Polars would, into Arrow batches for Spark."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from qbeast_core.io.pages import PageReader
from qbeast_core.io.store import Store, open_store
from qbeast_core.table.portion import Place, Portion, Wanted, read_portion
from qbeast_core.table.reader import Reader, Sample
from qbeast_core.table.shares import cut_read
from qbeast_spark_bridge.schema import nullable_schema, spark_schema

__all__ = ["TASK_BYTES", "ReadTask", "arrow_schema", "plan_tasks"]

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
    names = list(reader.snapshot.schema) if columns is None else list(columns)
    whole = schema or nullable_schema(spark_schema(reader.snapshot.schema_json))
    types = arrow_schema(StructType([whole[name] for name in names]))
    job = reader.plan(predicate, sample)
    wanted = reader.wanted(job, names)
    kept = pl.Schema({name: wanted.schema[name] for name in wanted.needed})
    wanted = Wanted(wanted.columns, kept, wanted.indexed, wanted.weights, wanted.predicate)
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
