"""Take files out of a table and put their rows back, indexed anew: what optimize and changes of rows share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.hints import Message, call
from qbeast_core.log.actions import AddFile
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.removes import removes_of
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.commit import publish
from qbeast_core.table.commit.s3_locking import refuse_unsafe_locking
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import Engine, FilesSource, PlannedRows, RowChange, Rows
from qbeast_core.table.index.revision import newest_revision, space_for
from qbeast_core.table.index.state import IndexState, blocks_frame
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.job import Replaced, Rewrite
from qbeast_core.table.runtime import Progress, Runtime
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.outside import rows_outside

__all__ = ["OutOfRangeRows", "part_of", "publish_rewrite", "refuse_copies", "rewrite"]


def rewrite(
    reader: Reader, state: IndexState, job: Rewrite, runtime: Runtime, *, engine: Engine = MEMORY
) -> Replaced | None:
    """Rewrite files in one commit, built on the reader's version; all of it or nothing.

    Rows that take more memory than a group may are not held: their indexed columns are read to plan, then
    the files are read again for every group of files to write.

    Parameters
    ----------
    reader, state : Reader, IndexState
        Of the version to build on.
    job : Rewrite
        What to do.
    runtime : Runtime
        Clock and ids.
    engine : Engine
        Who reads the rows and writes them; this process by default.

    Returns
    -------
    Replaced or None
        What was done; None if it was not worth it.

    Raises
    ------
    UnsupportedTableError
        The table must not be written, or holds copies of rows (format 11).
    CommitConflictError
        Another writer changed what this rewrite builds on; its files are deleted again.
    CommitUnknownError
        The store did not say whether the commit landed.
    StorageError
        The store refused.
    """
    snapshot = state.snapshot
    check_writable(snapshot.protocol, snapshot.metadata, mode="append", path=snapshot.uri, brings=job.brings)
    refuse_unsafe_locking(reader.store.uri, snapshot.storage_options)
    refuse_copies(state)
    rewriter = _Rewriter(reader, state, job, runtime, engine)
    try:
        replaced = rewriter.run()
    except BaseException:  # an interrupt and a panic of Rust too
        delete_data_files(reader.store, rewriter.adds)
        raise
    return None if replaced is None else publish_rewrite(reader, job, replaced)


def refuse_copies(state: IndexState) -> None:
    """Raise where a table holds copies of rows, which no rewrite may take for rows.

    Raises
    ------
    UnsupportedTableError
        Naming the cure.
    """
    if state.has_copies:
        uri = state.snapshot.uri
        what = f"{uri} holds copies of rows, as tables of before 0.6.0 do; nothing was changed. "
        cure = call("upgrade_table", uri, replicated="drop")
        msg = Message(what, "Bring it up to date first: ", cure, ".")
        raise UnsupportedTableError(msg, path=uri, feature="replicated blocks")


class _Rewriter:
    """The state of a rewrite between its rounds."""

    def __init__(
        self, reader: Reader, state: IndexState, job: Rewrite, runtime: Runtime, engine: Engine
    ) -> None:
        self.reader, self.state, self.job, self.runtime = reader, state, job, runtime
        self.engine = engine
        self.dropped: BoolArray = np.zeros(state.snapshot.files.height, np.bool_)
        self.dropped[job.dropped] = True
        self.gone = self.dropped.copy()
        self.gone[job.files] = True
        self.revision, self.is_new = job.revision, False
        self.apart: OutOfRangeRows | None = None
        self._begin()

    def _begin(self) -> None:
        self.adds: list[AddFile] = []
        self.new = blocks_frame([])

    def run(self) -> Replaced | None:
        rows = self._first()
        while True:
            taken = int(self.gone.sum())
            plan = self._plan(rows)
            if plan is not None:
                if self.job.is_worth is not None and not self.job.is_worth(np.flatnonzero(self.gone), plan):
                    return None
                self._write(plan)
            # The smallest weight of all leaves no room for a threshold below: then it stays as it is.
            if self._mend() or int(self.gone.sum()) == taken:
                return self._replaced()
            # New blocks relied on files that went later; once more, with all of these gone from the start.
            delete_data_files(self.reader.store, self.adds)
            self._begin()
            rows = self._rows(self.gone & ~self.dropped, self.job.added)

    def _replaced(self) -> Replaced:
        count, cubes = int(self.new["rows"].sum()), self.new["cube"].n_unique()
        if self.apart is not None:
            rows = self._set_apart(self.apart.job, reads_files=self.apart.reads_files)
            self.adds, self.new = [_of_revision(add, self.revision) for add in self.adds], blocks_frame([])
            self.revision, self.is_new = self._new_space(rows)
            plan = self._plan(rows)
            if plan is not None:
                self._write(plan)
            count, cubes = count + int(self.new["rows"].sum()), cubes + self.new["cube"].n_unique()
        return Replaced(self.gone, self.adds, self.revision, self.is_new, count, cubes)

    def _first(self) -> Rows:
        """Take the rows; those that need a new revision are set apart, so that all others stay in theirs."""
        whole, newest, files = self.job, newest_revision(self.state), self.gone & ~self.dropped
        if newest is None or not whole.keeps_places or not self.gone.any():
            return self._rows(files, whole.added)
        self.job = part_of(whole, newest, outside=False, taken=False)
        rows = self._rows(files, self.job.added)
        all_stay = self._stay() or not self._new_space(rows)[1]
        outside = part_of(whole, newest, outside=True, taken=not all_stay)
        if all_stay and outside.added is None:
            return rows
        if not self._new_space(self._set_apart(outside, reads_files=not all_stay))[1]:
            self.job = whole  # all rows together ask for a new revision
            return self._rows(files, whole.added)
        self.apart = OutOfRangeRows(outside, reads_files=not all_stay)
        if all_stay:
            return rows
        self.job = part_of(whole, newest, outside=False)
        return self._rows(files, self.job.added)

    def _set_apart(self, job: Rewrite, *, reads_files: bool) -> Rows:
        files = np.flatnonzero(self.gone & ~self.dropped & reads_files)
        return self._open(job, files, job.added)

    def _rows(self, files: BoolArray, added: pl.DataFrame | None) -> Rows:
        return self._open(self.job, np.flatnonzero(files), added)

    def _open(self, job: Rewrite, numbers: I64Array, added: pl.DataFrame | None) -> Rows:
        source = FilesSource(
            reader=self.reader, numbers=numbers, change=job.change, added=added, group_bytes=job.group_bytes
        )
        return self.engine.open(source, source.target, self.runtime, job.progress)

    def _plan(self, rows: Rows) -> PlannedRows | None:
        """Decide where rows go; None where there are none, in a table that has no space for any yet."""
        if self.revision is None:
            self.revision, self.is_new = self._space(rows)
        if self.revision is None:
            return None
        begins = self.is_new and not self.new.height
        return rows.plan(self.revision, None if begins else self._tree(self.revision))

    def _space(self, rows: Rows) -> tuple[Revision | None, bool]:
        """Choose the revision; rows that are indexed in the newest one and stay as they are always fit it."""
        if self.job.redraw:
            return self._new_space(rows)
        if self.apart is not None or (self._stay() and self.job.added is None):
            return newest_revision(self.state), False
        return self._new_space(rows)

    def _stay(self) -> bool:
        """Tell whether all rows taken out are of the newest revision and fit it as they come back."""
        newest, job = newest_revision(self.state), self.job
        taken = self.state.revision_of[self.gone & ~self.dropped]
        same = job.change is None or job.keeps_keys
        return newest is not None and same and bool((taken == newest.revision_id).all())

    def _new_space(self, rows: Rows) -> tuple[Revision | None, bool]:
        uri, now_ms = self.state.snapshot.uri, self.runtime.now_ms()
        redraw = self.job.redraw
        return space_for(self.state, rows.summary, self.gone, uri=uri, now_ms=now_ms, redraw=redraw)

    def _tree(self, revision: Revision) -> ExistingTree:
        gone = np.ones_like(self.gone) if self.is_new else self.gone
        keeps = self.job.keeps_places and not self.is_new
        return self.state.tree(revision, gone, self.new, keeps_places=keeps)

    def _mend(self) -> bool:
        """Take out more files until the order of weights is kept; False if that does not help."""
        while True:
            revision = None if self.is_new else self.revision
            disorder = self.state.disorder(
                self.gone, {} if revision is None else {revision.revision_id: self.new}
            )
            if disorder.is_stuck or not len(disorder.files):
                return not disorder.is_stuck
            more = np.zeros_like(self.gone)
            more[disorder.files] = True
            self.gone |= more
            plan = self._plan(self._rows(more, None))
            if plan is not None:
                self._write(plan)

    def _write(self, plan: PlannedRows) -> None:
        for adds in plan.write():
            self.adds += adds
            found = blocks_frame([block for add in adds for block in add.blocks or ()])
            self.new = pl.concat([self.new, found])


def _of_revision(add: AddFile, revision: Revision | None) -> AddFile:
    """Return a file that keeps its revision whichever the commit brings."""
    if revision is None:
        return add
    return add.model_copy(update={"tags": {**(add.tags or {}), "revision": str(revision.revision_id)}})


@dataclass(frozen=True, slots=True)
class OutOfRangeRows:
    """Rows that go into a new revision after all others are back.

    Attributes
    ----------
    job : Rewrite
        Of these rows alone.
    reads_files : bool
        Whether there are any among the rows of files, not only among those added.
    """

    job: Rewrite
    reads_files: bool


def part_of(job: Rewrite, revision: Revision, *, outside: bool, taken: bool = True) -> Rewrite:
    """Return a rewrite of the rows that lie in the space of a revision, or of those that do not.

    Parameters
    ----------
    job : Rewrite
        Of all rows.
    revision : Revision
        That has the space.
    outside : bool
        Which of them.
    taken : bool, default True
        Whether rows of files are looked at, too; else all of them stay, and those added are looked at alone.
    """
    added = None if job.added is None else _Part(None, revision, outside)(job.added)
    change = _Part(job.change, revision, outside) if taken else job.change
    return replace(job, change=change, added=added if added is not None and added.height else None)


@dataclass(frozen=True, slots=True)
class _Part:
    """What becomes of rows, without those of the other part."""

    change: RowChange | None
    revision: Revision
    outside: bool

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows if self.change is None else self.change(rows)
        beyond = pl.Series(rows_outside(rows, self.revision), dtype=pl.Boolean)
        return rows.filter(beyond if self.outside else ~beyond)


def publish_rewrite(reader: Reader, job: Rewrite, replaced: Replaced) -> Replaced:
    """Commit; files that no version will ever name are deleted again.

    Parameters
    ----------
    reader : Reader
        Of the version the rewrite was planned on.
    job : Rewrite
        What was asked for.
    replaced : Replaced
        What was written and is still invisible.

    Returns
    -------
    Replaced
        The same with its outcome.

    Raises
    ------
    CommitConflictError
        Another writer changed what this rewrite builds on; nothing is left of it.
    CommitUnknownError
        The store did not say whether the commit landed.
    """
    if job.progress is not None:
        files = len(replaced.adds)
        job.progress(Progress("commit", files, files, replaced.rows))
    outcome = publish(
        reader.store, reader.snapshot, _intent(reader, job, replaced), conflict_with=job.conflict_with
    )
    return replace(replaced, outcome=outcome)


def _intent(reader: Reader, job: Rewrite, replaced: Replaced) -> WriteIntent:
    out = reader.snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    metrics = _metrics(replaced, out) if job.metrics is None else job.metrics(replaced)
    info: dict[str, Any] = {
        **job.commit_metadata,
        "operationParameters": dict(job.parameters),
        "operationMetrics": {key: str(value) for key, value in metrics.items()},
    }
    return WriteIntent(
        mode="append",
        brings=job.brings,
        adds=tuple(add.model_copy(update={"data_change": job.data_change}) for add in replaced.adds),
        removes=removes_of(out, data_change=job.data_change),
        revision=replaced.revision if replaced.adds or job.redraw else None,
        new_revision=replaced.is_new,
        drops_unused=job.redraw,
        operation=job.operation,
        commit_info=info,
    )


def _metrics(replaced: Replaced, out: pl.DataFrame) -> dict[str, int]:
    return {
        "numAddedFiles": len(replaced.adds),
        "numAddedBytes": sum(add.size for add in replaced.adds),
        "numRemovedBytes": int(out["size_bytes"].sum()),
        "numOutputRows": replaced.rows,
    }
