"""Read a table as a stream: its files at the start, then those that each commit adds.

An offset is a place before a file. All files before it have been read, so a stream that begins again at an offset reads
each row once. Commits that only move rows, such as those of optimize, are passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError, UnsupportedTableError, invalid_argument
from qbeast_core.table.read.changes import (
    ChangeReader,
    ChangeTask,
    CommitChanges,
    change_reader,
    changes_of_commit,
    commits_between,
    read_commits,
)
from qbeast_core.table.snapshot.log_files import version_at, version_or_time
from qbeast_core.table.snapshot.snapshot import Snapshot, live_adds, load_snapshot, refresh

# Offsets in the checkpoint of a query: keys and whole numbers.
OffsetJson: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A place in a stream: before a file of a version. `initial` counts all files of the version, not its new ones."""

    version: int
    index: int = 0
    initial: int = 0

    @staticmethod
    def of(values: OffsetJson) -> Offset:
        """Return an offset from a checkpoint.

        >>> Offset.of(Offset(3, 7).json()) == Offset(3, 7)
        True
        """
        try:
            return Offset(*(int(values[name]) for name in Offset.__slots__))
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the checkpoint has an offset of another source: {dict(values)!r}. Begin with a new checkpoint."
            raise InvalidInputError(msg, argument="checkpointLocation") from error

    def json(self) -> dict[str, int]:
        """Return the offset for a checkpoint."""
        return {name: getattr(self, name) for name in Offset.__slots__}


# Versions whose lists of files are read and kept at once.
_CACHED_VERSIONS: Final = 200


@dataclass(eq=False, kw_only=True)  # no slots: derived values are cached
class TableStream:
    """The stream of a table, in the columns of the version at which it was opened."""

    snapshot: Snapshot
    # First version whose changes are read, or "latest". None: all rows of the newest version first.
    starting_version: int | str | None = None
    # The same, as a time.
    starting_time: str | None = None
    # Pass over commits that delete or update rows, with their new rows.
    skips_changes: bool = False
    # Pass over commits that only delete rows.
    ignores_deletes: bool = False
    # Return the rows of the change data feed, with its columns.
    reads_feed: bool = False
    _initial_files: list[CommitChanges] = field(default_factory=list[CommitChanges], init=False)
    _commits: dict[int, CommitChanges] = field(default_factory=dict[int, CommitChanges], init=False)

    @property
    def schema(self) -> pl.Schema:
        """Columns of the rows."""
        return self._reader.shown if self.reads_feed else self.snapshot.schema

    def first(self) -> Offset:
        """Return where a new stream begins."""
        newest, version = self._newest().version, self.starting_version
        if self.starting_time is not None:
            return Offset(version_since(self.snapshot, self.starting_time))
        if version is None:
            return Offset(newest, initial=1)
        if version == "latest":
            return Offset(newest + 1)
        number, _ = version_or_time(version, "startingVersion")
        if number is None or number > newest + 1:
            invalid_argument(
                "startingVersion", f'must be "latest" or a version up to {newest + 1}', value=version
            )
        return Offset(number)

    def end(self) -> Offset:
        """Return the place after the newest version."""
        return Offset(self._newest().version + 1)

    def latest(
        self,
        start: Offset,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
        until: Offset | None = None,
    ) -> Offset:
        """Return where a batch that begins at `start` ends; it has at least one file. None: no limit."""
        end = self.end() if until is None else min(until, self.end())
        if (max_files is None and max_bytes is None) or start >= end:
            return max(start, end)
        files, size_bytes = 0, 0
        for after, part in self._between(start, end):
            files, size_bytes = files + 1, size_bytes + part.size_bytes
            if files >= (max_files or math.inf) or size_bytes >= (max_bytes or math.inf):
                return after
        return end

    def tasks(self, start: Offset, end: Offset) -> list[ChangeTask]:
        """Return the files of a batch, to be read by workers."""
        if start >= end:
            return []
        self._refuse_other_schema()
        columns = tuple(self.schema)
        return [ChangeTask(self._reader, part, columns) for _, part in self._between(start, end)]

    @cached_property
    def _reader(self) -> ChangeReader:
        if self.reads_feed:
            return change_reader(self.snapshot)
        return ChangeReader(self.snapshot.data_files, self.snapshot.schema)

    def _newest(self) -> Snapshot:
        # Only the number is new: the columns stay those of the first version.
        return refresh(self.snapshot)

    def _refuse_other_schema(self) -> None:
        newest = self._newest()
        if newest.schema != self.snapshot.schema or newest.metadata.id != self.snapshot.metadata.id:
            msg = (
                f"the columns of {newest.uri!r} changed after the stream began. Start the query again: it continues "
                "from its checkpoint, with the new columns."
            )
            raise UnsupportedTableError(msg, path=newest.uri, feature="schema change in a stream")

    def _between(self, start: Offset, end: Offset) -> Iterator[tuple[Offset, CommitChanges]]:
        """Yield the files between two offsets, each with the offset after it."""
        place = start
        while place < end:
            parts, following = self._files_of(place), Offset(place.version + 1)
            for index in range(place.index, len(parts)):
                if Offset(place.version, index, place.initial) >= end:
                    return
                last = index + 1 == len(parts)
                yield following if last else Offset(place.version, index + 1, place.initial), parts[index]
            place = following

    def _files_of(self, place: Offset) -> list[CommitChanges]:
        """Return the files of a version in a fixed order."""
        version = place.version
        if place.initial:
            if not self._initial_files:
                self._initial_files = self._files_at(version)
            return self._initial_files
        if version not in self._commits:
            last = min(self._newest().version, version + _CACHED_VERSIONS)
            self._commits = {commit.version: commit for commit in self._read_commits(version, last)}
        commit = self._commits[version]
        return (commit if self.reads_feed else self._appended(commit)).split()

    def _files_at(self, version: int) -> list[CommitChanges]:
        snapshot = load_snapshot(self.snapshot.location, version=version)
        order = snapshot.files.with_row_index("file").sort("modification_time", "path")["file"].to_list()
        time_ms = snapshot.timestamp_ms
        return [
            CommitChanges(version=version, timestamp_ms=time_ms, operation=None, adds=(add,))
            for add in live_adds(snapshot, order)
        ]

    def _read_commits(self, first: int, last: int) -> list[CommitChanges]:
        """Return the changes of versions. Times are read for a feed only: they need the whole history."""
        newest = self._newest()
        if self.reads_feed:
            return commits_between(newest, first - 1, last)
        commits = read_commits(newest, first, last, cure="Begin a new stream with another checkpoint")
        return [changes_of_commit(commit) for commit in commits]

    def _appended(self, commit: CommitChanges) -> CommitChanges:
        """Return a commit that adds rows only; raise if it changes rows, and the options do not pass over it."""
        if not commit.removes:
            return commit
        replaces = bool(commit.adds)
        if self.skips_changes or (self.ignores_deletes and not replaces):
            return replace(commit, removes=(), adds=())
        what = "updates or replaces" if replaces else "deletes"
        cure = "skipChangeCommits" if replaces else "ignoreDeletes or skipChangeCommits"
        uri = self.snapshot.uri
        msg = (
            f"version {commit.version} of {uri!r} {what} rows, and a stream returns new rows only. Set the option "
            f"{cure} to true to pass over it, or read the changes: readChangeFeed."
        )
        raise UnsupportedTableError(msg, path=uri, feature="changed rows in a stream")


def version_since(snapshot: Snapshot, time: str) -> int:
    """Return the first version at or after a time; one more than the newest version if none is."""
    _, moment = version_or_time(time, "startingTimestamp")
    if not isinstance(moment, datetime):
        invalid_argument("startingTimestamp", "must be a time such as 2026-11-28 06:00:00", value=time)
    before, _ = version_at(snapshot.store, int(moment.timestamp() * 1000) - 1)
    return 0 if before is None else before + 1
