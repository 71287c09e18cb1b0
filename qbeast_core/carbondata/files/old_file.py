"""Data files of versions 1 and 2: CarbonData 0.1 to 1.1.

Both have one page for each column of a blocklet. Version 1 describes the pages in the footer, and groups them by kind:
data of all columns, row ids of all, run lengths of all. Version 2 stores the header of a column in front of its pages,
which follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NoReturn

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.damage import damaged, unreadable
from qbeast_core.carbondata.files.data_file import (
    Blocklet,
    Chunk,
    ColumnarFile,
    StoredBounds,
    checked_blocklets,
    place_of,
)
from qbeast_core.carbondata.pages.dimensions import Dictionaries
from qbeast_core.carbondata.pages.page import PageContext
from qbeast_core.carbondata.pages.statistics import old_bounds
from qbeast_core.carbondata.stored_file import StoredFile, warn_of_lost_values
from qbeast_core.carbondata.structs.data_file import DataChunk2
from qbeast_core.carbondata.structs.fields import read_thrift
from qbeast_core.carbondata.structs.old_data_file import DataChunk, FileFooter
from qbeast_core.io.thrift import ThriftStruct

_V1_BLOCKLETS: Final = 6
_MAX_ROWS: Final = 1 << 24  # of a blocklet: 120,000 are usual, and row ids have 25 bits at most


@dataclass(frozen=True, eq=False)
class OldFile(ColumnarFile):
    """A data file of version 1 or 2."""

    footer: FileFooter
    footer_start: int

    @classmethod
    def open(cls, file: StoredFile, start: int, footer: ThriftStruct, dictionaries: Dictionaries) -> OldFile:
        """Read the structure of the file; `Damaged` if it is not possible."""
        own = FileFooter.of(footer)
        columns = column_tree(own.columns)
        for number, info in enumerate(own.blocklets):
            _check_v1(info.chunks, number, len(own.columns), start)
        for number in range(len(own.blocklets2)):
            _check_v2(own, number, start)
        return cls(
            file=file,
            version="V1" if _V1_BLOCKLETS in footer.fields else "V2",
            writer="",
            columns=columns,
            blocklets=_blocklets(own, columns),
            cardinalities=own.cardinalities,
            dictionaries=dictionaries,
            footer=own,
            footer_start=start,
        )

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """See `DataFile`; the page of a blocklet has its bounds."""
        return [[blocklet.bounds_of(column)] for column in columns]

    def chunk(self, blocklet: Blocklet, context: PageContext, pages: Sequence[int]) -> Chunk:
        """See `ColumnarFile`."""
        is_v1 = self.version == "V1"
        page = (self._v1_page if is_v1 else self._v2_page)(blocklet.number, context.column.number)
        lost = partial(warn_of_lost_values, self.file, place_of(blocklet, context.column))
        context = replace(context, numbers_in_text=True, version=1 if is_v1 else 2, lost=lost)
        return Chunk(dict.fromkeys(pages, page), context)

    def _v1_page(self, blocklet: int, column: int) -> tuple[DataChunk2, memoryview]:
        chunk = self.footer.blocklets[blocklet].chunks[column]
        parts = [
            (chunk.data_offset, chunk.data_bytes),
            (chunk.row_id_offset, chunk.row_id_bytes),
            (chunk.run_offset, chunk.run_bytes),
        ]
        return chunk, memoryview(b"".join(self.file.read([part for part in parts if part[1]])))

    def _v2_page(self, blocklet: int, column: int) -> tuple[DataChunk2, memoryview]:
        start, end = _extent(self.footer, blocklet, column, self.footer_start)
        data = self.file.read([(start, end - start)])[0]
        head = self.footer.blocklets2[blocklet].header_bytes[column]
        chunk, _ = read_thrift(bytes(data[:head]), DataChunk2.of)
        return chunk, data[head:]


def _blocklets(footer: FileFooter, columns: Sequence[Column]) -> tuple[Blocklet, ...]:
    """Return the blocklets with the bounds of dimensions; measures have none."""
    blocklets: list[Blocklet] = []
    for number, rows in enumerate(info.rows for info in footer.blocklets or footer.blocklets2):
        if rows > _MAX_ROWS:
            damaged(f"blocklet {number} has {rows} rows")
        bounds: list[StoredBounds] = [None] * len(footer.columns)
        for column in columns if number < len(footer.min_max) else ():
            if column.dimension >= 0:
                stored = footer.min_max[number].bounds(column.dimension)
                bounds[column.number] = old_bounds(column, stored)
        blocklets.append(Blocklet(number, (rows,), tuple(bounds)))
    return checked_blocklets(blocklets, footer.rows)


def _check_v1(chunks: Sequence[DataChunk], blocklet: int, columns: int, footer_start: int) -> None:
    if len(chunks) != columns or any(chunk.is_row_major for chunk in chunks):
        _refuse_groups(blocklet, columns, len(chunks))
    for number, chunk in enumerate(chunks):
        ends = (
            chunk.data_offset + chunk.data_bytes,
            chunk.row_id_offset + chunk.row_id_bytes,
            chunk.run_offset + chunk.run_bytes,
        )
        if max(ends) > footer_start:
            damaged(f"column {number} of blocklet {blocklet} does not lie before the footer")


def _check_v2(footer: FileFooter, blocklet: int, footer_start: int) -> None:
    info = footer.blocklets2[blocklet]
    if not len(info.offsets) == len(info.header_bytes) == len(footer.columns):
        _refuse_groups(blocklet, len(footer.columns), len(info.offsets))
    for number, head in enumerate(info.header_bytes):
        start, end = _extent(footer, blocklet, number, footer_start)
        if start + head > end or end > footer_start:
            damaged(f"column {number} of blocklet {blocklet} does not lie before the footer")


def _refuse_groups(blocklet: int, columns: int, chunks: int) -> NoReturn:
    unreadable(
        f"blocklet {blocklet} has {columns} columns in {chunks} chunks, as column groups of CarbonData 0.x"
    )


def _extent(footer: FileFooter, blocklet: int, column: int, footer_start: int) -> tuple[int, int]:
    """Return where a column of version 2 begins, and where it ends: at the begin of the next column."""
    offsets = footer.blocklets2[blocklet].offsets
    if column + 1 < len(offsets):
        return offsets[column], offsets[column + 1]
    later = footer.blocklets2[blocklet + 1].offsets if blocklet + 1 < len(footer.blocklets2) else ()
    return offsets[column], later[0] if later else footer_start
