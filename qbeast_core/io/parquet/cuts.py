"""Where the rows of a data file are cut into row groups and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import I64Array


@dataclass(frozen=True, slots=True)
class PageCuts:
    """The row groups of a file, and how they are cut into pages: all columns at the same rows.

    >>> cuts = PageCuts((5, 4), (2, 4))
    >>> cuts.pages, cuts.starts().tolist(), cuts.groups().tolist()
    (4, [0, 2, 4, 5, 9], [0, 0, 0, 1])
    """

    # Rows of each row group.
    group_rows: tuple[int, ...]
    # Rows per page of each row group; its last page has the rest.
    page_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.group_rows)

    @property
    def group_pages(self) -> list[int]:
        """Number of pages of each row group."""
        return [-(-rows // each) for rows, each in zip(self.group_rows, self.page_rows, strict=True)]

    @property
    def pages(self) -> int:
        """Number of pages of the file."""
        return sum(self.group_pages)

    def starts(self) -> I64Array:
        """Return the first row of each page, and the number of rows, shape (pages + 1,)."""
        first, parts = 0, list[I64Array]()
        for rows, each in zip(self.group_rows, self.page_rows, strict=True):
            parts.append(np.arange(first, first + rows, each, dtype=np.int64))
            first += rows
        return np.concatenate([*parts, np.array([first], np.int64)])

    def groups(self) -> I64Array:
        """Return the row group of each page, shape (pages,)."""
        return np.repeat(np.arange(len(self.group_rows)), self.group_pages)

    def rows_in(self, pages: I64Array) -> I64Array:
        """Return the numbers of the rows in some ascending pages."""
        starts = self.starts()
        counts = np.diff(starts)[pages]
        return np.repeat(starts[pages] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def cuts_of(group_rows: Sequence[int] | I64Array, page_rows: Sequence[int] | I64Array) -> PageCuts:
    """Return cuts from sequences or arrays."""
    return PageCuts(tuple(map(int, group_rows)), tuple(map(int, page_rows)))
