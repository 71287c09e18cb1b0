"""Derive the version after an append from the version before, without reading the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from qbeast_core.log.actions import Action, AddFile, CommitInfo, Txn
from qbeast_core.log.files.grown_files import with_adds
from qbeast_core.query.index.build import build_index_table, index_of_blocks
from qbeast_core.query.index.fitting import fits_schema
from qbeast_core.query.index.index_table import NO_REVISION, IndexTable
from qbeast_core.support.logs import LOG
from qbeast_core.table.snapshot.log_files import fingerprint
from qbeast_core.table.snapshot.snapshot import Snapshot, keep, timestamp_of


def after_append(head: Snapshot, actions: Sequence[Action], info: CommitInfo) -> Snapshot | None:
    """Return the version after `head` if the commit only adds files. None: it must be loaded."""
    if not head.columns.is_plain or any(not isinstance(action, AddFile | Txn) for action in actions):
        return None
    adds = [action for action in actions if isinstance(action, AddFile)]
    files = with_adds(head.files, adds)
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
    )
    if head.decoded_index is not None:
        vars(newest)["index"] = _index(head, head.decoded_index, files, adds)
    keep(newest)
    return newest


def _index(head: Snapshot, index: IndexTable, files: pl.DataFrame, adds: Sequence[AddFile]) -> IndexTable:
    """Return the index of the new version, given the index of `head`."""
    new_files, tags = files[head.files.height :], [add.tags or {} for add in adds]
    numbers = {int(of_file.get("revision") or NO_REVISION) for of_file in tags}
    revision = head.config.revisions.get(numbers.pop()) if len(numbers) == 1 else None
    is_plain = all(add.blocks for add in adds) and all(of_file.get("qbeast.rules") == "1" for of_file in tags)
    if revision is None or not is_plain or not fits_schema(revision, head.schema):
        return index.with_files(files, build_index_table(new_files, head.config.revisions, head.schema))
    return index.with_files(files, index_of_blocks(new_files, [add.blocks or () for add in adds], revision))
