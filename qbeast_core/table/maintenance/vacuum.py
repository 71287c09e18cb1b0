"""Delete data files that no version within the retention names: of old versions, and of interrupted writes.

Not left to `deltalake`: its vacuum spares the files of interrupted writes, or else (``full=True``, seen in 1.6.6)
also deletes deletion vectors that live files need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, cast

from qbeast_core.errors import InvalidInputError, changed_before, invalid_argument
from qbeast_core.io.stores.store import map_files
from qbeast_core.log.actions import CHANGE_FOLDER
from qbeast_core.log.files.deletion_vector import file_paths, parse_vector
from qbeast_core.log.files.live_files import NEVER_MS
from qbeast_core.log.files.replay import LogState, actions_of
from qbeast_core.log.properties import interval_hours
from qbeast_core.log.protocol import check_writable
from qbeast_core.results import Result
from qbeast_core.spec.file_path import FilePath
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.engine.tasks.added_rows import SUFFIX
from qbeast_core.table.snapshot.log_files import read_log
from qbeast_core.table.snapshot.snapshot import Snapshot, has_old_layout, read_live_files, refresh

_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = 168.0
_DATA_FILE: Final = re.compile(
    rf"[^_.][^/]*\.parquet(#\d+)?|deletion_vector_[0-9a-f-]{{36}}\.bin|[0-9a-f.-]{{73}}{re.escape(SUFFIX)}"
)
# What a local write leaves when it is killed before its file has a name.
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VacuumResult(Result):
    """Outcome of `Table.vacuum`; `deleted` says whether the files are gone.

    Attributes
    ----------
    version : int
        The newest version, whose files were spared.
    committed : bool
        Always False: a vacuum makes no version. `deleted` is what it does instead.
    dry_run : bool
        Whether the files are only listed.
    files : tuple of str
        Paths of the files, relative to the table, sorted.
    bytes : int
        Their length together.
    deleted : bool
        False after a dry run: the files are still there.
    retention_hours : float
        Files removed from the table, or written, more recently than this were spared.
    """

    committed: bool = field(default=False, repr=False)
    files: tuple[str, ...]
    bytes: int
    retention_hours: float

    derived: ClassVar[tuple[str, ...]] = ("deleted",)

    @property
    def deleted(self) -> bool:
        """Whether the files are gone: False after a dry run."""
        return not self.dry_run


def vacuum(
    snapshot: Snapshot, *, retention_hours: float | None, dry_run: bool, allow_short: bool, now_ms: int
) -> VacuumResult:
    """Delete what is not needed; see `Table.vacuum` for the options and errors."""
    hours = _retention(snapshot, retention_hours, allow_short=allow_short)
    store, oldest = snapshot.source.store, now_ms - int(hours * 3_600_000)
    old = [file for file in store.entries("") if file.modified_ms < oldest and is_data_file(file.path)]
    newest = refresh(snapshot)  # after the listing, so it has all commits until then
    check_writable(newest.protocol, newest.metadata, mode="metadata", path=newest.uri, brings="settings")
    log = read_log(newest.source.log, newest.version, actions=("remove",))
    needed = {path.name for path in _needed(newest, log, oldest)}
    gone = [file for file in old if file.path.rpartition("/")[2] not in needed]
    if not dry_run:
        with changed_before(lambda: None):  # those that came before the file that failed are gone
            map_files(store, store.delete, [file.path for file in gone])
    return VacuumResult(
        files=tuple(file.path for file in gone),
        bytes=sum(file.size for file in gone),
        version=newest.version,
        dry_run=dry_run,
        retention_hours=hours,
    )


def _needed(newest: Snapshot, log: LogState, oldest_ms: int) -> Iterator[FilePath]:
    """Yield the files that are live, or were at a time or later: readers of old versions need them."""
    for path, vector in newest.files.select("path", "deletion_vector").iter_rows():
        yield from file_paths(path, parse_vector(vector))
    if has_old_layout(newest):  # another replay of the log may have more live files
        for add in read_live_files(newest).unlisted:
            yield from file_paths(add.path, add.deletion_vector)
    for remove in (item for part in (*log.checkpoint, *log.commits) for item in actions_of(part, "remove")):
        if oldest_ms <= (remove.get("deletionTimestamp") or 0) < NEVER_MS:
            yield from file_paths(remove["path"], remove.get("deletionVector"))


def is_data_file(path: str) -> bool:
    """Return whether the name of a file below a table is one of a data file, in a folder that is not hidden.

    Files of the change data feed count too. Nothing but their age decides when they are deleted.
    """
    folder, _, name = path.removeprefix(f"{CHANGE_FOLDER}/").rpartition("/")
    if _TEMPORARY.fullmatch(name):
        return folder in ("", LOG_DIRECTORY)
    hidden = any(part.startswith(("_", ".")) for part in folder.split("/"))
    return not hidden and _DATA_FILE.fullmatch(name) is not None


def _retention(snapshot: Snapshot, requested: float | None, *, allow_short: bool) -> float:
    hours = interval_hours(snapshot.metadata.configuration.get(_RETENTION, ""))
    minimum = _WEEK if hours is None else hours
    if requested is None:
        return minimum
    value = cast("object", requested)  # callers without a type checker pass anything
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value < float("inf"):
        problem = "must be a number of hours, at least 0"
        invalid_argument("retention_hours", problem, value=value)
    if requested < minimum and not allow_short:
        msg = (
            f"retention_hours={requested:g} is less than the {minimum:g} hours that {snapshot.uri!r} keeps files: "
            "readers of older versions, and writers at work right now, could lose theirs. Pass "
            "allow_short_retention=True only if there are none."
        )
        raise InvalidInputError(msg, argument="retention_hours")
    return requested
