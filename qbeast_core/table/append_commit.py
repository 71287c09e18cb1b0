"""Publish what the tasks of an append wrote: one commit, whatever each of them knew of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from qbeast_core.errors import CommitConflictError, CommitUnknownError, QbeastError
from qbeast_core.log.actions import AddFile, Txn
from qbeast_core.log.intent import WriteIntent
from qbeast_core.spec.revision import Revision
from qbeast_core.table.append_part import AppendedPart
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.data_files import delete_data_files
from qbeast_core.table.design import count_keys
from qbeast_core.table.fit_blocks import fit_blocks, without_index
from qbeast_core.table.snapshot import Snapshot, load_snapshot
from qbeast_core.table.warn import warn_if_clustered

__all__ = ["publish_parts"]


def publish_parts(
    snapshot: Snapshot,
    parts: Sequence[AppendedPart],
    *,
    txn: tuple[str, int] | None = None,
    operation: str = "",
) -> CommitOutcome | None:
    """Commit the parts of an append, all of them or none.

    Files that do not go together with those of other tasks or of another writer (format 8.3) are published without
    index: their rows count, and optimize indexes them later.

    Parameters
    ----------
    snapshot : Snapshot
        A version of the table not older than what the parts were planned on.
    parts : sequence of AppendedPart
        Of all tasks.
    txn : tuple of (str, int), optional
        The application and its version that these rows are; a table that has it is left as it is.
    operation : str, optional
        Name in the history.

    Returns
    -------
    CommitOutcome or None
        None: there were no rows, and nothing was committed.

    Raises
    ------
    CommitConflictError
        Another writer changed the schema, or dropped the table. The files are deleted.
    CommitUnknownError
        The store cannot tell whether the commit landed. The files stay.
    StorageError, UnsupportedTableError
        Nothing is visible. The files are deleted as far as the store lets us.
    """
    adds = [add for part in parts for add in part.files]
    if not adds:
        return None
    store = snapshot.source.store
    try:
        outcome = _publish(_planned_on(snapshot, parts), parts, txn, operation)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(store, adds)
        raise
    if outcome.already_applied:
        delete_data_files(store, adds)
    elif outcome.snapshot is not None:
        _warn(outcome.snapshot, adds)
    return outcome


def _warn(newest: Snapshot, adds: Sequence[AddFile]) -> None:
    written = pl.col("path").is_in([add.path for add in adds])
    before, after = count_keys(newest.files.filter(~written)), count_keys(newest.files)
    indexed = () if newest.config.latest is None else newest.config.latest.columns
    warn_if_clustered((before.lower_bound, after.lower_bound), indexed)


def _planned_on(snapshot: Snapshot, parts: Sequence[AppendedPart]) -> Snapshot:
    """Return the version that the oldest part was planned on: later commits are checked against it."""
    oldest = min(part.version for part in parts)
    if oldest == snapshot.version:
        return snapshot
    return load_snapshot(snapshot.uri, version=oldest, storage_options=snapshot.storage_options)


def _publish(
    base: Snapshot, parts: Sequence[AppendedPart], txn: tuple[str, int] | None, operation: str
) -> CommitOutcome:
    revision = _common_revision(parts)
    store = base.source.store
    everything = tuple(add for part in parts for add in part.files)
    staged = tuple(without_index(add) for add in everything)
    if revision is None:
        return commit(store, base, _intent(staged, None, parts, txn, operation))
    try:
        return commit(store, base, fit_blocks(_intent(everything, revision, parts, txn, operation), base))
    except CommitConflictError:
        # The rows are right wherever they stand; what else was in the way is in the way again.
        return commit(store, base, _intent(staged, None, parts, txn, operation))


def _common_revision(parts: Sequence[AppendedPart]) -> Revision | None:
    """Return the revision of all indexed files; None: there is none, or there are several."""
    found = [part.revision for part in parts if part.indexed]
    return found[0] if found and all(one == found[0] for one in found) else None


def _intent(
    adds: tuple[AddFile, ...],
    revision: Revision | None,
    parts: Sequence[AppendedPart],
    txn: tuple[str, int] | None,
    operation: str,
) -> WriteIntent:
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(sum(part.rows for part in parts)),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    info: dict[str, Any] = {"operationMetrics": metrics}
    return WriteIntent(
        mode="append",
        adds=adds,
        revision=revision,
        txn=None if txn is None else Txn(app_id=txn[0], version=txn[1]),
        operation=operation,
        commit_info=info,
    )
