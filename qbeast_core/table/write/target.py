"""The table or files at the path of a write, and what the mode allows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import polars as pl

from qbeast_core.errors import NotQbeastTableError, TableExistsError, TableNotFoundError
from qbeast_core.io.stores.location import open_store
from qbeast_core.log.protocol import check_writable
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.support.suggestions import convert_call
from qbeast_core.table.data.found_instead import LOG_DIRECTORY, log_instead
from qbeast_core.table.snapshot.snapshot import Snapshot, newest_snapshot

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]


def find_target(uri: str, mode: Mode, storage_options: Mapping[str, str] | None) -> Snapshot | None:
    """Return the table that a write of this mode works on; None: it creates one."""
    try:
        snapshot = newest_snapshot(uri, storage_options=storage_options)
    except TableNotFoundError as error:
        _refuse_what_is_there(uri, storage_options, error)
        return None
    if mode == "error":
        cure = 'Use mode="append", "overwrite" or "ignore", or choose another path.'
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


def _refuse_what_is_there(
    uri: str, storage_options: Mapping[str, str] | None, error: TableNotFoundError
) -> None:
    """Raise if the place holds a file, or data without a Delta log."""
    if log_instead(uri) is not None:
        raise error
    root = open_store(uri, storage_options).local_root
    if root is None or not root.exists():
        return
    files = list(root.glob("*.parquet"))
    if not root.is_dir():
        msg = f"{uri!r} is a file, not a folder. Choose another path."
    elif files and all(map(is_ours, files)):
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


def is_ours(path: Path) -> bool:
    """Return whether this library wrote a Parquet file."""
    try:
        return WEIGHT_COLUMN in pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError):
        return False
