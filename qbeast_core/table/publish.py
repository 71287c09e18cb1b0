"""Publish the files of a write: one commit, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qbeast_core.errors import CommitUnknownError, QbeastError
from qbeast_core.io.store import Store
from qbeast_core.log.actions import AddFile, Txn
from qbeast_core.log.intent import WriteIntent
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.data_files import delete_data_files
from qbeast_core.table.design import with_write
from qbeast_core.table.prepare import Prepared, Space
from qbeast_core.table.result import WriteResult, transformers_of
from qbeast_core.table.snapshot import Snapshot
from qbeast_core.table.write_options import WriteOptions
from qbeast_core.tree.key_sketch import KeySketch

__all__ = ["Published", "Written", "is_applied", "publish"]


@dataclass(frozen=True, slots=True)
class Written:
    """What was written and is still invisible.

    Attributes
    ----------
    prepared : Prepared
        What the table will look like.
    space : Space
        How the rows are indexed.
    adds : sequence of AddFile
        The data files.
    rows, cubes : int
        Rows written, and cubes that took some.
    keys : KeySketch
        How often index keys repeat in the rows.
    """

    prepared: Prepared
    space: Space
    adds: Sequence[AddFile]
    rows: int
    cubes: int
    keys: KeySketch


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a write.

    Attributes
    ----------
    result : WriteResult
        The outcome.
    effects : tuple of two floats
        The least that the design effect of the table can be, without these rows and with them.
    """

    result: WriteResult
    effects: tuple[float, float] = (1.0, 1.0)


def publish(store: Store, target: Snapshot | None, written: Written, options: WriteOptions) -> Published:
    """Commit; files that no version will ever name are deleted again.

    Parameters
    ----------
    store : Store
        Below the table's root.
    target : Snapshot or None
        The version the write was planned on.
    written : Written
        What to publish.
    options : WriteOptions
        What was asked for.

    Raises
    ------
    ConflictError
        Another writer was faster, and the rows do not fit what it left; nothing was written.
    CommitUnknownError
        The store did not say whether the commit landed.
    """
    intent = _intent(target, written, options)
    try:
        outcome = commit(store, target, intent, storage_options=options.storage_options)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(store, intent.adds)
        raise
    if outcome.already_applied:
        delete_data_files(store, intent.adds)
        return Published(WriteResult.untouched(outcome.version, written.space.revision))
    stays = target if options.mode == "append" else None
    found = stays if outcome.snapshot is None else outcome.snapshot
    before, counts = with_write(None if found is None else found.files, written.adds, written.keys)
    return Published(_result(written, outcome, counts.design_effect), (before, counts.lower_bound))


def is_applied(target: Snapshot, txn: tuple[str, int] | None) -> bool:
    """Tell whether the table holds that version of the application, or a later one."""
    if txn is None:
        return False
    version = target.transaction_version(txn[0])
    return version is not None and version >= txn[1]


def _intent(target: Snapshot | None, written: Written, options: WriteOptions) -> WriteIntent:
    adds, prepared = written.adds, written.prepared
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(written.rows),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    info: dict[str, Any] = {**options.commit_metadata, "operationMetrics": metrics}
    changed = target is None or prepared.metadata != target.metadata
    return WriteIntent(
        mode="create" if target is None else "overwrite" if options.mode == "overwrite" else "append",
        adds=tuple(adds),
        revision=written.space.revision,
        new_revision=written.space.is_new,
        metadata=prepared.metadata if changed else None,
        dialect=prepared.dialect,
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        commit_info=info,
    )


def _result(written: Written, outcome: CommitOutcome, design_effect: float | None) -> WriteResult:
    revision = written.space.revision
    return WriteResult(
        version=outcome.version,
        written=True,
        rows=written.rows,
        files=len(written.adds),
        bytes=sum(add.size for add in written.adds),
        cubes=written.cubes,
        revision_id=revision.revision_id if outcome.revision_id is None else outcome.revision_id,
        new_revision=written.space.is_new,
        transformers=transformers_of(revision),
        cube_size=revision.desired_cube_size,
        design_effect=design_effect,
        attempts=outcome.attempts,
        staged_files=outcome.staged_files,
    )
