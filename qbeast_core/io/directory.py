"""The page directory of a data file: all that a read of single pages needs, so it fetches and parses no footer.

It lies between the page indexes and the footer, where other Parquet readers skip it. The footer stays complete::

    magic "QBPAGES3" | CRC-32 of everything after it | length of the body | the body, compressed by zlib

docs/format.md describes the body. Column chunks and their pages follow each other from byte 4 of the file on, so their
places are sums of sizes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from math import prod
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from qbeast_core.io.footer import MAGIC, FileFooter, PageCuts, PagesUnavailable, cuts_of
from qbeast_core.space.values import I64Array, U32Array, U64Array

_MAGIC: Final = b"QBPAGES3"
_NUMBER: Final = struct.Struct("<I")
_CHECKED_FROM: Final = len(_MAGIC) + _NUMBER.size
_BODY_FROM: Final = _CHECKED_FROM + _NUMBER.size
_COUNTS: Final = 7
_MAX_WIDTH: Final = 8
_MAX_RATIO: Final = 1040  # the best ratio zlib reaches
_MAX_PAGE: Final = (1 << 31) - 1  # a page has fewer bytes in any Parquet file
_MAX_BYTES: Final = 1 << 62
_MAX_VERSION: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True, eq=False)
class PageDirectory:
    """Where the pages of a file lie, and how their values are stored."""

    # Of the Parquet format, and the name of the root of its schema, as in the footer.
    version: int
    root: bytes
    # By top-level column, in file order: its schema elements, each encoded.
    schema: dict[str, tuple[bytes, ...]]
    # Of each leaf column, in file order: its top-level column, and whether a row may hold any number of its values.
    leaves: tuple[str, ...]
    repeated: tuple[bool, ...]
    cuts: PageCuts
    # Fields 1 to 4 of a ColumnMetaData (type, encodings, path, codec), encoded.
    constants: tuple[bytes, ...]
    # Of each column chunk, shape (row groups, leaves): number of its constants, bytes of its dictionary page, and bytes
    # before compression.
    constant_of: I64Array
    dictionary_bytes: I64Array
    uncompressed_bytes: I64Array
    # Where each chunk begins, and its bytes.
    chunk_starts: I64Array
    chunk_bytes: I64Array
    # Bytes of each data page, header included, shape (leaves, pages).
    page_bytes: U32Array
    # Row group of each page.
    page_groups: I64Array

    @property
    def pages(self) -> int:
        """Number of pages per column."""
        return int(self.page_bytes.shape[1])

    @property
    def end(self) -> int:
        """Where the last chunk ends."""
        return int(self.chunk_starts[-1, -1] + self.chunk_bytes[-1, -1])

    def page_starts(self, leaves: Sequence[int]) -> I64Array:
        """Return the first byte of each data page of some leaves, shape (leaves, pages)."""
        ends = np.cumsum(self.page_bytes[leaves], axis=1, dtype=np.int64)
        before = ends - self.page_bytes[leaves]
        data_starts = (self.chunk_starts + self.dictionary_bytes)[:, leaves].T
        starts: I64Array = before + (data_starts - before[:, _firsts(self.cuts)])[:, self.page_groups]
        return starts

    def same_as(self, other: PageDirectory) -> bool:
        """Return whether both have equal values."""
        return _body(self) == _body(other)


def directory_of(footer: FileFooter, page_bytes: npt.NDArray[Any], cuts: PageCuts) -> PageDirectory | None:
    """Return the directory of a file; None if its chunks or their pages do not follow each other."""
    if not footer.leaves or footer.group_rows != cuts.group_rows or footer.version > _MAX_VERSION:
        return None
    constants = dict(zip(dict.fromkeys(chunk.constant for chunk in footer.chunks), count(), strict=False))
    numbers = [
        (constants[chunk.constant], chunk.data_start - chunk.start, chunk.uncompressed)
        for chunk in footer.chunks
    ]
    directory = _located(
        version=footer.version,
        root=footer.root,
        schema=footer.schema,
        leaves=footer.leaves,
        repeated=tuple(chunk.repeated for chunk in footer.groups[0]),
        cuts=cuts,
        constants=tuple(constants),
        numbers=np.array(numbers, np.int64).T.reshape(3, len(footer.groups), len(footer.leaves)),
        page_bytes=page_bytes.astype(np.uint32),
    )
    places = [(chunk.start, chunk.size) for chunk in footer.chunks]
    found = zip(directory.chunk_starts.ravel().tolist(), directory.chunk_bytes.ravel().tolist(), strict=True)
    return directory if list(found) == places else None


def _located(*, cuts: PageCuts, numbers: I64Array, page_bytes: U32Array, **facts: Any) -> PageDirectory:
    """Return a directory with the places of its chunks. `numbers` are the first three of each chunk."""
    constant_of, dictionary_bytes, uncompressed_bytes = numbers
    data_bytes = np.add.reduceat(page_bytes, _firsts(cuts), axis=1, dtype=np.int64).T
    chunk_bytes = data_bytes + dictionary_bytes
    ends = len(MAGIC) + np.cumsum(chunk_bytes).reshape(chunk_bytes.shape)
    return PageDirectory(
        cuts=cuts,
        constant_of=constant_of,
        dictionary_bytes=dictionary_bytes,
        uncompressed_bytes=uncompressed_bytes,
        chunk_starts=ends - chunk_bytes,
        chunk_bytes=chunk_bytes,
        page_bytes=page_bytes,
        page_groups=cuts.groups(),
        **facts,
    )


def _firsts(cuts: PageCuts) -> list[int]:
    """Return the first page of each row group."""
    firsts, first = list[int](), 0
    for pages in cuts.group_pages:
        firsts.append(first)
        first += pages
    return firsts


def dump_directory(directory: PageDirectory) -> bytes:
    """Return the bytes to write between the page indexes and the footer."""
    body = _body(directory)
    checked = _NUMBER.pack(len(body)) + zlib.compress(body, 9)
    return _MAGIC + _NUMBER.pack(zlib.crc32(checked)) + checked


def _body(directory: PageDirectory) -> bytes:
    names, elements = list(directory.schema), list(directory.schema.values())
    texts = [directory.root, *map(str.encode, names), *directory.constants, *chain.from_iterable(elements)]
    chunks = np.array((directory.constant_of, directory.dictionary_bytes, directory.uncompressed_bytes))
    numbers = (
        directory.version,
        len(directory.cuts.group_rows),
        len(names),
        len(directory.leaves),
        len(directory.constants),
        _width(chunks),
        _width(directory.page_bytes),
        *directory.cuts.group_rows,
        *directory.cuts.page_rows,
        *map(len, elements),
        *map(directory.leaves.count, names),
        *directory.repeated,
        *map(len, texts),
    )
    planes = _planes(chunks), _planes(directory.page_bytes)
    return b"".join((np.array(numbers, "<u4").tobytes(), *planes, *texts))


def _planes(numbers: npt.NDArray[Any]) -> bytes:
    """Return numbers with all lowest bytes first, then the next ones of all, as far as the largest number needs."""
    stored = np.ascontiguousarray(numbers, "<u8").view(np.uint8).reshape(-1, 8)
    return stored.T[: _width(numbers)].tobytes()


def _width(numbers: npt.NDArray[Any]) -> int:
    return max(-(-int(numbers.max()).bit_length() // 8), 1)


def parse_directory(data: bytes, *, tail_bytes: int, size_bytes: int) -> PageDirectory:
    """Parse a directory that begins so many bytes before the end of a file of this size."""
    if len(data) < _BODY_FROM or not data.startswith(_MAGIC):
        _refuse("there is no page directory at the position in the table's log")
    checksum, length = (_NUMBER.unpack_from(data, at)[0] for at in (len(_MAGIC), _CHECKED_FROM))
    if zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        _refuse("the page directory is damaged")
    if length > size_bytes:  # the footer alone has as many
        _refuse("the page directory claims more pages than it can list")
    try:
        return _parse(_Reader(_inflate(memoryview(data)[_BODY_FROM:], length)), size_bytes - tail_bytes)
    except UnicodeDecodeError as error:
        reason = f"the page directory names no columns ({error})"
        raise PagesUnavailable(reason) from error


def _parse(body: _Reader, end: int) -> PageDirectory:
    """Parse a body. Pages end at byte `end` of the file at the latest."""
    version, groups, columns, leaves, constants, chunk_width, page_width = body.numbers(_COUNTS).tolist()
    rows, page_rows = body.numbers(2 * groups).reshape(2, groups)
    elements, of_columns = body.numbers(2 * columns).reshape(2, columns).tolist()
    repeated = body.numbers(leaves)
    lengths = body.numbers(1 + columns + constants + sum(elements)).tolist()
    if 0 in (groups, leaves, constants) or not (rows.all() and page_rows.all()) or sum(of_columns) != leaves:
        _refuse("the page directory has no rows or columns")
    cuts = cuts_of(rows.tolist(), page_rows.tolist())
    numbers = body.planes(chunk_width, (3, groups, leaves))
    page_bytes = body.planes(page_width, (leaves, cuts.pages))
    if page_bytes.min() == 0 or page_bytes.max() > _MAX_PAGE:
        _refuse("the page directory has impossible sizes of pages")
    texts = body.texts(lengths)
    root, names = next(texts), [name.decode() for name in islice(texts, columns)]
    directory = _located(
        version=version,
        root=root,
        constants=tuple(islice(texts, constants)),
        schema={name: tuple(islice(texts, count)) for name, count in zip(names, elements, strict=True)},
        leaves=tuple(chain.from_iterable(map(repeat, names, of_columns))),
        repeated=tuple(repeated.astype(np.bool_).tolist()),
        cuts=cuts,
        numbers=_bounded(numbers, (constants - 1, _MAX_PAGE, _MAX_BYTES)),
        page_bytes=page_bytes.astype(np.uint32),
    )
    if len(directory.schema) < columns or directory.end > end:
        _refuse("the page directory has pages behind its own begin, or a column twice")
    return directory


def _bounded(numbers: U64Array, most: tuple[int, ...]) -> I64Array:
    """Return numbers as signed ones; raise if one is above the maximum of its kind: sums of them would overflow."""
    if (numbers.max(axis=(1, 2)) > np.array(most, np.uint64)).any():
        _refuse("the page directory has impossible numbers of bytes")
    return numbers.astype(np.int64)


class _Reader:
    """Read the parts of a body in order; it raises before it allocates memory for more than the body has."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def _skip(self, length: int) -> int:
        at, self._at = self._at, self._at + length
        if self._at > len(self._body):
            _refuse("the page directory does not list as much as it claims")
        return at

    def numbers(self, count: int) -> U32Array:
        return np.frombuffer(self._body, "<u4", count, self._skip(4 * count))

    def planes(self, width: int, shape: tuple[int, ...]) -> U64Array:
        """Return numbers of `width` bytes, 1 to 8."""
        if not 1 <= width <= _MAX_WIDTH:
            _refuse("the page directory has numbers of no bytes or too many")
        count = prod(shape)
        at = self._skip(width * count)
        numbers = np.zeros(count, np.uint64)
        for plane in range(width):
            part = np.frombuffer(self._body, np.uint8, count, at + plane * count)
            numbers |= part.astype(np.uint64) << np.uint64(8 * plane)
        return numbers.reshape(shape)

    def texts(self, lengths: Sequence[int]) -> Iterator[bytes]:
        """Yield texts of these lengths, which have to be the rest of the body."""
        if self._skip(sum(lengths)) + sum(lengths) != len(self._body):
            _refuse("the page directory lists more than it claims")
        at = len(self._body) - sum(lengths)
        for length in lengths:
            yield self._body[at : at + length]
            at += length


def _inflate(packed: memoryview, size_bytes: int) -> bytes:
    """Decompress exactly this number of bytes, and raise for more: a few bytes could expand without limit."""
    if size_bytes > _MAX_RATIO * len(packed):
        _refuse("the page directory claims more pages than it can list")
    engine = zlib.decompressobj()
    try:
        body = engine.decompress(packed, size_bytes + 1)
    except zlib.error:
        body = b""
    if len(body) != size_bytes or not engine.eof or engine.unused_data:
        _refuse("the page directory does not list as much as it claims")
    return body


def _refuse(reason: str) -> NoReturn:
    raise PagesUnavailable(reason)
