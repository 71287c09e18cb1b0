"""The version that our own append makes, known without a look at the log: it follows the one it was built on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qbeast_core.log.actions import Action, AddFile, CommitInfo, Txn
from qbeast_core.log.files.grown_files import with_adds
from qbeast_core.logs import LOG
from qbeast_core.table.snapshot.log_files import fingerprint
from qbeast_core.table.snapshot.snapshot import Snapshot, keep, timestamp_of


def grown(head: Snapshot, actions: Sequence[Action], info: CommitInfo) -> Snapshot | None:
    """Return the version after `head` if a commit of ours made it that adds files alone; None: it has to be loaded."""
    adds = [action for action in actions if isinstance(action, AddFile)]
    if any(not isinstance(action, AddFile | Txn) for action in actions):
        return None
    files = with_adds(head.files, adds)
    if files is None:
        return None
    version = head.version + 1
    LOG.debug("knows version %d of %s: %d files", version, head.uri, files.height)
    newest = replace(
        head,
        version=version,
        timestamp_ms=timestamp_of(info),
        files=files,
        fingerprint=fingerprint(head.source.store, version),
    )
    keep(newest)
    return newest
