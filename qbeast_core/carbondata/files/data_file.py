"""Data files: what every version and format has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import damaged, place
from qbeast_core.carbondata.pages.dimensions import Dictionaries
from qbeast_core.carbondata.pages.nested import assemble
from qbeast_core.carbondata.pages.page import PageContext, decode_page, fixed_records
from qbeast_core.carbondata.stored_file import StoredFile
from qbeast_core.carbondata.structs.data_file import DataChunk2

# Minimum and maximum of a column as stored, see `qbeast_core.carbondata.pages.statistics`; None if unknown.
StoredBounds = tuple[bytes, bytes] | None


@dataclass(frozen=True, slots=True)
class Blocklet:
    """A run of rows of a file that is read at once."""

    # Its position in the file; delete deltas refer to it.
    number: int
    # Rows of each page; the pages of all columns have the same rows.
    page_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of all pages."""
        return sum(self.page_rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class DataFile(ABC):
    """An opened data file: its structure is known and checked, its pages are not read yet.

    Several threads may call its methods, which raise `DamagedFileError` and `UnsupportedTableError`.
    """

    file: StoredFile
    # `"V1"`, `"V2"`, `"V3"`, `"row"`, `"parquet"` or `"orc"`.
    version: str
    # The release that wrote it, if it is known.
    writer: str = ""
    # Top-level columns in the order of the file.
    columns: tuple[Column, ...]
    blocklets: tuple[Blocklet, ...]

    def bounds(self, blocklet: Blocklet, column: Column) -> StoredBounds:  # noqa: ARG002 - most formats have them
        """Return the bounds of a column that is not nested in a blocklet."""
        return None

    def page_bounds(self, blocklet: Blocklet, column: Column) -> list[StoredBounds]:
        """Return the bounds of such a column in each page of a blocklet; those of the blocklet hold for all."""
        return [self.bounds(blocklet, column)] * len(blocklet.page_rows)

    @abstractmethod
    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """Return, for each of some columns, the rows of some pages of a blocklet as one Arrow array."""


# Some pages of a column in a blocklet with their bytes, and the context to decode them.
Chunk = tuple[dict[int, tuple[DataChunk2, memoryview]], PageContext]


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnarFile(DataFile):
    """A data file that stores columns in pages: versions 1 to 3."""

    cardinalities: tuple[int, ...]
    dictionaries: Dictionaries

    @abstractmethod
    def chunk(self, blocklet: Blocklet, context: PageContext, pages: Sequence[int]) -> Chunk:
        """Read some pages of a column."""

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """See `DataFile`."""
        arrays: list[Any] = []
        for column in columns:
            with self.inside(blocklet, column):
                arrays.append(self._column(blocklet, column, pages))
        return arrays

    def inside(self, blocklet: Blocklet, column: Column) -> Any:
        """Add a blocklet and a column to errors."""
        return self.file.inside(place_of(blocklet, column))

    def _column(self, blocklet: Blocklet, column: Column, pages: Sequence[int]) -> Any:
        if not pages:
            return pa.nulls(0, column.arrow_type)
        chunks: dict[int, Chunk] = {}
        for node in column.walk():
            is_known = 0 <= node.dimension < len(self.cardinalities)
            context = PageContext(
                column=node,
                dictionaries=self.dictionaries,
                cardinality=self.cardinalities[node.dimension] if is_known else None,
                is_child=node is not column,
            )
            chunks[node.number] = self.chunk(blocklet, context, pages)
        parts = [_page(blocklet, column, chunks, page) for page in pages]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _page(blocklet: Blocklet, column: Column, chunks: dict[int, Chunk], page: int) -> Any:
    """Return a page of a column with all that is nested in it."""
    rows = blocklet.page_rows[page]

    def leaf(node: Column) -> Any:
        pages, context = chunks[node.number]
        return decode_page(*pages[page], context, rows if node is column else -1)

    def records(node: Column) -> Any:
        pages, context = chunks[node.number]
        return fixed_records(*pages[page], context)

    with place(f"page {page}"):
        values = assemble(column, leaf, records)
        if len(values) != rows:
            damaged(f"{rows} rows have {len(values)} values")
    return values


def place_of(blocklet: Blocklet, column: Column) -> str:
    """Return the place of a column in messages."""
    return f"blocklet {blocklet.number}, column {column.schema.name!r}"


def checked_blocklets(blocklets: Sequence[Blocklet], rows: int) -> tuple[Blocklet, ...]:
    """Return the blocklets if they have the rows that the footer counts."""
    total = sum(blocklet.rows for blocklet in blocklets)
    if total != rows:
        damaged(f"its blocklets have {total} rows, its footer {rows}")
    return tuple(blocklets)
