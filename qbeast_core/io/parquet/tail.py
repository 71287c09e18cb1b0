"""The tail of a data file: a compact directory of all pages, followed by the Parquet footer.

Every selective read needs an index of the pages, and Parquet's own OffsetIndexes take about 14 bytes per
page and column. With aligned pages only the sizes are needed, so the writer puts a *page directory* between
the OffsetIndexes (kept for other engines) and the footer. Other Parquet readers skip these bytes::

    magic "QBPAGES1" | CRC-32 of everything after it | rows per page | pages
    | leaf columns | length of the sizes | sizes | Parquet footer | its length | "PAR1"

Numbers are little-endian uint32. The sizes are in bytes, page header included, by (column, page). They are stored
as four planes (all lowest bytes first), compressed by zlib. The checksum covers the footer too, so a damaged tail
never leads to wrong rows.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np

from qbeast_core.io.parquet.footer import MAGIC, FileFooter, PagesUnavailable, parse_footer
from qbeast_core.space.arrays import I64Array

_DIRECTORY_MAGIC: Final = b"QBPAGES1"
_HEAD: Final = struct.Struct("<8sIIIII")
_CHECKED_FROM: Final = 12
_MAX_RATIO: Final = 1040  # the best ratio zlib reaches


@dataclass(frozen=True, slots=True)
class FileTail:
    """The parsed tail of a data file."""

    footer: FileFooter
    # Rows in every page but the last, which has the rest.
    page_rows: int
    # int64, shape (leaf columns, pages + 1): first byte of every data page, then the end of the chunk.
    page_starts: I64Array

    @property
    def pages(self) -> int:
        """Number of pages per column."""
        return int(self.page_starts.shape[1]) - 1


def dump_directory(sizes: I64Array, *, page_rows: int, parquet_tail: bytes) -> bytes:
    """Return the page directory to write right before ``parquet_tail``."""
    leaves, pages = sizes.shape
    planes = np.ascontiguousarray(sizes, dtype="<u4").view(np.uint8).reshape(-1, 4).T
    body = zlib.compress(planes.tobytes(), 9)
    head = _HEAD.pack(_DIRECTORY_MAGIC, 0, page_rows, pages, leaves, len(body))
    checksum = zlib.crc32(parquet_tail, zlib.crc32(body, zlib.crc32(head[_CHECKED_FROM:])))
    return _HEAD.pack(_DIRECTORY_MAGIC, checksum, page_rows, pages, leaves, len(body)) + body


def parse_tail(data: bytes) -> FileTail:
    """Parse the last bytes of a data file, from the page directory on."""
    if len(data) < _HEAD.size + 8 or data[:8] != _DIRECTORY_MAGIC:
        _refuse("there is no page directory at the position in the table's log")
    _, checksum, page_rows, pages, leaves, length = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        _refuse("the page directory or the footer is damaged")
    footer_at = _HEAD.size + length
    if len(data) - footer_at - 8 != int.from_bytes(data[-8:-4], "little") or data[-4:] != MAGIC:
        _refuse("the footer does not follow the page directory")
    footer = parse_footer(data[footer_at:-8])
    if len(footer.chunks) != leaves or page_rows < 1 or pages != -(-footer.num_rows // page_rows):
        _refuse("the page directory and the footer differ in rows or columns")
    planes = np.frombuffer(_inflate(data[_HEAD.size : footer_at], 4 * leaves * pages), dtype=np.uint8)
    sizes = np.ascontiguousarray(planes.reshape(4, leaves * pages).T).view("<u4").reshape(leaves, pages)
    starts = np.empty((leaves, pages + 1), dtype=np.int64)
    starts[:, 0] = [chunk.data_start for chunk in footer.chunks]
    np.cumsum(sizes, axis=1, dtype=np.int64, out=starts[:, 1:])
    starts[:, 1:] += starts[:, :1]
    if (sizes == 0).any() or starts[:, -1].tolist() != [chunk.start + chunk.size for chunk in footer.chunks]:
        _refuse("the pages do not fill their column chunks")
    return FileTail(footer, page_rows, starts)


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
