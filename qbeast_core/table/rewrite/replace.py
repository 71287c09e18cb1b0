"""Take files out of a table and put their rows back in new files: what optimize and changes of rows share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.stores.s3_locking import refuse_unsafe_locking
from qbeast_core.log.actions import AddFile
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.support.logs import LOG
from qbeast_core.support.runtime import Progress, ProgressCallback, now_ms
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.engine.live_files import FilesSource
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import Engine, PlanSize, Rows
from qbeast_core.table.engine.tasks.added_rows import NO_ROWS, AddedRows
from qbeast_core.table.engine.tasks.row_change import RowChange
from qbeast_core.table.index.revision import choose_revision, wish_of_table
from qbeast_core.table.index.state import IndexState, new_blocks
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.in_place import InPlace, change_in_place

# Where rows go: "keep" places them by the thresholds that their cubes had, so that few other files have to go with
# them; "fresh" by those of a fresh tree. Both use the newest revision, or a new one for rows that need it.
# "redraw" makes a new revision for all rows, with ranges and quantiles of these rows alone. A revision of the
# table: a fresh tree in that one.
Placement: TypeAlias = Literal["keep", "fresh", "redraw"] | Revision

# Called with the files that go and a plan, before anything is written: whether to carry the plan out.
Judge: TypeAlias = Callable[[I64Array, PlanSize], bool]


def _no_files() -> I64Array:
    """Return indexes of no files."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replacement:
    """Live files that leave a table, by index, and the rows that come back."""

    # Files whose rows are put back. More files may go with them, to keep the order of weights (format 8.3).
    files: I64Array = field(default_factory=_no_files)
    # More files to take out; none of their rows is put back, so they are not read.
    dropped: I64Array = field(default_factory=_no_files)
    # Of the rows of `files`, and of files that go with them.
    change: RowChange | None = None
    # Whether `change` leaves the indexed columns of the rows it returns as they are.
    keeps_keys: bool = False
    # Those of `files` that lose no row: where no indexed value changes either, rows keep their places.
    in_place: I64Array = field(default_factory=_no_files)
    added: AddedRows = NO_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Files taken out and put back; no version names the new ones yet."""

    # Of the files of the snapshot: whether they leave the table.
    gone: BoolArray
    adds: Sequence[AddFile]
    # That the rows are indexed in; None: there are no rows, and none was needed.
    revision: Revision | None
    is_new: bool
    # Rows put back, and the cubes that hold them.
    rows: int
    cubes: int

    @property
    def bytes(self) -> int:
        """Of `adds`."""
        return sum(add.size for add in self.adds)

    def metrics(self, files: pl.DataFrame) -> dict[str, int]:
        """Return the ``operationMetrics`` of the files; `files` are those of the snapshot."""
        removed = files.filter(pl.Series(self.gone, dtype=pl.Boolean))
        return {
            "numAddedFiles": len(self.adds),
            "numAddedBytes": self.bytes,
            "numRemovedFiles": removed.height,
            "numRemovedBytes": int(removed["size_bytes"].sum()),
        }


def replace_rows(
    reader: Reader,
    replacement: Replacement,
    placement: Placement,
    *,
    engine: Engine = MEMORY,
    progress: ProgressCallback | None = None,
    is_worth: Judge | None = None,
) -> Replaced:
    """Write the rows that come back; nothing is committed. If it is not worth it, no file is gone.

    The files that were written are deleted if this fails; afterwards they are the caller's.
    """
    snapshot = reader.snapshot
    refuse_unsafe_locking(reader.store.uri, snapshot.storage_options)
    work = _Replacing(reader, replacement, placement, engine, progress)
    LOG.debug("version %d of %s: takes out %d files", snapshot.version, snapshot.uri, work.gone.sum())
    try:
        replaced = work.run(is_worth)
        if progress is not None and (replaced.adds or replaced.gone.any()):
            files = len(replaced.adds)
            progress(Progress("commit", files, files, replaced.rows))
    except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
        delete_data_files(reader.store, [*work.adds, *work.in_place.adds.values()])
        raise
    return replaced


def refuse_copies(state: IndexState) -> None:
    """Raise if a table holds copies of rows, which must not be counted as rows."""
    if state.has_copies:
        uri = state.snapshot.uri
        msg = (
            f"{uri} holds copies of rows, as tables before 0.6.0 do; nothing was changed. Bring it up to date first: "
            f'qbeast.upgrade_table({uri!r}, replicated="drop").'
        )
        raise UnsupportedTableError(msg, path=uri, feature="replicated blocks")


class _Replacing:
    """The files that go, and those written so far."""

    def __init__(
        self,
        reader: Reader,
        replacement: Replacement,
        placement: Placement,
        engine: Engine,
        progress: ProgressCallback | None,
    ) -> None:
        self.reader, self.state, self.engine, self.progress = reader, reader.index_state, engine, progress
        self.replacement, self.placement = replacement, placement
        self.dropped: BoolArray = np.zeros(reader.snapshot.files.height, np.bool_)
        self.dropped[replacement.dropped] = True
        self.gone = self.dropped.copy()
        self.gone[replacement.files] = True
        self.revision: Revision | None = None
        self.is_new = False
        self.outside: _OutsideRows | None = None
        self.in_place = InPlace()
        self.adds: list[AddFile] = []
        self.new = new_blocks()

    def run(self, is_worth: Judge | None) -> Replaced:
        replacement = self.replacement
        self.in_place = change_in_place(self.reader, replacement.in_place, replacement.change, self.engine)
        self.gone[list(self.in_place.adds)] = False  # their blocks stay, so nothing else has to move for them
        if self.in_place.adds and not self.gone.any() and not replacement.added.height:
            self.revision = self.state.newest
            return self._replaced()
        rows = self._settle(self._open(self.gone, replacement.added))
        while True:
            taken = int(self.gone.sum())
            if not self._write(rows, is_worth):
                return Replaced(np.zeros_like(self.gone), [], None, is_new=False, rows=0, cubes=0)
            # Stuck although nothing more can go: the smallest weight of all leaves no room for a threshold below.
            if self._keep_order() or int(self.gone.sum()) == taken:
                return self._replaced()
            # The blocks written first relied on thresholds of files that had to go later, and no live file is left to
            # blame. Once more, with all of these files gone from the start; each round takes out more files.
            delete_data_files(self.reader.store, self.adds)
            self.adds, self.new = [], new_blocks()
            rows = self._inside(self._open(self.gone, replacement.added))

    def _settle(self, rows: Rows) -> Rows | None:
        """Choose the revision; set apart the rows that need a new one, so that all others stay in theirs."""
        newest, added, keeps = self.state.newest, self.replacement.added, self.placement == "keep"
        if isinstance(self.placement, Revision):
            self.revision = self.placement
            return rows
        if self._rows_stay() and not added.height and self.placement != "redraw":
            self.revision = newest  # what lay in its space still does: nothing has to be looked at
            return rows
        if keeps and newest is not None and self.gone.any():
            inside, outside = rows.split(newest)
            chosen, is_new = (None, False) if outside is None else self._choose(outside)
            if outside is not None and chosen is not None and is_new:
                self.revision = newest
                self.outside = _OutsideRows(
                    self._without_files(outside, newest), chosen, int(self.gone.sum())
                )
                return inside
        self.revision, self.is_new = self._choose(rows)
        return rows

    def _rows_stay(self) -> bool:
        """Return whether all rows of files are indexed in the newest revision, and keep their indexed values."""
        newest = self.state.newest
        revisions = self.state.revision_of[self.gone & ~self.dropped]
        same = self.replacement.change is None or self.replacement.keeps_keys
        return newest is not None and same and bool((revisions == newest.revision_id).all())

    def _without_files(self, outside: Rows, newest: Revision) -> Rows:
        """Return the rows outside; if all of them are added ones, no file is read again for them."""
        added = self.replacement.added
        if not added.height:
            return outside
        _, apart = self._open(np.zeros_like(self.gone), added).split(newest)
        return outside if apart is None or apart.height < outside.height else apart

    def _choose(self, rows: Rows) -> tuple[Revision | None, bool]:
        """Choose the revision for rows, and whether it is a new one.

        Without rows no new revision is needed, except to redraw a table; a table that has none keeps none.
        """
        redraw = self.placement == "redraw"
        chosen = choose_revision(
            wish_of_table(self.state, redraw=redraw),
            rows.summary,
            None if redraw else self.state,
            uri=self.reader.snapshot.uri,
            now_ms=now_ms(),
            gone=self.gone,
        )
        return (chosen.revision, chosen.is_new) if chosen.rows or redraw else (self.state.newest, False)

    def _open(self, files: BoolArray, added: AddedRows) -> Rows:
        source = FilesSource(
            reader=self.reader,
            files=np.flatnonzero(files & ~self.dropped),
            change=self.replacement.change,
            added=added,
            changed=self.in_place.rows,
        )
        return self.engine.open(source, source.target, self.progress)

    def _inside(self, rows: Rows) -> Rows | None:
        """Return the rows that are not set apart."""
        return rows if self.outside is None or self.revision is None else rows.split(self.revision)[0]

    def _write(self, rows: Rows | None, is_worth: Judge | None = None) -> bool:
        """Write rows to the revision; return whether that was worth it."""
        if rows is None or self.revision is None:
            return True
        tree = None
        if not self.is_new:
            keeps = self.placement == "keep"
            tree = self.state.tree(self.revision, self.gone, self.new, keeps_places=keeps)
        elif self.new.height:  # no live block is of it
            tree = self.state.tree(self.revision, np.ones_like(self.gone), self.new)
        plan = rows.plan(self.revision, tree)
        if is_worth is not None and not is_worth(np.flatnonzero(self.gone), plan):
            return False
        for adds in plan.write():
            self.adds += adds
            self.new = pl.concat([self.new, new_blocks(adds)])
        return True

    def _keep_order(self) -> bool:
        """Take out more files until the order of weights is kept; return False if that does not help.

        No row may lie in a cube with a lower weight than the threshold of an ancestor (format 8.3). A file takes the
        thresholds of its cubes along. Blocks below in other files then lie too low, and their files have to go too.
        """
        while True:
            disorder = self.state.disorder(self.gone, self.new, None if self.is_new else self.revision)
            if disorder.is_stuck or not disorder:
                return not disorder.is_stuck
            more = np.zeros_like(self.gone)
            more[disorder.files] = True
            self.gone |= more
            self._write(self._inside(self._open(more, NO_ROWS)))

    def _replaced(self) -> Replaced:
        count, cubes = int(self.new["rows"].sum()), self.new["cube"].n_unique()
        if self.outside is not None:
            self._write_outside(self.outside)
            count, cubes = count + int(self.new["rows"].sum()), cubes + self.new["cube"].n_unique()
        # Files that were changed in place may have had to go with others since.
        given_up = [add for file, add in self.in_place.adds.items() if self.gone[file]]
        delete_data_files(self.reader.store, given_up)
        in_place = {file: add for file, add in self.in_place.adds.items() if not self.gone[file]}
        gone = self.gone.copy()
        gone[list(in_place)] = True
        adds = list(in_place.values())
        if self.is_new:
            adds = [_of_revision(add, self.state.newest) for add in adds]
        blocks = new_blocks(adds)
        return Replaced(
            gone,
            [*adds, *self.adds],
            self.revision or (self.state.newest if adds else None),
            self.is_new,
            count + int(blocks["rows"].sum()),
            cubes + blocks["cube"].n_unique(),
        )

    def _write_outside(self, outside: _OutsideRows) -> None:
        """Write the rows that were set apart, after all others: what they rely on is settled now."""
        rows, revision, newest = outside.rows, outside.revision, self.revision
        if newest is not None and int(self.gone.sum()) > outside.files_gone:
            # More files went since, whose rows may lie outside as well.
            again = self._open(self.gone, self.replacement.added).split(newest)[1]
            chosen = None if again is None else self._choose(again)[0]
            if again is not None and chosen is not None:
                rows, revision = again, chosen
        self.adds, self.new = [_of_revision(add, newest) for add in self.adds], new_blocks()
        self.revision, self.is_new = revision, True
        self._write(rows)


@dataclass(frozen=True, slots=True)
class _OutsideRows:
    """Rows outside the space of the newest revision, and the new one for them."""

    rows: Rows
    revision: Revision
    # When they were set apart.
    files_gone: int


def _of_revision(add: AddFile, revision: Revision | None) -> AddFile:
    """Return a file that keeps its revision, whatever other one the commit makes."""
    if revision is None:
        return add
    return add.model_copy(update={"tags": {**(add.tags or {}), "revision": str(revision.revision_id)}})
