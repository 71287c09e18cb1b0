"""Older versions: restore one, delete the files that no version needs, drop the table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final, cast

import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    NotQbeastTableError,
    TableNotFoundError,
    VersionNotFoundError,
    changed_before,
    invalid_argument,
)
from qbeast_core.io.address import refuse_link_out
from qbeast_core.io.footer import stored_size
from qbeast_core.io.location import Location
from qbeast_core.io.store import Entry, Store, map_files
from qbeast_core.log.actions import CHANGE_FOLDER, AddFile, Metadata, parse_commit
from qbeast_core.log.columns import with_max_id
from qbeast_core.log.deletion_vectors import FileKey, file_key, file_paths, parse_vector
from qbeast_core.log.protocol import interval_hours
from qbeast_core.log.replay import LogState, actions_of
from qbeast_core.log.rules import identity_columns, keeping_high_water_marks
from qbeast_core.log.values import NEVER_MS, FileChange, LastChange, LiveFiles
from qbeast_core.results import Result
from qbeast_core.spec.blocks import FilePath
from qbeast_core.spec.table_config import HIGHEST_REVISION_ID
from qbeast_core.table.commit import commit_metadata
from qbeast_core.table.data.schema import LOG_DIRECTORY
from qbeast_core.table.engine.row_change import SUFFIX
from qbeast_core.table.snapshot.log_files import read_log
from qbeast_core.table.snapshot.snapshot import Snapshot, has_old_layout, log_of, read_live_files, refresh

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
    newest.check_writable("metadata", brings="settings")
    log = log_of(newest, ("remove",))
    names = pl.Series([file.path.rpartition("/")[2] for file in old], dtype=pl.String)
    gone = list(compress(old, ~names.is_in(_needed(newest, log, oldest).implode())))
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


def _needed(newest: Snapshot, log: LogState, oldest_ms: int) -> pl.Series:
    """Return the names of the files that are live, or were at a time or later: readers of old versions need them."""
    logged = newest.with_copies.light(["path", "deletion_vector"])
    is_plain = pl.col("deletion_vector").is_null() & ~pl.col("path").str.contains("%", literal=True)
    plain, others = logged.filter(is_plain)["path"], logged.filter(~is_plain)
    paths = chain(
        *(file_paths(path, parse_vector(vector)) for path, vector in others.iter_rows()),
        _needed_in_log(newest, log, oldest_ms),
    )
    names = pl.Series([path.name for path in paths], dtype=pl.String)
    return pl.concat([plain.str.extract(r"([^/]*)$"), names])


def _needed_in_log(newest: Snapshot, log: LogState, oldest_ms: int) -> Iterator[FilePath]:
    """Yield the files that only the log names: those removed since a time, and those of another replay."""
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
    if not dry_run:
        location.refuse_changes()
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


_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreResult(Result):
    """Outcome of `Table.restore`.

    Attributes
    ----------
    version : int
        The new version; the present one after a dry run, or if the table was in this state already.
    restored_version : int
        The version that was restored.
    committed : bool
        Whether it made a version.
    dry_run : bool
        Whether the counts are only planned.
    files_added, files_removed : int
        Files that came back, and files that were removed.
    """

    restored_version: int
    files_added: int
    files_removed: int


def restore(newest: Snapshot, old: Snapshot, *, dry_run: bool) -> tuple[RestoreResult, Snapshot | None]:
    """Restore a version; see `Table.restore` for the promises and errors."""
    config = old.config
    if newest.config.is_indexed and not (config.is_indexed or config.is_left_unindexed):
        msg = f"version {old.version} of {newest.uri!r} has no Qbeast index. Restore a later one."
        raise NotQbeastTableError(msg, path=newest.uri)
    newest.check_writable("overwrite")
    wanted = read_live_files(old).listed
    _refuse_missing(newest, old, wanted)
    plan = LastChange(lambda live, _: _plan(live, wanted))
    outcome = commit_metadata(
        newest,
        _metadata(newest, old),
        "rows",
        operation="RESTORE",
        parameters={"version": str(old.version)},
        files=plan,
        dry_run=dry_run,
    )
    result = RestoreResult(
        version=outcome.version,
        committed=outcome.committed,
        restored_version=old.version,
        dry_run=dry_run,
        files_added=len(plan.change.adds),
        files_removed=len(plan.change.removed),
    )
    return result, outcome.snapshot


def _plan(live: LiveFiles, wanted: tuple[AddFile, ...]) -> FileChange:
    """Return the change from the live files to the wanted ones."""
    now = {_key(add): add.model_copy(update={"data_change": True}) for add in live.listed}
    # A live file keeps the text of its path; another one gets the text that Spark's VACUUM keeps.
    paths = {key: now[key].path if key in now else FilePath(key[0]).encoded for key in map(_key, wanted)}
    by_key = {
        _key(add): add.model_copy(update={"data_change": True, "path": paths[_key(add)]}) for add in wanted
    }
    # The same file with other tags is not a change of rows.
    changed = [(add, key not in now) for key, add in by_key.items() if now.get(key) != add]
    return FileChange(
        adds=tuple(add.model_copy(update={"data_change": is_new}) for add, is_new in changed),
        removed=tuple(add for add in (*live.listed, *live.unlisted) if _key(add) not in by_key),
        data_change=True,
        renamed=tuple(add for add in wanted if _key(add) not in now and add.path != paths[_key(add)]),
    )


def _metadata(newest: Snapshot, old: Snapshot) -> Metadata:
    """Return the old metadata with the highest ids and identity values used since, so that none is used twice."""
    config = old.config
    highest = newest.config.highest_revision_id
    if highest > config.highest_revision_id:
        config = config.with_entries({HIGHEST_REVISION_ID: str(highest)})
    update = {
        "id": newest.metadata.id,
        "configuration": config.to_configuration(),
        "schema_string": keeping_high_water_marks(old.schema_json, _schemas_since(newest, old)),
    }
    return with_max_id(old.metadata.model_copy(update=update), newest.metadata)


def _schemas_since(newest: Snapshot, old: Snapshot) -> list[str]:
    """Return the schemas that may have marks of the identity columns of an old version, oldest first."""
    if identity_columns(old.schema_json) <= identity_columns(newest.schema_json):
        return [newest.schema_json]
    # A column was dropped meanwhile: only the commits before have its mark.
    try:
        commits = read_log(newest.source.store, newest.version, after=old.version).commits
    except FileNotFoundError as error:
        msg = (
            f"version {old.version} of {newest.uri!r} cannot be restored: it has identity columns that were dropped "
            f"since, and the last numbers of these are in commits that are gone ({error})."
        )
        raise VersionNotFoundError(msg, path=newest.uri, version=old.version) from error
    changes = (parse_commit(body, version=0).metadata for body in commits if b'"metaData"' in body)
    return [change.schema_string for change in changes if change is not None]


def _key(add: AddFile) -> FileKey:
    return file_key(add.path, add.deletion_vector)


def _refuse_missing(newest: Snapshot, old: Snapshot, wanted: tuple[AddFile, ...]) -> None:
    """Raise if a vacuum has deleted a file of the old version."""
    named = {path for add in wanted for path in file_paths(add.path, add.deletion_vector)}
    named -= {FilePath(path) for path in newest.data_paths}
    inside = sorted(path.text for path in named if path.kind == "inside")
    store = newest.source.store
    sizes = map_files(store, partial(stored_size, store), inside)
    missing = [path for path, size in zip(inside, sizes, strict=True) if size is None]
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        msg = (
            f"version {old.version} of {newest.uri!r} cannot be restored: {len(missing)} of its files are gone "
            f"({shown} ...), a vacuum took them; restore a later version."
        )
        raise VersionNotFoundError(msg, path=newest.uri, version=old.version)
