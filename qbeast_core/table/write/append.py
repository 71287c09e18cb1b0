"""Publish what the tasks of an append wrote: one commit, whatever each of them knew of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from qbeast_core.errors import CommitConflictError, TableNotFoundError
from qbeast_core.io.location import resolve_location
from qbeast_core.log.actions import AddFile, Txn
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.rebase import dialect_of
from qbeast_core.spec.revision import Revision
from qbeast_core.table.commit.commit import CommitOutcome, commit, discarding
from qbeast_core.table.commit.s3_locking import refuse_unsafe_locking
from qbeast_core.table.data.data_files import delete_data_files
from qbeast_core.table.data.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.data.frames import to_frame
from qbeast_core.table.data.schema import fit_frame
from qbeast_core.table.engine.append_task import TABLE_KEYS, AppendContext, AppendedPart
from qbeast_core.table.index.design_effect import warn_if_growing
from qbeast_core.table.index.fit import fit_blocks
from qbeast_core.table.index.state import IndexState
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_core.table.write.target import find_target

__all__ = ["begin_append", "publish_parts"]


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
    with discarding(store, adds):
        outcome = _publish(_planned_on(snapshot, parts), parts, txn, operation)
    if outcome.already_applied:
        delete_data_files(store, adds)
    elif outcome.snapshot is not None:
        _warn(outcome.snapshot, adds)
    return outcome


def _warn(newest: Snapshot, adds: Sequence[AddFile]) -> None:
    written = pl.col("path").is_in([add.path for add in adds])
    indexed = () if newest.config.latest is None else newest.config.latest.columns
    warn_if_growing(newest.files.filter(~written), newest.files, indexed)


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
    staged = tuple(add.without_index() for add in everything)
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


def begin_append(
    uri: str, empty: pl.DataFrame, storage_options: Mapping[str, str] | None = None
) -> tuple[Snapshot, AppendContext]:
    """Look at the table before tasks append to it.

    Parameters
    ----------
    uri : str
        Path or address of the table.
    empty : polars.DataFrame
        No rows, with the columns and types of those to come.
    storage_options : Mapping, optional
        For object stores.

    Returns
    -------
    tuple of Snapshot and AppendContext
        The newest version, and what tasks need of it.

    Raises
    ------
    TableNotFoundError
        There is no table: tasks cannot create one.
    SchemaMismatchError
        The rows do not fit the table; all differences are listed.
    NotQbeastTableError, UnsupportedTableError
        The table has no index, or must not be written.
    """
    uri = resolve_location(uri)
    snapshot = find_target(uri, "append", storage_options)
    latest = None if snapshot is None else snapshot.config.latest
    if snapshot is None or latest is None:
        msg = (
            f"there is no table at {uri!r}, and tasks cannot create one; nothing was written. Create it with "
            "write_table(df, path, columns=[...])."
        )
        raise TableNotFoundError(msg, path=uri)
    store = snapshot.source.store
    refuse_unsafe_locking(store.uri, snapshot.storage_options)
    refuse_taken_name(store.uri, snapshot.schema_json)
    fit_frame(to_frame(empty), snapshot.schema_json, snapshot.schema, merge=False)
    refuse_lost_columns(store.uri, latest.columns, snapshot.schema, done="written")
    state = IndexState(snapshot)
    revision = state.newest
    settings = {
        key: text for key, text in snapshot.metadata.configuration.items() if key.startswith(TABLE_KEYS)
    }
    context = AppendContext(
        uri=store.uri,
        version=snapshot.version,
        indexed=latest.columns,
        schema=snapshot.schema,
        schema_json=snapshot.schema_json,
        revision=revision,
        tree=None if revision is None else state.tree(revision),
        configuration=settings,
        dialect=dialect_of(snapshot),
        storage_options=dict(snapshot.storage_options),
    )
    return snapshot, context
