"""Files of streaming segments: blocklets of rows, appended batch by batch; there is no footer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.damage import Damaged, damaged, place, unreadable
from qbeast_carbondata.files.data_file import Blocklet, DataFile
from qbeast_carbondata.pages.codecs import decompress_start
from qbeast_carbondata.pages.dimensions import Dictionaries
from qbeast_carbondata.pages.old.row_format import decode_rows
from qbeast_carbondata.stored_file import StoredFile
from qbeast_carbondata.structs.data_file import FileHeader
from qbeast_carbondata.structs.fields import read_thrift
from qbeast_carbondata.structs.old_data_file import BlockletHeader

_HEADER_BYTES: Final = 1 << 16  # read at once: of the file, and of each blocklet
_MAX_HEADER: Final = 1 << 24
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where the compressed rows of a blocklet lie, and how many bytes they take when decompressed."""

    start: int
    size_bytes: int
    row_bytes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class RowFile(DataFile):
    """A data file of a streaming segment; its length is the committed part's."""

    compressor: str
    extents: tuple[_Extent, ...]
    dictionaries: Dictionaries

    @classmethod
    def open(cls, file: StoredFile, dictionaries: Dictionaries) -> RowFile:
        """Read the structure of the file; `Damaged` if it is not possible."""
        header, at = _file_header(file)
        if header.has_footer or not header.sync_marker:
            damaged("it is not a file of a streaming segment")
        blocklets: list[Blocklet] = []
        extents: list[_Extent] = []
        while at < file.size_bytes:
            with place(f"blocklet {len(blocklets)}"):
                rows, extent = _blocklet(file, at, header.sync_marker)
            blocklets.append(Blocklet(len(blocklets), (rows,)))
            extents.append(extent)
            at = extent.start + extent.size_bytes
        return cls(
            file=file,
            version="row",
            columns=column_tree(header.columns),
            blocklets=tuple(blocklets),
            compressor=header.compressor,
            extents=tuple(extents),
            dictionaries=dictionaries,
        )

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`; a blocklet is one page."""
        if not pages:
            return [pa.nulls(0, column.arrow_type) for column in columns]
        with self.file.inside(f"blocklet {blocklet.number}"):
            extent = self.extents[blocklet.number]
            packed = self.file.read([(extent.start, extent.size_bytes)])[0]
            data = decompress_start(self.compressor, packed, extent.row_bytes)
            return decode_rows(data, blocklet.rows, self.columns, columns, self.dictionaries)


def _file_header(file: StoredFile) -> tuple[FileHeader, int]:
    """Return the header of the file, and where its first blocklet begins."""
    with suppress(Damaged):
        return read_thrift(file.read_one(0, min(_HEADER_BYTES, file.size_bytes)), FileHeader.of)
    # The header of a table with very many columns is longer.
    return read_thrift(file.read_one(0, min(_MAX_HEADER, file.size_bytes)), FileHeader.of)


def _blocklet(file: StoredFile, at: int, marker: bytes) -> tuple[int, _Extent]:
    """Return the rows of the blocklet that begins at a byte, and where they lie."""
    data = file.read_one(at, min(_HEADER_BYTES, file.size_bytes - at))
    if not data.startswith(marker):
        damaged(f"no blocklet begins at byte {at}: the marker is missing")
    first = len(marker) + _LENGTH_BYTES
    size = int.from_bytes(data[len(marker) : first], "big")
    behind = first + size + _LENGTH_BYTES
    if size > _MAX_HEADER or at + behind > file.size_bytes:
        damaged(f"a header of {size} bytes cannot follow byte {at} of {file.size_bytes}")
    if behind > len(data):
        data = file.read_one(at, behind)
    header, _ = read_thrift(data[first : first + size], BlockletHeader.of)
    if header.mutation:
        unreadable("it holds rows to be deleted")
    packed_bytes = int.from_bytes(data[first + size : behind], "big")
    if at + behind + packed_bytes > file.size_bytes:
        damaged(f"rows of {packed_bytes} bytes cannot follow byte {at + behind} of {file.size_bytes}")
    return header.rows, _Extent(at + behind, packed_bytes, header.size_bytes)
