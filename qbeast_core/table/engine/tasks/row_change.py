"""What becomes of rows on their way from old files to new ones: workers are sent it, so it pickles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import polars as pl

# Rows in, rows out, of the same columns, the same for the same rows each time it is called; it pickles.
RowChange: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class ChangeByFile(ABC):
    """What becomes of rows, where that is said file by file."""

    @abstractmethod
    def of_file(self, path: str) -> RowChange | None:
        """Return what becomes of the rows of a file, by its decoded path; None: they stay as they are."""
