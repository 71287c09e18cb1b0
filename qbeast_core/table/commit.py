"""Publish a change: put the next version if it is absent; rebase and retry if another writer was first."""

from __future__ import annotations

import random
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from qbeast_core.errors import CommitUnknownError, QbeastError, QbeastWarning
from qbeast_core.io.store import Store
from qbeast_core.log.actions import dump_commit
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.names import commit_path
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.rebase import Conflict, rebase
from qbeast_core.table.catch_up import catch_up, conflict, table_exists
from qbeast_core.table.checkpoint import checkpoint_if_due
from qbeast_core.table.commit_info import commit_info
from qbeast_core.table.fit_blocks import fit_blocks
from qbeast_core.table.live import files_for
from qbeast_core.table.locking import refuse_unsafe_locking
from qbeast_core.table.log_reader import read_commit
from qbeast_core.table.snapshot import Snapshot, load_snapshot, refresh

__all__ = ["CommitOutcome", "WriteIntent", "commit"]

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 1.0
_Put: TypeAlias = Literal["won", "lost", "absent"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CommitOutcome:
    """What became of a change.

    Attributes
    ----------
    version : int
        The version that holds it; if `already_applied`, a version that is not older.
    attempts : int
        Versions it was built for, 1 or more; 0 if there was nothing to do.
    snapshot : Snapshot or None
        The newest version seen, `version` or later; None: the commit is complete, but loading it failed.
    revision_id : int or None
        The number its files were published under; None: they are not indexed.
    staged_files : int
        Data files of it without index. An append has more of them than it was given where it came after a
        change that it does not go together with (`qbeast_core.table.fit_blocks`).
    already_applied : bool
        True: the table held this progress of the application already, or all that a change of mode
        ``"metadata"`` asks for; nothing was written, and the data files prepared are orphans.
    """

    version: int
    attempts: int
    snapshot: Snapshot | None
    revision_id: int | None = None
    staged_files: int = 0
    already_applied: bool = False


def commit(
    store: Store,
    snapshot: Snapshot | None,
    intent: WriteIntent,
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ids: Callable[[], str] = lambda: str(uuid.uuid4()),
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = random.random,
    most_attempts: int = 50,
) -> CommitOutcome:
    """Publish `intent` as one version, whatever other writers do meanwhile; all of it or nothing.

    Every attempt is built on the newest version. An interrupt (Ctrl-C) inside leaves it open whether the
    version was written: do not delete the data files then.

    Parameters
    ----------
    store : Store
        Where the table is.
    snapshot : Snapshot or None
        The version the change was planned on; None: there is no table, and it is created.
    intent : WriteIntent
        The change; its data files are written.
    storage_options : Mapping, optional
        For a table that is created; else the snapshot's.
    clock, ids, sleep, jitter : callables
        Milliseconds since 1970 UTC; a new id, unique among all writers; seconds to wait; a float in [0, 1).
    most_attempts : int
        Versions to try at most.

    Raises
    ------
    CommitConflictError
        Another writer's change stands against it, or there was always another writer.
    TableExistsError
        A table was to be created, and there is one.
    UnsupportedTableError
        The table must not be written, or not in this way.
    CommitUnknownError
        The store failed and cannot tell; read the table later.
    StorageError
        The store refused; nothing of the change is visible.
    """
    options = snapshot.storage_options if snapshot is not None else dict(storage_options or {})
    refuse_unsafe_locking(store.uri, options)
    if intent.mode == "create" and snapshot is not None:
        raise table_exists(store.uri)
    base = None if snapshot is None else snapshot.metadata
    txn_id, head, fitted = ids(), snapshot, intent
    if snapshot is not None and _has_progress(snapshot, intent):
        head = refresh(snapshot)
        return CommitOutcome(version=head.version, attempts=0, snapshot=head, already_applied=True)
    for attempt in range(1, most_attempts + 1):
        now = clock()
        rebased = rebase(fitted, base=base, head=head, now_ms=now, live=files_for(intent, head))
        if isinstance(rebased, Conflict):
            raise conflict(store.uri, _version(head), attempt, rebased.reason)
        if intent.mode == "metadata" and head is not None and not rebased.actions:
            return CommitOutcome(version=head.version, attempts=0, snapshot=head, already_applied=True)
        check_writable(
            rebased.protocol, rebased.metadata, mode=intent.mode, path=store.uri, brings=intent.brings
        )
        version = _version(head) + 1
        info = commit_info(fitted, rebased, head, txn_id=txn_id, now_ms=now)
        put = _put(store, version, dump_commit([info, *rebased.actions]), txn_id)
        if put == "won":
            return CommitOutcome(
                version=version,
                attempts=attempt,
                snapshot=_after(store, head, version, options),
                revision_id=rebased.revision_id,
                staged_files=sum(add.blocks is None for add in fitted.adds),
            )
        sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt) * (0.5 + jitter() / 2))
        if put == "lost":
            head, applied = catch_up(store, head, intent, attempt=attempt)
            if applied:
                return CommitOutcome(
                    version=head.version, attempts=attempt, snapshot=head, already_applied=True
                )
            fitted = fit_blocks(intent, head)
    raise conflict(store.uri, _version(head), most_attempts, "other writers were faster every time")


def _version(head: Snapshot | None) -> int:
    return -1 if head is None else head.version


def _has_progress(snapshot: Snapshot, intent: WriteIntent) -> bool:
    if intent.txn is None:
        return False
    stored = snapshot.transaction_version(intent.txn.app_id)
    return stored is not None and stored >= intent.txn.version


def _put(store: Store, version: int, body: bytes, txn_id: str) -> _Put:
    """Try one version; whatever the store answers, what counts is the commit that is there afterwards."""
    path = commit_path(version)
    failure: OSError | None = None
    try:
        store.put_if_absent(path, body)
    except FileExistsError:
        pass
    except OSError as error:
        failure = error
    else:
        return "won"
    try:
        there = read_commit(store, version)
    except OSError as error:
        raise _unknown(store, version, txn_id) from (failure or error)
    if there is not None:
        return "won" if there.commit_info is not None and there.commit_info.txn_id == txn_id else "lost"
    if failure is None:
        return "absent"  # object stores answer a race so; the version is still free
    if store.local_root is not None:
        raise failure  # a folder does not change its mind
    raise _unknown(store, version, txn_id) from failure


def _unknown(store: Store, version: int, txn_id: str) -> CommitUnknownError:
    message = (
        f"the store failed while version {version} of {store.uri} was written: perhaps it is there. "
        f"Keep the data files, look later whether its commitInfo has the txnId {txn_id}, and write again "
        "only if it has not."
    )
    return CommitUnknownError(message, table=store.uri, version=version, txn_id=txn_id)


def _after(store: Store, head: Snapshot | None, version: int, options: Mapping[str, str]) -> Snapshot | None:
    """Return the table with the commit, checkpointed if it is time; no failure undoes the commit."""
    try:
        newest = load_snapshot(store.uri, storage_options=options) if head is None else refresh(head)
    except QbeastError as error:
        message = f"version {version} of {store.uri} is committed, but cannot be loaded now: {error}"
        warnings.warn(message, QbeastWarning, stacklevel=3)
        return None
    checkpoint_if_due(newest, version)
    return newest
