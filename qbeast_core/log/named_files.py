"""Names of the files that a log still speaks of: data files and deletion vectors that must not be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from qbeast_core.log.actions import AddFile
from qbeast_core.log.deletion_vector import parse_vector, vector_path
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.spec.file_path import FilePath

__all__ = ["names_of_files", "names_removed_since", "paths_of_adds"]


def paths_of_adds(adds: Iterable[AddFile]) -> set[FilePath]:
    """Return the paths of data files and of their deletion vectors.

    Raises
    ------
    InvalidMetadataError
        A deletion vector's file cannot be told.

    Examples
    --------
    >>> paths_of_adds([AddFile(path="k/a%20b.parquet", size=1, modification_time=1)])
    {FilePath(text='k/a b.parquet')}
    """
    return {path for add in adds for path in _paths(add.path, add.deletion_vector)}


def names_of_files(files: pl.DataFrame) -> set[str]:
    """Return the last parts of the paths of live files and of their deletion vectors.

    Parameters
    ----------
    files : polars.DataFrame
        Columns `path` (as in the log) and `deletion_vector` (the descriptor as JSON, or null).

    Raises
    ------
    InvalidMetadataError
        A deletion vector's file cannot be told.

    Examples
    --------
    >>> names_of_files(pl.DataFrame({"path": ["k/a%20b.parquet"], "deletion_vector": [None]}))
    {'a b.parquet'}
    """
    rows = files.select("path", "deletion_vector").iter_rows()
    return {found.name for path, vector in rows for found in _paths(path, parse_vector(vector))}


def names_removed_since(log: LogState, *, since_ms: int) -> set[str]:
    """Return the names of files that were removed at a time or later: readers of old versions need them.

    Parameters
    ----------
    log : LogState
        With the removes of its checkpoint.
    since_ms : int
        Milliseconds since 1970 UTC. A remove that does not say when counts as older.
    """
    removes = (one for part in (*log.checkpoint, *log.commits) for one in actions_of(part, "remove"))
    kept = (one for one in removes if (one.get("deletionTimestamp") or 0) >= since_ms)
    return {path.name for one in kept for path in _paths(one["path"], one.get("deletionVector"))}


def _paths(path: str, vector: Mapping[str, Any] | None) -> Iterator[FilePath]:
    yield FilePath.of_log(path)
    held = vector_path(vector or {})
    if held is not None:
        yield held
