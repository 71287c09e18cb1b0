"""The files of a snapshot as whole add actions, for commits that repeat or remove them."""

from __future__ import annotations

from qbeast_core.errors import InvalidMetadataError, StorageError
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.live_files import LiveFiles, live_files
from qbeast_core.table.log_reader import read_state
from qbeast_core.table.snapshot import Snapshot

__all__ = ["files_for", "has_old_layout", "read_live_files"]


def read_live_files(snapshot: Snapshot) -> LiveFiles:
    """Return the files of a snapshot as the log has them, and those that only Spark takes for live.

    Raises
    ------
    InvalidMetadataError
        The log is damaged.
    StorageError
        A file of the log is gone: another process cleaned it up.
    """
    store = snapshot.source.store
    try:
        state = read_state(store, version=snapshot.version)
        return live_files(snapshot.files["path"].to_list(), state.checkpoint, state.commits)
    except FileNotFoundError as error:
        message = f"a file of the log of {store.uri} is missing: {error}. Nothing was changed; try again."
        raise StorageError(message, path=store.uri) from error
    except (ValueError, KeyError) as error:
        message = f"the log of {store.uri} is damaged: {error}. Nothing was changed."
        raise InvalidMetadataError(message) from error


def files_for(intent: WriteIntent, head: Snapshot | None) -> LiveFiles | None:
    """Return the whole files of the newest version where a change needs them; reading them costs."""
    if head is None:
        return None
    replaces_all = intent.mode == "overwrite" and has_old_layout(head)
    return read_live_files(head) if intent.files is not None or replaces_all else None


def has_old_layout(snapshot: Snapshot) -> bool:
    """Tell whether a table carries marks of the layout before 0.6.0 (format 11)."""
    return (
        bool(snapshot.config.replicated_sets) or snapshot.files["state"].null_count() < snapshot.files.height
    )
