"""Files of streaming segments: blocklets of rows, appended batch by batch; there is no footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.damage import Damaged, Unreadable, damaged
from qbeast_core.carbondata.data_file import Blocklet, StoredBounds
from qbeast_core.carbondata.dictionaries import Dictionaries
from qbeast_core.carbondata.fields import read_fields
from qbeast_core.carbondata.inside import StoredFile
from qbeast_core.carbondata.pages.codecs import decompress_start
from qbeast_core.carbondata.pages.row_format import RowContext, decode_rows, row_fields
from qbeast_core.carbondata.structs.data_file import FileHeader
from qbeast_core.carbondata.structs.old_data_file import BlockletHeader

_HEADER_BYTES: Final = 1 << 16  # read at once: of the file, and of each blocklet
_MOST_HEADER: Final = 1 << 24
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where the compressed rows of a blocklet lie, and how many bytes they take when decompressed."""

    start: int
    size_bytes: int
    row_bytes: int


@dataclass(frozen=True, eq=False)  # no slots: what is derived is kept
class RowFile:
    """A `qbeast_core.carbondata.data_file.DataFile` of a streaming segment."""

    # Where it lies; its length is the part of it that was committed.
    file: StoredFile
    header: FileHeader
    columns: tuple[Column, ...]
    blocklets: tuple[Blocklet, ...]
    extents: tuple[_Extent, ...]
    dictionaries: Dictionaries

    @classmethod
    def open(cls, file: StoredFile, dictionaries: Dictionaries) -> RowFile:
        """Read what the file consists of: `Damaged` if that cannot be."""
        header, at = _file_header(file)
        if header.has_footer or not header.sync_marker:
            damaged("it is no file of a streaming segment")
        blocklets: list[Blocklet] = []
        extents: list[_Extent] = []
        while at < file.size_bytes:
            try:
                own, extent = _blocklet(file, at, header.sync_marker)
            except Damaged as error:
                error.places.append(f"blocklet {len(blocklets)}")
                raise
            blocklets.append(Blocklet(len(blocklets), (own.rows,)))
            extents.append(extent)
            at = extent.start + extent.size_bytes
        columns = column_tree(header.columns)
        return cls(file, header, columns, tuple(blocklets), tuple(extents), dictionaries)

    @property
    def version(self) -> str:
        """See `DataFile`."""
        return "row"

    @property
    def writer(self) -> str:
        """See `DataFile`."""
        return ""

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """See `DataFile`; nothing is known of them."""
        return [[None] * len(blocklet.page_rows) for _ in columns]

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`; a blocklet is one page."""
        if not pages:
            return [pa.nulls(0, column.arrow_type) for column in columns]
        with self.file.inside(f"blocklet {blocklet.number}"):
            extent = self.extents[blocklet.number]
            packed = self.file.read([(extent.start, extent.size_bytes)])[0]
            data = decompress_start(self.header.compressor, packed, extent.row_bytes)
            context = RowContext(self.dictionaries.members, self.dictionaries.direct_timestamp())
            return decode_rows(data, blocklet.rows, self._fields, columns, context)

    @cached_property
    def _fields(self) -> Any:
        return row_fields(self.columns)


def _file_header(file: StoredFile) -> tuple[FileHeader, int]:
    """Return what the file begins with, and where its first blocklet does."""
    size = _HEADER_BYTES
    while True:
        have = min(size, file.size_bytes)
        try:
            return read_fields(file.read_one(0, have), FileHeader.of)
        except Damaged:
            if have == file.size_bytes or size >= _MOST_HEADER:
                raise
        size *= 16  # of a table with very many columns


def _blocklet(file: StoredFile, at: int, marker: bytes) -> tuple[BlockletHeader, _Extent]:
    """Return the header of the blocklet that begins at a byte, and where its rows lie."""
    data = file.read_one(at, min(_HEADER_BYTES, file.size_bytes - at))
    if not data.startswith(marker):
        damaged(f"no blocklet begins at byte {at}: the marker is missing")
    first = len(marker) + _LENGTH_BYTES
    size = int.from_bytes(data[len(marker) : first], "big")
    behind = first + size + _LENGTH_BYTES
    if size > _MOST_HEADER or at + behind > file.size_bytes:
        damaged(f"a header of {size} bytes cannot follow byte {at} of {file.size_bytes}")
    if behind > len(data):
        data = file.read_one(at, behind)
    header, _ = read_fields(data[first : first + size], BlockletHeader.of)
    if not header.is_insert:
        message = "it holds rows that are to be deleted"
        raise Unreadable(message)
    packed_bytes = int.from_bytes(data[first + size : behind], "big")
    if at + behind + packed_bytes > file.size_bytes:
        damaged(f"rows of {packed_bytes} bytes cannot follow byte {at + behind} of {file.size_bytes}")
    return header, _Extent(at + behind, packed_bytes, header.size_bytes)
