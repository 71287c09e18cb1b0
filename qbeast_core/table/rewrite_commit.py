"""Publish a rewrite: removes and adds in one commit, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import polars as pl

from qbeast_core.errors import CommitConflictError, CommitUnknownError, QbeastError
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.removes import removes_of
from qbeast_core.table.catch_up import catch_up, conflict
from qbeast_core.table.commit import CommitOutcome, commit
from qbeast_core.table.data_files import delete_data_files
from qbeast_core.table.fit_blocks import fit_blocks
from qbeast_core.table.progress import Progress
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_job import Replaced, Rewrite

__all__ = ["publish_rewrite"]

_MOST_ATTEMPTS: Final = 50
_MOST_IDLE: Final = 3  # object stores may refuse a put while nobody takes the version


def publish_rewrite(reader: Reader, job: Rewrite, replaced: Replaced) -> Replaced:
    """Commit; files that no version will ever name are deleted again.

    Parameters
    ----------
    reader : Reader
        Of the version the rewrite was planned on.
    job : Rewrite
        What was asked for.
    replaced : Replaced
        What was written and is still invisible.

    Returns
    -------
    Replaced
        The same with its outcome.

    Raises
    ------
    CommitConflictError
        Another writer changed what this rewrite builds on; nothing is left of it.
    CommitUnknownError
        The store did not say whether the commit landed.
    """
    intent = _intent(reader, job, replaced)
    if job.progress is not None:
        files = len(replaced.adds)
        job.progress(Progress("commit", files, files, replaced.rows))
    try:
        outcome = _commit(reader, job, intent)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(reader.store, replaced.adds)
        raise
    return replace(replaced, outcome=outcome)


def _commit(reader: Reader, job: Rewrite, intent: WriteIntent) -> CommitOutcome:
    """Commit; where the change depends on what it read, ask after every lost race whether it still holds."""
    head = reader.snapshot
    if job.still_holds is None:
        return commit(reader.store, head, intent, storage_options=head.storage_options)
    idle, fitted = 0, intent
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        try:
            outcome = commit(
                reader.store, head, fitted, storage_options=head.storage_options, most_attempts=1
            )
        except CommitConflictError:
            newest, _ = catch_up(reader.store, head, intent, attempt=attempt)
            idle = idle + 1 if newest is head else 0
            if idle > _MOST_IDLE:
                raise
            reason = job.still_holds(newest)
            if reason is not None:
                raise conflict(reader.store.uri, newest.version, attempt, reason) from None
            head, fitted = newest, fit_blocks(intent, newest)
        else:
            return replace(outcome, attempts=attempt)
    reason = "other writers were faster every time"
    raise conflict(reader.store.uri, head.version, _MOST_ATTEMPTS, reason)


def _intent(reader: Reader, job: Rewrite, replaced: Replaced) -> WriteIntent:
    out = reader.snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    metrics = _metrics(replaced, out) if job.metrics is None else job.metrics(replaced)
    info: dict[str, Any] = {
        **job.commit_metadata,
        "operationParameters": dict(job.parameters),
        "operationMetrics": {key: str(value) for key, value in metrics.items()},
    }
    return WriteIntent(
        mode="append",
        brings=job.brings,
        adds=tuple(add.model_copy(update={"data_change": job.data_change}) for add in replaced.adds),
        removes=removes_of(out, data_change=job.data_change),
        revision=replaced.revision if replaced.adds or job.redraw else None,
        new_revision=replaced.is_new,
        drops_unused=job.redraw,
        operation=job.operation,
        commit_info=info,
    )


def _metrics(replaced: Replaced, out: pl.DataFrame) -> dict[str, int]:
    return {
        "numAddedFiles": len(replaced.adds),
        "numAddedBytes": sum(add.size for add in replaced.adds),
        "numRemovedBytes": int(out["size_bytes"].sum()),
        "numOutputRows": replaced.rows,
    }
