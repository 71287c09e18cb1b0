"""After a lost race: load what the winners made of the table, and see whether our change still fits it."""

from __future__ import annotations

import numpy as np
import polars as pl

from qbeast_core.errors import CommitConflictError, TableExistsError
from qbeast_core.io.store import Store
from qbeast_core.log.actions import Commit
from qbeast_core.log.conflicts import already_applied, find_conflict
from qbeast_core.log.intent import WriteIntent
from qbeast_core.spec.file_path import FilePath
from qbeast_core.table.index_state import IndexState, blocks_frame
from qbeast_core.table.log_reader import read_commit
from qbeast_core.table.snapshot import Snapshot, refresh

__all__ = ["catch_up", "conflict", "table_exists"]


def catch_up(
    store: Store, head: Snapshot | None, intent: WriteIntent, *, attempt: int
) -> tuple[Snapshot, bool]:
    """Return the newest snapshot, and whether a winner says that `intent` is in the table already.

    Parameters
    ----------
    store : Store
        Where the table is.
    head : Snapshot or None
        The version the lost attempt was built on; None: it was to create the table.
    intent : WriteIntent
        What we want to publish.
    attempt : int
        How many attempts there were, for the message.

    Raises
    ------
    TableExistsError
        The table was to be created, and another writer did.
    CommitConflictError
        A winner stands against `intent`.
    """
    if head is None:
        raise table_exists(store.uri)
    newest = refresh(head)
    for version in range(head.version + 1, newest.version + 1):
        winner = _winner(store, version, attempt)
        if already_applied(intent, winner):
            return newest, True
        reason = find_conflict(intent, winner)
        if reason is not None:
            raise conflict(store.uri, newest.version, attempt, reason)
    if intent.removes:
        _refuse_out_of_order(store, newest, intent, attempt)
    return newest, False


def conflict(uri: str, version: int, attempts: int, reason: str) -> CommitConflictError:
    """Return the error of a change that does not fit the table at `version`."""
    message = (
        f"cannot write to {uri} after version {version}: {reason}. Nothing of it is visible; its data files "
        "are orphans that vacuum removes. Load the table and write again."
    )
    return CommitConflictError(message, table=uri, version=version, attempts=attempts)


def table_exists(uri: str) -> TableExistsError:
    """Return the error of a creation that came second."""
    message = f"there is a table at {uri}, written by another writer; nothing of this write is visible"
    return TableExistsError(message, path=uri)


def _winner(store: Store, version: int, attempt: int) -> Commit:
    winner = read_commit(store, version)
    if winner is None:
        raise conflict(
            store.uri, version, attempt, f"version {version} was cleaned up before it could be checked"
        )
    return winner


def _refuse_out_of_order(store: Store, newest: Snapshot, intent: WriteIntent, attempt: int) -> None:
    """Raise where blocks added meanwhile rely on thresholds that our removes take along (format 8.3)."""
    state = IndexState(newest)
    removed = {FilePath.of_log(remove.path).text for remove in intent.removes}
    gone = np.array([path in removed for path in newest.data_paths], np.bool_)
    revision = intent.revision
    new: dict[int, pl.DataFrame] = {}
    if revision is not None and newest.config.revisions.get(revision.revision_id) == revision:
        blocks = [block for add in intent.adds for block in add.blocks or ()]
        new = {} if intent.new_revision else {revision.revision_id: blocks_frame(blocks)}
    if not state.disorder(gone, new).is_none:
        reason = "another writer added rows whose place in the tree depends on what this change replaces"
        raise conflict(store.uri, newest.version, attempt, reason)
