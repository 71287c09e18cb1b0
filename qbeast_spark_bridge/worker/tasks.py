"""Tasks in Spark's Python workers: rewrite rows, write files, append; Arrow batches to and from Spark.

Spark sends batches of 10,000 rows by default. Workers combine them, since each step takes milliseconds even for few
rows. Between stages, rows are sent as packs: Arrow streams in a binary column. So Spark moves a few large values by
key, instead of converting, compressing and sorting each row.

Workers do not import the planner of a rewrite, which would double the time. The contexts and parts of appends are
bytes, since the writers of the data source must not import Polars.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.io.location import Location
from qbeast_core.space.hashes import spark_hash
from qbeast_core.space.values import I32Array, I64Array, NumberColumn, U64Array
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import FileTarget, RowShape, delete_data_files
from qbeast_core.table.dml.tasks import Fit, Outside
from qbeast_core.table.engine.files import (
    AppendedPart,
    AppendTask,
    PlaceTask,
    SummaryTask,
    write_file,
    write_plain,
)
from qbeast_core.table.engine.row_change import RowFunction, StoredPart, store_rows
from qbeast_core.table.read.tasks import ScanTask
from qbeast_core.tree.summary import (
    IndexSummary,
    SampleLimits,
    domain_limits,
    dump_summary,
    load_summary,
    merge_summaries,
)
from qbeast_spark_bridge.worker.call import grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


# Bytes of rows that a worker gathers before it processes them.
BUFFER_BYTES: Final = 64 << 20

_BUFFER_ROWS: Final = 1 << 20

_KEY: Final = WEIGHT_COLUMN  # reserved: no column of a table has this name

# As in Spark's shuffles: zstd would take twice the time for three fifths of the bytes.
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

_LONG_DIGITS: Final = 18

_SIGN_SHIFT: Final = 63


_ARROW_TYPES: Final = {"int": pa.int32(), "binary": pa.binary()}

# Columns of the items that the driver sends to workers, and the column of `answer_items`.
ITEMS: Final = "key int, number int, item binary"
ANSWERS: Final = "answer binary"

# Columns of the batches of `_packed`.
PACKS: Final = "key int, file int, rows binary"

_MIN_BUFFER_BYTES: Final = 16 << 20
_MIN_PACK_BYTES: Final = 1 << 20
_TRIES: Final = 1 << 12


def gathered(
    batches: Iterator[pa.RecordBatch], names: Sequence[str] | None = None, *, size_bytes: int = BUFFER_BYTES
) -> Iterator[pa.Table]:
    """Combine small batches into non-empty tables of about `size_bytes`, with at most a million rows.

    Timestamps are labelled as in `in_utc`.
    """
    row_bytes = size_bytes // _BUFFER_ROWS  # a row counts as at least this size
    sizes = ((batch, max(batch.nbytes, batch.num_rows * row_bytes)) for batch in batches)
    for group in grouped(sizes, size_bytes):
        if any(batch.num_rows for batch in group):
            table = in_utc(pa.Table.from_batches(group))
            yield table if names is None else table.rename_columns(list(names))
            del table  # before the next one is gathered


def received(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """Yield the items from the driver with their numbers; see `qbeast_spark_bridge.engine.engine.spread`."""
    for batch in batches:
        for number, item in zip(batch.column("number"), batch.column("item"), strict=True):
            yield number.as_py(), pickle.loads(item.as_py())  # noqa: S301 -- bytes of our own driver


def answer_items(
    call: Callable[[Any], object], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call a function for each item, and yield its number with the answer; see `Engine.map`."""
    for number, item in received(batches):
        yield batch_of(ANSWERS, [pickle.dumps((number, call(item)))])


def batch_of(columns: str, *values: Sequence[int] | I32Array | Sequence[bytes] | pa.Array) -> pa.RecordBatch:
    """Return a batch; `columns` are names and types in Spark's DDL.

    >>> batch_of("number int, item binary", [1, 2], [b"one", b""]).to_pylist()
    [{'number': 1, 'item': b'one'}, {'number': 2, 'item': b''}]
    """
    schema = _schema(columns)
    # Built from buffers: `pa.array` imports pandas, which takes longer than a small task.
    arrays = [_array(field.type, column) for field, column in zip(schema, values, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_utc(table: pa.Table) -> pa.Table:
    """Return the rows with all zones of timestamps labelled UTC; the values are in UTC already."""
    fields = [_field_in_utc(field) for field in table.schema]
    return table if fields == list(table.schema) else table.cast(pa.schema(fields))


@cache
def _schema(columns: str) -> pa.Schema:
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in pairs])


def _array(dtype: pa.DataType, values: Any) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if not pa.types.is_binary(dtype):
        return pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(np.asarray(values, np.int32))])
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(
        dtype, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    )


def _field_in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_type_in_utc(field.type))


def _type_in_utc(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.timestamp(dtype.unit, "UTC") if dtype.tz else dtype
    if pa.types.is_struct(dtype):
        return pa.struct([_field_in_utc(dtype.field(i)) for i in range(dtype.num_fields)])
    if pa.types.is_list(dtype):
        return pa.list_(_field_in_utc(dtype.value_field))
    if pa.types.is_map(dtype):
        return pa.map_(_field_in_utc(dtype.key_field), _field_in_utc(dtype.item_field), dtype.keys_sorted)
    return dtype


def pack_rows(
    frame: pl.DataFrame, keys: U64Array, file_starts: U64Array
) -> Iterator[tuple[I32Array, pa.BinaryArray]]:
    """Yield batches of packs: the number of each pack's file, and its bytes.

    A pack has at most about 16 MB of rows of one file, ordered by their keys.
    """
    if not frame.height:
        return
    order = np.argsort(keys)  # the writer merges sorted packs, which is faster than one sort
    keys = keys[order]
    rows = frame[pl.Series(order)].with_columns(pl.Series(_KEY, keys))
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    max_rows = max(sizing().pack_bytes * frame.height // max(table.nbytes, 1), 1)
    yield from _encode(table, np.searchsorted(keys, file_starts), max_rows)


def unpack_rows(pack: pa.Buffer) -> tuple[pl.DataFrame, U64Array]:
    """Return the rows of a pack, and their sort keys."""
    frame = pl.DataFrame(pa.ipc.open_stream(pack).read_all())
    return frame.drop(_KEY), frame[_KEY].to_numpy()


def _encode(table: pa.Table, begins: I64Array, max_rows: int) -> Iterator[tuple[I32Array, pa.BinaryArray]]:
    sink, numbers, ends = pa.BufferOutputStream(), list[int](), [0]
    for number, (first, end) in enumerate(pairwise([*begins.tolist(), table.num_rows])):
        for start in range(first, end, max_rows):
            with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
                stream.write_table(table.slice(start, min(max_rows, end - start)))
            numbers.append(number)
            ends.append(sink.tell())
            if ends[-1] >= sizing().pack_batch_bytes:
                yield _packs(numbers, ends, sink)
                sink, numbers, ends = pa.BufferOutputStream(), [], [0]
    if numbers:
        yield _packs(numbers, ends, sink)


def _packs(
    numbers: list[int], ends: list[int], sink: pa.BufferOutputStream
) -> tuple[I32Array, pa.BinaryArray]:
    """Return the consecutive streams as an array, without a copy."""
    offsets = pa.py_buffer(np.array(ends, np.int32))
    array = pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, offsets, sink.getvalue()])
    return np.array(numbers, np.int32), array


def short_decimals(schema: StructType) -> dict[int, tuple[int, int]]:
    """Return precision and scale of the top-level decimals whose digits fit in a long, by column position.

    Spark converts a decimal to Arrow by a `BigDecimal` per value; a long is copied.
    """
    # By type name: workers import this module, but not Spark's SQL types.
    return {
        place: (field.dataType.precision, field.dataType.scale)  # type: ignore[attr-defined] # DecimalType
        for place, field in enumerate(schema.fields)
        if field.dataType.typeName() == "decimal" and field.dataType.precision <= _LONG_DIGITS  # type: ignore[attr-defined] # DecimalType
    }


def decimals_as_longs(df: DataFrame, decimals: dict[int, tuple[int, int]]) -> DataFrame:
    """Return the rows with these decimals as integers: 1.50 with scale 2 becomes 150."""
    columns = enumerate(df.columns)
    return df.selectExpr(
        *(_digits(name, decimals[at][1]) if at in decimals else name for at, name in columns)
    )


def longs_as_decimals(table: pa.Table, decimals: dict[int, tuple[int, int]]) -> pa.Table:
    """Convert the integers of `decimals_as_longs` back to decimals."""
    for place, (precision, scale) in decimals.items():
        dtype = pa.decimal128(precision, scale)
        column = table.column(place)
        chunks = [_decimal(chunk, dtype) for chunk in column.chunks]
        table = table.set_column(place, table.field(place).name, pa.chunked_array(chunks, dtype))
    return table


def _digits(name: str, scale: int) -> str:
    return f"CAST({name} * {10**scale}BD AS BIGINT) AS {name}"


def _decimal(longs: pa.Array, dtype: pa.DataType) -> pa.Array:
    valid, values = longs.buffers()
    first, rows = longs.offset, len(longs)
    low = np.frombuffer(values, np.int64, count=first + rows)
    words = np.empty((first + rows, 2), np.int64)  # 128 bits per value, the lower half first
    words[:, 0] = low
    np.right_shift(low, _SIGN_SHIFT, out=words[:, 1])
    return pa.Array.from_buffers(dtype, rows, [valid, pa.py_buffer(words)], longs.null_count, first)


def task_keys(files: int) -> I32Array:
    """Return a key for each file, so that `repartition(files, "key")` sends each file to a separate task.

    Spark uses the hash of the key modulo the number of tasks: with arbitrary keys, some tasks would get several files
    and others none.

    >>> keys = task_keys(3)
    >>> (spark_hash([NumberColumn("int32", keys)]) % 3).tolist()
    [0, 1, 2]
    """
    keys = np.full(files, -1, np.int32)
    start, count = 0, max(_TRIES, 4 * files)
    while (keys < 0).any():
        candidates = np.arange(start, start + count, dtype=np.int32)
        keys[spark_hash([NumberColumn("int32", candidates)]) % np.int32(files)] = candidates
        start += count
    return keys


def pack_partition(
    argument: tuple[PlaceTask, I32Array, list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as packs; the worker holds at most 64 MB of rows."""
    job, keys, names, decimals = argument
    # Rows that fit into the cache of the processor sort faster; packs must not become too small.
    size = min(max(_MIN_BUFFER_BYTES, _MIN_PACK_BYTES * job.file_count), BUFFER_BYTES)
    tables = gathered(batches, names, size_bytes=size)
    yield from _packed(
        job, keys, (job.target.shape.fit(longs_as_decimals(rows, decimals)) for rows in tables)
    )


def _packed(job: PlaceTask, keys: I32Array, frames: Iterable[pl.DataFrame]) -> Iterator[pa.RecordBatch]:
    """Yield rows as packs."""
    for frame in frames:
        for numbers, packs in pack_rows(frame, job.place(frame), job.file_starts):
            yield batch_of(PACKS, keys[numbers], numbers, packs)


# Columns of the batches of `summarise_files`.
SUMMARIES: Final = "part int, summary binary"

_TASK_BITS: Final = 40  # a row's number is below these bits, its task's number above
_MIN_SAMPLE_ROWS: Final = 1 << 14
_MERGED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class ReadPart:
    """Rows that a task reads, and their change."""

    # Reads all columns, if rows change.
    task: ScanTask
    change: RowFunction | None

    def read(self) -> Iterator[pl.DataFrame]:
        """Yield the changed rows."""
        frames = self.task.read()
        yield from frames if self.change is None else map(self.change, _buffered(frames))


def summarise_files(
    argument: tuple[SummaryTask, float], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the summary of the rows of each task that has rows."""
    job, share = argument
    for number, task in received(batches):
        first = number << _TASK_BITS
        total: IndexSummary | None = None
        for rows in _buffered(task.read()):
            summary = job.summarise(rows.select(list(job.read_schema)), first_row=first)
            first += rows.height
            total = summary if total is None else merge_summaries([total, summary], limits=domain_limits())
        if total is not None:
            # A little more than the share: the merged sample has the share of its smallest part.
            max_rows = min(max(int(1.05 * share * total.rows), _MIN_SAMPLE_ROWS), domain_limits().rows)
            reduced = merge_summaries([total], limits=SampleLimits(max_rows, domain_limits().size_bytes))
            yield batch_of(SUMMARIES, [number], [dump_summary(reduced)])


def merge_partition(_: None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the merged summary of a partition; the worker holds a few at a time."""
    summaries: list[IndexSummary] = []
    for batch in batches:
        for data in batch.column("summary"):
            summaries.append(load_summary(data.as_py()))
            if len(summaries) == _MERGED_AT_ONCE:
                summaries = [merge_summaries(summaries, limits=domain_limits())]
    if summaries:
        merged = dump_summary(merge_summaries(summaries, limits=domain_limits()))
        yield batch_of(SUMMARIES, [0], [merged])


def pack_files(
    argument: tuple[PlaceTask, I32Array], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks as packs; the worker holds about 64 MB of rows."""
    job, keys = argument
    for _, task in received(batches):
        yield from _packed(job, keys, map(job.select, _buffered(task.read())))


def _buffered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the same rows in non-empty frames of about 64 MB."""
    for group in grouped(_slices(frames), BUFFER_BYTES):
        if any(frame.height for frame in group):
            yield pl.concat(group)


def _slices(frames: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, int]]:
    for frame in frames:
        row_bytes = int(frame.estimated_size()) // max(frame.height, 1) + 1
        for part in frame.iter_slices(max(BUFFER_BYTES // row_bytes, 1)):
            yield part, part.height * row_bytes


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
    argument: tuple[FileTarget, int, list[str], dict[int, tuple[int, int]]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a partition, and yield descriptions of the files."""
    target, max_bytes, names, decimals = argument
    tables = gathered(batches, names, size_bytes=BUFFER_BYTES)
    adds = write_plain((longs_as_decimals(rows, decimals) for rows in tables), target, max_bytes=max_bytes)
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])


def write_plain_files(
    argument: tuple[FileTarget, int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows that tasks read, and yield descriptions of the files."""
    target, max_bytes = argument
    frames = (rows for _, task in received(batches) for rows in task.read())
    adds = write_plain(frames, target, max_bytes=max_bytes)
    yield batch_of(FILES, [pickle.dumps(add) for add in adds])


def keep_partition(
    argument: tuple[Fit, Location, str | None, list[str], dict[int, tuple[int, int]]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Store the rows of a partition. Yield the files, and the rows that do not match the condition.

    The argument has the UUID of the operation, which marks the stored files. Without one, the rows are only checked.
    """
    fit, location, operation, names, decimals = argument
    parts, outside = list[StoredPart](), Outside()
    for table in gathered(batches, names, size_bytes=BUFFER_BYTES):
        rows, others = fit(longs_as_decimals(table, decimals))
        outside += others
        if operation is not None:
            path = store_rows(location.store, rows, operation=operation)
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


# Arrow bytes that a task indexes at once. Larger values make larger files and need more memory.
PART_BYTES: Final = 128 << 20


def write_rows(context: bytes, batches: Iterable[pa.RecordBatch], *, part_bytes: int = PART_BYTES) -> bytes:
    """Write the rows of a task."""
    task: AppendTask = pickle.loads(context)  # noqa: S301 -- bytes of our own driver
    parts: list[AppendedPart] = []
    try:
        for group in grouped(((batch, batch.nbytes) for batch in batches), part_bytes):
            if any(batch.num_rows for batch in group):
                parts.append(task.write(pa.Table.from_batches(group)))  # noqa: PERF401 -- an error deletes them
    except BaseException:  # also on an interrupt or a panic of Rust
        delete_parts(task, parts)
        raise
    return pickle.dumps(parts)


def delete_parts(task: AppendTask, parts: Sequence[AppendedPart]) -> None:
    """Delete files that will not be committed, as far as the store allows."""
    if parts:
        delete_data_files(task.target.store, [add for part in parts for add in part.files])
