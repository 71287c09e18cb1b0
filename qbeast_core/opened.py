"""Open tables and readers, for the public functions and for engines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date

from qbeast_core.table.read.reader import Reader
from qbeast_core.table.snapshot.snapshot import load_snapshot, newest_snapshot, travel
from qbeast_core.table.table import Table


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
        return Table(
            newest_snapshot(path, storage_options=storage_options, allow_absolute_paths=allow_absolute_paths)
        )
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
    """Return the reader of a table, for engines that plan reads themselves. Same options as `open_version`."""
    return open_version(path, version, storage_options, allow_absolute_paths=allow_absolute_paths).reader
