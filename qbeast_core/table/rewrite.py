"""Take files out of a table and put their rows back, indexed anew: what optimize and changes of rows share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import AddFile
from qbeast_core.log.protocol import check_writable
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data_file import FileSettings
from qbeast_core.table.data_files import World, delete_data_files, write_data_files
from qbeast_core.table.index_state import IndexState, blocks_frame
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.progress import Progress, ProgressStage
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_commit import publish_rewrite
from qbeast_core.table.rewrite_job import Replaced, Rewrite
from qbeast_core.table.rewrite_read import TakenRows
from qbeast_core.table.rewrite_space import indexed_names, newest_revision, space_for
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index
from qbeast_core.tree.plan_part import plan_parts

__all__ = ["refuse_copies", "rewrite"]


def rewrite(reader: Reader, state: IndexState, job: Rewrite, world: World) -> Replaced | None:
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
    check_writable(snapshot.protocol, snapshot.metadata, mode="append", path=snapshot.uri)
    refuse_unsafe_locking(reader.store.uri, snapshot.storage_options)
    refuse_copies(state)
    rewriter = _Rewriter(reader, state, job, world)
    try:
        replaced = rewriter.run()
    except BaseException:
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
    """The state of a rewrite between its groups."""

    def __init__(self, reader: Reader, state: IndexState, job: Rewrite, world: World) -> None:
        self.reader, self.state, self.job, self.world = reader, state, job, world
        self.gone: BoolArray = np.zeros(state.snapshot.files.height, np.bool_)
        self.gone[job.files] = True
        self._begin()

    def _begin(self) -> None:
        self.adds: list[AddFile] = []
        self.new = blocks_frame([])
        self.rows = 0

    def run(self) -> Replaced | None:
        rows = self._rows(self.gone, self.job.added)
        revision, is_new = self._space(rows)
        while True:
            taken = int(self.gone.sum())
            if not self._put_back(rows, revision, is_new=is_new, is_worth=self.job.is_worth):
                return None
            # The smallest weight of all leaves no room for a threshold below: then it stays as it is.
            if self._mend(revision, is_new=is_new) or int(self.gone.sum()) == taken:
                cubes = self.new["cube"].n_unique()
                return Replaced(self.gone, self.adds, revision, is_new, self.rows, cubes)
            # New blocks relied on files that went later; once more, with all of these gone from the start.
            delete_data_files(self.reader.store, self.adds)
            self._begin()
            rows = self._rows(self.gone, self.job.added)

    def _rows(self, files: BoolArray, added: pl.DataFrame | None) -> TakenRows:
        job = self.job
        return TakenRows(
            self.reader, np.flatnonzero(files), change=job.change, added=added, group_bytes=job.group_bytes
        )

    def _space(self, rows: TakenRows) -> tuple[Revision, bool]:
        """Choose the revision; rows that are indexed in the newest one and stay as they are always fit it."""
        if self.job.revision is not None:
            return self.job.revision, False
        newest = newest_revision(self.state)
        same = self.job.change is None and self.job.added is None
        if newest is not None and same and (self.state.revision_of[self.gone] == newest.revision_id).all():
            return newest, False
        keys = rows.keys(indexed_names(self.state))
        uri, now_ms = self.state.snapshot.uri, self.world.now_ms()
        return space_for(self.state, keys, self.gone, uri=uri, now_ms=now_ms)

    def _put_back(
        self,
        rows: TakenRows,
        revision: Revision,
        *,
        is_new: bool,
        is_worth: Callable[[I64Array, IndexPlan], bool] | None = None,
    ) -> bool:
        """Write the rows; False if that is not worth it, and nothing was written."""
        keys = rows.keys(revision.columns)
        self._tell("plan", keys.height)
        held = rows.held
        row_bytes = rows.row_bytes if held is None else held.estimated_size() / max(held.height, 1)
        plan = plan_index(
            keys,
            revision,
            frame_weights(keys, revision.columns),
            existing=None if is_new and not self.new.height else self._tree(revision, is_new=is_new),
            file_rows=rows_per_file(row_bytes),
        )
        if is_worth is not None and not is_worth(np.flatnonzero(self.gone), plan):
            return False
        effect = design_effect(plan.weights)
        if held is not None:
            self._write(held, plan, effect)
            return True
        for places, part in plan_parts(plan, most_rows=rows.group_rows):
            self._write(rows.take(places, keys.height), part, effect)
        return True

    def _tree(self, revision: Revision, *, is_new: bool) -> ExistingTree:
        gone = np.ones_like(self.gone) if is_new else self.gone
        return self.state.tree(revision, gone, self.new)

    def _mend(self, revision: Revision, *, is_new: bool) -> bool:
        """Take out more files until the order of weights is kept; False if that does not help."""
        while True:
            new = {} if is_new else {revision.revision_id: self.new}
            disorder = self.state.disorder(self.gone, new)
            if disorder.is_stuck or not len(disorder.files):
                return not disorder.is_stuck
            more = np.zeros_like(self.gone)
            more[disorder.files] = True
            self.gone |= more
            self._put_back(self._rows(more, None), revision, is_new=is_new)

    def _write(self, rows: pl.DataFrame, plan: IndexPlan, effect: float) -> None:
        configuration = self.state.snapshot.metadata.configuration
        adds = write_data_files(
            rows,
            plan,
            store=self.reader.store,
            settings=FileSettings.of(rows, plan.revision.columns, configuration),
            design_effect=effect,
            world=self.world,
            progress=self.job.progress,
        )
        self.adds += adds
        self.rows += rows.height
        found = blocks_frame([block for add in adds for block in add.blocks or ()])
        self.new = pl.concat([self.new, found])

    def _tell(self, stage: ProgressStage, rows: int) -> None:
        if self.job.progress is not None:
            self.job.progress(Progress(stage, rows=rows))
