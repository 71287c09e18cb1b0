"""The change data feed of a delete, an update or a merge.

The files of the feed are written after the new data files, and published by the same commit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.errors import UnsupportedTableError
from qbeast_core.log.actions import CHANGE_FOLDER, CdcFile
from qbeast_core.log.deletion_vectors import rows_in
from qbeast_core.log.protocol import CHANGE_FEED, has_change_feed
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import delete_data_files, delete_files_named
from qbeast_core.table.data.schema import CHANGE_TYPE
from qbeast_core.table.dml.change_plan import ChangePlan
from qbeast_core.table.dml.write_feed import FeedPart, WriteFeed
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.sources import FilesSource
from qbeast_core.table.read.planner import Planner, scan_of_rows, scans_of
from qbeast_core.table.rewrite.replace import Replaced
from qbeast_core.table.snapshot.snapshot import Snapshot

_AT_ONCE: Final = 2
_FILE_BYTES: Final = 64 << 20
_SMALL_FILE_BYTES: Final = 4 << 20
# Memory of a task, as a multiple of `_FILE_BYTES`: rows as read, before and after, joined and encoded.
_HELD: Final = 8
# Files with few changed rows share a file of the feed.
_ROWS_PER_TASK: Final = 1 << 20
_FILES_PER_TASK: Final = 16


def keeps_feed(snapshot: Snapshot) -> bool:
    """Return whether a table has a change data feed."""
    return has_change_feed(snapshot.protocol, snapshot.metadata)


def refuse_feed_column(snapshot: Snapshot) -> None:
    """Raise if the table has a feed and a column with the name of a column of the feed."""
    if keeps_feed(snapshot) and CHANGE_TYPE in map(str.lower, snapshot.schema):
        msg = (
            f"{snapshot.uri} has a change data feed and a column {CHANGE_TYPE!r}, which the feed uses too. "
            f"Disable the feed with Table.set_properties({{{CHANGE_FEED!r}: None}})."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=CHANGE_FEED)


def write_feed(
    snapshot: Snapshot, plan: ChangePlan, replaced: Replaced, engine: Engine
) -> tuple[CdcFile, ...]:
    """Write the files of the feed.

    No file is written if the added and removed files are the feed. If this fails, its files and the new data files are
    deleted.
    """
    if not keeps_feed(snapshot) or not _rewrites_rows(plan, replaced):
        return ()
    store, prefix = snapshot.store, f"cdc-{new_id()}"
    try:
        call = _call(snapshot, plan, replaced, engine, prefix)
        written = engine.map(call, _parts(snapshot, plan, call.file_bytes), at_once=_AT_ONCE)
    except BaseException:  # also after an interrupt or a panic of Rust
        delete_data_files(store, replaced.adds)
        delete_files_named(store, CHANGE_FOLDER, prefix)
        raise
    return tuple(file for files in written for file in files)


def _rewrites_rows(plan: ChangePlan, replaced: Replaced) -> bool:
    """Return whether a changed file has rows that stay. If not, removed rows are deleted and added rows inserted."""
    rewritten = replaced.gone.copy()
    rewritten[plan.replacement.dropped] = False
    return bool(rewritten.any() or replaced.hidden)


def _call(snapshot: Snapshot, plan: ChangePlan, replaced: Replaced, engine: Engine, prefix: str) -> WriteFeed:
    planner = Planner(snapshot)
    scan = plan.matches.scan or planner.plan(None, None)
    has_room = engine.has_room(_FILE_BYTES * _HELD * _AT_ONCE)
    return WriteFeed(
        files=planner.files,
        keep=planner.row_filter(scan, list(snapshot.schema)),
        change=plan.replacement.change,
        target=FilesSource(snapshot=snapshot, files=plan.replacement.files).target,
        hashed=snapshot.hashed if replaced.revision is None else replaced.revision.hashed,
        prefix=prefix,
        file_bytes=_FILE_BYTES if has_room else _SMALL_FILE_BYTES,
    )


def _parts(snapshot: Snapshot, plan: ChangePlan, file_bytes: int) -> list[FeedPart]:
    """Split the feed into tasks."""
    matches, added = plan.matches, plan.replacement.added
    inserts = [FeedPart(added=piece) for piece in added.pieces(list(snapshot.schema), size_bytes=file_bytes)]
    if matches.scan is None:
        return inserts
    planner, scan, hidden = Planner(snapshot), matches.scan, plan.replacement.hidden
    rows = np.cumsum(np.maximum(matches.rows, _ROWS_PER_TASK // _FILES_PER_TASK))
    cuts = np.flatnonzero(np.diff((rows - 1) // _ROWS_PER_TASK)) + 1
    groups = [group.tolist() for group in np.split(matches.files, cuts) if len(group)]
    others = [file for file in matches.files.tolist() if file not in hidden]
    scans = dict(zip(others, scans_of(planner, scan, others), strict=True))
    scans |= {file: scan_of_rows(snapshot, file, rows_in(rows)) for file, rows in hidden.items()}
    return [FeedPart(tuple(scans[file] for file in group)) for group in groups] + inserts
