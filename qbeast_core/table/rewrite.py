"""Take files out of a table and put their rows back, indexed anew: what optimize and changes of rows share."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import check_writable
from qbeast_core.space.arrays import BoolArray
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data_files import World, delete_data_files
from qbeast_core.table.index_state import IndexState, blocks_frame
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_apart import Apart, part_of
from qbeast_core.table.rewrite_commit import publish_rewrite
from qbeast_core.table.rewrite_here import take_here
from qbeast_core.table.rewrite_job import Replaced, Rewrite
from qbeast_core.table.rewrite_rows import PlannedRows, Rows, TakeRows
from qbeast_core.table.rewrite_space import newest_revision, space_for
from qbeast_core.tree.existing import ExistingTree

__all__ = ["refuse_copies", "rewrite"]


def rewrite(
    reader: Reader, state: IndexState, job: Rewrite, world: World, *, take: TakeRows = take_here
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
    world : World
        Clock and ids.
    take : callable
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
    rewriter = _Rewriter(reader, state, job, world, take)
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
        msg = (
            f"{uri} holds copies of rows, as tables of before 0.6.0 do; nothing was changed. "
            'Bring it up to date first: qbeast.upgrade_table(path, replicated="drop").'
        )
        raise UnsupportedTableError(msg, path=uri, feature="replicated blocks")


class _Rewriter:
    """The state of a rewrite between its rounds."""

    def __init__(self, reader: Reader, state: IndexState, job: Rewrite, world: World, take: TakeRows) -> None:
        self.reader, self.state, self.job, self.world = reader, state, job, world
        self.take = take
        self.dropped: BoolArray = np.zeros(state.snapshot.files.height, np.bool_)
        self.dropped[job.dropped] = True
        self.gone = self.dropped.copy()
        self.gone[job.files] = True
        self.revision, self.is_new = job.revision, False
        self.apart: Apart | None = None
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
        self.apart = Apart(outside, reads_files=not all_stay)
        if all_stay:
            return rows
        self.job = part_of(whole, newest, outside=False)
        return self._rows(files, self.job.added)

    def _set_apart(self, job: Rewrite, *, reads_files: bool) -> Rows:
        files = np.flatnonzero(self.gone & ~self.dropped & reads_files)
        return self.take(self.reader, job, self.world, files, job.added)

    def _rows(self, files: BoolArray, added: pl.DataFrame | None) -> Rows:
        return self.take(self.reader, self.job, self.world, np.flatnonzero(files), added)

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
        uri, now_ms = self.state.snapshot.uri, self.world.now_ms()
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
