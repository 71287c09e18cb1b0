"""Convert Polars columns to the NumPy columns of `qbeast_core.space`, in parallel chunks that fit the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.space.hashes import spark_hash
from qbeast_core.space.values import BoolArray, I32Array, IndexColumn, NumberColumn, NumberKind, StringColumn
from qbeast_core.spec.revision import DataType
from qbeast_core.support.sizing import sizing

_MIN_THREADED_CHUNKS: Final = 4  # starting threads takes longer than a chunk or two
_MAX_INLINE_CALLS: Final = 16  # more files wait for the disk one after the other
_Out = TypeVar("_Out")
_In = ParamSpec("_In")


def workers(max_workers: int, *, rows: int, calls: int) -> Executor:
    """Return a thread pool; for a single call, or a few calls of few rows, an executor that runs calls immediately.

    >>> with workers(2, rows=10, calls=2) as pool:
    ...     pool.submit(max, 1, 2).result()
    2
    """
    is_little = calls <= _MAX_INLINE_CALLS and rows <= sizing().chunk_rows
    return _InlineExecutor() if calls == 1 or is_little else ThreadPoolExecutor(max_workers)


def map_chunks(
    function: Callable[[int, int], _Out], rows: int, *, chunk_rows: int | None = None
) -> list[_Out]:
    """Call ``function(start, stop)`` for consecutive chunks of rows; return the results in order.

    >>> map_chunks(lambda start, stop: stop - start, 5, chunk_rows=2)
    [2, 2, 1]
    """
    step = chunk_rows or sizing().chunk_rows
    bounds = [(start, min(start + step, rows)) for start in range(0, rows, step)]
    if len(bounds) < _MIN_THREADED_CHUNKS:
        return [function(*bound) for bound in bounds]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        starts, stops = zip(*bounds, strict=True)
        return list(pool.map(function, starts, stops))


class _InlineExecutor(Executor):
    """Runs calls in the calling thread: starting a thread takes longer than small work."""

    def submit(self, fn: Callable[_In, _Out], /, *args: _In.args, **kwargs: _In.kwargs) -> Future[_Out]:
        future = Future[_Out]()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - `result` raises it, as for a thread
            future.set_exception(error)
        return future


_KINDS: Final[dict[pl.DataType, NumberKind]] = {
    pl.Int8(): "int8",
    pl.Int16(): "int16",
    pl.Int32(): "int32",
    pl.Int64(): "int64",
    pl.Float32(): "float32",
    pl.Float64(): "float64",
    pl.Date(): "date",
}
_DATA_TYPES: Final[dict[NumberKind, DataType]] = {
    "int8": "IntegerDataType",
    "int16": "IntegerDataType",
    "int32": "IntegerDataType",
    "int64": "LongDataType",
    "float32": "FloatDataType",
    "float64": "DoubleDataType",
    "date": "DateDataType",
    "timestamp": "TimestampDataType",
    "decimal": "DecimalDataType",
}
_INDEXABLE: Final = (
    "byte, short, int, long, float, double, decimal, date, timestamp, timestamp_ntz and string"
)
_LONG_DECIMAL_DIGITS: Final = 18


def data_type_of(name: str, dtype: pl.DataType) -> DataType:
    """Return the format's data type for a Polars column type (format 3).

    >>> data_type_of("price", pl.Float64())
    'DoubleDataType'
    """
    if dtype == pl.String:
        return "StringDataType"
    kind = _kind_of(dtype)
    if kind is None:
        msg = (
            f"column {name!r} has type {dtype} and cannot be indexed. "
            f"Columns of these types can: {_INDEXABLE}."
        )
        raise InvalidColumnsError(msg, columns=[name])
    return _DATA_TYPES[kind]


def to_index_column(series: pl.Series) -> IndexColumn:
    """Convert a Polars column to an index column.

    >>> to_index_column(pl.Series("x", [1, None], dtype=pl.Int32)).nulls
    array([False,  True])
    """
    data_type_of(series.name, series.dtype)
    if series.dtype == pl.String:
        return text_column(series)
    if isinstance(series.dtype, pl.Decimal):
        return _decimal_column(series, series.dtype)
    nulls = _nulls(series)
    kind = _kind_of(series.dtype) or "int64"
    whole = series.cast(pl.Datetime("us")) if kind == "timestamp" else series
    physical = whole.cast(pl.Int32 if kind == "date" else pl.Int64) if whole.dtype.is_temporal() else whole
    values = (physical.fill_null(0) if nulls is not None else physical).to_numpy()
    return NumberColumn(kind, values, nulls)


def frame_weights(frame: pl.DataFrame, names: Sequence[str]) -> I32Array:
    """Return the weight of each row: Spark's hash of the indexed columns, or others, in order (format 6).

    >>> frame_weights(pl.DataFrame({"a": [None]}, schema={"a": pl.Int64}), ["a"])
    array([42], dtype=int32)
    """
    keys = frame[list(names)]  # a select has more overhead than hashing a few rows
    weights = np.empty(frame.height, np.int32)

    def chunk(start: int, stop: int) -> None:
        rows = keys.slice(start, stop - start)  # limits the size of copies of strings and nulls
        weights[start:stop] = spark_hash([_hashable(column) for column in rows], rows=stop - start)

    map_chunks(chunk, frame.height)
    return weights


def can_be_hashed(dtype: pl.DataType) -> bool:
    """Return whether `frame_weights` accepts columns of a type: types that can be indexed, boolean and binary.

    >>> can_be_hashed(pl.Boolean()), can_be_hashed(pl.List(pl.Int64))
    (True, False)
    """
    return dtype in (pl.String(), pl.Boolean(), pl.Binary()) or _kind_of(dtype) is not None


def _hashable(series: pl.Series) -> IndexColumn:
    """Convert a column for hashing. Spark hashes a boolean as an int, and bytes as a text."""
    if series.dtype == pl.Binary:
        return text_column(series)
    return to_index_column(series.cast(pl.Int32) if series.dtype == pl.Boolean else series)


def text_column(series: pl.Series) -> StringColumn:
    """Convert a column of texts or bytes to an index column.

    >>> len(text_column(pl.Series(["", "wg"])))
    2
    """
    array = _one_chunk(series)
    _, offsets, data = array.buffers()
    start, stop = array.offset, array.offset + len(array) + 1
    bounds = np.frombuffer(offsets or bytes(8), dtype=np.int64)[start:stop]
    return StringColumn(np.frombuffer(data or b"", dtype=np.uint8), bounds, _nulls(series))


def _kind_of(dtype: pl.DataType) -> NumberKind | None:
    if isinstance(dtype, pl.Datetime):
        return "timestamp"
    if isinstance(dtype, pl.Decimal):
        return "decimal"
    return _KINDS.get(dtype)


def _nulls(series: pl.Series) -> BoolArray | None:
    return series.is_null().to_numpy() if series.null_count() else None


def _decimal_column(series: pl.Series, dtype: pl.Decimal) -> NumberColumn:
    array = _one_chunk(series)
    words = np.frombuffer(array.buffers()[1] or b"", dtype=np.int64)  # no buffer without rows
    words = words.reshape(-1, 2)[array.offset : array.offset + len(array)]
    is_narrow = (dtype.precision or 38) <= _LONG_DECIMAL_DIGITS
    values = np.ascontiguousarray(words[:, 0]) if is_narrow else words
    return NumberColumn("decimal", values, _nulls(series), scale=dtype.scale)


def _one_chunk(series: pl.Series) -> Any:
    return series.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
