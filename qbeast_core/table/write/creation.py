"""Several writers create one table at once: one succeeds, and the others continue with its table."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from qbeast_core.errors import TableExistsError
from qbeast_core.io.stores.store import open_store
from qbeast_core.support.sizing import sizing
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.snapshot.log_files import commit_path
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.table.write.target import find_target, is_ours

# How often a write may find no table and lose the race to create it: between two times, the table vanished.
MAX_CREATIONS: Final = 5

_PAUSE_S: Final = 0.05


def target_once_created(options: WriteOptions, uri: str) -> Snapshot | None:
    """Return the table that a write works on, as `find_target` does, but wait for one that is being created.

    The files of a first write are in the folder before its log is, and look like those of a writer that died. So
    a write that may follow waits for the log while something happens in the folder, and ten seconds more.
    """
    try:
        return find_target(uri, options.mode, options.storage_options)
    except TableExistsError:
        root = open_store(uri, options.storage_options).local_root
        if options.mode == "error" or root is None or not _may_be_underway(root) or not _created(root):
            raise
    return find_target(uri, options.mode, options.storage_options)


def _may_be_underway(root: Path) -> bool:
    return root.is_dir() and all(_is_id(path.stem) or is_ours(path) for path in root.glob("*.parquet"))


def _is_id(name: str) -> bool:
    """Return whether a file has a name as ours have: our files for JVMs lack the hidden column."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _created(root: Path) -> bool:
    """Wait while files in the folder change; return whether there is a log in the end."""
    seen, patience = 0.0, time.monotonic()
    while not (root / commit_path(0)).exists():
        newest = max(_times(root), default=0.0)
        if newest != seen:
            # Counted from the last change: files that were left long ago cause no wait.
            seen, patience = newest, time.monotonic() + sizing().quiet_s - max(time.time() - newest, 0.0)
        if time.monotonic() >= patience:
            return False
        time.sleep(_PAUSE_S)
    return True


def _times(root: Path) -> Iterator[float]:
    """Yield when each thing in the folder and its log was changed, seconds since 1970 UTC."""
    for folder in (root, root / LOG_DIRECTORY):
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in (folder, *folder.iterdir()):
                with suppress(FileNotFoundError):
                    yield path.stat().st_mtime
