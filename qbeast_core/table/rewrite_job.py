"""What a rewrite is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit import CommitOutcome
from qbeast_core.table.progress import ProgressCallback

__all__ = ["GROUP_BYTES", "PlanSize", "Replaced", "Rewrite", "RowChange"]

GROUP_BYTES: Final = 2 << 30
"""Rows that are held at once, in bytes of memory, estimated from the columns' types."""

RowChange: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]
"""Rows in, rows out, of the same columns, the same for the same rows each time it is called."""


class PlanSize(Protocol):
    """How much a plan writes."""

    @property
    def file_count(self) -> int:
        """Files to write."""
        ...

    @property
    def block_count(self) -> int:
        """Blocks in these files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewrite:
    """What to take out and what to put back.

    Attributes
    ----------
    files : ndarray of int64
        Numbers of the live files to take out. More may go with them, to keep the order of weights
        (format 8.3): their rows are put back too.
    revision : Revision or None
        The revision of the table to index in; None: the newest, or a new one if rows do not fit it.
    change : callable or None
        What becomes of the rows of these files, and of those that go with them.
    added : polars.DataFrame or None
        More rows, of the table's columns and types.
    data_change : bool
        Whether the table holds other rows afterwards.
    operation : str
        Its name in the history.
    parameters : mapping of str to str
        ``operationParameters`` in the history.
    commit_metadata : mapping of str to str
        More entries in the history.
    is_worth : callable or None
        Asked with the files and the plan before anything is written; False leaves the table as it is.
    progress : callable or None
        Told of every step.
    group_bytes : int
        Rows held at once, see `GROUP_BYTES`.
    """

    files: I64Array
    revision: Revision | None = None
    change: RowChange | None = None
    added: pl.DataFrame | None = None
    data_change: bool = False
    operation: str = "OPTIMIZE"
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    is_worth: Callable[[I64Array, PlanSize], bool] | None = None
    progress: ProgressCallback | None = None
    group_bytes: int = GROUP_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Files taken out and put back.

    Attributes
    ----------
    gone : ndarray of bool, shape (files,)
        Files of the snapshot that leave the table.
    adds : sequence of AddFile
        Those that come in their place.
    revision : Revision
        What their rows are indexed in.
    is_new : bool
        Whether this commit brings it.
    rows, cubes : int
        Rows put back, and the cubes that hold them.
    outcome : CommitOutcome or None
        Of the commit; None: it is still to come.
    """

    gone: BoolArray
    adds: Sequence[AddFile]
    revision: Revision
    is_new: bool
    rows: int
    cubes: int
    outcome: CommitOutcome | None = None
