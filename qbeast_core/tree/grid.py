"""Cells of a fine grid: index values as columns, their cells, child cells, and rows grouped by cell.

Files order cubes by tree, by depth, then along a Hilbert curve (format 7). On the curve, neighbours in space are
neighbours in files, so the cubes of a box form fewer runs of pages than in bit order. The curve follows J. Skilling,
"Programming the Hilbert curve" (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.space.cubes import MAX_DEPTH, Cubes
from qbeast_core.space.hashes import spark_hash
from qbeast_core.space.values import (
    MAX_WEIGHT,
    BoolArray,
    F64Array,
    I32Array,
    I64Array,
    IndexColumn,
    NumberColumn,
    NumberKind,
    StringColumn,
    U32Array,
    U64Array,
)
from qbeast_core.spec.revision import DataType, Revision
from qbeast_core.support.sizing import sizing

_MIN_THREADED_CHUNKS: Final = 4  # starting threads takes longer than a chunk or two
_MAX_INLINE_CALLS: Final = 16  # more files wait for the disk one after the other
_Out = TypeVar("_Out")
_In = ParamSpec("_In")


def thread_pool(max_workers: int, *, rows: int, calls: int) -> Executor:
    """Return a thread pool; for a single call, or a few calls of few rows, an executor that runs calls immediately.

    >>> with thread_pool(2, rows=10, calls=2) as pool:
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
    if len(series) <= sizing().few_texts:
        return _few_texts(series)
    array = _one_chunk(series)
    _, offsets, data = array.buffers()
    start, stop = array.offset, array.offset + len(array) + 1
    bounds = np.frombuffer(offsets or bytes(8), dtype=np.int64)[start:stop]
    return StringColumn(np.frombuffer(data or b"", dtype=np.uint8), bounds, _nulls(series))


def _few_texts(series: pl.Series) -> StringColumn:
    """Convert a short column as `text_column` does, without pyarrow, which takes longer to load."""
    values = [value.encode() if isinstance(value, str) else value or b"" for value in series.to_list()]
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=bounds[1:])
    return StringColumn(np.frombuffer(b"".join(values), dtype=np.uint8), bounds, _nulls(series))


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


# Numbers of cubes; 16 bits if they fit.
CubeNumbers: TypeAlias = npt.NDArray[np.uint16] | I32Array

# A coordinate is one of `2**32` cells, so a tree has at most 32 levels below the root.
GRID_BITS: Final = MAX_DEPTH

_DENSE_KEYS_PER_ROW: Final = 4


def grid(coordinates: F64Array) -> U32Array:
    """Return the cell of each coordinate on the finest grid, ``floor(x * 2**32)`` clipped to its last cell.

    >>> grid(np.array([0.0, 0.5, 1.0])).tolist()
    [0, 2147483648, 4294967295]
    """
    scaled = coordinates * float(1 << GRID_BITS)
    np.minimum(scaled, float((1 << GRID_BITS) - 1), out=scaled)
    return scaled.astype(np.uint32)


def child_codes(cells: Sequence[npt.NDArray[np.unsignedinteger[Any]]]) -> I64Array:
    """Return each cell's child number: its last bits, dimension 0 the most significant. One array per dimension.

    Numbers sort as the format orders sibling cubes (format 5).

    >>> child_codes([np.array([0, 3], dtype=np.uint64), np.array([1, 2], dtype=np.uint64)])
    array([1, 2])
    """
    codes = np.zeros(len(cells[0]), np.int64)
    for column in cells:
        codes <<= 1
        codes |= (column & column.dtype.type(1)).astype(np.int64)
    return codes


def cubes_of_keys(levels: Sequence[I64Array], dimensions: int) -> Cubes:
    """Return the cubes of nodes. A key is the position of the parent in the level above, then the child number.

    The keys of the first level are the numbers of the trees.

    >>> cubes_of_keys([np.array([0]), np.array([1, 2]), np.array([7])], 2).cells.tolist()
    [[0, 0], [0, 1], [1, 0], [3, 1]]
    """
    roots = levels[0] if len(levels) else np.zeros(0, np.int64)
    cells, trees = [np.zeros((len(roots), dimensions), np.int64)], [roots]
    shifts = np.arange(dimensions - 1, -1, -1)
    for keys in levels[1:]:
        cells.append((cells[-1][keys >> dimensions] << 1) | ((keys[:, None] >> shifts) & 1))
        trees.append(trees[-1][keys >> dimensions])
    depths = np.repeat(np.arange(len(levels), dtype=np.uint8), [len(keys) for keys in levels])
    return Cubes(
        depths, np.concatenate(cells).astype(np.uint64), np.concatenate(trees) if roots.any() else None
    )


def mark_ancestors(below: BoolArray, used: BoolArray, levels: Sequence[I64Array], dimensions: int) -> None:
    """Mark in `below` the nodes with a child that is in `used` or in `below`; see `cubes_of_keys` for keys."""
    firsts = np.cumsum([0, *map(len, levels)])
    for depth in range(len(levels) - 1, 0, -1):  # from the deepest level up: a parent depends on its children
        here = slice(firsts[depth], firsts[depth + 1])
        parents = levels[depth][used[here] | below[here]] >> dimensions
        below[firsts[depth - 1] + parents] = True


def lowest_by_node(weights: I32Array, node: npt.NDArray[np.integer[Any]], nodes: int) -> I32Array:
    """Return the minimum weight of each of `nodes` nodes, and the maximum weight for a node without rows."""
    lowest = np.full(nodes, MAX_WEIGHT, np.int32)
    np.minimum.at(lowest, node, weights)
    return lowest


def find_keys(level_keys: I64Array, keys: I64Array) -> I64Array:
    """Return the position of each key among sorted ones, -1 if missing.

    >>> find_keys(np.array([2, 5]), np.array([5, 3, 9])).tolist()
    [1, -1, -1]
    """
    if not len(level_keys):
        return np.full(len(keys), -1, np.int64)
    positions = np.minimum(np.searchsorted(level_keys, keys), len(level_keys) - 1)
    return np.where(level_keys[positions] == keys, positions, -1)


def group_keys(key: I64Array, key_count: int) -> tuple[I64Array, I64Array, I32Array]:
    """Return the distinct keys in order, the number of rows of each, and the position of each row's key.

    >>> [part.tolist() for part in group_keys(np.array([5, 2, 5]), 8)]
    [[2, 5], [1, 2], [1, 0, 1]]
    """
    if key_count <= max(sizing().dense_keys, _DENSE_KEYS_PER_ROW * len(key)):
        counts = np.bincount(key, minlength=key_count)
        keys = np.flatnonzero(counts)
        lookup = np.zeros(key_count, np.int32)
        lookup[keys] = np.arange(len(keys), dtype=np.int32)
        return keys, counts[keys], lookup.take(key)
    keys, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    return keys, counts, inverse.astype(np.int32)


def grid_columns(frame: pl.DataFrame, revision: Revision) -> list[U32Array]:
    """Return the finest-grid cell of each row along each indexed column of `revision`."""
    columns = [frame.get_column(name) for name in revision.columns]
    cells = [np.empty(frame.height, np.uint32) for _ in columns]

    def chunk(start: int, stop: int) -> None:
        for column, space, out in zip(columns, revision.transformations, cells, strict=True):
            values = to_index_column(column.slice(start, stop - start))
            out[start:stop] = grid(to_coordinates(space, values))

    map_chunks(chunk, frame.height)
    return cells


_WORD_BITS: Final = 64


def file_order(cubes: Cubes) -> I64Array:
    """Return the positions of cubes in file order.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> file_order(decode_cubes(["w", "g", "Q", "A", ""], dimensions=2)).tolist()
    [4, 3, 2, 0, 1]
    """
    deepest = int(cubes.depth.max()) if len(cubes) else 0
    # The first corner of each cube on the grid of the deepest cubes: the curve enters and leaves a cube once.
    corners = cubes.cells << (deepest - cubes.depth.astype(np.uint64))[:, None]
    words = _words(_along_curve(corners.T.copy(), deepest), deepest)
    by_tree = [] if cubes.trees is None else [cubes.trees.astype(np.uint64)]
    return np.lexsort([*reversed(words), cubes.depth.astype(np.uint64), *by_tree])


def _along_curve(axes: U64Array, bits: int) -> U64Array:
    """Return positions on the curve, as one bit per dimension and level, highest level first; overwrites `axes`."""
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        below = (one << np.uint64(bit)) - one
        for number in range(len(axes)):
            upper = (axes[number] >> np.uint64(bit)) & one != 0
            swapped = np.where(upper, np.uint64(0), (axes[0] ^ axes[number]) & below)
            axes[0] ^= np.where(upper, below, swapped)
            axes[number] ^= swapped
    np.bitwise_xor.accumulate(axes, axis=0, out=axes)
    rotation = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        upper = (axes[-1] >> np.uint64(bit)) & one
        rotation ^= upper * ((one << np.uint64(bit)) - one)
    axes ^= rotation
    return axes


def _words(axes: U64Array, bits: int) -> list[U64Array]:
    """Return positions on the curve as 64-bit words, most significant first."""
    words: list[U64Array] = []
    free_bits = 0
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            if not free_bits:
                words.append(np.zeros_like(axis))
                free_bits = _WORD_BITS
            words[-1] <<= np.uint64(1)
            words[-1] |= (axis >> np.uint64(bit)) & np.uint64(1)
            free_bits -= 1
    return words
