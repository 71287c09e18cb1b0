"""What becomes of rows on their way from old files to new ones. Workers get it: it pickles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import polars as pl

# Rows in, rows out, of the same columns. It pickles, and gives the same rows each time it is called.
RowFunction: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class RowChange(ABC):
    """A change of the rows of a table, file by file."""

    @abstractmethod
    def of_file(self, path: str) -> RowFunction | None:
        """Return the change of the rows of a file, by its decoded path; None: they stay as they are."""


class UniformChange(RowChange):
    """A change that is the same for the rows of every file."""

    @abstractmethod
    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay, as they will be."""

    def of_file(self, path: str) -> RowFunction:  # noqa: ARG002 - it is the same for all of them
        """See `RowChange`."""
        return self
