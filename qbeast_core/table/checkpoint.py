"""Checkpoints after a commit: best effort, for whoever loads the table next."""

from __future__ import annotations

import warnings
from typing import Final

from qbeast_core.errors import QbeastError, QbeastWarning
from qbeast_core.table.delta_handle import delta_errors
from qbeast_core.table.snapshot import Snapshot

__all__ = ["checkpoint_if_due"]

_EVERY: Final = 10


def checkpoint_if_due(snapshot: Snapshot, version: int) -> bool:
    """Write a checkpoint if `version`, just committed, is a multiple of the table's interval; say if it was.

    Parameters
    ----------
    snapshot : Snapshot
        The table at `version` or later; this is what the checkpoint holds.
    version : int
        The version committed. ``delta.checkpointInterval`` is the interval, 10 by default.

    Warns
    -----
    QbeastWarning
        It could not be written. The commit stands, and the table can be read.
    """
    text = snapshot.metadata.configuration.get("delta.checkpointInterval", "")
    interval = int(text) if text.isascii() and text.isdigit() and int(text) > 0 else _EVERY
    if version == 0 or version % interval:
        return False
    try:
        with snapshot.source.lock, delta_errors(snapshot.uri):
            if _lists_more(snapshot):
                return False
            snapshot.source.table.create_checkpoint()
    except QbeastError as error:
        message = (
            f"no checkpoint of {snapshot.uri} at version {version}: {error}. The commit itself is complete."
        )
        warnings.warn(message, QbeastWarning, stacklevel=2)
        return False
    return True


def _lists_more(snapshot: Snapshot) -> bool:
    """Tell whether `deltalake` takes files for live that were removed under another spelling.

    Its checkpoint would keep them, and not for ever what removed them.
    """
    table = snapshot.source.table
    return table.version() == snapshot.version and len(table.file_uris()) > snapshot.files.height
