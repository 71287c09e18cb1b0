"""Rows on a disk for a while: as they come, or by the file that they will be written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I64Array, U64Array
from qbeast_core.table.data.query_batches import within
from qbeast_core.table.engine.spill.folder import SpillFolder

_KEYS: Final = "sort key"  # the last column, found by its place: others may have any name
PLAIN: Final = pa.ipc.IpcWriteOptions()  # to pack what is read back at once takes more time than it saves
_SAMPLED_BATCHES: Final = 64
FAST: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_SMALL: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))  # what stays until the call ends


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBatch:
    """Rows with their sort keys."""

    frame: pl.DataFrame
    keys: U64Array


def identity(batch: PlacedBatch) -> PlacedBatch:
    """Return a batch whose rows are placed already."""
    return batch


class SpilledRows:
    """Rows of one source as they came, see `qbeast_core.table.engine.protocol.Source`."""

    is_one_shot = False

    def __init__(self, folder: SpillFolder, path: str, empty: pl.DataFrame) -> None:
        self._folder, self._path, self.empty = folder, path, empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`; columns that are not wanted are not unpacked."""
        names = self.empty.columns if columns is None else list(columns)
        for table in _read(self._folder, self._path, [self.empty.columns.index(name) for name in names]):
            yield from within(_frame(table, self.empty.schema).select(names), size_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRows:
    """Rows that were read back, to be taken in any order; see `RowsToPlace`."""

    table: Any
    keys: U64Array
    schema: pl.Schema

    @staticmethod
    def joined(tables: list[Any], schema: pl.Schema) -> LoadedRows:
        """Take over tables whose last column is the sort keys; the list is empty afterwards."""
        table = pa.concat_tables(tables)
        tables.clear()
        place = len(schema)
        return LoadedRows(table.remove_column(place), _numbers(table.column(place)), schema)

    def take(self, places: I64Array, names: Sequence[str] | None = None) -> pl.DataFrame:
        """Return some rows in some order, all columns by default; beside them one column is held twice at a time."""
        wanted, order = list(self.schema) if names is None else list(names), pl.Series(places)
        # In one piece: to look for each row's piece takes longer, and a text is a piece more to look up.
        whole = (_frame(self.table.select([name]).combine_chunks(), self.schema) for name in wanted)
        return pl.DataFrame([frame.to_series()[order] for frame in whole])


@dataclass(frozen=True, slots=True, eq=False)
class SpilledRange:
    """The rows of one range of sort keys; read once, then deleted."""

    folder: SpillFolder
    path: str
    # Sort keys that the data files to write begin at, the first one for all below it too.
    starts: U64Array
    schema: pl.Schema
    # Of the rows in memory, about.
    size_bytes: int

    def loads(self, *, size_bytes: int | None = None) -> Iterator[LoadedRows]:
        """Yield the rows in the order they came in, in parts of about so many bytes, or in one; none is kept here."""
        held: list[Any] = []
        held_bytes = 0
        for table in _read(self.folder, self.path, None):
            held.append(table)
            held_bytes += table.nbytes
            if size_bytes is not None and held_bytes >= size_bytes:
                yield LoadedRows.joined(held, self.schema)
                held_bytes = 0
        if held:
            yield LoadedRows.joined(held, self.schema)

    def batches(self, *, size_bytes: int) -> Iterator[PlacedBatch]:
        """Yield the same as frames."""
        for rows in self.loads(size_bytes=size_bytes):
            yield PlacedBatch(_frame(rows.table, self.schema), rows.keys)

    def keys(self) -> U64Array:
        """Return the sort keys of all rows, as they came; nothing else is unpacked."""
        columns = [table.column(0) for table in _read(self.folder, self.path, [len(self.schema)])]
        return np.concatenate([np.zeros(0, np.uint64), *map(_numbers, columns)])

    def delete(self) -> None:
        """Make room."""
        _delete(self.folder, self.path)


def spool(
    batches: Iterable[pl.DataFrame], empty: pl.DataFrame, folder: SpillFolder, report: Callable[[int], None]
) -> SpilledRows:
    """Write the rows of a source that can be read once, so that they can be read again."""
    path = folder.new_path()
    with SpillWriter(folder, path, report, _SMALL) as writer:
        writer.write(_table(empty))
        for batch in batches:
            writer.write(_table(batch))
    return SpilledRows(folder, path, empty)


def sampled(
    batches: Iterable[pl.DataFrame], found: list[pl.DataFrame], *, total: int, rows: int
) -> Iterator[pl.DataFrame]:
    """Yield batches, and copy some rows from all over them to a list: they keep no batch in memory.

    Of many batches some are looked at, for that costs by the batch.

    >>> found = []
    >>> parts = list(sampled([pl.DataFrame({"x": range(100)})] * 3, found, total=300, rows=6))
    >>> len(parts), pl.concat(found)["x"].to_list()
    (3, [0, 50, 0, 50, 0, 50])
    """
    seen = wanted = 0
    for batch in batches:
        if seen >= wanted:
            stride = max(batch.height, total // _SAMPLED_BATCHES, 1)
            some = batch.gather_every(max(batch.height * total // (stride * rows), 1))
            found.append(_frame(_table(some), batch.schema))
            wanted += stride
        seen += batch.height
        yield batch


class SpillWriter:
    """A file of Arrow batches; one that got none is not made."""

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
                with suppress(OSError):  # it cannot write what it holds; closed it is
                    self._file.close()
                _delete(self._folder, self._path)

    def _report_size(self) -> None:
        size = self._file.tell()
        self._report(size - self._size)
        self._size = size


def _delete(folder: SpillFolder, path: str) -> None:
    with suppress(FileNotFoundError), folder.writing():
        Path(path).unlink()


def _read(folder: SpillFolder, path: str, fields: Sequence[int] | None) -> Iterator[Any]:
    options = (
        pa.ipc.IpcReadOptions() if fields is None else pa.ipc.IpcReadOptions(included_fields=list(fields))
    )
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
    """Return rows with their keys, sorted by range, and where each range begins and the last one ends."""
    numbers = np.searchsorted(firsts, batch.keys, side="right").astype(np.uint16)  # sorted by counting
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(firsts) + 1))
    return _with_keys(batch.frame[pl.Series(order)], batch.keys[order]), [0, *ends.tolist()]


def _with_keys(frame: pl.DataFrame, keys: U64Array) -> Any:
    # From its buffer: pa.array of an ndarray imports pandas first, to see whether it is one of its own.
    column: Any = pa.Array.from_buffers(pa.uint64(), len(keys), [None, pa.py_buffer(keys)])
    table = _table(frame).append_column(_KEYS, column)
    return pa.RecordBatch.from_arrays([one.combine_chunks() for one in table.columns], schema=table.schema)


def _numbers(column: Any) -> U64Array:
    return pl.Series(column).to_numpy()  # to_numpy of pyarrow imports pandas first


def _frame(table: Any, schema: pl.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    return frame.cast({name: schema[name] for name in frame.columns if frame.schema[name] != schema[name]})
