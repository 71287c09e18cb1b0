"""Data files of versions 1 and 2, and files of streaming segments.

Both have one page for each column of a blocklet. Version 1 describes the pages in the footer, and groups them by kind:
data of all columns, row ids of all, run lengths of all. Version 2 stores the header of a column in front of its pages,
which follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.damage import Damaged, damaged, place, unreadable
from qbeast_carbondata.files.data_file import (
    Blocklet,
    Chunk,
    ColumnarFile,
    DataFile,
    StoredBounds,
    checked_blocklets,
    place_of,
)
from qbeast_carbondata.pages.codecs import decompress_start
from qbeast_carbondata.pages.old_rows import decode_rows
from qbeast_carbondata.pages.page import Dictionaries, PageContext, old_bounds
from qbeast_carbondata.stored_file import StoredFile, warn_of_lost_values
from qbeast_carbondata.structs import BlockletHeader, DataChunk2, FileHeader, OldFileFooter, read_thrift
from qbeast_core.io.store import Range
from qbeast_core.io.thrift import ThriftStruct

_V1_BLOCKLETS: Final = 6
_MAX_ROWS: Final = 1 << 24  # of a blocklet: 120,000 are usual, and row ids have 25 bits at most


@dataclass(frozen=True, eq=False, kw_only=True)
class OldFile(ColumnarFile):
    """A data file of version 1 or 2."""

    footer: OldFileFooter
    # The ranges of each column, by blocklet.
    parts: list[list[list[Range]]]

    @classmethod
    def open(cls, file: StoredFile, start: int, footer: ThriftStruct, dictionaries: Dictionaries) -> OldFile:
        """Read the structure of the file; `Damaged` if it is not possible."""
        own = OldFileFooter.of(footer)
        columns = column_tree(own.columns)
        parts = [_parts(own, number, start) for number in range(len(own.blocklets or own.blocklets2))]
        return cls(
            file=file,
            version="V1" if _V1_BLOCKLETS in footer.fields else "V2",
            columns=columns,
            blocklets=_blocklets(own),
            cardinalities=own.cardinalities,
            dictionaries=dictionaries,
            footer=own,
            parts=parts,
        )

    def bounds(self, blocklet: Blocklet, column: Column) -> StoredBounds:
        """See `DataFile`; measures have no bounds."""
        listed = self.footer.min_max
        if column.dimension < 0 or blocklet.number >= len(listed):
            return None
        return old_bounds(column, listed[blocklet.number].bounds(column.dimension))

    def chunk(self, blocklet: Blocklet, context: PageContext, pages: Sequence[int]) -> Chunk:
        """See `ColumnarFile`."""
        footer, column = self.footer, context.column
        parts = self.parts[blocklet.number][column.number]
        body = memoryview(b"".join(self.file.read([part for part in parts if part[1]])))
        if footer.blocklets:
            page: DataChunk2 = footer.blocklets[blocklet.number].chunks[column.number]
        else:
            head = footer.blocklets2[blocklet.number].header_bytes[column.number]
            page, _ = read_thrift(bytes(body[:head]), DataChunk2.of)
            body = body[head:]
        lost = partial(warn_of_lost_values, self.file, place_of(blocklet, column))
        version = 1 if footer.blocklets else 2
        context = replace(context, numbers_in_text=True, version=version, lost=lost)
        return dict.fromkeys(pages, (page, body)), context


def _blocklets(footer: OldFileFooter) -> tuple[Blocklet, ...]:
    blocklets: list[Blocklet] = []
    for number, rows in enumerate(info.rows for info in footer.blocklets or footer.blocklets2):
        if rows > _MAX_ROWS:
            damaged(f"blocklet {number} has {rows} rows")
        blocklets.append(Blocklet(number, (rows,)))
    return checked_blocklets(blocklets, footer.rows)


def _parts(footer: OldFileFooter, number: int, footer_start: int) -> list[list[Range]]:
    """Return the ranges of each column of a blocklet, which follow each other in the page; all are checked."""
    columns = len(footer.columns)
    if footer.blocklets:
        chunks = footer.blocklets[number].chunks
        is_grouped = any(chunk.is_row_major for chunk in chunks)
        parts = [
            [(c.data_offset, c.data_bytes), (c.row_id_offset, c.row_id_bytes), (c.run_offset, c.run_bytes)]
            for c in chunks
        ]
    else:
        info = footer.blocklets2[number]
        is_grouped = len(info.offsets) != len(info.header_bytes)
        # A column ends where the next one begins, which may lie in the next blocklet.
        later = [start for after in footer.blocklets2[number + 1 : number + 2] for start in after.offsets[:1]]
        ends = [*info.offsets[1:], *later, footer_start]
        heads = zip(info.offsets, info.header_bytes, ends, strict=False)
        parts = [[(start, head), (start + head, end - start - head)] for start, head, end in heads]
    if is_grouped or len(parts) != columns:
        unreadable(
            f"blocklet {number} has {columns} columns in {len(parts)} chunks, as column groups of CarbonData 0.x"
        )
    for column, ranges in enumerate(parts):
        if any(length < 0 or start + length > footer_start for start, length in ranges):
            damaged(f"column {column} of blocklet {number} does not lie before the footer")
    return parts


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
