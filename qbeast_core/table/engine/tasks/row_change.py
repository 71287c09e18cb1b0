"""Changes of rows between old and new files. They are sent to workers, so they can be pickled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True, eq=False)
class RowImages:
    """Rows before and after a change, without unchanged rows."""

    deleted: pl.DataFrame
    # The same rows in the same order.
    before: pl.DataFrame
    after: pl.DataFrame


class RowFunction(ABC):
    """A change of rows. Picklable and deterministic: it is computed several times."""

    @abstractmethod
    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay, with their new values."""

    @abstractmethod
    def images(self, rows: pl.DataFrame) -> RowImages:
        """Return only the rows that change."""


class RowChange(ABC):
    """A change of the rows of a table, file by file."""

    @abstractmethod
    def of_file(self, path: str) -> RowFunction | None:
        """Return the change of the rows of a file, by its decoded path. None: the rows stay as they are."""


class UniformChange(RowChange, RowFunction):
    """A change that is the same for all files."""

    def of_file(self, path: str) -> RowFunction:  # noqa: ARG002 - same for all files
        """See `RowChange`."""
        return self
