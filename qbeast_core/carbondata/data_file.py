"""What a data file of any version gives: blocklets of pages, and their columns as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.inside import StoredFile

# Least and most of a column as stored, see `qbeast_core.carbondata.pages.statistics`; None: nothing is known.
StoredBounds = tuple[bytes, bytes] | None


@dataclass(frozen=True, slots=True)
class Blocklet:
    """A run of rows of a file that is read at once."""

    # Its place in the file; what delete deltas call it.
    number: int
    # Rows of each page; the pages of all columns hold the same rows.
    page_rows: tuple[int, ...]
    # By the number of a column (`Column.number`); shorter where nothing is known of the others.
    bounds: tuple[StoredBounds, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all pages."""
        return sum(self.page_rows)


class DataFile(Protocol):
    """A data file, opened: what it consists of is known and checked, its pages are not read yet.

    Its methods may be called from several threads. They raise `DamagedFileError` and `UnsupportedTableError`,
    naming the file and the place in it.
    """

    @property
    def file(self) -> StoredFile:
        """Where it lies."""
        ...

    @property
    def version(self) -> str:
        """``"V1"``, ``"V2"``, ``"V3"`` or ``"row"``."""
        ...

    @property
    def writer(self) -> str:
        """The release that wrote it, as it says; "" if it does not."""
        ...

    @property
    def columns(self) -> tuple[Column, ...]:
        """Top-level columns in the order of the file."""
        ...

    @property
    def blocklets(self) -> tuple[Blocklet, ...]:
        """All of them."""
        ...

    def page_bounds(self, blocklet: Blocklet, columns: Sequence[Column]) -> list[list[StoredBounds]]:
        """Return, for each of some columns that are not nested, the bounds of each page of a blocklet."""
        ...

    def read(self, blocklet: Blocklet, columns: Sequence[Column], pages: Sequence[int]) -> list[Any]:
        """Return, for each of some columns, the rows of some pages of a blocklet as one Arrow array."""
        ...
