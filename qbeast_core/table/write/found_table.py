"""The table or files at the path of a write, and what the mode allows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import polars as pl

from qbeast_core.errors import NotQbeastTableError, TableExistsError, TableNotFoundError
from qbeast_core.io.location import Location
from qbeast_core.log.protocol import check_writable
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.support.sizing import sizing
from qbeast_core.support.text import convert_call
from qbeast_core.table.data.schema import LOG_DIRECTORY, log_instead
from qbeast_core.table.snapshot.log_files import commit_path
from qbeast_core.table.snapshot.snapshot import Snapshot, newest_snapshot

_PAUSE_S: Final = 0.05

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]


def find_target(location: Location, mode: Mode) -> Snapshot | None:
    """Return the table that a write of this mode works on; None: it creates one."""
    uri = location.uri
    try:
        snapshot = newest_snapshot(location)
    except TableNotFoundError as error:
        _refuse_what_is_there(location, error)
        return None
    if mode == "error":
        cure = 'Use mode="append", mode="overwrite" or mode="ignore", or choose another path.'
        msg = f"a table is at {uri!r} already. {cure}"
        raise TableExistsError(msg, path=uri, argument="mode")
    if mode == "ignore":
        return snapshot
    config = snapshot.config
    if mode == "append" and not (config.is_indexed or config.is_left_unindexed):
        msg = (
            f"{uri!r} is a Delta table without Qbeast index. Convert it ({convert_call(uri)}), or "
            'write to another path, or replace it with mode="overwrite".'
        )
        raise NotQbeastTableError(msg, path=uri)
    check_writable(snapshot.protocol, snapshot.metadata, mode=mode, path=uri)
    return snapshot


def find_target_once_created(location: Location, mode: Mode) -> Snapshot | None:
    """Return the table that a write works on, as `find_target` does, but wait for one that is being created.

    The files of a first write are in the folder before its log is, and look like those of a writer that died. So
    a write that may follow waits for the log while something happens in the folder, and ten seconds more.
    """
    try:
        return find_target(location, mode)
    except TableExistsError:
        root = location.store.local_root
        if mode == "error" or root is None or not _may_be_underway(root) or not _created(root):
            raise
    return find_target(location, mode)


def _may_be_underway(root: Path) -> bool:
    return root.is_dir() and all(_is_id(path.stem) or _is_ours(path) for path in root.glob("*.parquet"))


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


def _refuse_what_is_there(location: Location, error: TableNotFoundError) -> None:
    """Raise if the place holds a file, or data without a Delta log."""
    uri = location.uri
    if log_instead(uri) is not None:
        raise error
    root = location.store.local_root
    if root is None or not root.exists():
        return
    files = list(root.glob("*.parquet"))
    if not root.is_dir():
        msg = f"{uri!r} is a file, not a folder. Choose another path."
    elif files and all(map(_is_ours, files)):
        msg = (
            f"{uri!r} holds data files of a table, but no log that names them: an interrupted write left them, or the "
            "log was lost. Delete them if nobody needs them, or choose another path."
        )
    elif files or (root / LOG_DIRECTORY).exists():
        msg = (
            f"{uri!r} holds files but no readable Delta table. Convert it to a table first "
            f"({convert_call(uri)}), or choose an empty place."
        )
    else:
        return
    raise TableExistsError(msg, path=uri) from error


def _is_ours(path: Path) -> bool:
    """Return whether this library wrote a Parquet file."""
    try:
        return WEIGHT_COLUMN in pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError):
        return False
