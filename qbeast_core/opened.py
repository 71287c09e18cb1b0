"""Tables opened before are opened again for little: what has not changed is not read twice."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from datetime import date
from typing import Final

from qbeast_core.errors import QbeastError
from qbeast_core.io.location import is_address, resolve_location
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.kept import Kept
from qbeast_core.table.snapshot.snapshot import load_snapshot, travel
from qbeast_core.table.table import Table

_KEPT: Final = 8
_TABLES: Final = Kept[tuple[str, bool], Table](_KEPT, lambda table: table.reader.size_bytes)


def open_version(
    path: str | os.PathLike[str],
    version: int | str | date | None,
    storage_options: Mapping[str, str] | None,
    *,
    allow_absolute_paths: bool = False,
) -> Table:
    """Return a table at a version, or its newest one; see `qbeast.open_table`."""
    number, moment = travel(version)
    if number is None and moment is None:
        return _open_newest(path, storage_options, allow_absolute_paths=allow_absolute_paths)
    return Table(
        load_snapshot(
            path,
            version=number,
            timestamp=moment,
            storage_options=storage_options,
            allow_absolute_paths=allow_absolute_paths,
        )
    )


def open_reader(
    path: str | os.PathLike[str],
    version: int | str | date | None,
    storage_options: Mapping[str, str] | None,
    *,
    allow_absolute_paths: bool = False,
) -> Reader:
    """Return the reader of a table, for engines that plan reads themselves; options and errors as `open_version`."""
    return open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths).reader


def _open_newest(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    *,
    allow_absolute_paths: bool = False,
) -> Table:
    """Return a table at its newest version, from memory as far as it is there.

    The last few local tables stay in memory, as far as they take little of it (`KEPT_SHARE`): log, blocks and the tails
    of files that were read. The log is looked at every time, so a new version, or another table in the same place, is
    seen at once. Tables in object stores are loaded anew: nothing cheap tells whether one was replaced.
    """
    uri = resolve_location(path)
    key = None if is_address(uri) else (uri, allow_absolute_paths)
    known = None if key is None else _TABLES.get(key)
    table = None if known is None else _refreshed(known)
    if table is None:
        table = Table(
            load_snapshot(uri, storage_options=storage_options, allow_absolute_paths=allow_absolute_paths)
        )
    if key is not None:
        _TABLES.put(key, table)
    return copy.copy(table)  # changes made through one move that one alone


def _refreshed(table: Table) -> Table | None:
    """Return the table's newest version; None if it cannot be had this way, and has to be loaded anew."""
    try:
        return copy.copy(table).refresh()  # threads share the one that is kept
    except (QbeastError, OSError):
        return None  # the table is gone or damaged: loading it says what is wrong
