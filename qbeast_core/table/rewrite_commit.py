"""Publish a rewrite: removes and adds in one commit, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from qbeast_core.errors import CommitUnknownError, QbeastError
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.removes import removes_of
from qbeast_core.table.commit import commit
from qbeast_core.table.data_files import delete_data_files
from qbeast_core.table.progress import Progress
from qbeast_core.table.reader import Reader
from qbeast_core.table.rewrite_job import Replaced, Rewrite

__all__ = ["publish_rewrite"]


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
    snapshot = reader.snapshot
    intent = _intent(reader, job, replaced)
    if job.progress is not None:
        files = len(replaced.adds)
        job.progress(Progress("commit", files, files, replaced.rows))
    try:
        outcome = commit(reader.store, snapshot, intent, storage_options=snapshot.storage_options)
    except CommitUnknownError:
        raise  # the commit may have landed: its files must stay
    except QbeastError:
        delete_data_files(reader.store, replaced.adds)
        raise
    return replace(replaced, outcome=outcome)


def _intent(reader: Reader, job: Rewrite, replaced: Replaced) -> WriteIntent:
    out = reader.snapshot.files.filter(pl.Series(replaced.gone, dtype=pl.Boolean))
    metrics = {
        "numAddedFiles": len(replaced.adds),
        "numAddedBytes": sum(add.size for add in replaced.adds),
        "numRemovedBytes": int(out["size_bytes"].sum()),
        "numOutputRows": replaced.rows,
    }
    info: dict[str, Any] = {
        **job.commit_metadata,
        "operationParameters": dict(job.parameters),
        "operationMetrics": {key: str(value) for key, value in metrics.items()},
    }
    return WriteIntent(
        mode="append",
        adds=tuple(add.model_copy(update={"data_change": job.data_change}) for add in replaced.adds),
        removes=removes_of(out, data_change=job.data_change),
        revision=replaced.revision,
        new_revision=replaced.is_new,
        operation=job.operation,
        commit_info=info,
    )
