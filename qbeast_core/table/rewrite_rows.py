"""What a rewrite asks of whoever moves the rows: this process, or an engine with workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data_files import World
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_job import PlanSize, Rewrite
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.summary import IndexSummary

__all__ = ["PlannedRows", "Rows", "TakeRows"]


class PlannedRows(PlanSize, Protocol):
    """Rows whose new places are known."""

    def write(self) -> Iterator[Sequence[AddFile]]:
        """Write the files, invisible until a commit names them; yield them, with their blocks, as they are done.

        Raises
        ------
        StorageError
            If the store refuses. Of the files that were not yielded what can be found is deleted.
        """
        ...


class Rows(Protocol):
    """The rows of files that are taken out, and those added to them; the same each time they are read."""

    def summary(self, names: Sequence[str]) -> IndexSummary:
        """Return what is known of some columns."""
        ...

    def plan(self, revision: Revision, tree: ExistingTree | None) -> PlannedRows:
        """Decide where the rows go.

        Parameters
        ----------
        revision : Revision
            To index them in.
        tree : ExistingTree or None
            Of the blocks of that revision that stay.
        """
        ...


TakeRows: TypeAlias = Callable[[Reader, Rewrite, World, I64Array, pl.DataFrame | None], Rows]
"""Takes the rows of files of a snapshot, by their numbers, and those that a rewrite adds to them, if any."""
