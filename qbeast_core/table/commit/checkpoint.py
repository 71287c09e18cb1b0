"""Write a checkpoint after a commit: at the interval of the table, or if the commits outweigh the last checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Final

from qbeast_core.errors import QbeastError, QbeastWarning
from qbeast_core.io.store import Entry, Store
from qbeast_core.support.process import caller_stacklevel
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.snapshot.log_copy import checkpoint_faults
from qbeast_core.table.snapshot.log_files import commit_path, newest_checkpoint
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot, refresh

_EVERY: Final = 10

_MAX_COMMITS: Final = 100

_OUTWEIGHING: Final = 2


def checkpoint_if_due(store: Store, snapshot: Snapshot, version: int) -> None:
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
            newest.source.checkpoint(newest.version, files=newest.files.height)
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
        newest.source.checkpoint(newest.version, files=newest.files.height)
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
