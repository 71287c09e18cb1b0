"""Take files out of a table and put their rows back, indexed anew: what optimize and changes of rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.s3_locking import refuse_unsafe_locking
from qbeast_core.log.actions import AddFile, Txn
from qbeast_core.log.files.live_files import removes_of
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.protocol import Brings, check_writable
from qbeast_core.logs import LOG
from qbeast_core.runtime import Progress, ProgressCallback, now_ms
from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.commit import CommitOutcome, publish
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import (
    GROUP_BYTES,
    Engine,
    FilesSource,
    PlannedRows,
    PlanSize,
    Rows,
)
from qbeast_core.table.engine.tasks.changed_part import ChangedPart, changed_part
from qbeast_core.table.engine.tasks.row_change import ChangeByFile, RowChange
from qbeast_core.table.engine.tasks.stored_rows import StoredRows
from qbeast_core.table.index.design_effect import warn_if_growing
from qbeast_core.table.index.revision import choose_revision, wish_of_table
from qbeast_core.table.index.state import IndexState, new_blocks
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.in_place import change_in_place
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.snapshot.with_schema import warn_of_added_columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rewrite:
    """What to take out and what to put back."""

    # Numbers of the live files to take out. More may go with them, to keep the order of weights (format 8.3):
    # their rows are put back too.
    files: I64Array
    # Numbers of more live files to take out, of which no row is put back: they are not read.
    dropped: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    # The revision of the table to index in; None: the newest, or a new one if rows do not fit it.
    revision: Revision | None = None
    # Index all rows in a new revision whose ranges and quantiles are drawn from them alone, and drop
    # revisions that no live file needs then (format 12).
    redraw: bool = False
    # What becomes of the rows of `files`, and of those that go with them.
    change: RowChange | ChangeByFile | None = None
    # Whether rows are put back by the thresholds that their cubes had, so that few other files have to go
    # with them; else by those of a fresh tree.
    keeps_places: bool = False
    # Whether `change` leaves the indexed columns of the rows it returns as they are.
    keeps_keys: bool = False
    # Those of `files` of which no row goes: where no indexed value changes either, rows keep their places.
    in_place: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    # More rows, of the table's columns and types.
    added: pl.DataFrame | StoredRows | None = None
    # Whether rows are new or changed, or are rows that the table had, in other files.
    brings: Brings = "files"
    # Whether the table holds other rows afterwards.
    data_change: bool = False
    operation: str = "OPTIMIZE"
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    # An application and its version, which the commit says the table holds.
    txn: tuple[str, int] | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    # Asked with the files and the plan before anything is written; False leaves the table as it is.
    is_worth: Callable[[I64Array, PlanSize], bool] | None = None
    # Gives `operationMetrics` for the history of what was replaced; None: those of an optimize.
    metrics: Callable[[Replaced], Mapping[str, int]] | None = None
    # The version as the log has it, where the reader sees it with a schema that this commit brings.
    base: Snapshot | None = None
    # Asked with the newest version whenever other writers were faster: why the change must not follow them;
    # None: it may.
    conflict_with: Callable[[Snapshot], str | None] | None = None
    progress: ProgressCallback | None = None
    # Rows held at once, see `GROUP_BYTES`.
    group_bytes: int = GROUP_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Files taken out and put back."""

    # Files of the snapshot that leave the table.
    gone: BoolArray
    # Those that come in their place.
    adds: Sequence[AddFile]
    # What their rows are indexed in; None: there are no rows, and none was needed.
    revision: Revision | None
    is_new: bool
    # Rows put back, and the cubes that hold them.
    rows: int
    cubes: int
    # Of the commit; None: it is still to come.
    outcome: CommitOutcome | None = None

    @property
    def bytes(self) -> int:
        """Of `adds`."""
        return sum(add.size for add in self.adds)


def rewrite(reader: Reader, asked: Rewrite, *, engine: Engine = MEMORY) -> Replaced | None:
    """Rewrite files in one commit, built on the reader's version; all of it or nothing.

    Rows that take more memory than a group may are not held: their indexed columns are read to plan, then
    the files are read again for every group of files to write.
    """
    snapshot = reader.snapshot
    check_writable(
        snapshot.protocol, snapshot.metadata, mode="append", path=snapshot.uri, brings=asked.brings
    )
    refuse_unsafe_locking(reader.store.uri, snapshot.storage_options)
    refuse_copies(reader.index_state)
    rewriter = _Rewriter(reader, asked, engine)
    place = (snapshot.version, snapshot.uri)
    LOG.debug("%s of version %d of %s takes out %d files", asked.operation, *place, rewriter.gone.sum())
    try:
        replaced = rewriter.run()
        if replaced is not None and asked.progress is not None:
            files = len(replaced.adds)
            asked.progress(Progress("commit", files, files, replaced.rows))
    except BaseException:  # an interrupt or a panic of Rust leaves no files either; raised again
        delete_data_files(reader.store, [*rewriter.adds, *rewriter.in_place.values()])
        raise
    if replaced is None:
        return None
    base = asked.base or snapshot
    brought = None if snapshot.metadata == base.metadata else snapshot.metadata
    intent = replace(_intent(snapshot, asked, replaced), metadata=brought)
    outcome = publish(reader.store, base, intent, conflict_with=asked.conflict_with)
    warn_of_added_columns(base, snapshot.schema)
    if asked.brings == "rows" and outcome.snapshot is not None:
        warn_if_growing(snapshot.files, outcome.snapshot.files, reader.indexed)
    return replace(replaced, outcome=outcome)


def refuse_copies(state: IndexState) -> None:
    """Raise where a table holds copies of rows, which no rewrite may take for rows."""
    if state.has_copies:
        uri = state.snapshot.uri
        msg = (
            f"{uri} holds copies of rows, as tables before 0.6.0 do; nothing was changed. Bring it up to date first: "
            f'qbeast.upgrade_table({uri!r}, replicated="drop").'
        )
        raise UnsupportedTableError(msg, path=uri, feature="replicated blocks")


class _Rewriter:
    """The state of a rewrite between its rounds."""

    def __init__(self, reader: Reader, asked: Rewrite, engine: Engine) -> None:
        self.reader, self.state, self.asked = reader, reader.index_state, asked
        self.engine = engine
        self.dropped: BoolArray = np.zeros(reader.snapshot.files.height, np.bool_)
        self.dropped[asked.dropped] = True
        self.gone = self.dropped.copy()
        self.gone[asked.files] = True
        self.revision, self.is_new = asked.revision, False
        self.out_of_range: _OutOfRangeRows | None = None
        self.in_place: Mapping[int, AddFile] = {}
        self._begin()

    def _begin(self) -> None:
        self.adds: list[AddFile] = []
        self.new = new_blocks()

    def run(self) -> Replaced | None:
        self.in_place = change_in_place(self.reader, self.asked.in_place, self.asked.change, self.engine)
        self.gone[list(self.in_place)] = False  # their blocks stay
        if self.in_place and not self.gone.any() and self.asked.added is None:
            self.revision = self.state.newest
            return self._replaced()
        rows = self._first()
        while True:
            taken = int(self.gone.sum())
            plan = self._plan(rows)
            if plan is not None:
                if self.asked.is_worth is not None and not self.asked.is_worth(
                    np.flatnonzero(self.gone), plan
                ):
                    return None
                self._write(plan)
            # The smallest weight of all leaves no room for a threshold below: then it stays as it is.
            if self._keep_order() or int(self.gone.sum()) == taken:
                return self._replaced()
            # New blocks relied on files that went later; once more, with all of these gone from the start.
            delete_data_files(self.reader.store, self.adds)
            self._begin()
            rows = self._rows(self.asked)

    def _replaced(self) -> Replaced:
        count, cubes = int(self.new["rows"].sum()), self.new["cube"].n_unique()
        if self.out_of_range is not None:
            rows = self._out_of_range_rows(self.out_of_range)
            self.adds, self.new = [_of_revision(add, self.revision) for add in self.adds], new_blocks()
            self.revision, self.is_new = self._suited(rows)
            plan = self._plan(rows)
            if plan is not None:
                self._write(plan)
            count, cubes = count + int(self.new["rows"].sum()), cubes + self.new["cube"].n_unique()
        return self._with_those_in_place(
            Replaced(self.gone, self.adds, self.revision, self.is_new, count, cubes)
        )

    def _with_those_in_place(self, replaced: Replaced) -> Replaced:
        """Put files beside the others whose rows kept their places; some may have gone with others since."""
        numbers = [number for number in self.in_place if not self.gone[number]]
        delete_data_files(
            self.reader.store, [self.in_place[number] for number in self.in_place if self.gone[number]]
        )
        adds = [self.in_place[number] for number in numbers]
        if not adds:
            return replaced
        gone = replaced.gone.copy()
        gone[numbers] = True
        blocks = new_blocks(adds)
        if replaced.is_new:
            adds = [_of_revision(add, self.state.newest) for add in adds]
        return replace(
            replaced,
            gone=gone,
            adds=[*adds, *replaced.adds],
            revision=replaced.revision or self.state.newest,
            rows=replaced.rows + int(blocks["rows"].sum()),
            cubes=replaced.cubes + blocks["cube"].n_unique(),
        )

    def _first(self) -> Rows:
        """Take the rows; those that need a new revision are set apart, so that all others stay in theirs."""
        whole, newest = self.asked, self.state.newest
        if newest is None or not whole.keeps_places or not self.gone.any():
            return self._rows(whole)
        self.asked = _part_of(whole, newest, outside=False, taken=False)
        rows = self._rows(self.asked)
        all_stay = self._all_stay() or not self._suited(rows)[1]
        outside = _part_of(whole, newest, outside=True, taken=not all_stay)
        if all_stay and outside.added is None:
            return rows
        out_of_range = _OutOfRangeRows(outside, reads_files=not all_stay)
        if not self._suited(self._out_of_range_rows(out_of_range))[1]:
            self.asked = whole  # all rows together ask for a new revision
            return self._rows(whole)
        self.out_of_range = out_of_range
        if all_stay:
            return rows
        self.asked = _part_of(whole, newest, outside=False)
        return self._rows(self.asked)

    def _out_of_range_rows(self, part: _OutOfRangeRows) -> Rows:
        return self._rows(part.asked, files=self.gone & ~self.dropped & part.reads_files)

    def _rows(self, asked: Rewrite, files: BoolArray | None = None) -> Rows:
        """Open the rows of files, by default of all that are gone and not dropped, and those added."""
        numbers = np.flatnonzero(self.gone & ~self.dropped if files is None else files)
        source = FilesSource(
            reader=self.reader,
            numbers=numbers,
            change=asked.change,
            added=asked.added,
            group_bytes=asked.group_bytes,
        )
        return self.engine.open(source, source.target, asked.progress)

    def _plan(self, rows: Rows) -> PlannedRows | None:
        """Decide where rows go; None where there are none, in a table that has no space for any yet."""
        if self.revision is None:
            settled = self.out_of_range is not None or (self._all_stay() and self.asked.added is None)
            fits = settled and not self.asked.redraw
            self.revision, self.is_new = (self.state.newest, False) if fits else self._suited(rows)
        if self.revision is None:
            return None
        if self.is_new and not self.new.height:
            return rows.plan(self.revision, None)
        gone = np.ones_like(self.gone) if self.is_new else self.gone
        keeps = self.asked.keeps_places and not self.is_new
        return rows.plan(self.revision, self.state.tree(self.revision, gone, self.new, keeps_places=keeps))

    def _all_stay(self) -> bool:
        """Tell whether all rows taken out are of the newest revision and fit it as they come back."""
        newest, asked = self.state.newest, self.asked
        taken = self.state.revision_of[self.gone & ~self.dropped]
        same = asked.change is None or asked.keeps_keys
        return newest is not None and same and bool((taken == newest.revision_id).all())

    def _suited(self, rows: Rows) -> tuple[Revision | None, bool]:
        """Choose the revision for rows that may not fit the newest one; tell whether it is a new one.

        No rows need no new one, unless it is asked for: where the table has none either, there is none.
        """
        redraw = self.asked.redraw
        chosen = choose_revision(
            wish_of_table(self.state, redraw=redraw),
            rows.summary,
            None if redraw else self.state,
            uri=self.reader.snapshot.uri,
            now_ms=now_ms(),
            gone=self.gone,
        )
        return (chosen.revision, chosen.is_new) if chosen.rows or redraw else (self.state.newest, False)

    def _keep_order(self) -> bool:
        """Take out more files until the order of weights is kept; False if that does not help."""
        while True:
            disorder = self.state.disorder(self.gone, self.new, None if self.is_new else self.revision)
            if disorder.is_stuck or not disorder:
                return not disorder.is_stuck
            more = np.zeros_like(self.gone)
            more[disorder.files] = True
            self.gone |= more
            plan = self._plan(self._rows(replace(self.asked, added=None), files=more))
            if plan is not None:
                self._write(plan)

    def _write(self, plan: PlannedRows) -> None:
        for adds in plan.write():
            self.adds += adds
            self.new = pl.concat([self.new, new_blocks(adds)])


def _of_revision(add: AddFile, revision: Revision | None) -> AddFile:
    """Return a file that keeps its revision whichever the commit brings."""
    if revision is None:
        return add
    return add.model_copy(update={"tags": {**(add.tags or {}), "revision": str(revision.revision_id)}})


@dataclass(frozen=True, slots=True)
class _OutOfRangeRows:
    """Rows that go into a new revision after all others are back; of files, or among those added alone."""

    asked: Rewrite
    reads_files: bool


def _part_of(asked: Rewrite, revision: Revision, *, outside: bool, taken: bool = True) -> Rewrite:
    """Return a rewrite of the rows in the space of a revision, or of those outside.

    Unless rows of files are `taken`, all of them stay, and those added are looked at alone.
    """
    added = asked.added
    if isinstance(added, StoredRows):
        added = added.part(revision, outside=outside)
    elif added is not None:
        added = ChangedPart(None, revision, outside)(added)
    change = changed_part(asked.change, revision, outside=outside) if taken else asked.change
    return replace(asked, change=change, added=added if added is not None and added.height else None)


def _intent(snapshot: Snapshot, asked: Rewrite, replaced: Replaced) -> WriteIntent:
    out = snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    metrics = _metrics(replaced, out) if asked.metrics is None else asked.metrics(replaced)
    info: dict[str, Any] = {
        **asked.commit_metadata,
        "operationParameters": dict(asked.parameters),
        "operationMetrics": {key: str(value) for key, value in metrics.items()},
    }
    return WriteIntent(
        mode="append",
        brings=asked.brings,
        adds=tuple(add.model_copy(update={"data_change": asked.data_change}) for add in replaced.adds),
        removes=removes_of(out, data_change=asked.data_change),
        revision=replaced.revision if replaced.adds or asked.redraw else None,
        new_revision=replaced.is_new,
        drops_unused=asked.redraw,
        txn=None if asked.txn is None else Txn(app_id=asked.txn[0], version=asked.txn[1]),
        operation=asked.operation,
        commit_info=info,
    )


def _metrics(replaced: Replaced, out: pl.DataFrame) -> dict[str, int]:
    return {
        "numAddedFiles": len(replaced.adds),
        "numAddedBytes": replaced.bytes,
        "numRemovedBytes": int(out["size_bytes"].sum()),
        "numOutputRows": replaced.rows,
    }
