"""Changes of rows between old and new files. They are sent to workers, so they can be pickled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import polars as pl

# Maps rows to rows with the same columns. Picklable and deterministic.
RowFunction: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class RowChange(ABC):
    """A change of the rows of a table, file by file."""

    @abstractmethod
    def of_file(self, path: str) -> RowFunction | None:
        """Return the change of the rows of a file, by its decoded path. None: the rows stay as they are."""


class UniformChange(RowChange):
    """A change that is the same for all files."""

    @abstractmethod
    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay, with their new values."""

    def of_file(self, path: str) -> RowFunction:  # noqa: ARG002 - same for all files
        """See `RowChange`."""
        return self
