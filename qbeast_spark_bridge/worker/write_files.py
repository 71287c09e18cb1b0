"""The last step of a write or rewrite, in a worker: complete rows, and write them to files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.io.location import Location
from qbeast_core.space.values import U64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.table.dml.tasks import FitRows, Outside
from qbeast_core.table.engine.engine import RowShape
from qbeast_core.table.engine.files import PlaceTask, PlainTask, write_file
from qbeast_core.table.engine.row_change import StoredPart, store_rows
from qbeast_spark_bridge.worker.transport import (
    BUFFER_BYTES,
    batch_of,
    gathered,
    longs_as_decimals,
    received,
    unpack_rows,
)

# Columns of the batches of `write_partition`.
FILES: Final = "file binary"


def write_partition(job: PlaceTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the packs of a task, and yield descriptions of the files.

    A task has the rows of one file; rows of more than 256 MB become several files.
    """
    packs: dict[int, list[tuple[pl.DataFrame, U64Array]]] = {}
    size = 0
    for batch in batches:
        for number, pack in zip(batch.column("file").to_pylist(), batch.column("rows"), strict=True):
            rows, keys = unpack_rows(pack.as_buffer())
            packs.setdefault(number, []).append((rows, keys))
            size += int(rows.estimated_size())
            if size >= sizing().max_partition_bytes:
                yield from _write(job, packs)
                size = 0
    yield from _write(job, packs)


def _write(job: PlaceTask, packs: dict[int, list[tuple[pl.DataFrame, U64Array]]]) -> Iterator[pa.RecordBatch]:
    while packs:
        _, parts = packs.popitem()
        files = write_file(job, [rows for rows, _ in parts], [keys for _, keys in parts])
        yield batch_of(FILES, [pickle.dumps(file) for file in files])


def write_plain_partition(
    argument: tuple[PlainTask, list[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, and yield descriptions of the files."""
    job, names, decimals = argument
    tables = gathered(batches, names, size_bytes=BUFFER_BYTES)
    adds = job.write(longs_as_decimals(rows, decimals) for rows in tables)
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])


def write_plain_files(job: PlainTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows that tasks read, and yield descriptions of the files."""
    adds = job.write(rows for _, task in received(batches) for rows in task.read())
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])


@dataclass(frozen=True, slots=True)
class KeepPartition:
    """Context of `keep_partition`."""

    fit: FitRows
    location: Location
    # A UUID that marks the stored files. None: the rows are only checked.
    operation: str | None


def keep_partition(
    argument: tuple[KeepPartition, list[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Store the rows of a partition. Yield the files, and the rows that do not match the condition."""
    task, names, decimals = argument
    parts, outside = list[StoredPart](), Outside()
    for table in gathered(batches, names, size_bytes=BUFFER_BYTES):
        rows, others = task.fit(longs_as_decimals(table, decimals))
        outside += others
        if task.operation is not None:
            path = store_rows(task.location.store, rows, operation=task.operation)
            parts.append(StoredPart(path, rows.height, int(rows.estimated_size())))
    yield batch_of(FILES, [pickle.dumps((parts, outside))])


def complete_rows(
    argument: tuple[RowShape, list[str], list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the table for the rows, named c0, c1 and so on."""
    shape, columns, names, decimals = argument
    for rows in gathered(batches, columns):
        frame = shape.fit(longs_as_decimals(rows, decimals)).select(names)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        fields = [
            pa.field(f"c{number}", _spark_type(field.type)) for number, field in enumerate(table.schema)
        ]
        renamed = table.rename_columns([field.name for field in fields])
        yield from renamed.cast(pa.schema(fields)).to_batches()


def _spark_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that Spark expects: texts and bytes of Polars have long offsets."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(dtype) else dtype
