"""Temporary files of rows in the order of a source or by data file, and reads ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.io.encode import with_short_values
from qbeast_core.space.values import I64Array, U64Array
from qbeast_core.table.data.frames import within
from qbeast_core.table.engine.spill.spill_folder import SpillFolder
from qbeast_core.table.engine.tasks.added_rows import as_bytes

_KEYS: Final = "sort key"  # the last column, accessed by position: other columns may have any name
_SAMPLED_BATCHES: Final = 64

# Compression of files that are read soon takes more time than it saves.
PLAIN: Final = pa.ipc.IpcWriteOptions()
FAST: Final = pa.ipc.IpcWriteOptions(compression="lz4")
# For files that stay until the call ends.
_SMALL: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBatch:
    """Rows with their sort keys."""

    frame: pl.DataFrame
    keys: U64Array


def identity(batch: PlacedBatch) -> PlacedBatch:
    """Return the batch."""
    return batch


class SpilledRows:
    """Rows in the order of a source, see `qbeast_core.table.engine.interfaces.Source`."""

    def __init__(self, folder: SpillFolder, path: str, empty: pl.DataFrame) -> None:
        self._folder, self._path, self.empty = folder, path, empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`. Decompresses only the requested columns."""
        names = self.empty.columns if columns is None else list(columns)
        for table in _read(self._folder, self._path, [self.empty.columns.index(name) for name in names]):
            yield from within(_frame(table, self.empty.schema).select(names), size_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRows:
    """Rows loaded from a temporary file."""

    table: Any
    keys: U64Array
    schema: pl.Schema

    @staticmethod
    def joined(tables: list[Any], schema: pl.Schema) -> LoadedRows:
        """Join tables whose last column is the sort keys. Empties the list, to free memory."""
        table = pa.concat_tables(tables)
        tables.clear()
        place = len(schema)
        return LoadedRows(table.remove_column(place), _numbers(table.column(place)), schema)

    def take(self, places: I64Array, names: Sequence[str]) -> pl.DataFrame:
        """Return the rows at these places. Copies one column at a time."""
        order = pl.Series(places)
        # A gather from one chunk is faster than from many.
        frames = (_frame(self.table.select([name]).combine_chunks(), self.schema) for name in names)
        return pl.DataFrame([frame.to_series()[order] for frame in frames])


@dataclass(frozen=True, slots=True, eq=False)
class SpilledRange:
    """Temporary file with the rows of one range of sort keys. It is read once, then deleted."""

    folder: SpillFolder
    path: str
    # Lowest sort key of each data file to write. The first file also takes lower keys.
    starts: U64Array
    schema: pl.Schema
    # Approximate size of the rows in memory.
    size_bytes: int

    def loads(self, *, size_bytes: int | None = None) -> Iterator[LoadedRows]:
        """Yield the rows in the order of the file, in parts of about `size_bytes`, by default in one part."""
        tables: list[Any] = []
        part_bytes = 0
        for table in _read(self.folder, self.path):
            tables.append(table)
            part_bytes += table.nbytes
            if size_bytes is not None and part_bytes >= size_bytes:
                yield LoadedRows.joined(tables, self.schema)
                part_bytes = 0
        if tables:
            yield LoadedRows.joined(tables, self.schema)

    def batches(self, *, size_bytes: int) -> Iterator[PlacedBatch]:
        """Yield the rows as frames of about `size_bytes`."""
        for rows in self.loads(size_bytes=size_bytes):
            yield PlacedBatch(_frame(rows.table, self.schema), rows.keys)

    def keys(self) -> U64Array:
        """Return the sort keys of all rows. Decompresses only this column."""
        columns = [table.column(0) for table in _read(self.folder, self.path, [len(self.schema)])]
        return np.concatenate([np.zeros(0, np.uint64), *map(_numbers, columns)])

    def delete(self) -> None:
        """Delete the file."""
        _delete(self.folder, self.path)


def spool(
    batches: Iterable[pl.DataFrame], empty: pl.DataFrame, folder: SpillFolder, report: Callable[[int], None]
) -> SpilledRows:
    """Write the rows of a one-shot source to a file that can be read again."""
    path = folder.new_path()
    with SpillWriter(folder, path, report, _SMALL) as writer:
        writer.write(_table(empty))
        for batch in batches:
            writer.write(_table(batch))
    return SpilledRows(folder, path, empty)


def sampled(
    batches: Iterable[pl.DataFrame], sample: list[bytes], *, total: int, rows: int
) -> Iterator[pl.DataFrame]:
    """Yield batches, and append evenly spaced rows to `sample`, as Arrow IPC files.

    Each copy costs time, so at most `_SAMPLED_BATCHES` batches are sampled.

    >>> sample = []
    >>> parts = list(sampled([pl.DataFrame({"x": range(100)})] * 3, sample, total=300, rows=6))
    >>> len(parts), pl.concat(map(pl.read_ipc, sample))["x"].to_list()
    (3, [0, 50, 0, 50, 0, 50])
    """
    seen = next_sample = 0
    for batch in batches:
        if seen >= next_sample:
            stride = max(batch.height, total // _SAMPLED_BATCHES, 1)
            # Small frames that stay between freed batches would keep much memory of Polars' allocator in use.
            some = batch.gather_every(max(batch.height * total // (stride * rows), 1))
            sample.append(bytes(as_bytes(with_short_values(some))))
            next_sample += stride
        seen += batch.height
        yield batch


class SpillWriter:
    """Writes a file of Arrow batches. Without a batch, no file is created. After an error, the file is deleted."""

    def __init__(
        self,
        folder: SpillFolder,
        path: str,
        report: Callable[[int], None],
        options: Any,
        buffer_bytes: int | None = None,
    ) -> None:
        self._folder, self._path, self._report, self._options = folder, path, report, options
        self._buffer_bytes = buffer_bytes
        self._file: Any = None
        self._stream: Any = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def write(self, rows: Any) -> None:
        """Write a batch or a table."""
        with self._folder.writing():
            if self._stream is None:
                self._file = pa.output_stream(self._path, buffer_size=self._buffer_bytes)
                self._stream = pa.ipc.new_stream(self._file, rows.schema, options=self._options)
            self._stream.write(rows)
            self._report_size()

    def __exit__(self, kind: object, *_error: object) -> None:
        if self._stream is None:
            return
        is_whole = False
        try:
            with self._folder.writing():
                if kind is None:
                    self._stream.close()
                    self._report_size()
                self._file.close()
                is_whole = kind is None
        finally:
            if not is_whole:
                with suppress(OSError):  # the flush may fail; the file is closed anyway
                    self._file.close()
                _delete(self._folder, self._path)

    def _report_size(self) -> None:
        size = self._file.tell()
        self._report(size - self._size)
        self._size = size


def _delete(folder: SpillFolder, path: str) -> None:
    with suppress(FileNotFoundError), folder.writing():
        Path(path).unlink()


def _read(folder: SpillFolder, path: str, fields: list[int] | None = None) -> Iterator[Any]:
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    with folder.writing():
        file = pa.OSFile(path, "rb")
        reader = pa.ipc.open_stream(file, options=options)
    try:
        while True:
            with folder.writing():
                batch = next(reader, None)
            if batch is None:
                return
            yield pa.Table.from_batches([batch])
    finally:
        file.close()


def _table(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def by_range(batch: PlacedBatch, firsts: U64Array) -> tuple[Any, list[int]]:
    """Return rows with their keys, sorted by range, and the offsets of the ranges."""
    # 16 bits: numpy uses a radix sort.
    numbers = np.searchsorted(firsts, batch.keys, side="right").astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(firsts) + 1))
    return _with_keys(batch.frame[pl.Series(order)], batch.keys[order]), [0, *ends.tolist()]


def _with_keys(frame: pl.DataFrame, keys: U64Array) -> Any:
    # From its buffer: `pa.array` of an ndarray imports pandas.
    column: Any = pa.Array.from_buffers(pa.uint64(), len(keys), [None, pa.py_buffer(keys)])
    table = _table(frame).append_column(_KEYS, column)
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _numbers(column: Any) -> U64Array:
    return pl.Series(column).to_numpy()  # `to_numpy` of pyarrow imports pandas


def _frame(table: Any, schema: pl.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    return frame.cast({name: schema[name] for name in frame.columns if frame.schema[name] != schema[name]})


ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


def map_ahead(
    call: Callable[[ItemT], AnswerT], items: Iterable[ItemT], *, at_once: int
) -> Generator[AnswerT]:
    """Yield the results in the order of the items. At most `at_once` more items are taken than results.

    >>> list(map_ahead(abs, iter([-1, 2, -3]), at_once=2))
    [1, 2, 3]
    """
    waiting: deque[Future[AnswerT]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
