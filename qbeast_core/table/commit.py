"""Commit a change: create the next version if it is absent, else rebase the change and try again."""

from __future__ import annotations

import importlib.metadata
import json
import random
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from qbeast_core.errors import (
    CommitConflictError,
    CommitUnknownError,
    QbeastError,
    QbeastWarning,
    TableExistsError,
)
from qbeast_core.io.store import Entry, Store
from qbeast_core.log.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    RemoveFile,
    Txn,
    dump_commit,
    parse_commit,
)
from qbeast_core.log.commits import has_plain_statistics, no_files, with_adds
from qbeast_core.log.protocol import (
    Brings,
    WriteIntent,
    WriteMode,
    already_applied,
    check_writable,
    find_conflict,
    in_commit_timestamps,
)
from qbeast_core.log.rebase import PRESERVED, Rebased, rebase
from qbeast_core.log.replay import RULES, RULES_TAG, needs_removes
from qbeast_core.log.values import FileChangePlanner
from qbeast_core.plan.blocks import NO_REVISION, BlockTable
from qbeast_core.plan.decode_tags import build_block_table, fits_schema, index_of_blocks
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.process import LOG, caller_stacklevel, new_id, now_ms
from qbeast_core.table.data.files import delete_files
from qbeast_core.table.data.schema import LOG_DIRECTORY
from qbeast_core.table.index.revision import breaks_order, fit_blocks, with_new_names
from qbeast_core.table.snapshot.log_files import (
    PlanUnusable,
    checkpoint_faults,
    commit_path,
    fingerprint,
    newest_checkpoint,
    put_commit,
    read_log,
)
from qbeast_core.table.snapshot.snapshot import (
    Snapshot,
    files_for,
    follow,
    keep,
    load_snapshot,
    read_live_files,
    refresh,
    timestamp_of,
    with_metadata,
    write_checkpoint,
)

if TYPE_CHECKING:
    from qbeast_core.table.snapshot.planned import PlannedFiles

_EVERY: Final = 10

_MAX_COMMITS: Final = 100

_OUTWEIGHING: Final = 2


def _checkpoint_if_due(store: Store, snapshot: Snapshot, version: int) -> None:
    """Write a checkpoint after the commit of `version` if one is due. A failure is a warning.

    With ``delta.checkpointInterval``, one is due at its multiples. Otherwise, one is due at multiples of ten if the
    commits since the last one outweigh it.
    """
    text = snapshot.metadata.configuration.get("delta.checkpointInterval", "")
    interval = int(text) if text.isascii() and text.isdigit() else 0
    if version == 0 or version % (interval or _EVERY):
        return
    try:
        # List only the end of a long log. After 100 commits a checkpoint is due anyway.
        end = f"{LOG_DIRECTORY}/{max(version - 2 * _MAX_COMMITS, 0):020d}"
        if interval or outweighs_checkpoint(store.entries(LOG_DIRECTORY, after=end), version=version):
            newest = refresh(snapshot)
            write_checkpoint(newest)
    except QbeastError as error:
        _warn(snapshot.uri, version, f"{error}. The commit itself is complete")


def replace_checkpoints(snapshot: Snapshot) -> None:
    """Delete broken checkpoints and a broken hint, and write a checkpoint. If that fails, warn."""
    store = snapshot.source.store
    for fault in checkpoint_faults(store):
        for path in fault.paths:
            store.delete(path)
    newest = load_snapshot(snapshot.location)
    try:
        write_checkpoint(newest)
    except QbeastError as error:
        _warn(snapshot.uri, newest.version, f"{error}. The log is complete without it")


def _warn(uri: str, version: int, reason: str) -> None:
    warnings.warn(
        f"no checkpoint of {uri} at version {version}: {reason}.",
        QbeastWarning,
        stacklevel=caller_stacklevel(),
    )


def outweighs_checkpoint(entries: Iterable[Entry], *, version: int) -> bool:
    """Return whether there are 100 commits since the last checkpoint, or commits of twice its size.

    A checkpoint holds the whole table. With this rule, all checkpoints together are about as large as all commits.

    >>> log = [Entry(commit_path(number), 500, 0) for number in range(21)]
    >>> outweighs_checkpoint(log, version=20)
    True
    >>> checkpoint = Entry("_delta_log/00000000000000000010.checkpoint.parquet", 4000, 0)
    >>> outweighs_checkpoint([*log, checkpoint], version=20)
    False
    """
    sizes = {entry.path: entry.size for entry in entries}
    last = newest_checkpoint(sizes, version=version)
    if last is None:
        return True
    since = range(last.version + 1, version + 1)
    commits = sum(sizes.get(commit_path(number), 0) for number in since)
    return len(since) >= _MAX_COMMITS or commits >= _OUTWEIGHING * sum(sizes[path] for path in last.paths)


_FIRST_PAUSE: Final = 0.005

_MAX_PAUSE: Final = 1.0

_OPERATIONS: Final[Mapping[WriteMode, str]] = {
    "append": "WRITE",
    "overwrite": "WRITE",
    "create": "CREATE TABLE AS SELECT",
    "metadata": "SET TBLPROPERTIES",
}
# Operations that read: the rows they add depend on rows of the table, even if they remove no file.
_READING: Final = frozenset({"MERGE"})
_MODES: Final[Mapping[WriteMode, str]] = {
    "append": "Append",
    "overwrite": "Overwrite",
    "create": "ErrorIfExists",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CommitOutcome:
    """The result of a commit."""

    # Version with the change. If `already_applied`, this version or an older one has it.
    version: int
    # Number of tries; 0 if there was nothing to do.
    attempts: int
    # The newest version seen, `version` or later. None: the commit is complete, but loading it failed. The next use
    # of the table loads it.
    snapshot: Snapshot | None
    # Revision of the new files. None: they are not indexed.
    revision_id: int | None = None
    # Number of new files without index. An append stages files if a change of another writer left no place for their
    # rows in the tree (`qbeast_core.table.index.revision`).
    staged_files: int = 0
    # True: the table had this transaction, or the metadata, already. Nothing was written, and the data files are
    # orphans.
    already_applied: bool = False

    @property
    def committed(self) -> bool:
        """Whether a version was written."""
        return not self.already_applied


def commit(
    store: Store,
    snapshot: Snapshot,
    intent: WriteIntent,
    *,
    clock: Callable[[], int] = now_ms,
    ids: Callable[[], str] = new_id,
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = random.random,
    max_attempts: int = 50,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Commit `intent` as one version.

    Each attempt is based on the newest version. After an interrupt (Ctrl-C) it is unknown whether the version was
    written: do not delete the data files then.
    """
    snapshot.location.refuse_changes()
    if intent.mode == "create" and not snapshot.is_new:
        raise _table_exists(store.uri)
    base = snapshot.metadata
    txn_id, head, fitted = ids(), snapshot, intent
    if intent.txn is not None and snapshot.has_applied((intent.txn.app_id, intent.txn.version)):
        return _applied(refresh(snapshot))
    for attempt in range(1, max_attempts + 1):
        now = clock()
        rebased = rebase(fitted, base=base, head=head, now_ms=now, live=files_for(intent, head))
        if isinstance(rebased, str):
            raise _conflict(store.uri, head.version, attempt, rebased)
        if intent.mode == "metadata" and not rebased.actions:
            return _applied(head)
        check_writable(
            rebased.protocol, rebased.metadata, mode=intent.mode, path=store.uri, brings=intent.brings
        )
        version = head.version + 1
        info = _commit_info(fitted, rebased, head, txn_id=txn_id, now_ms=now)
        put = put_commit(store, version, dump_commit([info, *rebased.actions]), txn_id)
        if put == "won":
            _report(store.uri, version, rebased, intent, attempt)
            return CommitOutcome(
                version=version,
                attempts=attempt,
                snapshot=_after(store, head, rebased, info),
                revision_id=rebased.revision_id,
                staged_files=sum(add.blocks is None for add in fitted.adds),
            )
        # "lost": another writer wrote this version. Otherwise it does not exist: try the same version again.
        sleep(_pause(store.uri, version, attempt, jitter()))
        if put == "lost":
            head, applied = _catch_up(store, head, intent, attempt=attempt, conflict_with=conflict_with)
            if applied:
                return _applied(head, attempt)
            fitted = fit_blocks(with_new_names(intent, base, head), head)
    raise _conflict(store.uri, head.version, max_attempts, "other writers committed first each time")


def publish(
    snapshot: Snapshot,
    intent: WriteIntent,
    *,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Commit data files. Delete files that no version will name."""
    store = snapshot.store
    with discarding(store, intent.new_paths):
        outcome = commit(store, snapshot, intent, conflict_with=conflict_with)
    if outcome.already_applied:
        delete_files(store, intent.new_paths)
    return outcome


def commit_metadata(
    snapshot: Snapshot,
    metadata: Metadata,
    brings: Brings,
    *,
    operation: str = "",
    parameters: Mapping[str, str] | None = None,
    features: tuple[str, ...] = (),
    files: FileChangePlanner | None = None,
    dry_run: bool = False,
    conflict_with: Callable[[Snapshot], str | None] | None = None,
) -> CommitOutcome:
    """Commit new metadata, and changes of live files in the log. Without a change, no version is written.

    `features` are those that the metadata needs, for readers and writers.
    A dry run only calls `files`.
    """
    snapshot.check_writable("metadata", brings=brings)
    if dry_run:
        if files is not None:
            files(read_live_files(snapshot), snapshot.config.dialect or "documented")
        return CommitOutcome(version=snapshot.version, attempts=0, snapshot=snapshot, already_applied=True)
    info = {"operationParameters": dict(parameters or {})}
    intent = WriteIntent(
        mode="metadata",
        brings=brings,
        metadata=metadata,
        features=features,
        files=files,
        operation=operation,
        commit_info=info,
    )
    return commit(snapshot.source.store, snapshot, intent, conflict_with=conflict_with)


@contextmanager
def discarding(store: Store, paths: Sequence[str]) -> Generator[None]:
    """Delete files if the commit inside fails. Errors of the deletion are ignored."""
    try:
        yield
    except CommitUnknownError:
        raise  # if the commit succeeded, the files hold rows of the table
    except QbeastError:
        delete_files(store, paths)
        raise
    # Other errors, such as an interrupt, may occur between the request and its response. Keep the files: a vacuum
    # removes them if no version names them.


def _pause(uri: str, version: int, attempt: int, jitter: float) -> float:
    """Return the seconds to wait after a failed attempt: exponential backoff with jitter."""
    seconds: float = min(_MAX_PAUSE, _FIRST_PAUSE * 2.0**attempt) * (0.5 + jitter / 2)
    LOG.info("version %d of %s was not written: retry in %.3f s", version, uri, seconds)
    return seconds


def _report(uri: str, version: int, rebased: Rebased, intent: WriteIntent, attempts: int) -> None:
    adds = len(rebased.adds)
    removes = sum(isinstance(action, RemoveFile) for action in rebased.actions)
    name = intent.operation or intent.mode
    LOG.info("%s is version %d of %s: +%d -%d files, attempt %d", name, version, uri, adds, removes, attempts)


def _applied(head: Snapshot, attempts: int = 0) -> CommitOutcome:
    return CommitOutcome(version=head.version, attempts=attempts, snapshot=head, already_applied=True)


def _after(store: Store, head: Snapshot, rebased: Rebased, info: CommitInfo) -> Snapshot | None:
    """Return the version of the commit, or None if it cannot be loaded. Write a checkpoint if one is due.

    The commit is complete, so a failure is a warning.
    """
    version = head.version + 1
    try:
        # The version after a change of files, or a creation, follows from the one before, without reading the log.
        before = _created(head, rebased) if head.is_new else _with_revision(head, rebased.metadata)
        newest = None if before is None else _after_changes(before, rebased.actions, info)
        newest = newest or (load_snapshot(head.location) if head.is_new else refresh(head))
    except QbeastError as error:
        message = f"version {version} of {store.uri} is committed, but cannot be loaded now: {error}"
        warnings.warn(message, QbeastWarning, stacklevel=caller_stacklevel())
        return None
    _checkpoint_if_due(store, newest, version)
    return newest


def _catch_up(
    store: Store,
    head: Snapshot,
    intent: WriteIntent,
    *,
    attempt: int,
    conflict_with: Callable[[Snapshot], str | None] | None,
) -> tuple[Snapshot, bool]:
    """Return the newest snapshot, and whether a commit since `head` contains `intent`. Raise on a conflict."""
    if head.is_new:
        raise _table_exists(store.uri)
    newest, log = follow(head)
    reason: str | None = None
    try:
        commits = (log or read_log(store, newest.version, after=head.version)).commits
    except FileNotFoundError:
        commits, reason = (), f"a version since {head.version} was cleaned up before it could be checked"
    for version, body in enumerate(commits, start=head.version + 1):
        winner = parse_commit(body, version=version)
        if already_applied(intent, winner):
            return newest, True
        reason = reason or find_conflict(intent, winner)
    if reason is None and intent.removes and breaks_order(intent, newest):
        reason = "another writer added rows whose place in the tree depends on what this change replaces"
    if reason is None and conflict_with is not None:
        reason = conflict_with(newest)
    if reason is not None:
        raise _conflict(store.uri, newest.version, attempt, reason)
    return newest, False


def _conflict(uri: str, version: int, attempts: int, reason: str) -> CommitConflictError:
    """Return the error of a change that conflicts with the table at `version`."""
    message = (
        f"cannot write to {uri} after version {version}: {reason}; its data files "
        "are orphans that vacuum removes. Load the table and write again."
    )
    return CommitConflictError(message, table=uri, version=version, attempts=attempts)


def _table_exists(uri: str) -> TableExistsError:
    """Return the error of a creation if another writer created the table first."""
    message = f"another writer created a table at {uri}; nothing of this write is visible"
    return TableExistsError(message, path=uri)


def _commit_info(
    intent: WriteIntent, rebased: Rebased, head: Snapshot, *, txn_id: str, now_ms: int
) -> CommitInfo:
    """Return the provenance of one attempt."""
    adds = rebased.adds
    removes = [action for action in rebased.actions if isinstance(action, RemoveFile)]
    parameters = _parameters(intent.mode, rebased.metadata)
    info: dict[str, Any] = {"operationParameters": parameters, **intent.commit_info}
    info |= {"timestamp": now_ms, "operation": intent.operation or _OPERATIONS[intent.mode]}
    if in_commit_timestamps(rebased.protocol, rebased.metadata):
        # Timestamps increase with versions even if the clocks of writers differ.
        info["inCommitTimestamp"] = max(now_ms, head.timestamp_ms + 1)
    if not head.is_new:
        info["readVersion"] = head.version
    if rebased.preserves_row_ids is not None:
        info["tags"] = {PRESERVED: str(rebased.preserves_row_ids).lower()}
    metrics = {"numFiles": len(adds), "numOutputBytes": sum(add.size for add in adds)}
    metrics |= {"numRemovedFiles": len(removes)} if removes else {}
    metrics |= intent.commit_info.get("operationMetrics", {})
    info |= {
        "isolationLevel": "Serializable",
        "isBlindAppend": intent.mode == "append" and not removes and intent.operation not in _READING,
        "operationMetrics": {key: str(value) for key, value in metrics.items()},
        "engineInfo": _engine(),
        "txnId": txn_id,
    }
    return CommitInfo.model_validate(info)


def _parameters(mode: WriteMode, metadata: Metadata) -> dict[str, str]:
    columns = json.dumps(metadata.partition_columns, ensure_ascii=False)
    return {"mode": _MODES[mode], "partitionBy": columns} if mode in _MODES else {}


@cache
def _engine() -> str:
    try:
        return f"qbeast/{importlib.metadata.version('qbeast')}"
    except importlib.metadata.PackageNotFoundError:  # run from a copy of the sources
        return "qbeast"


def _created(head: Snapshot, rebased: Rebased) -> Snapshot | None:
    """Return the empty table with the metadata of its first commit. None: it must be loaded."""
    metadata, protocol = rebased.metadata, rebased.protocol
    # `deltalake` orders the notes of fields and the names of features anew.
    is_ordered = '"metadata":{"' not in metadata.schema_string and not protocol.writer_features
    created = with_metadata(replace(head, protocol=protocol), metadata)
    if not is_ordered or not has_plain_statistics(created.schema, metadata.configuration):
        return None
    return replace(created, listed=no_files(created.schema))


def _with_revision(head: Snapshot, metadata: Metadata) -> Snapshot:
    """Return the version with other metadata, if only settings of the index differ."""
    old, new = head.metadata.configuration, metadata.configuration
    others = [key for key in old.keys() | new.keys() if not key.startswith("qbeast.")]
    is_same = all(old.get(key) == new.get(key) for key in others)
    is_same &= metadata.model_copy(update={"configuration": old}) == head.metadata
    return with_metadata(head, metadata) if is_same else head


def _left(
    head: Snapshot, adds: Sequence[AddFile], removed: Sequence[str]
) -> tuple[pl.DataFrame, PlannedFiles | None] | None:
    """Return the live files without removed ones, in memory and in the plan file. None: the log decides."""
    kept = head.listed.filter(~pl.col("path").is_in(list(removed))) if removed else head.listed
    # Adds of rows are new files. Others may replace live files of the same path.
    are_new = not removed and all(add.data_change for add in adds)
    touched = [] if are_new else [*removed, *(add.path for add in adds)]
    planned, gone = head.planned, head.listed.height - kept.height
    try:
        if planned is not None:
            planned = planned.without(FilePath.of_log(path).text for path in touched)
            gone += head.file_count - head.listed.height - planned.count
    except PlanUnusable:
        return None
    return (kept, planned) if gone == len(removed) else None


def _after_changes(head: Snapshot, actions: Sequence[Action], info: CommitInfo) -> Snapshot | None:
    """Return the version after `head` if the commit only adds and removes files. None: it must be loaded."""
    kinds = AddFile | RemoveFile | CdcFile | Txn | DomainMetadata
    others = [action for action in actions if not isinstance(action, kinds)]
    if not head.columns.is_plain or any(action not in (head.metadata, head.protocol) for action in others):
        return None
    adds = [action for action in actions if isinstance(action, AddFile)]
    removed = [action.path for action in actions if isinstance(action, RemoveFile)]
    domains = {
        action.domain: action.configuration for action in actions if isinstance(action, DomainMetadata)
    }
    left = _left(head, adds, removed)
    if left is None:
        return None
    kept, planned = left
    if removed:
        # Files of copies, paths that others may write differently, and statistics of other writers need the log.
        is_plain = not head.copies and not needs_removes(head.listed)
        are_ours = all((add.tags or {}).get(RULES_TAG) == RULES for add in adds)
        if not is_plain or not are_ours:
            return None
    files = with_adds(kept, adds)
    if files is None:
        return None
    version = head.version + 1
    LOG.debug("version %d of %s follows from the commit: %d files", version, head.uri, head.file_count)
    newest = replace(
        head,
        version=version,
        timestamp_ms=timestamp_of(info),
        listed=files,
        planned=planned,
        vectors=head.vectors.for_files(files) if removed and planned is None else head.vectors,
        fingerprint=fingerprint(head.source.store, version),
        domains={**head.domains, **domains},
    )
    if head.decoded_blocks is not None and head.planned is None and not removed:
        vars(newest)["blocks"] = _index(head, head.decoded_blocks, files, adds)
    keep(newest)
    return newest


def _index(head: Snapshot, index: BlockTable, files: pl.DataFrame, adds: Sequence[AddFile]) -> BlockTable:
    """Return the index of the new version, given the index of `head`."""
    new_files, tags = files[head.listed.height :], [add.tags or {} for add in adds]
    numbers = {int(of_file.get("revision") or NO_REVISION) for of_file in tags}
    revision = head.config.revisions.get(numbers.pop()) if len(numbers) == 1 else None
    is_plain = all(add.blocks for add in adds) and all(of_file.get("qbeast.rules") == "1" for of_file in tags)
    if revision is None or not is_plain or not fits_schema(revision, head.schema, head.columns.rehashed):
        return index.with_files(files, build_block_table(new_files, head.config.revisions, head.schema))
    return index.with_files(files, index_of_blocks(new_files, [add.blocks or () for add in adds], revision))
