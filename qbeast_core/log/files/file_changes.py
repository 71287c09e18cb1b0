"""Live files as whole add actions, and their changes in a commit: repeated or removed, with all fields kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.log.actions import AddFile, RemoveFile
from qbeast_core.log.columns.file_values import values_of_files
from qbeast_core.log.columns.stored import PLAIN, StoredColumns
from qbeast_core.log.files.deletion_vector import parse_vector
from qbeast_core.spec.blocks import BlocksDialect

# The time (the end of the year 9999) in the remove of a path whose file lives on under another encoding. A vacuum that
# compares texts would delete the file once the remove is old; this one never is.
NEVER_MS: Final = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one version."""

    # Every live file, as in its newest add.
    listed: tuple[AddFile, ...]
    # Files that their newest commit both removes and adds. Delta forbids such commits; Spark takes these
    # files for live, `deltalake` and this library do not (format 11).
    unlisted: tuple[AddFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What happens to the files of a version."""

    adds: tuple[AddFile, ...] = ()
    removed: tuple[AddFile, ...] = ()
    # Whether taking them back changes what the table holds.
    data_change: bool = False
    # Files whose adds come back under another encoding of their path.
    renamed: tuple[AddFile, ...] = ()


# What to do with the files that live when a commit lands, and the dialect of the table's blocks.
FileChangePlanner: TypeAlias = Callable[[LiveFiles, BlocksDialect], FileChange]


class LastChange:
    """A planner that keeps its newest change: a commit that loses a race plans again, and the last plan counts."""

    def __init__(self, plan: FileChangePlanner) -> None:
        self._plan = plan
        self.change = FileChange()

    def __call__(self, live: LiveFiles, dialect: BlocksDialect) -> FileChange:
        """Return the change of the plan."""
        self.change = self._plan(live, dialect)
        return self.change


def retag(live: LiveFiles, edit: Callable[[AddFile, bool], AddFile | None]) -> FileChange:
    """Return the change that replaces the adds of files, for other tags or another encoding of the path.

    >>> file = AddFile(path="a", size=1, modification_time=1, tags={"x": "1"})
    >>> change = retag(LiveFiles((file,)), lambda add, _: add.model_copy(update={"tags": None}))
    >>> [(add.path, add.tags, add.data_change) for add in change.adds], change.removed
    ([('a', None, False)], ())
    """
    edited = [(add, edit(add, True)) for add in live.listed]  # noqa: FBT003 -- a callback has no keywords
    edited += [(add, edit(add, False)) for add in live.unlisted]  # noqa: FBT003 -- the same
    adds = (new.model_copy(update={"data_change": False}) for old, new in edited if new not in (None, old))
    return FileChange(
        adds=tuple(adds),
        removed=tuple(old for old, new in edited if new is None),
        renamed=tuple(old for old, new in edited if new is not None and new.path != old.path),
    )


def removes_of(
    files: pl.DataFrame, columns: StoredColumns = PLAIN, *, data_change: bool
) -> tuple[RemoveFile, ...]:
    """Return the removes of files; the time is set when they are committed. `columns` are the columns of the table.

    >>> files = pl.DataFrame({"path": ["a"], "size_bytes": [7], "deletion_vector": [None], "base_row_id": [3],
    ...     "default_row_commit_version": [1]})
    >>> removes_of(files, data_change=False)[0].size
    7
    """
    ids = ("base_row_id", "default_row_commit_version")
    listed = files.select("path", "size_bytes", pl.col("deletion_vector").cast(pl.String), *ids)
    return tuple(
        RemoveFile(
            path=path,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=values,
            size=size,
            deletion_vector=parse_vector(vector),
            base_row_id=base_row_id,
            default_row_commit_version=version,
        )
        for (path, size, vector, base_row_id, version), values in zip(
            listed.iter_rows(), values_of_files(files, columns), strict=True
        )
    )


def remove_of(add: AddFile, *, data_change: bool) -> RemoveFile:
    """Return the remove of an add; it repeats every field that Delta has for it."""
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )
