"""Replace files of a table: read their rows, write new files, and commit both in one version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import polars as pl
from pyroaring import BitMap64

from qbeast_core.errors import CommitConflictError, UnsupportedTableError
from qbeast_core.log.actions import AddFile, with_wide_bounds
from qbeast_core.log.deletion_vectors import dump_vectors, row_set
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.values import removes_of
from qbeast_core.space.values import BoolArray, I64Array
from qbeast_core.spec.blocks import Block
from qbeast_core.spec.revision import Revision
from qbeast_core.support.process import LOG, Progress, ProgressCallback, new_id, now_ms, report
from qbeast_core.support.sizing import sizing
from qbeast_core.table.commit import CommitOutcome, discarding, publish
from qbeast_core.table.data.files import delete_data_files, delete_files, delete_files_named
from qbeast_core.table.engine.engine import Engine, Rows
from qbeast_core.table.engine.files import rows_of
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.engine.row_change import NO_ROWS, AddedRows, ChangeFile, RowChange
from qbeast_core.table.engine.sources import FilesSource, all_rows, live_scans
from qbeast_core.table.index.counts import warn_if_growing
from qbeast_core.table.index.live_index import NO_BLOCKS, Index, new_blocks
from qbeast_core.table.index.revision import choose_revision, wish_of_table
from qbeast_core.table.read.planner import Planner
from qbeast_core.table.rewrite.candidates import has_exact_layout
from qbeast_core.table.snapshot.snapshot import Snapshot, live_adds, refresh, warn_of_added_columns
from qbeast_core.tree.build import ExistingTree

# How to place rows. "keep" uses the current thresholds of the cubes, so that few other files have to be replaced.
# "fresh" draws a new tree. Both use the newest revision, or a new one for rows that need it. "redraw" makes a new
# revision with ranges and quantiles of these rows only. A revision of the table: draws a new tree in this revision.
Placement: TypeAlias = Literal["keep", "fresh", "redraw"] | Revision

_AT_ONCE: Final = 2
_HELD_BYTES: Final = 48  # memory per stored byte: rows before and after the change, and in order


def _no_files() -> I64Array:
    """Return an empty array of file indexes."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replacement:
    """Live files to remove, by index, and the rows to write."""

    # Files to rewrite. More files may be rewritten with them, to keep the order of weights (format 8.3).
    files: I64Array = field(default_factory=_no_files)
    # The same files, as sets whose rows are written together. By default all of them are.
    groups: Sequence[I64Array] = ()
    # More files to remove. None of their rows is written, so they are not read.
    dropped: I64Array = field(default_factory=_no_files)
    # Change of the rows that are rewritten.
    change: RowChange | None = None
    # Whether `change` leaves the indexed columns of the rows it returns as they are.
    keeps_keys: bool = False
    # Part of `files` to change one by one. Rows keep their places if their indexed values do not change.
    in_place: I64Array = field(default_factory=_no_files)
    # Index of a file that stays -> its rows to hide, without those that are hidden already.
    hidden: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])
    # The rows among them to write again, with the values that `change` returns.
    moved: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])
    # Some columns of the moved rows, by index of their file. These files are not read again for them.
    read: Mapping[int, pl.DataFrame] = field(default_factory=dict[int, pl.DataFrame], repr=False)
    added: AddedRows = NO_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Files to remove, and new files that are not committed yet."""

    # Mask of the files of the snapshot: True for files to remove.
    gone: BoolArray
    adds: Sequence[AddFile]
    # Revision of the new files. None: there are no rows.
    revision: Revision | None
    is_new: bool
    # Number of rows written, and of cubes that hold them.
    rows: int
    cubes: int
    # Index of a file that stays -> its rows to hide.
    hidden: Mapping[int, BitMap64] = field(default_factory=dict[int, BitMap64])

    @property
    def bytes(self) -> int:
        """Size of the new files."""
        return sum(add.size for add in self.adds)

    def metrics(self, files: pl.DataFrame) -> dict[str, int]:
        """Return the ``operationMetrics``; `files` are the files of the snapshot."""
        removed = files.filter(pl.Series(self.gone, dtype=pl.Boolean))
        updated = int(files["has_deletion_vector"].gather(list(self.hidden)).sum()) if self.hidden else 0
        vectors = {
            "numDeletionVectorsAdded": len(self.hidden) - updated,
            "numDeletionVectorsUpdated": updated,
        }
        return {
            "numAddedFiles": len(self.adds),
            "numAddedBytes": self.bytes,
            "numRemovedFiles": removed.height,
            "numRemovedBytes": int(removed["size_bytes"].sum()),
            **(vectors if self.hidden else {}),
        }


def replace_rows(
    snapshot: Snapshot,
    replacement: Replacement,
    placement: Placement,
    *,
    engine: Engine = MEMORY,
    progress: ProgressCallback | None = None,
    only_fewer: bool = False,
) -> Replaced:
    """Write the new files without a commit.

    `only_fewer`: if a table without index would not have fewer files, nothing is written and the result is empty.
    The new files are deleted if this fails. After a return, the caller is responsible for them.
    """
    snapshot.location.refuse_changes()
    work = _Replacing(snapshot, replacement, placement, engine, progress)
    LOG.debug("version %d of %s: replaces %d files", snapshot.version, snapshot.uri, work.gone.sum())
    try:
        replaced = work.run(only_fewer=only_fewer)
        if replaced.adds or replaced.gone.any():
            files = len(replaced.adds)
            report(progress, Progress("commit", files, files, replaced.rows))
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_data_files(snapshot.store, [*work.adds, *work.in_place.values(), *work.thinned.values()])
        raise
    return replaced


def refuse_copies(index: Index) -> None:
    """Raise if a table holds copies of rows: they would be read as rows."""
    uri = index.snapshot.uri
    if index.snapshot.copies:
        msg = (
            f"{uri} holds copies of rows, as tables before 0.6.0 do. Bring it up to date first: "
            f'qbeast.open_table({uri!r}).upgrade(replicated="drop").'
        )
        raise UnsupportedTableError(msg, path=uri, feature="replicated blocks")


class _Replacing:
    """Files to remove and files written so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        replacement: Replacement,
        placement: Placement,
        engine: Engine,
        progress: ProgressCallback | None,
    ) -> None:
        self.snapshot, self.index = snapshot, Index(snapshot)
        self.engine, self.progress = engine, progress
        self.replacement, self.placement = replacement, placement
        self.hidden, self.moved = replacement.hidden, replacement.moved
        self.dropped: BoolArray = np.zeros(snapshot.files.height, np.bool_)
        self.dropped[replacement.dropped] = True
        self.gone = self.dropped.copy()
        self.gone[replacement.files] = True
        self.revision: Revision | None = None
        self.is_new = False
        self.time_ms = 0
        # Rows outside the space of the newest revision, the new revision for them, and how many files were removed
        # when they were split off.
        self.outside: tuple[Rows, Revision, int] | None = None
        # New files by index of the old file, whose rows keep their places.
        self.in_place: dict[int, AddFile] = {}
        # Rows that changed already, by index of their file: these files are not read again.
        self.changed: dict[int, pl.DataFrame] = {}
        # New files by index of the old file, which lost blocks. The old files are in `gone` and `dropped`.
        self.thinned: dict[int, AddFile] = {}
        self.adds: list[AddFile] = []
        self.new = NO_BLOCKS
        # Partitions of the table and of the new files.
        self.partitions = self.index.partitions

    def run(self, *, only_fewer: bool) -> Replaced:
        replacement = self.replacement
        if not self.snapshot.config.is_indexed:
            return self._without_index(only_fewer=only_fewer)
        self.in_place, self.changed = _change_in_place(
            self.snapshot, replacement.in_place, replacement.change, self.engine
        )
        self._thin()
        # The thresholds of these files stay, so no other file depends on them. `_replaced` marks them again.
        self.gone[list(self.in_place)] = False
        if not self._reads.any() and not replacement.added.height and (self.in_place or self.hidden):
            self.revision = self.index.newest
            return self._replaced()
        first, sets, is_written = self._sets()
        rows = self._settle(self._open(first, replacement.added))
        if self.is_new and self.thinned:  # blocks of the newest revision
            self._give_up_thinned()
            rows, self.new = self._settle(self._open(first, replacement.added)), NO_BLOCKS
        rows = rows if is_written else None
        while True:
            count = int(self.gone.sum())
            self._write(rows)
            rows = None  # freed
            for files in sets:
                self._write(self._open(files, NO_ROWS))
            # If no more file can be removed, accept the disorder: no threshold is below the smallest weight.
            if self._keep_order() or (int(self.gone.sum()) == count and not self.thinned):
                return self._replaced()
            self._give_up_thinned()
            # The first new blocks relied on thresholds of files that were removed later, and only new files are left
            # to rewrite. Start again without all of these files. Each round removes more files, so the loop ends.
            delete_data_files(self.snapshot.store, self.adds)
            self.adds, self.new = [], NO_BLOCKS
            left = self._reads & ~np.logical_or.reduce(sets) if sets else self._reads
            rows = self._inside(self._open(left, replacement.added)) if left.any() or not sets else None

    def _sets(self) -> tuple[BoolArray, list[BoolArray], bool]:
        """Return the files to write first, and sets to write after them.

        The revision depends on rows that are not indexed in the newest. If several sets have such rows, the first files
        are those of all of them, to choose the revision only: the third value is False.
        """
        sets = list[BoolArray]()
        for files in self.replacement.groups:
            sets.append(np.zeros_like(self.gone))
            sets[-1][files] = True
        if len(sets) < 2:
            return self._reads, [], True
        newest = None if self.index.newest is None else self.index.newest.revision_id
        others = [at for at, files in enumerate(sets) if (self.index.revision_of[files] != newest).any()]
        if len(others) > 1:
            return np.logical_or.reduce([sets[at] for at in others]), sets, False
        return sets.pop(others[0] if others else 0), sets, True

    @property
    def _reads(self) -> BoolArray:
        """Files whose rows are written again, all of them or those that move."""
        reads = self.gone.copy()
        reads[list(self.moved)] = True
        return reads

    def _thin(self) -> None:
        """Move files that lost blocks out of `in_place`: other files may depend on these blocks (format 8)."""
        if not self.in_place:
            return
        before = dict(self.index.blocks.group_by("file").len().iter_rows())
        thinned = {
            file: add for file, add in self.in_place.items() if len(add.blocks or ()) < before.get(file, 0)
        }
        for file in thinned:
            del self.in_place[file]
        self.thinned, self.new = thinned, self._blocks_of(thinned)
        self.dropped[list(thinned)] = True  # their rows are written

    def _give_up_thinned(self) -> None:
        """Write the rows of thinned files like those of others."""
        delete_data_files(self.snapshot.store, self.thinned.values())
        self.dropped[list(self.thinned)] = False
        self.thinned = {}

    def _blocks_of(self, files: Mapping[int, AddFile]) -> pl.DataFrame:
        """Return the blocks of new files, by index of the old file, which are in the partitions of these."""
        adds = list(files.values())
        return new_blocks(adds, self.index.with_partitions(adds)[1])

    def _without_index(self, *, only_fewer: bool) -> Replaced:
        """Write the rows of a table without index: no other file depends on the files to remove."""
        if self._reads.any() or self.replacement.added.height:
            plan = self._open(self._reads, self.replacement.added).plan(None, None)
            if only_fewer and plan.file_count >= self.gone.sum():
                return Replaced(np.zeros_like(self.gone), [], None, is_new=False, rows=0, cubes=0)
            self.adds += plan.write()
        return Replaced(
            self.gone, self.adds, None, is_new=False, rows=rows_of(self.adds), cubes=0, hidden=self.hidden
        )

    def _settle(self, rows: Rows) -> Rows | None:
        """Choose the revision. Split off rows that need a new one, so that all others stay in the newest."""
        newest, added, keeps = self.index.newest, self.replacement.added, self.placement == "keep"
        if isinstance(self.placement, Revision):
            self.revision = self.placement
            return rows
        if self._rows_stay() and not added.height and self.placement != "redraw":
            self.revision = newest  # all rows are inside its space already; no summary is needed
            return rows
        if keeps and newest is not None and self._reads.any():
            inside, outside = rows.split(newest)
            chosen, is_new = (None, False) if outside is None else self._choose(outside)
            if outside is not None and chosen is not None and is_new:
                self.revision = newest
                self.outside = self._without_files(outside, newest), chosen, int(self.gone.sum())
                return inside
        self.revision, self.is_new = self._choose(rows)
        return rows

    def _rows_stay(self) -> bool:
        """Return whether all rows are indexed in the newest revision and keep their indexed values."""
        newest = self.index.newest
        revisions = self.index.revision_of[self._reads & ~self.dropped]
        same = self.replacement.change is None or self.replacement.keeps_keys
        return newest is not None and same and bool((revisions == newest.revision_id).all())

    def _without_files(self, outside: Rows, newest: Revision) -> Rows:
        """Return the rows outside from the added rows only if possible: then no file is read again for them."""
        added = self.replacement.added
        if not added.height:
            return outside
        _, added_outside = self._open(np.zeros_like(self.gone), added).split(newest)
        return outside if added_outside is None or added_outside.height < outside.height else added_outside

    def _choose(self, rows: Rows) -> tuple[Revision | None, bool]:
        """Return the revision for rows, and whether it is new. Without rows, only a redraw makes a new one."""
        redraw = self.placement == "redraw"
        chosen = choose_revision(
            wish_of_table(self.index, redraw=redraw),
            rows.summary,
            None if redraw else self.index,
            uri=self.snapshot.uri,
            now_ms=now_ms(),
            gone=self.gone,
        )
        return (chosen.revision, chosen.is_new) if chosen.rows or redraw else (self.index.newest, False)

    def _open(self, files: BoolArray, added: AddedRows) -> Rows:
        # Another time for each set of rows: files of one time were written together.
        self.time_ms = max(now_ms(), self.time_ms + 1)
        source = FilesSource(
            snapshot=self.snapshot,
            files=np.flatnonzero(files & ~self.dropped),
            change=self.replacement.change,
            added=added,
            only=self.moved,
            moved=self.replacement.read,
            changed=self.changed,
            time_ms=self.time_ms,
        )
        return self.engine.open(source, source.target, self.progress)

    def _inside(self, rows: Rows) -> Rows | None:
        """Return the rows that were not split off."""
        return rows if self.outside is None or self.revision is None else rows.split(self.revision)[0]

    def _write(self, rows: Rows | None) -> None:
        """Write rows to the revision."""
        if rows is None or self.revision is None:
            return
        tree = None
        if not self.is_new:
            keeps = self.placement == "keep"
            tree = self._tree(self.revision, self.gone, keeps_places=keeps)
        elif self.new.height:  # a new revision has no live blocks
            tree = self._tree(self.revision, np.ones_like(self.gone))
        adds = rows.plan(self.revision, tree).write()
        self.adds += adds
        self.partitions, trees = self.index.with_partitions(adds, self.partitions)
        self.new = pl.concat([self.new, new_blocks(adds, trees)])

    def _tree(self, revision: Revision, gone: BoolArray, *, keeps_places: bool = False) -> ExistingTree:
        return self.index.tree(
            revision, gone, self.new, partitions=self.partitions, keeps_places=keeps_places
        )

    def _keep_order(self) -> bool:
        """Rewrite more files until the order of weights holds. Return False if that does not help.

        The weight of a row must not be below the threshold of an ancestor of its cube (format 8.3). Thresholds belong
        to files: if a file is removed, blocks in deeper cubes of other files may be too deep, and these files have to
        be rewritten too.
        """
        while True:
            files, is_stuck = self.index.disorder(self.gone, self.new, None if self.is_new else self.revision)
            if is_stuck or not len(files):
                return not is_stuck
            more = np.zeros_like(self.gone)
            more[files] = True
            self.gone |= more
            if more[list(self.hidden)].any():  # the rows of these files that move are written already
                self.hidden, self.moved = (
                    {file: rows for file, rows in part.items() if not more[file]}
                    for part in (self.hidden, self.moved)
                )
                return False
            self._write(self._inside(self._open(more, NO_ROWS)))

    def _replaced(self) -> Replaced:
        count, cubes = int(self.new["rows"].sum()), _cubes(self.new)
        if self.outside is not None:
            self._write_outside(*self.outside)
            count, cubes = count + int(self.new["rows"].sum()), cubes + _cubes(self.new)
        # `_keep_order` may have rewritten files that were changed in place.
        unused = [add for file, add in self.in_place.items() if self.gone[file]]
        delete_data_files(self.snapshot.store, unused)
        in_place = {file: add for file, add in self.in_place.items() if not self.gone[file]}
        gone = self.gone.copy()
        gone[list(in_place)] = True
        blocks = self._blocks_of(in_place)
        adds = [*in_place.values(), *self.thinned.values()]
        if self.is_new:
            adds = [_of_revision(add, self.index.newest) for add in adds]
        return Replaced(
            gone,
            [*adds, *self.adds],
            self.revision or (self.index.newest if adds else None),
            self.is_new,
            count + int(blocks["rows"].sum()),
            cubes + _cubes(blocks),
            self.hidden,
        )

    def _write_outside(self, rows: Rows, revision: Revision, files_gone: int) -> None:
        """Write the rows that were split off, after all others: no more files are removed now."""
        newest = self.revision
        if newest is not None and int(self.gone.sum()) > files_gone:
            # More files were removed since the split; their rows may be outside too.
            all_outside = self._open(self._reads, self.replacement.added).split(newest)[1]
            chosen = None if all_outside is None else self._choose(all_outside)[0]
            if all_outside is not None and chosen is not None:
                rows, revision = all_outside, chosen
        self.adds, self.new = [_of_revision(add, newest) for add in self.adds], NO_BLOCKS
        self.revision, self.is_new = revision, True
        self._write(rows)


def _cubes(blocks: pl.DataFrame) -> int:
    return blocks.n_unique(["tree", "cube"]) if blocks.height else 0


def _of_revision(add: AddFile, revision: Revision | None) -> AddFile:
    """Return a file that names its revision: the commit may publish another one."""
    if revision is None:
        return add
    return add.model_copy(update={"tags": {**(add.tags or {}), "revision": str(revision.revision_id)}})


def _change_in_place(
    snapshot: Snapshot, files: I64Array, change: RowChange | None, engine: Engine
) -> tuple[dict[int, AddFile], dict[int, pl.DataFrame]]:
    """Rewrite the files whose rows keep their places. The new files are deleted if this fails.

    Return the new files, and the changed rows of files whose rows do not keep their places, if they fit in memory, by
    index of the old file.
    """
    adds, rows = dict[int, AddFile](), dict[int, pl.DataFrame]()
    newest = Index(snapshot).newest
    if newest is None or change is None or not len(files):
        return adds, rows
    files = files[_can_keep_blocks(snapshot, newest)[files]]
    small = snapshot.files["num_records"].fill_null(0).to_numpy()[files] < sizing().min_file_rows
    if small.sum() > 1:  # together they cost less, and become fewer
        files = files[~small]
    needed = snapshot.files["size_bytes"].to_numpy()[files] * _HELD_BYTES
    if not len(files) or not engine.has_room(int(needed.max())):
        return adds, rows
    at_once = _AT_ONCE if engine.has_room(int(needed.max()) * _AT_ONCE) else 1
    planner, operation, names = Planner(snapshot), new_id(), list(snapshot.copied_schema)
    call = ChangeFile(
        files=planner.files,
        keep=all_rows(planner, names),
        target=FilesSource(snapshot=snapshot, files=files).target,
        revision=newest,
        operation=operation,
        returns_rows=engine.shares_memory and engine.has_room(int(needed.sum())),
    )
    blocks, times = _blocks(snapshot, files), snapshot.files["modification_time"]
    items = {
        file: (live_scans(snapshot, [file], names)[0], function, blocks[file], times[file])
        for file in files.tolist()
        if (function := change.of_file(snapshot.data_paths[file])) is not None
    }
    try:
        answers = engine.map(call, list(items.values()), at_once=at_once)
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_files_named(snapshot.store, "", operation)
        raise
    for file, answer in zip(items, answers, strict=True):
        if isinstance(answer, AddFile):
            adds[file] = answer
        elif answer is not None:
            rows[file] = answer
    return adds, rows


def _can_keep_blocks(snapshot: Snapshot, newest: Revision) -> BoolArray:
    """Return which files belong to the newest revision, follow the exact rules, and have no deletion vector."""
    files = snapshot.files
    of_newest = Index(snapshot).revision_of == newest.revision_id
    mask: BoolArray = of_newest & has_exact_layout(files) & ~files["has_deletion_vector"].to_numpy()
    return mask


def _blocks(snapshot: Snapshot, files: I64Array) -> dict[int, tuple[Block, ...]]:
    """Return the blocks of each file in the order of the file."""
    by_file: dict[int, list[Block]] = {file: [] for file in files.tolist()}
    of_files = Index(snapshot).blocks.filter(pl.col("file").is_in(files.tolist()))
    columns = ["file", "cube", "min_weight", "max_weight", "rows"]
    for file, cube, low, high, rows in of_files.select(columns).iter_rows():
        by_file[file].append(Block(cube=cube, min_weight=low, max_weight=high, element_count=rows))
    return {file: tuple(blocks) for file, blocks in by_file.items()}


# Maximum number of versions that a change is planned on.
MAX_ATTEMPTS: Final = 12

ResultT = TypeVar("ResultT")


def publish_replaced(
    snapshot: Snapshot,
    replaced: Replaced,
    intent: WriteIntent,
    *,
    data_change: bool = False,
    base: Snapshot | None = None,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Remove the old files and add the new ones in one commit.

    `intent` is the commit without files, revision and metadata. `data_change`: the rows of the table change. `base` is
    the version in the log, if `snapshot` has a new schema that this commit publishes. `conflict_with` returns why the
    change conflicts with the version of another writer, or None.
    """
    base = base or snapshot
    base = base.whole or base
    removed = snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    intent = replace(
        intent,
        adds=tuple(add.model_copy(update={"data_change": data_change}) for add in replaced.adds),
        removes=removes_of(removed, snapshot.columns, data_change=data_change),
        revision=replaced.revision if replaced.adds or intent.drops_unused else None,
        new_revision=replaced.is_new,
        metadata=None if snapshot.metadata == base.metadata else snapshot.metadata,
    )
    with discarding(snapshot.store, intent.new_paths):
        marked, path = _write_vectors(snapshot, replaced.hidden)
    intent = replace(intent, marked=marked, vector_files=() if path is None else (path,))
    outcome = publish(base, intent, conflict_with=conflict_with)
    warn_of_added_columns(base, snapshot.schema)
    newest = outcome.snapshot
    # Too many keys to count after each change, if the files are in a plan file.
    if intent.brings == "rows" and newest is not None and base.planned is newest.planned is None:
        warn_if_growing(snapshot.files, newest.files, snapshot.config.latest)
    return outcome


def with_attempts(
    snapshot: Snapshot,
    attempt: Callable[[Snapshot], ResultT],
    *,
    may_retry: Callable[[Snapshot, Snapshot], bool] = lambda _before, _now: True,
) -> ResultT:
    """Apply a change to `snapshot`, the newest version. Plan it again if it conflicts with a commit of another writer.

    `commit` itself retries after versions that leave the plan valid. Otherwise the change has to choose and write
    other files.
    """
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return attempt(snapshot)
        except CommitConflictError as error:
            newest = refresh(snapshot)
            # Without a newer version, the same plan would fail again.
            if not left or newest is snapshot or not may_retry(snapshot, newest):
                raise
            LOG.info("%s: change planned again: %s", snapshot.uri, error)
            snapshot = newest
    raise AssertionError  # the last round returns or raises


def _write_vectors(
    snapshot: Snapshot, hidden: Mapping[int, BitMap64]
) -> tuple[tuple[tuple[AddFile, AddFile], ...], str | None]:
    """Write the deletion vectors of files: the rows to hide, and the rows that are hidden already.

    Return the files with their new vectors, and the path of the file that holds these.
    """
    if not hidden:
        return (), None
    before = snapshot.hidden_rows.of(hidden)
    sets = [rows | row_set(before[file]) if file in before else rows for file, rows in hidden.items()]
    path, data, descriptors = dump_vectors(sets, uuid.uuid4())
    adds = live_adds(snapshot, list(hidden))
    try:
        snapshot.store.put(path, data)
    except BaseException:  # also after an interrupt, or if only the reply of a store is lost
        delete_files(snapshot.store, [path])
        raise
    marked = [(add, _with_vector(add, descriptor)) for add, descriptor in zip(adds, descriptors, strict=True)]
    return tuple(marked), path


def _with_vector(add: AddFile, descriptor: dict[str, Any]) -> AddFile:
    """Return a live file with another deletion vector. Its statistics become bounds of more rows than it shows."""
    stats = with_wide_bounds(add.stats or "{}")
    return add.model_copy(update={"data_change": True, "deletion_vector": descriptor, "stats": stats})
