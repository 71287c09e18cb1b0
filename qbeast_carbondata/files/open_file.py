"""Opens data files: the last bytes show the version; those of version 3 are read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.damage import SAMPLE_BYTES, damaged, unless_encrypted, unreadable
from qbeast_carbondata.files.data_file import (
    Blocklet,
    Chunk,
    ColumnarFile,
    DataFile,
    StoredBounds,
    checked_blocklets,
)
from qbeast_carbondata.files.old_file import OldFile, RowFile
from qbeast_carbondata.pages.page import Dictionaries, PageContext, local_members, old_bounds
from qbeast_carbondata.stored_file import StoredFile
from qbeast_carbondata.structs import (
    BlockletInfo3,
    DataChunk3,
    DataType,
    Encoding,
    FileFooter3,
    FileHeader,
    read_thrift,
)
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

_VERSION: Final = 3
_FULL_PAGE: Final = 32_000
_MAX_PAGE_ROWS: Final = 32_767  # row ids are signed shorts; pages without them are not longer
_WHOLE_COLUMN: Final = 0.5  # share of a column's pages above which the whole column is read at once
_TEXT_OR_TIME: Final = frozenset(
    {DataType.STRING, DataType.VARCHAR, DataType.BINARY, DataType.DATE, DataType.TIMESTAMP}
)


@dataclass(frozen=True, eq=False, kw_only=True)
class V3File(ColumnarFile):
    """A data file of version 3."""

    footer: FileFooter3
    is_of_1_1: bool

    @classmethod
    def open(cls, file: StoredFile, start: int, footer: ThriftStruct, dictionaries: Dictionaries) -> V3File:
        """Read the structure of the file; `Damaged` if it is not possible."""
        own = FileFooter3.of(footer)
        header_end = min((info.offsets[0] for info in own.blocklets if info.offsets), default=start)
        if header_end > start:
            damaged(f"its first column would begin at byte {header_end}, behind the footer at {start}")
        header, _ = read_thrift(file.read_one(0, header_end), FileHeader.of)
        if header.version != _VERSION:
            unreadable(f"its header has version {header.version}")
        columns = column_tree(header.columns)
        return cls(
            file=file,
            version="V3",
            writer=own.extra.get("version", ""),
            columns=columns,
            blocklets=_blocklets(own, len(header.columns), start),
            cardinalities=own.cardinalities,
            dictionaries=dictionaries,
            footer=own,
            is_of_1_1=_is_of_1_1(file, own, columns),
        )

    def bounds(self, blocklet: Blocklet, column: Column) -> StoredBounds:
        """See `DataFile`."""
        listed = self.footer.min_max[blocklet.number : blocklet.number + 1]
        return self._trusted(column, listed[0].bounds(column.number)) if listed else None

    def page_bounds(self, blocklet: Blocklet, column: Column) -> list[StoredBounds]:
        """See `DataFile`."""
        with self.inside(blocklet, column):
            header = _stored_header(self.file, self.footer.blocklets[blocklet.number], column)
        return [self._trusted(column, page.min_max.bounds(0)) for page in header.pages]

    def _trusted(self, column: Column, stored: StoredBounds) -> StoredBounds:
        return old_bounds(column, stored) if self.is_of_1_1 else stored

    def chunk(self, blocklet: Blocklet, context: PageContext, pages: Sequence[int]) -> Chunk:
        """See `ColumnarFile`."""
        info, node = self.footer.blocklets[blocklet.number], context.column
        start, size = _extent(info, node.number)
        head = info.header_bytes[node.number]
        if len(pages) > _WHOLE_COLUMN * info.pages:
            data = self.file.read([(start, size)])[0]
            header = _read_header(bytes(data[:head]), info)
            bodies = [data[head + header.page_offsets[page] :] for page in pages]
        else:
            header = _stored_header(self.file, info, node)
            begins = header.page_offsets
            ends = [*begins[1:], size - head]
            bodies = self.file.read(
                [(start + head + begins[page], ends[page] - begins[page]) for page in pages]
            )
        stored = {page: (header.pages[page], body) for page, body in zip(pages, bodies, strict=True)}
        if header.dictionary is not None:
            codec = header.pages[0].codec if header.pages else "snappy"
            return stored, replace(context, local_members=local_members(header.dictionary, node, codec))
        is_numeric = not node.is_nested and node.kind not in _TEXT_OR_TIME
        is_text = self.is_of_1_1 and is_numeric and node.schema.is_dimension
        return stored, replace(context, numbers_in_text=is_text)


def _is_of_1_1(file: StoredFile, footer: FileFooter3, columns: Sequence[Column]) -> bool:
    """Return whether CarbonData 1.1 wrote a file: it notes no release, and its measures name no codec."""
    measure = next((column for column in columns if not column.schema.is_dimension), None)
    if measure is None or not footer.blocklets or "version" in footer.extra:
        return False
    header = _stored_header(file, footer.blocklets[0], measure)
    return bool(header.pages) and Encoding.DELTA in header.pages[0].encoders


def _blocklets(footer: FileFooter3, columns: int, footer_start: int) -> tuple[Blocklet, ...]:
    """Return the blocklets, checked: columns ascend, lie before the footer, and pages have the rows."""
    blocklets: list[Blocklet] = []
    for number, info in enumerate(footer.blocklets):
        if not len(info.offsets) == len(info.header_bytes) == columns:
            damaged(f"blocklet {number} has {len(info.offsets)} columns, the header {columns}")
        for column in range(columns):
            start, size = _extent(info, column)
            if size < info.header_bytes[column] or start + size > footer_start:
                damaged(f"column {column} of blocklet {number} does not lie before the footer")
        blocklets.append(Blocklet(number, _page_rows(info, number)))
    return checked_blocklets(blocklets, footer.rows)


def _page_rows(info: BlockletInfo3, number: int) -> tuple[int, ...]:
    """Return the rows of each page; files before about 1.4 do not list them: all pages but the last are full."""
    rows = info.page_rows
    if not rows and info.pages and info.pages == -(-info.rows // _FULL_PAGE):
        full = info.pages - 1
        rows = (*[_FULL_PAGE] * full, info.rows - _FULL_PAGE * full)
    if sum(rows) != info.rows or len(rows) != info.pages or max(rows, default=0) > _MAX_PAGE_ROWS:
        damaged(f"the {len(rows)} pages of blocklet {number} do not have its {info.rows} rows")
    return rows


def _extent(info: BlockletInfo3, column: int) -> tuple[int, int]:
    """Return where a column begins, and its length."""
    start = info.offsets[column]
    if column + 1 < len(info.offsets):
        return start, info.offsets[column + 1] - start
    # Without measures the last dimension is the last column.
    end = info.measures_end if info.measures_end > start else info.dimensions_end
    return start, end - start


def _stored_header(file: StoredFile, info: BlockletInfo3, node: Column) -> DataChunk3:
    start, _ = _extent(info, node.number)
    return _read_header(file.read_one(start, info.header_bytes[node.number]), info)


def _read_header(data: bytes, info: BlockletInfo3) -> DataChunk3:
    header, _ = read_thrift(data, DataChunk3.of)
    if not len(header.pages) == len(header.page_offsets) == info.pages:
        damaged(f"a column has {len(header.pages)} pages, its blocklet {info.pages}")
    if any(later < earlier for earlier, later in pairwise(header.page_offsets)):
        damaged("the pages of a column do not ascend")
    return header


_TRAILER: Final = 8


def open_data_file(file: StoredFile, kind: str, dictionaries: Dictionaries) -> DataFile:
    """Open a data file of CarbonData."""
    with file.inside():
        if kind == "row_v1":
            return RowFile.open(file, dictionaries)
        start, footer = _footer(file)
        # Field 2 is a struct in version 3, the number of rows in older ones.
        version = V3File if isinstance(footer.fields.get(2), ThriftStruct) else OldFile
        return version.open(file, start, footer, dictionaries)


def _footer(file: StoredFile) -> tuple[int, ThriftStruct]:
    """Return where the footer begins, and the footer."""
    if file.size_bytes < _TRAILER:
        damaged(f"it has {file.size_bytes} bytes, too few for the position of its footer")
    end = file.size_bytes - _TRAILER
    start = int.from_bytes(file.read_one(end, _TRAILER), "big")
    if start >= end:
        length = min(file.size_bytes, SAMPLE_BYTES)
        with unless_encrypted(file.read_one(0, length), file.read_one(file.size_bytes - length, length)):
            damaged(f"its footer would begin at byte {start} of {file.size_bytes}")
    try:
        return start, read_struct(file.read_one(start, end - start))
    except ThriftError as error:
        damaged(f"byte {start} does not begin a footer: {error}")
