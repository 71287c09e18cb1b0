"""Data files: what every version and format has in common, with global dictionaries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from qbeast_carbondata.columns import Column
from qbeast_carbondata.damage import damaged, place
from qbeast_carbondata.pages.old_rows import read_dictionary
from qbeast_carbondata.pages.page import (
    Dictionaries,
    PageContext,
    decode_page,
    fixed_records,
    values_of_texts,
)
from qbeast_carbondata.pages.texts import NULL_TOKEN
from qbeast_carbondata.stored_file import StoredFile, read_file
from qbeast_carbondata.structs import DataChunk2, DataType, read_dictionary_meta
from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.store import Store
from qbeast_core.space.values import I64Array

# Minimum and maximum of a column as stored, see `qbeast_carbondata.pages.page`; None if unknown.
StoredBounds = tuple[bytes, bytes] | None

_MAX_ENTRIES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Blocklet:
    """A run of rows of a file that is read at once."""

    # Its position in the file; delete deltas refer to it.
    number: int
    # Rows of each page; the pages of all columns have the same rows.
    page_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of all pages."""
        return sum(self.page_rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class DataFile(ABC):
    """An opened data file: its structure is known and checked, its pages are not read yet.

    Several threads may call its methods, which raise `DamagedFileError` and `UnsupportedTableError`.
    """

    file: StoredFile
    # `"V1"`, `"V2"`, `"V3"`, `"row"`, `"parquet"` or `"orc"`.
    version: str
    # The release that wrote it, if it is known.
    writer: str = ""
    # Top-level columns in the order of the file.
    columns: tuple[Column, ...]
    blocklets: tuple[Blocklet, ...]

    def bounds(self, blocklet: Blocklet, column: Column) -> StoredBounds:  # noqa: ARG002 - most formats have them
        """Return the bounds of a column that is not nested in a blocklet."""
        return None

    def page_bounds(self, blocklet: Blocklet, column: Column) -> list[StoredBounds]:
        """Return the bounds of such a column in each page of a blocklet; those of the blocklet hold for all."""
        return [self.bounds(blocklet, column)] * len(blocklet.page_rows)

    @abstractmethod
    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """Return, for each of some columns, the rows of some pages of a blocklet as one Arrow array."""


# Some pages of a column in a blocklet with their bytes, and the context to decode them.
Chunk = tuple[dict[int, tuple[DataChunk2, memoryview]], PageContext]


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnarFile(DataFile):
    """A data file that stores columns in pages: versions 1 to 3."""

    cardinalities: tuple[int, ...]
    dictionaries: Dictionaries

    @abstractmethod
    def chunk(self, blocklet: Blocklet, context: PageContext, pages: Sequence[int]) -> Chunk:
        """Read some pages of a column."""

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        arrays: list[Any] = []
        for column in columns:
            with self.inside(blocklet, column):
                arrays.append(self._column(blocklet, column, pages))
        return arrays

    def inside(self, blocklet: Blocklet, column: Column) -> Any:
        """Add a blocklet and a column to errors."""
        return self.file.inside(place_of(blocklet, column))

    def _column(self, blocklet: Blocklet, column: Column, pages: Sequence[int]) -> Any:
        if not pages:
            return pa.nulls(0, column.arrow_type)
        chunks: dict[int, Chunk] = {}
        for node in column.walk():
            is_known = 0 <= node.dimension < len(self.cardinalities)
            context = PageContext(
                column=node,
                dictionaries=self.dictionaries,
                cardinality=self.cardinalities[node.dimension] if is_known else None,
                is_child=node is not column,
            )
            chunks[node.number] = self.chunk(blocklet, context, pages)
        parts = [_page(blocklet, column, chunks, page) for page in pages]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _page(blocklet: Blocklet, column: Column, chunks: dict[int, Chunk], page: int) -> Any:
    """Return a page of a column with all that is nested in it."""
    rows = blocklet.page_rows[page]

    def leaf(node: Column) -> Any:
        pages, context = chunks[node.number]
        return decode_page(*pages[page], context, rows if node is column else -1)

    def records(node: Column) -> Any:
        pages, context = chunks[node.number]
        return fixed_records(*pages[page], context)

    with place(f"page {page}"):
        values = _assemble(column, leaf, records)
        if len(values) != rows:
            damaged(f"{rows} rows have {len(values)} values")
    return values


def place_of(blocklet: Blocklet, column: Column) -> str:
    """Return the place of a column in messages."""
    return f"blocklet {blocklet.number}, column {column.schema.name!r}"


def checked_blocklets(blocklets: Sequence[Blocklet], rows: int) -> tuple[Blocklet, ...]:
    """Return the blocklets if they have the rows that the footer counts."""
    total = sum(blocklet.rows for blocklet in blocklets)
    if total != rows:
        damaged(f"its blocklets have {total} rows, its footer {rows}")
    return tuple(blocklets)


def _assemble(column: Column, leaf: Callable[[Column], Any], records: Callable[[Column], I64Array]) -> Any:
    """Return the values of one page of a column with all that is nested in it."""
    if not column.is_nested:
        return leaf(column)
    children = [_assemble(child, leaf, records) for child in column.children]
    if column.kind == DataType.STRUCT:
        return _struct(column, children, len(records(column)))
    return _list(column, children[0], records(column))


def _struct(column: Column, children: list[Any], rows: int) -> Any:
    for child, values in zip(column.children, children, strict=True):
        if len(values) != rows:
            damaged(f"field {child.schema.name!r} has {len(values)} values for {rows} structs")
    nulls = np.logical_and.reduce([np.asarray(values.is_null()) for values in children])
    names = [child.field_name for child in column.children]
    return pa.StructArray.from_arrays(children, names=names, mask=pa.array(nulls) if nulls.any() else None)


def _list(column: Column, child: Any, records: I64Array) -> Any:
    counts, starts = records[:, 0], records[:, 1]
    full = counts > 0
    if np.any(counts < 0) or np.any((starts < 0) & full) or np.any((starts + counts)[full] > len(child)):
        damaged(f"an array of {column.schema.name!r} refers to more than the {len(child)} values there are")
    nulls = _only_null(counts, starts, child)
    counts = np.where(nulls, 0, counts)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > len(child):
        damaged(f"arrays of {column.schema.name!r} share values")
    if not np.array_equal(starts[counts > 0], offsets[:-1][counts > 0]) or offsets[-1] != len(child):
        child = child.take(pa.array(np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)))
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    kind = column.arrow_type
    if column.kind == DataType.MAP:
        if len(child) > _MAX_ENTRIES or child.null_count or child.field(0).null_count:
            damaged(f"a map of {column.schema.name!r} has an entry without a key, or there are too many")
        offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(kind, len(counts), [validity, pa.py_buffer(offsets)], children=[child])


def _only_null(counts: I64Array, starts: I64Array, child: Any) -> Any:
    """Return which arrays consist of one null."""
    single = counts == 1
    if not child.null_count:
        return np.zeros(len(counts), np.bool_)
    single[single] = np.asarray(child.is_null())[starts[single]]
    return single


_GRANULARITY: Final = "carbon.timegranularity"
_CUTOFF: Final = "carbon.cutOffTimestamp"
_GRANULARITIES_MS: Final = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_T = TypeVar("_T")


def open_dictionaries(store: Store, settings: Mapping[str, str] | None = None) -> TableDictionaries:
    """Return the global dictionaries of a table, each read when it is needed."""
    chosen = {_GRANULARITY: "SECOND", _CUTOFF: "", **(settings or {})}
    granularity_ms = _GRANULARITIES_MS.get(chosen[_GRANULARITY].upper())
    if chosen.keys() - {_GRANULARITY, _CUTOFF} or granularity_ms is None:
        msg = (
            f"writer_settings may hold {_GRANULARITY} (one of {', '.join(_GRANULARITIES_MS)}) and {_CUTOFF}, "
            f"got {dict(settings or {})}"
        )
        raise InvalidInputError(msg, argument="writer_settings")
    return TableDictionaries(store, granularity_ms, _cutoff_ms(chosen[_CUTOFF]))


def _cutoff_ms(text: str) -> int:
    """Return a time of ``carbon.properties`` in ms since 1970 UTC; 0 for an empty text."""
    try:
        cutoff = datetime.fromisoformat(text or "1970-01-01")
    except ValueError:
        msg = f"writer_settings: {_CUTOFF} must be like '2000-01-01 00:00:00', got {text!r}"
        raise InvalidInputError(msg, argument="writer_settings") from None
    return round((cutoff if cutoff.tzinfo else cutoff.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True, eq=False)
class TableDictionaries:
    """The `Dictionaries` in the folder ``Metadata`` of a table; pickles without the members."""

    store: Store
    granularity_ms: int = 1000
    cutoff_ms: int = 0
    _members: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any], repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.granularity_ms, self.cutoff_ms)

    def members(self, column: Column) -> Any:
        """See `Dictionaries`."""
        key = (column.schema.column_id, str(column.arrow_type))
        with self._lock:  # threads that need the same dictionary wait for one read
            if key not in self._members:
                self._members[key] = self._read(column)
            return self._members[key]

    def direct_timestamp(self) -> tuple[int, int]:
        """See `Dictionaries`."""
        return self.granularity_ms, self.cutoff_ms

    def _read(self, column: Column) -> Any:
        path = f"Metadata/{column.schema.column_id}.dict"
        loads = self._file(f"{path}meta", read_dictionary_meta)

        def read(data: bytes) -> Any:
            size = len(data) if loads is None else loads[-1].end
            if size > len(data):
                damaged(f"its meta counts {size} bytes, and it has {len(data)}")
            slices = read_dictionary(data[:size])  # the rest belongs to a load that did not end
            if loads is not None and len(slices) != loads[-1].last:
                damaged(f"it has {len(slices)} members, its meta counts {loads[-1].last}")
            return values_of_texts(slices, column, slices.equal_to(NULL_TOKEN))

        values = self._file(path, read)
        if values is None:
            message = (
                f"column {column.schema.name!r} of {self.store.uri!r} has a global dictionary, and {path!r} does not "
                "exist: no other file has its values. Restore the file, or read other columns."
            )
            feature = f"missing dictionary of column {column.schema.name!r}"
            raise UnsupportedTableError(message, path=path, feature=feature)
        return pa.concat_arrays([pa.nulls(1, column.arrow_type), values])

    def _file(self, path: str, read: Callable[[bytes], _T]) -> _T | None:
        try:
            return read_file(self.store, path, read)
        except FileNotFoundError:
            return None
