"""Take files out of a table and put their rows back, indexed anew: what optimize and changes of rows share."""

from __future__ import annotations

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
from qbeast_core.table.rewrite_read import read_files, row_groups
from qbeast_core.table.rewrite_space import indexed_names, newest_revision, space_for
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.design_effect import design_effect
from qbeast_core.tree.pack import rows_per_file
from qbeast_core.tree.plan import IndexPlan, plan_index

__all__ = ["refuse_copies", "rewrite"]


def rewrite(reader: Reader, state: IndexState, job: Rewrite, world: World) -> Replaced | None:
    """Rewrite files in one commit, built on the reader's version; all of it or nothing.

    Rows are read and written in groups of bounded memory. The first groups are placed as though the rows of
    the later ones were in the tree already, so the result is that of one group, but for blocks of fewer rows.

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
        self.names = indexed_names(state)
        self.gone: BoolArray = np.zeros(state.snapshot.files.height, np.bool_)
        self.gone[job.files] = True
        self._begin()

    def _begin(self) -> None:
        self.adds: list[AddFile] = []
        self.new = blocks_frame([])
        self.pending = self.gone.copy()
        self.rows = 0

    def run(self) -> Replaced | None:
        groups = self._groups(self.gone)
        rows = self._read(groups[0], self.job.added) if len(groups) == 1 else None
        self._tell("plan", 0 if rows is None else rows.height)
        revision, is_new = self._space(groups, rows)
        while True:
            taken = int(self.gone.sum())
            if not self._put_back(groups, revision, rows, is_new=is_new):
                return None
            rows = None
            # The smallest weight of all leaves no room for a threshold below: then it stays as it is.
            if self._mend(revision, is_new=is_new) or int(self.gone.sum()) == taken:
                cubes = self.new["cube"].n_unique()
                return Replaced(self.gone, self.adds, revision, is_new, self.rows, cubes)
            # New blocks relied on files that went later; once more, with all of these gone from the start.
            delete_data_files(self.reader.store, self.adds)
            self._begin()
            groups = self._groups(self.gone)

    def _groups(self, files: BoolArray) -> list[I64Array]:
        numbers = np.flatnonzero(files)
        return row_groups(self.state, numbers, group_bytes=self.job.group_bytes) or [numbers]

    def _put_back(
        self, groups: list[I64Array], revision: Revision, rows: pl.DataFrame | None, *, is_new: bool
    ) -> bool:
        """Write the rows of all groups; False if that is not worth it, and nothing was written."""
        for number, group in enumerate(groups):
            self.pending[group] = False
            if rows is None:
                rows = self._read(group, None if number else self.job.added)
            plan = self._plan(rows, revision, is_new=is_new)
            is_worth = self.job.is_worth
            if len(groups) == 1 and is_worth is not None and not is_worth(np.flatnonzero(self.gone), plan):
                return False
            self._write(rows, plan)
            rows = None
        return True

    def _mend(self, revision: Revision, *, is_new: bool) -> bool:
        """Take out more files until the order of weights is kept; False if that does not help."""
        while True:
            new = {} if is_new else {revision.revision_id: self.new}
            disorder = self.state.disorder(self.gone, new)
            if disorder.is_stuck or not len(disorder.files):
                return not disorder.is_stuck
            self.gone[disorder.files] = self.pending[disorder.files] = True
            for group in row_groups(self.state, disorder.files, group_bytes=self.job.group_bytes):
                self.pending[group] = False
                rows = self._read(group, None)
                self._write(rows, self._plan(rows, revision, is_new=is_new))

    def _read(
        self, group: I64Array, added: pl.DataFrame | None, columns: tuple[str, ...] | None = None
    ) -> pl.DataFrame:
        rows = read_files(self.reader, group, columns if self.job.change is None else None)
        rows = rows if self.job.change is None else self.job.change(rows)
        if added is not None:
            rows = pl.concat([rows, added.select(rows.columns)])
        return rows if columns is None else rows.select(columns)

    def _space(self, groups: list[I64Array], rows: pl.DataFrame | None) -> tuple[Revision, bool]:
        """Choose the revision; rows that are indexed in the newest one and stay as they are do not matter."""
        if self.job.revision is not None:
            return self.job.revision, False
        newest = newest_revision(self.state)
        inside = -2 if newest is None else newest.revision_id
        strange = self.state.revision_of != inside
        fixed = self.job.change is None and self.job.added is None
        if fixed and newest is not None and not strange[self.gone].any():
            return newest, False
        if rows is not None:
            keys = rows.select(self.names)
        else:
            wanted = [group[strange[group]] if fixed else group for group in groups]
            parts = [self._read(group, None, self.names) for group in wanted]
            parts += [] if self.job.added is None else [self.job.added.select(self.names)]
            keys = pl.concat(parts)
        uri, now_ms = self.state.snapshot.uri, self.world.now_ms()
        return space_for(self.state, keys, self.gone, uri=uri, now_ms=now_ms)

    def _plan(self, rows: pl.DataFrame, revision: Revision, *, is_new: bool) -> IndexPlan:
        alone = revision.revision_id not in self.state.snapshot.config.revisions or is_new
        gone = np.ones_like(self.gone) if alone else self.gone
        pending = np.zeros_like(self.pending) if alone else self.pending
        return plan_index(
            rows,
            revision,
            frame_weights(rows, revision.columns),
            existing=self.state.tree(revision, gone, pending, self.new),
            file_rows=rows_per_file(rows.estimated_size() / max(rows.height, 1)),
        )

    def _write(self, rows: pl.DataFrame, plan: IndexPlan) -> None:
        configuration = self.state.snapshot.metadata.configuration
        adds = write_data_files(
            rows,
            plan,
            store=self.reader.store,
            settings=FileSettings.of(rows, plan.revision.columns, configuration),
            design_effect=design_effect(plan.weights),
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
