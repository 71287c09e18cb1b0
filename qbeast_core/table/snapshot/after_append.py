"""Derive the version after an append from the version before, without reading the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from qbeast_core.log.actions import Action, AddFile, CommitInfo, Txn
from qbeast_core.log.files.grown_files import with_adds
from qbeast_core.query.index.build import build_index_table
from qbeast_core.query.index.index_table import IndexTable
from qbeast_core.support.logs import LOG
from qbeast_core.table.snapshot.log_files import fingerprint
from qbeast_core.table.snapshot.snapshot import Snapshot, keep, timestamp_of


def after_append(head: Snapshot, actions: Sequence[Action], info: CommitInfo) -> Snapshot | None:
    """Return the version after `head` if the commit only adds files. None: it must be loaded."""
    if any(not isinstance(action, AddFile | Txn) for action in actions):
        return None
    files = with_adds(head.files, [action for action in actions if isinstance(action, AddFile)])
    if files is None:
        return None
    version = head.version + 1
    LOG.debug("version %d of %s follows from the commit: %d files", version, head.uri, files.height)
    newest = replace(
        head,
        version=version,
        timestamp_ms=timestamp_of(info),
        files=files,
        fingerprint=fingerprint(head.source.store, version),
        known_index=_index(head, files),
    )
    keep(newest)
    return newest


def _index(head: Snapshot, files: pl.DataFrame) -> IndexTable | None:
    """Return the index of the new version. None: the index of `head` is not decoded yet."""
    index = head.decoded_index
    if index is None:
        return None
    new = build_index_table(files[head.files.height :], head.config.revisions, head.schema)
    return index.with_files(files, new)
