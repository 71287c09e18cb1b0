"""Data files of versions 1 and 2: CarbonData 0.1 to 1.1.

Both have one page for each column of a blocklet. Version 1 describes the pages in the footer, and groups them by kind:
data of all columns, row ids of all, run lengths of all. Version 2 stores the header of a column in front of its pages,
which follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.files.data_file import (
    Blocklet,
    Chunk,
    ColumnarFile,
    StoredBounds,
    checked_blocklets,
    place_of,
)
from qbeast_carbondata.pages.dimensions import Dictionaries
from qbeast_carbondata.pages.page import PageContext
from qbeast_carbondata.pages.statistics import old_bounds
from qbeast_carbondata.stored_file import StoredFile, warn_of_lost_values
from qbeast_carbondata.structs.data_file import DataChunk2
from qbeast_carbondata.structs.fields import read_thrift
from qbeast_carbondata.structs.old_data_file import OldFileFooter
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
