"""The tail of a data file: a compact directory of all pages, followed by the Parquet footer.

Every selective read needs an index of the pages, and Parquet's own OffsetIndexes take about 14 bytes per
page and column. With aligned pages only the sizes are needed, so the writer puts a *page directory* between
the OffsetIndexes (kept for other engines) and the footer. Other Parquet readers skip these bytes::

    magic "QBPAGES2" | CRC-32 of everything after it | row groups | leaf columns | length of the sizes
    | rows and rows per page of each row group | sizes | Parquet footer | its length | "PAR1"

Numbers are little-endian uint32. The sizes are in bytes, page header included, by (column, page). They are stored
as four planes (all lowest bytes first), compressed by zlib. The checksum covers the footer too, so a damaged tail
never leads to wrong rows. Older files have one row group and another directory, without a list of row groups::

    magic "QBPAGES1" | CRC-32 | rows per page | pages | leaf columns | length of the sizes | sizes
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np

from qbeast_core.io.parquet.footer import MAGIC, FileFooter, PagesUnavailable, parse_footer
from qbeast_core.space.values import I64Array

_MAGIC: Final = b"QBPAGES2"
_OLD_MAGIC: Final = b"QBPAGES1"
_NUMBER: Final = struct.Struct("<I")
_CHECKED_FROM: Final = len(_MAGIC) + _NUMBER.size
_HEAD: Final = struct.Struct("<3I")
_OLD_HEAD: Final = struct.Struct("<4I")
_MAX_RATIO: Final = 1040  # the best ratio zlib reaches


@dataclass(frozen=True, slots=True)
class FileTail:
    """The parsed tail of a data file."""

    footer: FileFooter
    cuts: PageCuts
    # First byte and length of every data page, int64, shape (leaf columns, pages).
    page_starts: I64Array
    page_sizes: I64Array
    # Row group of each page.
    page_groups: I64Array

    @property
    def pages(self) -> int:
        """Number of pages per column."""
        return int(self.page_starts.shape[1])


def dump_directory(sizes: I64Array, *, cuts: PageCuts, parquet_tail: bytes) -> bytes:
    """Return the page directory to write right before ``parquet_tail``."""
    planes = np.ascontiguousarray(sizes, dtype="<u4").view(np.uint8).reshape(-1, 4).T
    body = zlib.compress(planes.tobytes(), 9)
    groups = np.array([cuts.group_rows, cuts.page_rows], "<u4").T
    checked = _HEAD.pack(len(groups), len(sizes), len(body)) + groups.tobytes() + body
    return _MAGIC + _NUMBER.pack(zlib.crc32(parquet_tail, zlib.crc32(checked))) + checked


def parse_tail(data: bytes) -> FileTail:
    """Parse the last bytes of a data file, from the page directory on."""
    if len(data) < _CHECKED_FROM + _OLD_HEAD.size + 8 or data[: len(_MAGIC)] not in {_MAGIC, _OLD_MAGIC}:
        _refuse("there is no page directory at the position in the table's log")
    (checksum,) = _NUMBER.unpack_from(data, len(_MAGIC))
    if zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        _refuse("the page directory or the footer is damaged")
    if data.startswith(_OLD_MAGIC):
        page_rows, pages, leaves, length = _OLD_HEAD.unpack_from(data, _CHECKED_FROM)
        at, groups = _CHECKED_FROM + _OLD_HEAD.size, None
    else:
        count, leaves, length = _HEAD.unpack_from(data, _CHECKED_FROM)
        groups = _read_groups(data, count)
        at = _CHECKED_FROM + _HEAD.size + groups.nbytes
        page_rows = pages = 0
    footer_at = at + length
    if len(data) - footer_at - 8 != int.from_bytes(data[-8:-4], "little") or data[-4:] != MAGIC:
        _refuse("the footer does not follow the page directory")
    footer = parse_footer(data[footer_at:-8])
    rows = [group.rows for group in footer.groups]
    cuts = cuts_of(rows, [page_rows] * len(rows) if groups is None else groups[:, 1])
    differs = len(rows) != 1 if groups is None else groups[:, 0].tolist() != rows
    differs |= len(footer.leaves) != leaves or leaves == 0 or 0 in cuts.page_rows
    if differs or (groups is None and cuts.pages != pages):
        _refuse("the page directory and the footer differ in rows or columns")
    return _located(footer, cuts, _read_sizes(data[at:footer_at], leaves, cuts.pages))


def _located(footer: FileFooter, cuts: PageCuts, sizes: I64Array) -> FileTail:
    """Return the tail with the position of each page: the pages of a column chunk follow one another."""
    starts = np.zeros_like(sizes)
    first = 0
    for group, pages in zip(footer.groups, cuts.group_pages, strict=True):
        part = slice(first, first + pages)
        ends = np.cumsum(sizes[:, part], axis=1)
        begins = np.array([chunk.data_start for chunk in group.chunks], np.int64)
        starts[:, part] = begins[:, None] + ends - sizes[:, part]
        chunk_ends = [chunk.start + chunk.size for chunk in group.chunks]
        if pages == 0 or (begins + ends[:, -1]).tolist() != chunk_ends:
            _refuse("the pages do not fill their column chunks")
        first += pages
    if (sizes == 0).any():
        _refuse("the pages do not fill their column chunks")
    return FileTail(footer, cuts, starts, sizes, cuts.groups())


def _read_groups(data: bytes, count: int) -> I64Array:
    """Return rows and rows per page of each row group, shape (count, 2)."""
    at = _CHECKED_FROM + _HEAD.size
    if not 0 < count * 2 * _NUMBER.size <= len(data) - at:
        _refuse("the page directory claims more row groups than it can list")
    return np.frombuffer(data, "<u4", 2 * count, at).reshape(count, 2)


def _read_sizes(packed: bytes, leaves: int, pages: int) -> I64Array:
    planes = np.frombuffer(_inflate(packed, 4 * leaves * pages), dtype=np.uint8)
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<u4").reshape(leaves, pages).astype(np.int64)


def _inflate(packed: bytes, size_bytes: int) -> bytes:
    """Decompress exactly this number of bytes, and raise for more: a few bytes could expand without limit."""
    if size_bytes > _MAX_RATIO * len(packed):
        _refuse("the page directory claims more pages than it can list")
    engine = zlib.decompressobj()
    try:
        sizes = engine.decompress(packed, size_bytes + 1)
    except zlib.error:
        sizes = b""
    if len(sizes) != size_bytes or not engine.eof or engine.unused_data:
        _refuse("the page directory does not list as many pages as it claims")
    return sizes


def _refuse(reason: str) -> NoReturn:
    raise PagesUnavailable(reason)


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
