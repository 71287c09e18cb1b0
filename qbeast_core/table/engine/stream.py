"""Rows that come in batches: queries, datasets, readers and iterators, never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import polars as pl
import pyarrow as pa

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.table.data.frames import ArrowStream, FrameLike, to_frame
from qbeast_core.table.data.query_batches import query_batches, within
from qbeast_core.table.engine.live_files import file_frames
from qbeast_core.table.engine.protocol import FilesSource, FrameSource, Source
from qbeast_core.table.engine.tasks.row_change import ChangeByFile
from qbeast_core.table.engine.tasks.stored_rows import frames_of

_TEXT_BYTES: Final = 32
_OTHER_BYTES: Final = 64


@runtime_checkable
class ArrowDataset(Protocol):
    """A ``pyarrow.dataset.Dataset``."""

    @property
    def schema(self) -> Any:
        """Of the rows, as pyarrow has it."""
        ...

    def scanner(self, **options: Any) -> Any:
        """Return what reads it."""
        ...


# What a write takes: tables of rows, and what gives them batch by batch.
RowsLike: TypeAlias = FrameLike | ArrowDataset | Iterator[FrameLike]


class StreamSource(Source, Protocol):
    """Rows in batches, in an order that never changes."""

    @property
    def is_one_shot(self) -> bool:
        """Whether `batches` can be asked for once only."""
        ...

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """Yield all rows."""
        ...


def source_of(data: RowsLike) -> Source:
    """Return the rows as they are to be moved: at once where they are in memory, else in batches."""
    given = cast("object", data)  # callers without a type checker pass anything
    if isinstance(given, pl.LazyFrame):
        return _Query(given)
    if isinstance(given, pl.DataFrame | pa.Table | pa.RecordBatch) or _is_pandas(given):
        return FrameSource(cast("FrameLike", given))
    if isinstance(given, ArrowStream) and not isinstance(given, pl.Series):
        return _Once(_arrow_batches(pa.RecordBatchReader.from_stream(given)))
    if isinstance(given, ArrowDataset):
        return _Dataset(given)
    if isinstance(given, Iterator):
        return _Once(given)
    return FrameSource(cast("FrameLike", given))  # which refuses it


def handed_over(held: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames and forget them."""
    while held:
        yield held.pop(0)


class FrameStream:
    """The rows of a frame, in slices."""

    is_one_shot = False

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self._frame.clear()

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `StreamSource`."""
        yield from within(self._frame if columns is None else self._frame.select(columns), size_bytes)


class FilesStream:
    """The rows of live files, changed, and those that are added, last."""

    is_one_shot = False

    def __init__(self, source: FilesSource) -> None:
        self._source = source

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self._source.empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `StreamSource`."""
        source = self._source
        change = source.change
        names = list(self.empty.columns if columns is None else columns)
        read = names if change is None else list(self.empty.columns)
        for place, number in enumerate(source.numbers.tolist()):
            own = change.of_file(source.reader.paths[number]) if isinstance(change, ChangeByFile) else change
            for frame in file_frames(source.reader, source.numbers[place : place + 1], read):
                for part in within(frame, size_bytes):
                    yield (part if own is None else own(part)).select(names)
        for rows in frames_of(source.added):
            yield from within(rows.select(names), size_bytes)


class _Query:
    """The rows of a LazyFrame, which is run for each reading of them."""

    is_one_shot = False

    def __init__(self, lazy: pl.LazyFrame) -> None:
        self._lazy = lazy
        self._empty: pl.DataFrame | None = None

    @property
    def empty(self) -> pl.DataFrame:
        if self._empty is None:
            self._empty = to_frame(pl.DataFrame(schema=self._lazy.collect_schema()))
        return self._empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        wanted = self._lazy if columns is None else self._lazy.select(columns)
        rows = _batch_rows(pl.Schema(wanted.collect_schema()), size_bytes)
        for batch in query_batches(wanted, batch_rows=rows):
            yield from within(to_frame(batch), size_bytes)


class _Dataset:
    """The rows of a pyarrow Dataset."""

    is_one_shot = False

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset
        self._empty: pl.DataFrame | None = None

    @property
    def empty(self) -> pl.DataFrame:
        if self._empty is None:
            self._empty = to_frame(self._dataset.schema.empty_table())
        return self._empty

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        names = list(self.empty.columns if columns is None else columns)
        rows = _batch_rows(self.empty.select(names).schema, size_bytes)
        # Few batches ahead: pyarrow reads sixteen of four files otherwise, however large they are.
        scanner = self._dataset.scanner(
            columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1
        )
        for batch in _arrow_batches(scanner.to_reader()):
            yield from within(to_frame(batch), size_bytes)


class _Once:
    """Rows that can be read once: of a reader, a cursor, an iterator of frames."""

    is_one_shot = True

    def __init__(self, frames: Iterator[FrameLike]) -> None:
        self._frames = frames
        self._first: pl.DataFrame | None = None

    @property
    def empty(self) -> pl.DataFrame:
        if self._first is None:
            first = next(self._frames, None)
            if first is None:
                msg = "the iterator gave no frame: its columns are not known; nothing was written. Give an empty frame."
                raise InvalidInputError(msg, argument="df")
            self._first = to_frame(first)
        return self._first.clear()

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        schema = self.empty.schema
        first, self._first = self._first, self.empty
        for frame in chain([] if first is None else [first], map(to_frame, self._frames)):
            _refuse_other_columns(frame.schema, schema)
            yield from within(frame if columns is None else frame.select(columns), size_bytes)


def _arrow_batches(reader: Any) -> Iterator[FrameLike]:
    """Yield the batches of a reader, and before them a table without rows: it may have no batch."""
    yield reader.schema.empty_table()
    for batch in reader:
        yield pa.Table.from_batches([batch])


def _refuse_other_columns(found: pl.Schema, wanted: pl.Schema) -> None:
    if found == wanted:
        return
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    problems = [
        f"column {name!r} is {found.get(name, 'missing')} and was {wanted.get(name, 'missing')}"
        for name in names
    ] or ["the columns stand in another order"]
    what = "; ".join(problems)
    msg = f"the iterator gave frames of different columns: {what}. Nothing was written. Cast or fill them."
    raise SchemaMismatchError(msg, problems=problems)


def _batch_rows(schema: pl.Schema, size_bytes: int) -> int:
    """Return how many rows take so many bytes, guessed from their types."""
    row_bytes = sum(_guess_bytes(dtype) for dtype in schema.dtypes())
    return max(size_bytes // max(row_bytes, 1), 1)


def _guess_bytes(dtype: pl.DataType) -> int:
    if dtype == pl.String:
        return _TEXT_BYTES
    return _OTHER_BYTES if dtype.is_nested() or dtype == pl.Binary else 8


def _is_pandas(data: object) -> bool:
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)
