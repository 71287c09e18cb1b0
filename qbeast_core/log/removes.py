"""Live files as remove actions."""

from __future__ import annotations

import polars as pl

from qbeast_core.log.actions import AddFile, RemoveFile
from qbeast_core.log.deletion_vector import parse_vector

__all__ = ["remove_of", "removes_of"]


def removes_of(files: pl.DataFrame, *, data_change: bool) -> tuple[RemoveFile, ...]:
    """Return what takes files out of a table; the time is set when it is committed.

    Parameters
    ----------
    files : polars.DataFrame
        Columns `path` (as in the log), `size_bytes` and `deletion_vector` (the descriptor as JSON, or null),
        which the remove repeats: without it the file would stay live.
    data_change : bool
        False if the rows are added again by the same commit.

    Examples
    --------
    >>> files = pl.DataFrame({"path": ["a"], "size_bytes": [7], "deletion_vector": [None]})
    >>> removes_of(files, data_change=False)[0].size
    7
    """
    columns = files.select("path", "size_bytes", pl.col("deletion_vector").cast(pl.String))
    return tuple(
        RemoveFile(
            path=path,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values={},
            size=size,
            deletion_vector=parse_vector(vector),
        )
        for path, size, vector in columns.iter_rows()
    )


def remove_of(add: AddFile, *, data_change: bool) -> RemoveFile:
    """Return what takes back an add, of which it repeats all that Delta has a place for."""
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
    )
