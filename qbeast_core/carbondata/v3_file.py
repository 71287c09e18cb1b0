"""Data files of version 3: CarbonData 1.1 to 2.3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.damage import Damaged, Unreadable, damaged
from qbeast_core.carbondata.data_file import Blocklet, StoredBounds
from qbeast_core.carbondata.dictionaries import Dictionaries
from qbeast_core.carbondata.fields import read_fields
from qbeast_core.carbondata.inside import StoredFile
from qbeast_core.carbondata.pages.nested import assemble
from qbeast_core.carbondata.pages.page import PageContext, decode_page, fixed_records, local_members
from qbeast_core.carbondata.pages.statistics import old_bounds
from qbeast_core.carbondata.structs.data_file import BlockletInfo3, DataChunk3, FileFooter3, FileHeader
from qbeast_core.carbondata.structs.schema import DataType, Encoding
from qbeast_core.io.thrift import ThriftStruct
from qbeast_core.space.arrays import I64Array

_VERSION: Final = 3
_FULL_PAGE: Final = 32_000
_MOST_PAGE_ROWS: Final = 32_767  # row ids are signed shorts; pages without them are no longer either
_ONLY_ALL: Final = 0.5  # of a column's pages: above it the whole column is read at once


@dataclass(frozen=True, slots=True, eq=False)
class V3File:
    """A `qbeast_core.carbondata.data_file.DataFile` of version 3."""

    file: StoredFile
    footer: FileFooter3
    columns: tuple[Column, ...]
    blocklets: tuple[Blocklet, ...]
    dictionaries: Dictionaries
    is_of_1_1: bool

    @classmethod
    def open(cls, file: StoredFile, start: int, footer: ThriftStruct, dictionaries: Dictionaries) -> V3File:
        """Read what the file consists of; `Damaged` if that cannot be."""
        found = FileFooter3.of(footer)
        header_end = min((info.offsets[0] for info in found.blocklets if info.offsets), default=start)
        if header_end > start:
            damaged(f"its first column would begin at byte {header_end}, behind the footer at {start}")
        header, _ = read_fields(file.read_one(0, header_end), FileHeader.of)
        if header.version != _VERSION:
            message = f"its header says version {header.version}"
            raise Unreadable(message)
        columns = column_tree(header.columns)
        blocklets = _blocklets(found, len(header.columns), start)
        is_of_1_1 = _is_of_1_1(file, found, columns)
        if is_of_1_1:
            blocklets = tuple(_with_old_bounds(one, columns) for one in blocklets)
        return cls(file, found, columns, blocklets, dictionaries, is_of_1_1)

    @property
    def version(self) -> str:
        """See `DataFile`."""
        return "V3"

    @property
    def writer(self) -> str:
        """See `DataFile`."""
        return self.footer.extra.get("version", "")

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """See `DataFile`."""
        info = self.footer.blocklets[blocklet.number]
        found: list[list[StoredBounds]] = []
        for column in columns:
            with self.file.inside(_place(blocklet, column)):
                of_pages = [page.min_max.bounds(0) for page in _stored_header(self.file, info, column).pages]
                found.append([old_bounds(column, one) for one in of_pages] if self.is_of_1_1 else of_pages)
        return found

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        info = self.footer.blocklets[blocklet.number]
        found: list[Any] = []
        for column in columns:
            with self.file.inside(_place(blocklet, column)):
                found.append(self._column(info, blocklet, column, pages))
        return found

    def _column(self, info: BlockletInfo3, blocklet: Blocklet, column: Column, pages: Sequence[int]) -> Any:
        """Return some pages of a column, put together."""
        if not pages:
            return pa.nulls(0, column.arrow_type)
        chunks = {
            node.number: self._chunk(info, node, pages, is_child=node is not column) for node in column.walk()
        }
        parts: list[Any] = []
        for page in pages:
            rows = blocklet.page_rows[page]
            try:
                part = assemble(
                    column,
                    partial(_leaf, chunks, page, column, rows),
                    partial(_records, chunks, page),
                )
            except Damaged as error:
                error.places.append(f"page {page}")
                raise
            if len(part) != rows:
                damaged(f"page {page} of {rows} rows holds {len(part)} values")
            parts.append(part)
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _chunk(self, info: BlockletInfo3, node: Column, pages: Sequence[int], *, is_child: bool) -> _Chunk:
        """Return a column's header and the bytes of some of its pages."""
        start, size = _extent(info, node.number)
        head = info.header_bytes[node.number]
        if len(pages) > _ONLY_ALL * info.pages:
            data = self.file.read([(start, size)])[0]
            header = _read_header(bytes(data[:head]), info)
            bodies = {page: data[head + header.page_offsets[page] :] for page in pages}
        else:
            header = _stored_header(self.file, info, node)
            begins = header.page_offsets
            ends = [*begins[1:], size - head]
            ranges = [(start + head + begins[page], ends[page] - begins[page]) for page in pages]
            bodies = dict(zip(pages, self.file.read(ranges), strict=True))
        return _Chunk(header, bodies, self._context(node, header, is_child=is_child))

    def _context(self, node: Column, header: DataChunk3, *, is_child: bool) -> PageContext:
        members = None
        if header.dictionary is not None:
            codec = header.pages[0].compression.compressor if header.pages else "snappy"
            members = local_members(header.dictionary, node, codec)
        cardinalities = self.footer.segment.cardinalities
        known = 0 <= node.dimension < len(cardinalities)
        in_text = node.schema.is_dimension and _is_numeric(node) and not header.dictionary and self.is_of_1_1
        return PageContext(
            column=node,
            local_members=members,
            cardinality=cardinalities[node.dimension] if known else None,
            members=partial(self.dictionaries.members, node),
            direct_timestamp=self.dictionaries.direct_timestamp(),
            numbers_in_text=in_text,
            is_child=is_child,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """A column's header, the bytes of some of its pages, and what decodes them."""

    header: DataChunk3
    bodies: dict[int, memoryview]
    context: PageContext


def _leaf(chunks: dict[int, _Chunk], page: int, top: Column, rows: int, node: Column) -> Any:
    chunk = chunks[node.number]
    return decode_page(
        chunk.header.pages[page], chunk.bodies[page], chunk.context, rows if node is top else -1
    )


def _records(chunks: dict[int, _Chunk], page: int, node: Column) -> I64Array:
    chunk = chunks[node.number]
    stored = chunk.header.pages[page]
    return fixed_records(stored, chunk.bodies[page], 2 if node.kind == DataType.STRUCT else 8)


def _is_of_1_1(file: StoredFile, footer: FileFooter3, columns: Sequence[Column]) -> bool:
    """Tell whether CarbonData 1.1 wrote a file: then no release is noted, and its measures name no codec."""
    measure = next((one for one in columns if not one.schema.is_dimension), None)
    if measure is None or not footer.blocklets or "version" in footer.extra:
        return False
    header = _stored_header(file, footer.blocklets[0], measure)
    return bool(header.pages) and Encoding.DELTA in header.pages[0].encoders


def _with_old_bounds(blocklet: Blocklet, columns: Sequence[Column]) -> Blocklet:
    known: list[StoredBounds] = [None] * len(blocklet.bounds)
    for column in columns:
        if column.number < len(known):
            known[column.number] = old_bounds(column, blocklet.bounds[column.number])
    return replace(blocklet, bounds=tuple(known))


def _stored_header(file: StoredFile, info: BlockletInfo3, node: Column) -> DataChunk3:
    start, _ = _extent(info, node.number)
    return _read_header(file.read_one(start, info.header_bytes[node.number]), info)


def _is_numeric(node: Column) -> bool:
    kinds = (DataType.STRING, DataType.VARCHAR, DataType.BINARY, DataType.DATE, DataType.TIMESTAMP)
    return not node.is_nested and node.kind not in kinds


def _blocklets(footer: FileFooter3, columns: int, footer_start: int) -> tuple[Blocklet, ...]:
    """Return the blocklets, checked: columns ascend, lie before the footer, and pages make the rows."""
    found: list[Blocklet] = []
    for number, info in enumerate(footer.blocklets):
        if not len(info.offsets) == len(info.header_bytes) == columns:
            damaged(f"blocklet {number} has {len(info.offsets)} columns, the header {columns}")
        for column in range(columns):
            start, size = _extent(info, column)
            if size < info.header_bytes[column] or start + size > footer_start:
                damaged(f"column {column} of blocklet {number} does not lie before the footer")
        min_max = footer.indexes[number].min_max if number < len(footer.indexes) else None
        bounds = () if min_max is None else tuple(min_max.bounds(column) for column in range(columns))
        found.append(Blocklet(number, _page_rows(info, number), bounds))
    rows = sum(blocklet.rows for blocklet in found)
    if rows != footer.rows:
        damaged(f"its blocklets have {rows} rows, its footer {footer.rows}")
    return tuple(found)


def _page_rows(info: BlockletInfo3, number: int) -> tuple[int, ...]:
    """Return the rows of each page; files before 1.4 or so do not list them: all pages but the last are full."""
    rows = info.page_rows
    if not rows and info.pages == -(-info.rows // _FULL_PAGE):
        rows = (
            (*[_FULL_PAGE] * (info.pages - 1), info.rows - _FULL_PAGE * (info.pages - 1))
            if info.pages
            else ()
        )
    if sum(rows) != info.rows or len(rows) != info.pages or max(rows, default=0) > _MOST_PAGE_ROWS:
        damaged(f"the {len(rows)} pages of blocklet {number} do not make its {info.rows} rows")
    return rows


def _extent(info: BlockletInfo3, column: int) -> tuple[int, int]:
    """Return where a column begins, and how long it is."""
    start = info.offsets[column]
    end = info.offsets[column + 1] if column + 1 < len(info.offsets) else info.measures_end
    if column + 1 == len(info.offsets) and end <= start:  # no measures: the last dimension ends there
        end = info.dimensions_end
    return start, end - start


def _read_header(data: bytes, info: BlockletInfo3) -> DataChunk3:
    header, _ = read_fields(data, DataChunk3.of)
    offsets = header.page_offsets
    if len(header.pages) != info.pages or len(offsets) != info.pages:
        damaged(f"a column has {len(header.pages)} pages, its blocklet {info.pages}")
    if any(later < earlier for earlier, later in pairwise(offsets)):
        damaged("the pages of a column do not ascend")
    return header


def _place(blocklet: Blocklet, column: Column) -> str:
    return f"blocklet {blocklet.number}, column {column.schema.name!r}"
