"""Data files of versions 1 and 2: CarbonData 0.1 to 1.1.

Both have one page for each column of a blocklet. Version 1 keeps all that is known of the pages in the footer, and the
pages of a blocklet by kind: data of all columns, row ids of all, run lengths of all. Version 2 keeps the header of a
column in front of its pages, which follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.data_file import Blocklet, StoredBounds
from qbeast_core.carbondata.dictionaries import Dictionaries
from qbeast_core.carbondata.fields import read_fields
from qbeast_core.carbondata.inside import StoredFile, warn_of_lost_values
from qbeast_core.carbondata.pages.nested import assemble
from qbeast_core.carbondata.pages.page import PageContext, decode_page, fixed_records
from qbeast_core.carbondata.pages.statistics import old_bounds
from qbeast_core.carbondata.structs.data_file import DataChunk2
from qbeast_core.carbondata.structs.old_data_file import BlockletInfo, FileFooter
from qbeast_core.io.thrift import ThriftStruct

_V1_BLOCKLETS: Final = 6
_MOST_ROWS: Final = 1 << 24  # of a blocklet: 120,000 are usual, and what numbers them has 25 bits at most
_RECORD_BYTES: Final = 8  # of arrays and of structs alike


@dataclass(frozen=True, slots=True, eq=False)
class OldFile:
    """A `qbeast_core.carbondata.data_file.DataFile` of version 1 or 2."""

    file: StoredFile
    # What it ends with, and where that begins.
    footer: FileFooter
    footer_start: int
    columns: tuple[Column, ...]
    blocklets: tuple[Blocklet, ...]
    dictionaries: Dictionaries
    number: int

    @classmethod
    def open(cls, file: StoredFile, start: int, footer: ThriftStruct, dictionaries: Dictionaries) -> OldFile:
        """Read what the file consists of; `Damaged` if that cannot be."""
        found = FileFooter.of(footer)
        number = 1 if _V1_BLOCKLETS in footer.fields else 2
        columns = column_tree(found.columns)
        for place, info in enumerate(found.blocklets):
            _check_v1(info, place, len(found.columns), start)
        for place in range(len(found.blocklets2)):
            _check_v2(found, place, start)
        blocklets = _blocklets(found, columns)
        return cls(file, found, start, columns, blocklets, dictionaries, number)

    @property
    def version(self) -> str:
        """See `DataFile`."""
        return f"V{self.number}"

    @property
    def writer(self) -> str:
        """See `DataFile`."""
        return ""

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """See `DataFile`; the page of a blocklet has its bounds."""
        bounds = blocklet.bounds
        return [[bounds[one.number] if one.number < len(bounds) else None] for one in columns]

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        found: list[Any] = []
        for column in columns:
            place = f"blocklet {blocklet.number}, column {column.schema.name!r}"
            with self.file.inside(place):
                found.append(
                    self._column(blocklet, column, place) if pages else pa.nulls(0, column.arrow_type)
                )
        return found

    def _column(self, blocklet: Blocklet, column: Column, place: str) -> Any:
        """Return the page of a column, with all that is nested in it."""
        chunks = {node.number: self._chunk(blocklet.number, node.number) for node in column.walk()}
        lost = partial(warn_of_lost_values, self.file, place)

        def leaf(node: Column) -> Any:
            chunk, body = chunks[node.number]
            context = self._context(node, lost, is_child=node is not column)
            return decode_page(chunk, body, context, -1 if context.is_child else blocklet.rows)

        found = assemble(column, leaf, lambda node: fixed_records(*chunks[node.number], _RECORD_BYTES))
        if len(found) != blocklet.rows:
            damaged(f"{blocklet.rows} rows have {len(found)} values")
        return found

    def _chunk(self, blocklet: int, number: int) -> tuple[DataChunk2, memoryview]:
        """Return what is known of a column's page, and its bytes."""
        if self.number == 1:
            chunk = self.footer.blocklets[blocklet].chunks[number]
            page = chunk.page
            parts = [
                (chunk.data_offset, page.data_bytes),
                (chunk.row_id_offset, page.row_id_bytes),
                (chunk.run_offset, page.run_bytes),
            ]
            return page, memoryview(b"".join(self.file.read([part for part in parts if part[1]])))
        info = self.footer.blocklets2[blocklet]
        start, end = _extent(self.footer, blocklet, number, self.footer_start)
        data = self.file.read([(start, end - start)])[0]
        head = info.header_bytes[number]
        page, _ = read_fields(bytes(data[:head]), DataChunk2.of)
        return page, data[head:]

    def _context(self, node: Column, lost: Callable[[str], None], *, is_child: bool) -> PageContext:
        cardinalities = self.footer.segment.cardinalities
        return PageContext(
            column=node,
            local_members=None,
            cardinality=cardinalities[node.dimension] if 0 <= node.dimension < len(cardinalities) else None,
            members=partial(self.dictionaries.members, node),
            direct_timestamp=self.dictionaries.direct_timestamp(),
            numbers_in_text=True,
            is_child=is_child,
            version=self.number,
            lost=lost,
        )


def _blocklets(footer: FileFooter, columns: Sequence[Column]) -> tuple[Blocklet, ...]:
    """Return the blocklets; together they have the rows of the footer."""
    found: list[Blocklet] = []
    counts = [info.rows for info in footer.blocklets] + [info.rows for info in footer.blocklets2]
    for number, rows in enumerate(counts):
        if rows > _MOST_ROWS:
            damaged(f"blocklet {number} has {rows} rows")
        found.append(Blocklet(number, (rows,), _bounds(footer, columns, number)))
    if sum(counts) != footer.rows:
        damaged(f"its blocklets have {sum(counts)} rows, its footer {footer.rows}")
    return tuple(found)


def _bounds(footer: FileFooter, columns: Sequence[Column], blocklet: int) -> tuple[StoredBounds, ...]:
    """Return the bounds of dimensions; there are none of measures."""
    min_max = footer.min_max(blocklet)
    found: list[StoredBounds] = [None] * len(footer.columns)
    for column in columns:
        if column.dimension >= 0:
            found[column.number] = old_bounds(column, min_max.bounds(column.dimension))
    return tuple(found)


def _check_v1(info: BlockletInfo, place: int, columns: int, footer_start: int) -> None:
    if len(info.chunks) != columns or any(chunk.is_row_major for chunk in info.chunks):
        _refuse_groups(place, columns, len(info.chunks))
    for number, chunk in enumerate(info.chunks):
        page = chunk.page
        ends = (
            chunk.data_offset + page.data_bytes,
            chunk.row_id_offset + page.row_id_bytes,
            chunk.run_offset + page.run_bytes,
        )
        if max(ends) > footer_start:
            damaged(f"column {number} of blocklet {place} does not lie before the footer")


def _check_v2(footer: FileFooter, place: int, footer_start: int) -> None:
    info = footer.blocklets2[place]
    if not len(info.offsets) == len(info.header_bytes) == len(footer.columns):
        _refuse_groups(place, len(footer.columns), len(info.offsets))
    for number, head in enumerate(info.header_bytes):
        start, end = _extent(footer, place, number, footer_start)
        if start + head > end or end > footer_start:
            damaged(f"column {number} of blocklet {place} does not lie before the footer")


def _refuse_groups(place: int, columns: int, chunks: int) -> NoReturn:
    message = (
        f"blocklet {place} keeps {columns} columns in {chunks} chunks, as column groups of CarbonData 0.x"
    )
    raise Unreadable(message)


def _extent(footer: FileFooter, blocklet: int, column: int, footer_start: int) -> tuple[int, int]:
    """Return where a column of version 2 begins and ends: where the next one begins."""
    offsets = footer.blocklets2[blocklet].offsets
    if column + 1 < len(offsets):
        return offsets[column], offsets[column + 1]
    later = footer.blocklets2[blocklet + 1].offsets if blocklet + 1 < len(footer.blocklets2) else ()
    return offsets[column], later[0] if later else footer_start
