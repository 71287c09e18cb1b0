"""Arrow batches between Spark and its Python workers.

Spark sends batches of 10,000 rows by default. Workers combine them, since each step takes milliseconds even for few
rows. Between stages, rows are sent as packs: Arrow streams in a binary column. So Spark moves a few large values by
key, instead of converting, compressing and sorting each row.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.hashes import spark_hash
from qbeast_core.space.values import I32Array, I64Array, NumberColumn, U64Array
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.support.sizing import sizing
from qbeast_spark_bridge.worker.call import grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from qbeast_core.table.engine.files import PlaceTask

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

# Columns of the batches of `packed`.
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
    yield from packed(job, keys, (job.target.shape.fit(longs_as_decimals(rows, decimals)) for rows in tables))


def packed(job: PlaceTask, keys: I32Array, frames: Iterable[pl.DataFrame]) -> Iterator[pa.RecordBatch]:
    """Yield rows as packs."""
    for frame in frames:
        for numbers, packs in pack_rows(frame, job.place(frame), job.file_starts):
            yield batch_of(PACKS, keys[numbers], numbers, packs)
