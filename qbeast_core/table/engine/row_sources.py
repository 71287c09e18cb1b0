"""Sources of rows: frames, and queries, datasets, readers and iterators that are read in batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import polars as pl
import pyarrow as pa

from qbeast_core.errors import InvalidInputError, SchemaMismatchError
from qbeast_core.table.data.frames import (
    ArrowStream,
    FrameLike,
    batches_within,
    has_any_width,
    is_pandas,
    little_read_ahead,
    opened,
    reading_rows,
    slices_within,
    takes_slices,
    to_frame,
    within,
)
from qbeast_core.table.engine.budget import guess_row_bytes
from qbeast_core.table.engine.interfaces import Source


@runtime_checkable
class ArrowDataset(Protocol):
    """A ``pyarrow.dataset.Dataset``."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of the rows."""
        ...

    def scanner(self, **options: Any) -> Any:
        """Return a scanner."""
        ...


# Input of a write: tables of rows, or sources of batches.
RowsLike: TypeAlias = FrameLike | ArrowDataset | Iterator[FrameLike]

_NO_COLUMNS: Final[frozenset[str]] = frozenset()
_HEAD_ROWS: Final = 16
_SLICE_BATCHES: Final = 4  # batches per slice: a slice of a row group reads the row group up to it


class FrameSource:
    """Rows in memory. Converted to a frame at the first use."""

    def __init__(self, data: FrameLike) -> None:
        self._data = data

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        return to_frame(self._data)

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        return self.frame.clear()

    @property
    def required(self) -> frozenset[str]:
        """The columns whose fields in Arrow allow no nulls."""
        return _required(self._data)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        yield from within(self.frame if columns is None else self.frame.select(columns), size_bytes)


@contextmanager
def open_source(data: RowsLike) -> Generator[Source]:
    """Yield the source of some rows, and close what it opened: DuckDB runs no other query before that."""
    source = _source_of(data)
    try:
        yield source
    finally:
        if isinstance(source, OneShotSource):
            source.close()


def _source_of(data: RowsLike) -> Source:
    rows = cast("object", data)  # callers without a type checker pass anything
    if isinstance(rows, pl.LazyFrame):
        return _Query(rows)
    if isinstance(rows, pl.DataFrame | pa.Table | pa.RecordBatch) or is_pandas(rows):
        return FrameSource(cast("FrameLike", rows))
    if isinstance(rows, ArrowStream) and not isinstance(rows, pl.Series):
        reader = opened(rows)
        return OneShotSource(_arrow_batches(reader), reader)
    if isinstance(rows, ArrowDataset):
        return _Dataset(rows)
    if isinstance(rows, Iterator):
        return OneShotSource(rows)
    return FrameSource(cast("FrameLike", rows))  # raises at the first use if the type is not supported


def required_columns(source: Source) -> frozenset[str]:
    """Return the columns that allow no nulls, as fields of Arrow declare them; those of a query allow them."""
    return source.required if isinstance(source, FrameSource | OneShotSource | _Dataset) else _NO_COLUMNS


def _required(data: object) -> frozenset[str]:
    schema = None if isinstance(data, pl.DataFrame | pl.LazyFrame) else getattr(data, "schema", None)
    if not hasattr(schema, "__arrow_c_schema__"):
        return _NO_COLUMNS
    return frozenset(field.name for field in pa.schema(schema) if not field.nullable)


def drain(frames: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames and remove them from the list."""
    while frames:
        yield frames.pop(0)


class _Query:
    """The rows of a LazyFrame. Each read runs the query."""

    def __init__(self, lazy: pl.LazyFrame) -> None:
        self._lazy = lazy

    @property
    def empty(self) -> pl.DataFrame:
        with reading_rows():
            return to_frame(pl.DataFrame(schema=self._lazy.collect_schema()))

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        query = self._lazy if columns is None else self._lazy.select(columns)
        with reading_rows():
            if takes_slices(query):
                for frame in slices_within(query, size_bytes=_SLICE_BATCHES * size_bytes):
                    yield from within(to_frame(frame), size_bytes)
                return
            with little_read_ahead():
                yield from map(to_frame, batches_within(query, size_bytes=size_bytes))


class _Dataset:
    """The rows of a pyarrow Dataset."""

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset

    @property
    def empty(self) -> pl.DataFrame:
        return to_frame(_no_rows(self._dataset.schema))

    @property
    def required(self) -> frozenset[str]:
        return _required(self._dataset)

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        names = list(self.empty.columns if columns is None else columns)
        # Limit the readahead: by default pyarrow reads 16 batches of 4 files, whatever their size.
        with reading_rows():
            rows = self._batch_rows(names, size_bytes)
            scanner = self._dataset.scanner(
                columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1
            )
            reader = scanner.to_reader()
        for batch in _arrow_batches(reader):
            yield from within(to_frame(batch), size_bytes)

    def _batch_rows(self, names: list[str], size_bytes: int) -> int:
        """Return the number of rows of about this size, from the types and the first rows."""
        schema = self.empty.select(names).schema
        rows = max(size_bytes // max(guess_row_bytes(schema), 1), 1)
        if not any(map(has_any_width, schema.dtypes())):
            return rows
        scanner = self._dataset.scanner(
            columns=names, batch_size=_HEAD_ROWS, batch_readahead=1, fragment_readahead=1
        )
        head = to_frame(scanner.head(_HEAD_ROWS))
        return min(max(size_bytes * head.height // max(int(head.estimated_size()), 1), 1), rows)


class OneShotSource:
    """Rows of a reader, a cursor or an iterator, which can be read only once."""

    def __init__(self, frames: Iterator[FrameLike], reader: pa.RecordBatchReader | None = None) -> None:
        self._frames = frames
        self._reader = reader
        self._first: pl.DataFrame | None = None
        self._required = _NO_COLUMNS

    @property
    def empty(self) -> pl.DataFrame:
        """See `Source`."""
        if self._first is None:
            first = next(self._frames, None)
            if first is None:
                msg = "the iterator returned no frame: its columns are unknown. Return an empty frame."
                raise InvalidInputError(msg, argument="df")
            self._first, self._required = to_frame(first), _required(first)
        return self._first.clear()

    @property
    def required(self) -> frozenset[str]:
        """The columns whose fields allow no nulls in the first frame."""
        return self._required if self.empty.width else _NO_COLUMNS

    def batches(self, columns: Sequence[str] | None, *, size_bytes: int) -> Iterator[pl.DataFrame]:
        """See `Source`."""
        schema = self.empty.schema
        first, self._first = self._first, self.empty
        for frame in chain([] if first is None else [first], map(to_frame, self._frames)):
            _refuse_other_columns(frame.schema, schema)
            yield from within(frame if columns is None else frame.select(columns), size_bytes)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()


def _arrow_batches(reader: Any) -> Iterator[FrameLike]:
    """Yield a table without rows, then the batches of a reader: the reader may have no batch."""
    yield _no_rows(reader.schema)
    with reading_rows():
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _no_rows(schema: Any) -> pa.Table:
    """Return a table without rows. `empty_table` of pyarrow fails for types that it cannot make from objects."""
    return pa.Table.from_batches([], schema=schema)


def _refuse_other_columns(schema: pl.Schema, first: pl.Schema) -> None:
    if schema == first:
        return
    names = [name for name in {**first, **schema} if schema.get(name) != first.get(name)]
    problems = [
        f"column {name!r} is {schema.get(name, 'missing')} and was {first.get(name, 'missing')}"
        for name in names
    ] or ["the columns are in another order"]
    msg = f"the iterator returned frames with different columns: {'; '.join(problems)}. Cast or fill them."
    raise SchemaMismatchError(msg, problems=problems)
