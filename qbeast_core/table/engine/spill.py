"""Rows that do not fit in memory: read twice, sorted with temporary files, and written file by file."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from qbeast_core.errors import StorageError
from qbeast_core.io.encode import refuse_huge_values, with_short_values
from qbeast_core.io.machine import TemporaryFolder, give_back_memory
from qbeast_core.log.actions import AddFile
from qbeast_core.space.values import I32Array, I64Array, U64Array, distinct
from qbeast_core.support.frames import with_types
from qbeast_core.support.process import Progress, ProgressCallback, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.files import FileSettings, FileTarget, NewFile, delete_data_files
from qbeast_core.table.data.frames import has_any_width, within
from qbeast_core.table.engine.distributed import DistributedRows
from qbeast_core.table.engine.engine import Budget, Rows, Source
from qbeast_core.table.engine.files import (
    PlacedFile,
    PlaceTask,
    SummaryTask,
    files_of_rows,
    store_placed,
    write_plain,
)
from qbeast_core.table.engine.row_change import as_bytes
from qbeast_core.tree.summary import IndexSummary, merge_summaries

_PREFIX: Final = "qbeast-spill-"


class SpillFolder:
    """New folder in `parent`, locked until it is closed or the process ends.

    Folders of killed processes of the same user are removed first.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent)
        exists = False
        # Access to a folder of another user may fail. `Path.is_dir` hides that from Python 3.14 on.
        with self.writing(), suppress(FileNotFoundError, NotADirectoryError):
            exists = stat.S_ISDIR(self.parent.stat().st_mode)
        if not exists:
            msg = (
                f"there is no folder {str(self.parent)!r} to spill rows to. Make it, or name "
                "another one with `spill_dir`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir")
        with self.writing():
            self._folder = TemporaryFolder(self.parent, _PREFIX)
        self.path = self._folder.path

    def new_path(self) -> str:
        """Return the path of a new file."""
        return str(self.path / uuid.uuid4().hex)

    def close(self) -> None:
        """Remove the folder and its files."""
        self._folder.close()

    @contextmanager
    def writing(self) -> Generator[None]:
        """Convert errors of the system to a `StorageError` about the folder, not the table."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            problem = "has no room left" if full else f"cannot be used: {error.strerror or error}"
            msg = (
                f"the folder for rows that do not fit in memory, {str(self.parent)!r}, {problem}, "
                "and the temporary files are removed. Pass another folder with `spill_dir` (with room for "
                "the rows twice), or more memory with `memory_bytes`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir") from error


_KEYS: Final = "sort key"  # the last column, accessed by position: other columns may have any name
_SAMPLED_BATCHES: Final = 64

# Compression of files that are read soon takes more time than it saves.
PLAIN: Final = pa.ipc.IpcWriteOptions()
FAST: Final = pa.ipc.IpcWriteOptions(compression="lz4")
# For files that stay until the call ends.
_SMALL: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))


# Rows with their sort keys.
PlacedBatch: TypeAlias = tuple[pl.DataFrame, U64Array]


def identity(batch: PlacedBatch) -> PlacedBatch:
    """Return the batch."""
    return batch


class SpilledSource:
    """Rows in the order of a source, see `qbeast_core.table.engine.engine.Source`."""

    def __init__(self, folder: SpillFolder, path: str, empty: pl.DataFrame) -> None:
        self._folder, self._path, self.empty = folder, path, empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`. Decompresses only the requested columns."""
        names = self.empty.columns if columns is None else list(columns)
        for table in _read(self._folder, self._path, [self.empty.columns.index(name) for name in names]):
            yield from within(_frame(table, self.empty.schema).select(names), size_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRange:
    """Rows loaded from a temporary file."""

    table: Any
    keys: U64Array
    schema: pl.Schema

    @staticmethod
    def joined(tables: list[Any], schema: pl.Schema) -> LoadedRange:
        """Join tables whose last column is the sort keys. Empties the list, to free memory."""
        table = pa.concat_tables(tables)
        tables.clear()
        place = len(schema)
        return LoadedRange(table.remove_column(place), _numbers(table.column(place)), schema)

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

    def loads(self, *, size_bytes: int | None = None) -> Iterator[LoadedRange]:
        """Yield the rows in the order of the file, in parts of about `size_bytes`, by default in one part."""
        tables: list[Any] = []
        part_bytes = 0
        for table in _read(self.folder, self.path):
            tables.append(table)
            part_bytes += table.nbytes
            if size_bytes is not None and part_bytes >= size_bytes:
                yield LoadedRange.joined(tables, self.schema)
                part_bytes = 0
        if tables:
            yield LoadedRange.joined(tables, self.schema)

    def batches(self, *, size_bytes: int) -> Iterator[PlacedBatch]:
        """Yield the rows as frames of about `size_bytes`."""
        for rows in self.loads(size_bytes=size_bytes):
            yield _frame(rows.table, self.schema), rows.keys

    def keys(self) -> U64Array:
        """Return the sort keys of all rows. Decompresses only this column."""
        columns = [table.column(0) for table in _read(self.folder, self.path, [len(self.schema)])]
        return np.concatenate([np.zeros(0, np.uint64), *map(_numbers, columns)])

    def delete(self) -> None:
        """Delete the file."""
        _delete(self.folder, self.path)


def spool(
    batches: Iterable[pl.DataFrame], empty: pl.DataFrame, folder: SpillFolder, report: Callable[[int], None]
) -> SpilledSource:
    """Write the rows of a one-shot source to a file that can be read again."""
    path = folder.new_path()
    with SpillWriter(folder, path, report, _SMALL) as writer:
        writer.write(_table(empty))
        for batch in batches:
            writer.write(_table(batch))
    return SpilledSource(folder, path, empty)


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


def _by_range(batch: PlacedBatch, firsts: U64Array) -> tuple[Any, list[int]]:
    """Return rows with their keys, sorted by range, and the offsets of the ranges."""
    # 16 bits: numpy uses a radix sort.
    frame, keys = batch
    numbers = np.searchsorted(firsts, keys, side="right").astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(firsts) + 1))
    return _with_keys(frame[pl.Series(order)], keys[order]), [0, *ends.tolist()]


def _with_keys(frame: pl.DataFrame, keys: U64Array) -> Any:
    # From its buffer: `pa.array` of an ndarray imports pandas.
    column: Any = pa.Array.from_buffers(pa.uint64(), len(keys), [None, pa.py_buffer(keys)])
    table = _table(frame).append_column(_KEYS, column)
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _numbers(column: Any) -> U64Array:
    return pl.Series(column).to_numpy()  # `to_numpy` of pyarrow imports pandas


def _frame(table: Any, schema: pl.Schema) -> pl.DataFrame:
    return with_types(pl.DataFrame(table), schema)


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


BatchT = TypeVar("BatchT")

_MAX_OPEN: Final = 256
_MIN_BUFFER_BYTES: Final = 1 << 12
_MAX_BUFFER_BYTES: Final = 1 << 18
_OFFSET_BYTES: Final = 8  # per text, in addition to its characters
_KEY_BYTES: Final = 8
_SAMPLED_ROWS: Final = 1 << 14
_FILLED: Final = 0.8  # target share of what a writer may load, because parts differ in size


class Spill:
    """Temporary files and the memory budget for rows that do not fit in memory."""

    def __init__(self, folder: SpillFolder, budget: Budget, report: Callable[[int], None]) -> None:
        self.folder, self.budget, self.report = folder, budget, report

    def part_count(self, size_bytes: int) -> int:
        """Return the number of parts to split rows into so that a writer can load each, at most `max_open`."""
        parts = -(-size_bytes // int(self.budget.load_bytes * _FILLED))
        return min(max(parts, 2), self.max_open)

    @property
    def max_open(self) -> int:
        """Maximum number of files that are open at once."""
        return max(min(_MAX_OPEN, self.budget.batch_bytes // sizing().min_slice_bytes), 2)

    def scatter(
        self,
        batches: Iterable[BatchT],
        placed: Callable[[BatchT], PlacedBatch],
        starts: U64Array,
        schema: pl.Schema,
        *,
        packed: bool,
        at_once: int = 1,
    ) -> list[SpilledRange]:
        """Partition rows into temporary files. Each holds the rows of one or more of the data files of `starts`."""
        groups = np.array_split(starts, min(self.max_open, len(starts)))
        firsts = np.array([group[0] for group in groups[1:]], np.uint64)
        size = self.budget.batch_bytes // len(groups)
        size = min(max(size, _MIN_BUFFER_BYTES), _MAX_BUFFER_BYTES)
        paths = [self.folder.new_path() for _ in groups]
        sizes = [0.0] * len(groups)
        with ExitStack() as stack:
            options = FAST if packed else PLAIN
            writers = [
                stack.enter_context(SpillWriter(self.folder, path, self.report, options, size))
                for path in paths
            ]
            sorting = map_ahead(lambda batch: _by_range(placed(batch), firsts), batches, at_once=at_once)
            for batch, ends in stack.enter_context(closing(sorting)):
                # Estimate the size of a slice from the batch: computing it takes longer than writing the slice.
                row_bytes = batch.nbytes / max(batch.num_rows, 1)
                for number, (first, end) in enumerate(pairwise(ends)):
                    if first < end:
                        sizes[number] += (end - first) * row_bytes
                        writers[number].write(batch.slice(first, end - first))
        return [
            SpilledRange(self.folder, path, group, schema, int(size))
            for path, group, size in zip(paths, groups, sizes, strict=True)
            if size
        ]


def spill_rows(
    stream: Source, target: FileTarget, spill: Spill, progress: ProgressCallback | None, *, row_bytes: float
) -> Rows:
    """Return the rows of a source, to be moved through temporary files."""
    texts = sum(map(has_any_width, target.shape.schema.dtypes()))
    spilled_row_bytes = row_bytes + _OFFSET_BYTES * texts + _KEY_BYTES
    max_rows = max(int(spill.budget.load_bytes * _FILLED / spilled_row_bytes), sizing().min_part_rows)
    passes = _ThreadPasses(stream, target, spill, progress, row_bytes)
    return DistributedRows(passes, target, progress, row_bytes=row_bytes, max_file_rows=max_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _ThreadPasses:
    """Threads of this process; see `qbeast_core.table.engine.distributed.Passes`."""

    stream: Source
    target: FileTarget
    spill: Spill
    progress: ProgressCallback | None
    row_bytes: float

    @property
    def advice(self) -> str:
        return "Rows are read twice: pass rows that are the same each time, or an iterator, whose rows are stored."

    def count(self) -> int:
        names, size_bytes = self.stream.empty.columns[:1], self.spill.budget.batch_bytes
        return sum(batch.height for batch in self.stream.batches(names, size_bytes=size_bytes))

    def write_plain(self, target: FileTarget) -> Sequence[AddFile]:
        budget = self.spill.budget
        report(self.progress, Progress("write"))
        batches = self.stream.batches(None, size_bytes=budget.batch_bytes)
        return write_plain(batches, target, max_bytes=budget.load_bytes)

    def summarise(self, task: SummaryTask) -> IndexSummary:
        budget = self.spill.budget
        limits = budget.sample
        task = replace(task, limits=limits)
        schema = task.read_schema
        names = list(schema)
        indexed = self.target.shape.of_columns(names)

        def summary(numbered: tuple[int, pl.DataFrame]) -> IndexSummary:
            first_row, batch = numbered
            return task.summarise(indexed.fit(batch).select(names), first_row=first_row)

        columns = self.stream.empty.columns
        read = [name for name in indexed.schema if name in columns] or columns[:1]
        batches = self.stream.batches(read, size_bytes=budget.batch_bytes)
        total = task.summarise(schema.to_frame(), first_row=0)
        waiting: list[IndexSummary] = []
        for part in map_ahead(summary, _numbered(batches), at_once=budget.cores):
            waiting.append(part.below(total.key_limit))
            if sum(summary.sampled_rows for summary in waiting) > limits.rows:
                total, waiting = merge_summaries([total, *waiting], limits=limits), []
        return merge_summaries([total, *waiting], limits=limits)

    def place(self, task: PlaceTask) -> Sequence[PlacedFile]:
        written: list[PlacedFile] = []
        try:
            if task.file_count:
                files, ranges = self._scatter(task, written)
                give_back_memory()  # writing files needs the most memory
                with closing(map_ahead(files.write, ranges, at_once=self.spill.budget.writers)) as writing:
                    for _ in writing:
                        total = max(task.file_count, len(written))
                        report(self.progress, Progress("write", len(written), total, task.rows))
        except BaseException:  # also after an interrupt or a panic of Rust
            delete_data_files(task.target.store, [file.add for file in written])
            raise
        return written

    def _scatter(self, task: PlaceTask, written: list[PlacedFile]) -> tuple[_Files, list[SpilledRange]]:
        is_spooled = isinstance(self.stream, SpilledSource)  # the rows are on disk already: compress the copy
        sample: list[bytes] = []
        budget = self.spill.budget
        batches = self.stream.batches(None, size_bytes=budget.batch_bytes)
        ranges = self.spill.scatter(
            sampled(batches, sample, total=task.rows, rows=self._sampled_rows),
            partial(_placed, task),
            task.file_starts,
            task.target.shape.schema,
            packed=is_spooled,
            at_once=budget.cores if self.row_bytes < budget.batch_bytes else 1,
        )
        rows = task.target.shape.fit(pl.concat([*map(pl.read_ipc, sample)] or [self.stream.empty]))
        size_bytes = int(task.rows * self.row_bytes)
        settings = FileSettings.of(task.target, rows, task.revision.columns, size_bytes=size_bytes)
        return _Files(task, self.spill, settings, written, is_spooled), ranges

    @property
    def _sampled_rows(self) -> int:
        """Number of rows to sample to choose the encodings of files, limited by memory."""
        max_rows = int(self.spill.budget.sample.size_bytes / max(self.row_bytes, 1.0))
        return max(min(_SAMPLED_ROWS, max_rows), 1)


def _placed(task: PlaceTask, batch: pl.DataFrame) -> PlacedBatch:
    rows = task.select(task.target.shape.fit(batch))
    refuse_huge_values(rows)
    return rows, task.place(rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Writes data files of spilled rows. Appends them to `written` in any order."""

    task: PlaceTask
    spill: Spill
    settings: FileSettings
    written: list[PlacedFile]
    packed: bool

    def write(self, part: SpilledRange) -> None:
        """Write the files of a range, then delete it. A range that does not fit in memory is split first."""
        max_bytes = self.spill.budget.load_bytes
        if part.size_bytes <= max_bytes:
            self._write(part, size_bytes=None)
            return
        starts = part.starts if len(part.starts) > 1 else _cut(part, self.spill.part_count(part.size_bytes))
        if len(starts) == 1:  # all sort keys are equal: any split is in order
            self._write(part, size_bytes=int(max_bytes * _FILLED))
        else:
            batches = part.batches(size_bytes=self.spill.budget.batch_bytes)
            smaller = self.spill.scatter(batches, identity, starts, part.schema, packed=self.packed)
            part.delete()
            for piece in smaller:
                self.write(piece)

    def _write(self, part: SpilledRange, *, size_bytes: int | None) -> None:
        """Write the files of a range, in parts of `size_bytes` or at once. Frees the rows of each file early."""
        ordered: list[tuple[NewFile, I32Array]] = []
        for rows in part.loads(size_bytes=size_bytes):
            numbers = np.searchsorted(part.starts[1:], rows.keys, side="right")
            for number in distinct(numbers).tolist():
                places = np.flatnonzero(numbers == number)
                ordered += files_of_rows(self.task, rows.take, rows.keys, places)
            del rows
            while ordered:
                self.written.append(store_placed(self.task, *ordered.pop(0), settings=self.settings))
        part.delete()


def _cut(part: SpilledRange, pieces: int) -> U64Array:
    """Return the sort keys that split the rows of one file into about equal pieces. Equal keys are not split."""
    keys = np.sort(part.keys())
    cuts = distinct(keys[[len(keys) * i // pieces for i in range(1, pieces)]])
    cuts = cuts[cuts > keys[0]]
    if not len(cuts):  # most keys are equal to the lowest one: split it off
        cuts = keys[keys > keys[0]][:1]
    return np.concatenate([part.starts[:1], cuts])


def _numbered(batches: Iterable[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each batch with the number of its first row."""
    first_row = 0
    for batch in batches:
        yield first_row, batch
        first_row += batch.height
