"""What a rewrite is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import Brings
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.commit import CommitOutcome
from qbeast_core.table.engine.protocol import GROUP_BYTES, PlanSize, RowChange
from qbeast_core.table.runtime import ProgressCallback
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["Replaced", "Rewrite"]


def _no_files() -> I64Array:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewrite:
    """What to take out and what to put back.

    Attributes
    ----------
    files : ndarray of int64
        Numbers of the live files to take out. More may go with them, to keep the order of weights
        (format 8.3): their rows are put back too.
    dropped : ndarray of int64
        Numbers of more live files to take out, of which no row is put back: they are not read.
    revision : Revision or None
        The revision of the table to index in; None: the newest, or a new one if rows do not fit it.
    redraw : bool
        Index all rows in a new revision whose ranges and quantiles are drawn from them alone, and drop revisions
        that no live file needs then (format 12).
    change : callable or None
        What becomes of the rows of `files`, and of those that go with them.
    keeps_places : bool
        Whether rows are put back by the thresholds that their cubes had, so that few other files have to go with
        them; else by those of a fresh tree.
    keeps_keys : bool
        Whether `change` leaves the indexed columns of the rows it returns as they are.
    added : polars.DataFrame or None
        More rows, of the table's columns and types.
    brings : {"files", "rows"}
        Whether rows are new or changed, or are rows that the table had, in other files.
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
    metrics : callable or None
        Gives ``operationMetrics`` for the history of what was replaced; None: those of an optimize.
    conflict_with : callable or None
        Asked with the newest version whenever other writers were faster: why the change must not follow them;
        None: it may.
    progress : callable or None
        Told of every step.
    group_bytes : int
        Rows held at once, see `GROUP_BYTES`.
    """

    files: I64Array
    dropped: I64Array = field(default_factory=_no_files)
    revision: Revision | None = None
    redraw: bool = False
    change: RowChange | None = None
    keeps_places: bool = False
    keeps_keys: bool = False
    added: pl.DataFrame | None = None
    brings: Brings = "files"
    data_change: bool = False
    operation: str = "OPTIMIZE"
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    is_worth: Callable[[I64Array, PlanSize], bool] | None = None
    metrics: Callable[[Replaced], Mapping[str, int]] | None = None
    conflict_with: Callable[[Snapshot], str | None] | None = None
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
    revision : Revision or None
        What their rows are indexed in; None: there are no rows, and none was needed.
    is_new : bool
        Whether this commit brings it.
    rows, cubes : int
        Rows put back, and the cubes that hold them.
    outcome : CommitOutcome or None
        Of the commit; None: it is still to come.
    """

    gone: BoolArray
    adds: Sequence[AddFile]
    revision: Revision | None
    is_new: bool
    rows: int
    cubes: int
    outcome: CommitOutcome | None = None
