"""Parquet footers: read what pages need of them, and place the page indexes by row group."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.store import Store
from qbeast_core.io.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    ThriftError,
    ThriftStruct,
    field,
    read_struct,
    read_varint,
    write_binary,
    write_list,
    write_zigzag,
)
from qbeast_core.space.values import I64Array

MAGIC: Final = b"PAR1"
_REPEATED: Final = 2
_METADATA: Final = 3  # field of a ColumnChunk
_PLACES: Final = (4, 6)  # its offset index and its column index; the next field is the length
_PAGE_FIELDS: Final = (0x16, 0x15, 0x16, 0)  # headers of the three fields of a PageLocation, and its end
_MAX_VARINT: Final = 9  # bytes of a number that is read here
_MAX_DEPTH: Final = 100  # of nested columns; Polars and Arrow stop there too
_MAX_BYTES: Final = 1 << 62
# Errors that damaged bytes can cause: missing or other fields, numbers out of range.
_PARSE_ERRORS: Final = (ThriftError, LookupError, TypeError, AttributeError, ValueError, OverflowError)

_END: Final = 8
_GUESS: Final = 1 << 16


class PagesUnavailable(Exception):  # noqa: N818 - not a failure: the caller reads the whole file
    """Single pages of this file cannot be read safely; the file as a whole may be valid."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason, path)

    def __str__(self) -> str:
        return self.reason if self.path is None else f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One leaf column of a row group."""

    # Its dotted path, as Parquet writes it (`tags.list.element`).
    path: str
    # Whether a row may hold any number of its values (it lies in a list or map).
    repeated: bool
    # Fields 1 to 4 of its ColumnMetaData (type, encodings, path, codec), encoded.
    constant: bytes
    # Bytes: where the chunk begins (its dictionary page if it has one), where its first data page begins, and
    # its length.
    start: int
    data_start: int
    size: int
    # Bytes before compression.
    uncompressed: int
    # Start and length of its OffsetIndex and of its ColumnIndex, or None.
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The footer of a Parquet file."""

    # Of the Parquet format, as stored.
    version: int
    root: bytes
    # By top-level column, in file order: its schema elements, each encoded.
    schema: dict[str, tuple[bytes, ...]]
    # Top-level column of each leaf, in file order.
    leaves: tuple[str, ...]
    # Of each row group: its rows, and its column chunks in the order of `leaves`.
    group_rows: tuple[int, ...]
    groups: tuple[tuple[ColumnChunk, ...], ...]

    @property
    def chunks(self) -> list[ColumnChunk]:
        """The column chunks of all row groups."""
        return [chunk for group in self.groups for chunk in group]


def parse_footer(data: bytes, thrift: ThriftStruct | None = None) -> FileFooter:
    """Parse a Thrift ``FileMetaData``, or take it as `read_struct` returned it."""
    try:
        return _checked(_parse_footer(data, read_struct(data) if thrift is None else thrift))
    except _PARSE_ERRORS as error:
        reason = f"the footer cannot be parsed ({error})"
        raise PagesUnavailable(reason) from error


def read_page_locations(data: bytes) -> tuple[I64Array, I64Array, I64Array]:
    """Parse a Thrift ``OffsetIndex``: offset, size and first row of each page."""
    usual = usual_page_locations(data, np.zeros(1, np.int64))
    numbers = _page_locations(data) if usual is None else usual[0]
    return numbers[:, 0].copy(), numbers[:, 1].copy(), numbers[:, 2].copy()


def usual_page_locations(data: bytes, starts: I64Array) -> tuple[I64Array, I64Array] | None:
    """Parse several of these as one array: a write parses thousands of them per file.

    `starts` are their places in `data`, ascending. Return offset, size and first row of each page, shape (pages, 3),
    and the number of pages of each. None: one has optional fields, or no page.
    """
    heads = [_list_head(data, start) for start in starts.tolist()]
    if None in heads or not heads:
        return None
    counts, firsts = (
        np.array(part, np.int64) for part in zip(*(head for head in heads if head), strict=True)
    )
    if not counts.all() or 7 * counts.max() > len(data) or 7 * counts.sum() > len(data):
        return None
    # All numbers of the text. A number ends with its first byte below 128; the first one of a list begins there.
    bits = np.frombuffer(data, np.uint8)
    is_begin = np.append(True, bits < 0x80)
    is_begin[firsts] = True
    begins = np.flatnonzero(is_begin[firsts[0] : -1]) + firsts[0]
    lengths = np.diff(begins, append=len(bits))
    places = np.arange(begins[0], len(bits)) - np.repeat(begins, lengths)
    shifts = np.minimum(places, 9).astype(np.uint64) * np.uint64(7)
    numbers = np.add.reduceat((bits[begins[0] :] & 0x7F).astype(np.uint64) << shifts, begins - begins[0])
    within = np.arange(7 * counts.sum()) - np.repeat(7 * (np.cumsum(counts) - counts), 7 * counts)
    at = np.repeat(np.searchsorted(begins, firsts), 7 * counts) + within
    if at[-1] >= len(numbers) or lengths[at].max() > _MAX_VARINT:
        return None
    pages = numbers[at].reshape(-1, 7)
    return (pages[:, 1::2].astype(np.int64) >> 1, counts) if (pages[:, ::2] == _PAGE_FIELDS).all() else None


def _list_head(data: bytes, start: int) -> tuple[int, int] | None:
    """Return the length of the list that begins a struct, and where its first value begins."""
    if data[start : start + 1] != b"\x19" or len(data) < start + 2:
        return None
    head = data[start + 1]
    return (head >> 4, start + 2) if head < 0xF0 else read_varint(data, start + 2)


def _page_locations(data: bytes) -> I64Array:
    try:
        pages = [page.fields for page in read_struct(data).fields[1]]
        return np.array([(p[1], p[2], p[3]) for p in pages], dtype=np.int64).reshape(len(pages), 3)
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        message = f"not an OffsetIndex: {error}"
        raise ThriftError(message) from error


def _parse_footer(data: bytes, thrift: ThriftStruct) -> FileFooter:
    meta = thrift.fields
    groups: list[ThriftStruct] = meta[4]
    if 8 in meta:
        reason = "the file is encrypted"
        raise PagesUnavailable(reason)
    elements: list[ThriftStruct] = meta[2]
    schema, leaves = _top_level_columns(data, elements)
    return FileFooter(
        version=meta[1],
        root=elements[0].fields[4],
        schema=schema,
        leaves=tuple(column for column, _ in leaves),
        group_rows=tuple(group.fields[3] for group in groups),
        groups=tuple(_chunks(group.fields[1], leaves) for group in groups),
    )


def _chunks(columns: list[ThriftStruct], leaves: list[tuple[str, bool]]) -> tuple[ColumnChunk, ...]:
    if len(columns) != len(leaves):
        reason = f"{len(columns)} column chunks do not fit {len(leaves)} leaf columns"
        raise PagesUnavailable(reason)
    return tuple(_chunk(c.fields, *leaf) for c, leaf in zip(columns, leaves, strict=True))


def _checked(footer: FileFooter) -> FileFooter:
    """Raise if a number is out of range: later arithmetic relies on them."""
    numbers: list[Any] = [footer.version, *footer.group_rows]
    for chunk in footer.chunks:
        numbers += [chunk.start, chunk.data_start - chunk.start, chunk.uncompressed, chunk.size - 1]
        numbers += (*(chunk.offset_index or ()), *(chunk.column_index or ()))
    if not all(isinstance(number, int) and 0 <= number < _MAX_BYTES for number in numbers):
        reason = "the footer has impossible numbers of bytes or rows"
        raise PagesUnavailable(reason)
    return footer


def _top_level_columns(
    data: bytes, elements: list[ThriftStruct]
) -> tuple[dict[str, tuple[bytes, ...]], list[tuple[str, bool]]]:
    """Return the schema elements by top-level column, and (column, repeated) of every leaf."""
    schema: dict[str, tuple[bytes, ...]] = {}
    leaves: list[tuple[str, bool]] = []
    at = 1
    for _ in range(elements[0].fields[5]):
        name = elements[at].fields[4].decode()
        end = _walk(elements, at, name, leaves, depth=0, repeated=False)
        schema[name] = tuple(data[element.start : element.end] for element in elements[at:end])
        at = end
    return schema, leaves


def _walk(
    elements: list[ThriftStruct],
    at: int,
    column: str,
    leaves: list[tuple[str, bool]],
    *,
    depth: int,
    repeated: bool,
) -> int:
    if depth > _MAX_DEPTH:
        reason = f"column {column!r} nests deeper than {_MAX_DEPTH}"
        raise PagesUnavailable(reason)
    fields = elements[at].fields
    repeated = repeated or fields.get(3) == _REPEATED
    if not fields.get(5):
        leaves.append((column, repeated))
        return at + 1
    at += 1
    for _ in range(fields[5]):
        at = _walk(elements, at, column, leaves, depth=depth + 1, repeated=repeated)
    return at


def _chunk(fields: dict[int, Any], column: str, repeated: bool) -> ColumnChunk:  # noqa: FBT001 - private
    if 8 in fields or 9 in fields or 1 in fields:
        reason = f"column {column!r} is encrypted or lies in another file"
        raise PagesUnavailable(reason)
    meta: dict[int, Any] = fields[3].fields
    data_start: int = meta[9]
    start = min(data_start, meta.get(11) or data_start)  # writers without a dictionary may store 0
    return ColumnChunk(
        path=b".".join(meta[3]).decode(),
        repeated=repeated,
        constant=_constant(meta),
        start=start,
        data_start=data_start,
        size=meta[7],
        uncompressed=meta[6],
        offset_index=(fields[4], fields[5]) if 4 in fields and 5 in fields else None,
        column_index=(fields[6], fields[7]) if 6 in fields and 7 in fields else None,
    )


def _constant(meta: dict[int, Any]) -> bytes:
    return b"".join(
        (
            field(1, I32) + write_zigzag(meta[1]),
            field(1, LIST) + write_list(I32, [write_zigzag(e) for e in meta[2]]),
            field(1, LIST) + write_list(BINARY, [write_binary(p) for p in meta[3]]),
            field(1, I32) + write_zigzag(meta[4]),
        )
    )


def indexes_by_group(
    file: memoryview, footer_at: int, thrift: ThriftStruct
) -> tuple[list[memoryview], bytes]:
    """Return a file before its footer, with the page indexes of each row group together, and the footer that fits.

    `thrift` is the footer as `read_struct` returned it.
    Writers store the column indexes of all row groups before all offset indexes. Spark reads the offset indexes of a
    row group, then its column indexes, each with the 64 kB that follow: far apart, it reads both areas many times.
    """
    old = bytes(file[footer_at:])
    groups: list[list[ThriftStruct]] = [group.fields[1] for group in thrift.fields[4]]
    order = [
        (chunk, number) for group in groups for number in _PLACES for chunk in group if number in chunk.fields
    ]
    at = footer_at - sum(chunk.fields[number + 1] for chunk, number in order)
    if at != min((chunk.fields[number] for chunk, number in order), default=at):
        return [file[:footer_at]], old  # something else lies between them
    parts, places = [file[:at]], dict[tuple[int, int], int]()
    for chunk, number in order:
        start, length = chunk.fields[number], chunk.fields[number + 1]
        parts.append(file[start : start + length])
        places[chunk.start, number] = at
        at += length
    tail = _with_places(old[:-8], [chunk for group in groups for chunk in group], places)
    return parts, tail + len(tail).to_bytes(4, "little") + MAGIC


def _with_places(
    footer: bytes, chunks: Sequence[ThriftStruct], places: Mapping[tuple[int, int], int]
) -> bytes:
    """Return a footer with other places of page indexes, by the start of their column chunk and the field."""
    parts, done = list[bytes](), 0
    for chunk in chunks:
        last: ThriftStruct = chunk.fields[_METADATA]
        parts.append(footer[done : last.end])
        before = _METADATA
        for number in _PLACES:
            if number in chunk.fields:
                parts += field(number - before, I64), write_zigzag(places[chunk.start, number])
                parts += field(1, I32), write_zigzag(chunk.fields[number + 1])
                before = number + 1
        done = chunk.end - 1
    return b"".join((*parts, footer[done:]))


def stored_size(store: Store, path: str) -> int | None:
    """Return the bytes of a data file; None if it does not exist or must not be opened."""
    try:
        return store.size(path)
    except (FileNotFoundError, UnsupportedTableError):
        return None


def read_footer(store: Store, path: str, size: int) -> Any:
    """Return the footer of a data file as pyarrow knows it, without opening the rest."""
    from pyarrow import ArrowInvalid  # noqa: PLC0415 - slow to load, and few reads need it
    from pyarrow import parquet as pq  # noqa: PLC0415 - the same

    footer = read_footer_bytes(store, path, size)
    try:
        return pq.read_metadata(io.BytesIO(footer))
    except (ArrowInvalid, OSError) as error:
        message = f"its footer cannot be understood: {error}"
        raise Unreadable(message) from error


def read_footer_bytes(store: Store, path: str, size: int) -> bytes:
    """Return the end of a file that readers of metadata need, after the bytes that every Parquet file begins with."""
    tail = store.get_range(path, max(0, size - _GUESS), min(size, _GUESS))
    if len(tail) < _END or tail[-4:] != MAGIC:
        message = f"it does not end as a Parquet file does; it has {size:,} bytes"
        raise Unreadable(message)
    length = int.from_bytes(tail[-8:-4], "little") + _END
    if length > size:
        message = f"it ends with a footer of {length:,} bytes, and has {size:,} in all"
        raise Unreadable(message)
    if length > len(tail):
        tail = store.get_range(path, size - length, length)
    return MAGIC + tail[-length:]


class Unreadable(Exception):  # noqa: N818 - it says what the file is; the check goes on
    """A data file is not a Parquet file."""


@dataclass(frozen=True, slots=True)
class PageCuts:
    """The row groups of a file, and how they are cut into pages: all columns at the same rows.

    >>> cuts = PageCuts((5, 4), (2, 4))
    >>> cuts.pages, cuts.starts().tolist(), cuts.groups().tolist()
    (4, [0, 2, 4, 5, 9], [0, 0, 0, 1])
    """

    # Rows of each row group.
    group_rows: tuple[int, ...]
    # Rows per page of each row group; its last page has the rest.
    page_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.group_rows)

    @property
    def group_pages(self) -> list[int]:
        """Number of pages of each row group."""
        return [-(-rows // each) for rows, each in zip(self.group_rows, self.page_rows, strict=True)]

    @property
    def pages(self) -> int:
        """Number of pages of the file."""
        return sum(self.group_pages)

    def starts(self) -> I64Array:
        """Return the first row of each page, and the number of rows, shape (pages + 1,)."""
        first, parts = 0, list[I64Array]()
        for rows, each in zip(self.group_rows, self.page_rows, strict=True):
            parts.append(np.arange(first, first + rows, each, dtype=np.int64))
            first += rows
        return np.concatenate([*parts, np.array([first], np.int64)])

    def groups(self) -> I64Array:
        """Return the row group of each page, shape (pages,)."""
        return np.repeat(np.arange(len(self.group_rows)), self.group_pages)

    def rows_in(self, pages: I64Array) -> I64Array:
        """Return the numbers of the rows in some ascending pages."""
        starts = self.starts()
        counts = np.diff(starts)[pages]
        return np.repeat(starts[pages] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def cuts_of(group_rows: Sequence[int] | I64Array, page_rows: Sequence[int] | I64Array) -> PageCuts:
    """Return cuts from sequences or arrays."""
    return PageCuts(tuple(map(int, group_rows)), tuple(map(int, page_rows)))
