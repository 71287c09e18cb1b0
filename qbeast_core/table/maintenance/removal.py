"""Delete files that no version needs, and whole tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final, cast

from qbeast_core.errors import InvalidInputError, TableNotFoundError, changed_before, invalid_argument
from qbeast_core.io.address import refuse_link_out
from qbeast_core.io.location import Location
from qbeast_core.io.store import Entry, Store, map_files
from qbeast_core.log.actions import CHANGE_FOLDER
from qbeast_core.log.deletion_vectors import file_paths, parse_vector
from qbeast_core.log.protocol import check_writable, interval_hours
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.log.values import NEVER_MS
from qbeast_core.results import Result
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.data.schema import LOG_DIRECTORY
from qbeast_core.table.engine.row_change import SUFFIX
from qbeast_core.table.snapshot.log_files import read_log
from qbeast_core.table.snapshot.snapshot import Snapshot, has_old_layout, read_live_files, refresh

_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = 168.0
_DATA_FILE: Final = re.compile(
    rf"[^_.][^/]*\.parquet(#\d+)?|deletion_vector_[0-9a-f-]{{36}}\.bin|[0-9a-f.-]{{73}}{re.escape(SUFFIX)}"
)
_CHECKSUM: Final = re.compile(r"\.(.+)\.crc")
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
    old = [file for file in store.entries("") if file.modified_ms < oldest and _is_data_file(file.path)]
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
    for path, vector in newest.logged_files.select("path", "deletion_vector").iter_rows():
        yield from file_paths(path, parse_vector(vector))
    if has_old_layout(newest):  # another replay of the log may have more live files
        for add in read_live_files(newest).unlisted:
            yield from file_paths(add.path, add.deletion_vector)
    for remove in (item for part in (*log.checkpoint, *log.commits) for item in actions_of(part, "remove")):
        if oldest_ms <= (remove.get("deletionTimestamp") or 0) < NEVER_MS:
            yield from file_paths(remove["path"], remove.get("deletionVector"))


def _is_data_file(path: str) -> bool:
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


_VERSION: Final = re.compile(rf"{LOG_DIRECTORY}/(\d{{20}})\.(?:json|checkpoint\..*)")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DropResult(Result):
    """Outcome of `qbeast.drop_table`.

    Attributes
    ----------
    version : int
        Newest version of the table.
    committed : bool
        Always False: the table does not exist any more.
    files : tuple of str
        Paths of the deleted files, relative to the table, sorted.
    bytes : int
        Size of the deleted files.
    kept : tuple of str
        Paths of other files in the folder, which stay, sorted.
    """

    committed: bool = field(default=False, repr=False)
    files: tuple[str, ...]
    bytes: int
    kept: tuple[str, ...] = ()


def drop(location: Location, *, confirm: bool, dry_run: bool = False) -> DropResult:
    """Delete a table; see `qbeast.drop_table`."""
    store = location.store
    version = newest_version(store)
    if version is None:
        message = f"there is no Delta table at {store.uri}"
        raise TableNotFoundError(message, path=store.uri)
    if not dry_run and cast("object", confirm) is not True:
        problem = "must be True: dropping a table cannot be undone"
        invalid_argument("confirm", problem, value=confirm)
    if store.local_root is not None:
        refuse_link_out(store.uri, LOG_DIRECTORY)
    entries = store.entries("")
    own = list(_own(entries))
    deleted = {entry.path for entry in own}
    result = DropResult(
        version=version,
        dry_run=dry_run,
        files=tuple(entry.path for entry in own),
        bytes=sum(entry.size for entry in own),
        kept=tuple(entry.path for entry in entries if entry.path not in deleted),
    )
    if dry_run:
        return result
    with changed_before(lambda: None):
        for is_log in (False, True):  # the log goes last: it lists the other files
            map_files(store, store.delete, [entry.path for entry in own if _is_log(entry.path) is is_log])
    if store.local_root is not None:
        _remove_empty_folders(store.local_root, own)
    return result


def newest_version(store: Store) -> int | None:
    """Return the newest version that the log of a Delta table names; None: there is no table."""
    with suppress(FileNotFoundError, NotADirectoryError):
        matches = map(_VERSION.fullmatch, store.list(LOG_DIRECTORY))
        return max((int(match[1]) for match in matches if match is not None), default=None)
    return None


def _own(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the files of the table: not those of tables in folders below it."""
    split = (item.path.partition(f"/{LOG_DIRECTORY}/") for item in entries)
    inner = {folder for folder, separator, _ in split if separator}
    for item in entries:
        in_table = any(str(folder) in inner for folder in PurePosixPath(item.path).parents)
        if _is_log(item.path) or (not in_table and _is_data_file(_checked_by(item.path))):
            yield item


def _checked_by(path: str) -> str:
    """Return the file of a checksum that Hadoop wrote beside it, else the path.

    >>> _checked_by("k/.a.parquet.crc"), _checked_by("k/a.parquet")
    ('k/a.parquet', 'k/a.parquet')
    """
    folder, slash, name = path.rpartition("/")
    checksum = _CHECKSUM.fullmatch(name)
    return path if checksum is None else f"{folder}{slash}{checksum[1]}"


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def _remove_empty_folders(root: Path, deleted: Sequence[Entry]) -> None:
    """Remove empty folders of deleted files, and the folder of the table if it is empty."""
    folders = {folder for item in deleted for folder in PurePosixPath(item.path).parents}
    for folder in sorted(folders, key=lambda item: len(item.parts), reverse=True):
        with suppress(OSError):  # it has entries, or is a link
            (root / folder).rmdir()
