"""Read tables with `deltalake`, and translate its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import orjson
import polars as pl

from qbeast_core.errors import (
    InvalidMetadataError,
    QbeastError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
    shown_cause,
)
from qbeast_core.io.location import Location
from qbeast_core.io.pages import PageReader
from qbeast_core.io.store import Store, entries_of, is_folder, reason_of_failure
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.commits import version_of_commits
from qbeast_core.log.protocol import NAMED_READER, NAMED_WRITER, check_readable, cure_of
from qbeast_core.log.replay import LogState, contradictions
from qbeast_core.support.process import FORKED
from qbeast_core.support.text import MAX_QUOTED, for_people, write_call
from qbeast_core.table.data.schema import LOG_DIRECTORY, found_instead, log_instead
from qbeast_core.table.snapshot.log_files import (
    LAST_CHECKPOINT,
    SIDECARS,
    CheckpointHint,
    LogCopy,
    LogFiles,
    checkpoint_faults,
    commit_path,
    copy_log,
    short_log,
    sound_copies,
    text_rewriter,
    version_at,
    version_of,
    warn_of_faults,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STATS: Final = ("min", "max", "null_count")
_NOTHING: Final = pl.Struct([])

_STORE: Final = re.compile(r"(?i)Generic (?:S3|GCS|\w*Azure|HTTP)|error sending request|credential|denied")
_UNSUPPORTED: Final = re.compile(r"(?i)unsupported|not supported|catalog-managed|column mapping|variant")
_FEATURE: Final = re.compile(r"[Ff]eature '?(\w+)")
_SHAPES: Final = re.compile(r"(?i)\b(?:geometry|geography)\b")
_CATALOG: Final = re.compile(r"catalog-managed|max catalog version", re.IGNORECASE)
_PROTOCOL: Final = re.compile(r"Invalid protocol action in the delta log: (.*)", re.DOTALL)
_GAP: Final = re.compile(
    r"found gap: .*?/0*(\d+)\.(?:json|checkpoint).*? -> .*?/0*(\d+)\.json"
    r"|Gap between checkpoint version (\d+) and next commit (\d+)",
    re.DOTALL,
)
_NO_BEGINNING: Final = re.compile(r"No (?:table metadata|protocol|table metadata or protocol) found in delta")
_SIDECARS: Final = "v2Checkpoint"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OTHER_TEXT: Final = "Failed to parse value"
# A protocol that neither qbeast nor deltalake can read, to advise another engine.
_FUTURE: Final = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("unknown",))


@dataclass(frozen=True, slots=True, eq=False)
class DeltaVersion:
    """The parts of a version that are read with `deltalake`."""

    version: int
    # Live files: `path` (as in the log), `size_bytes`, `modification_time` (ms), `num_records`, and the typed structs
    # `min`, `max` and `null_count`.
    files: pl.DataFrame
    metadata: Metadata
    protocol: Protocol
    # Whether the files have their tags, see `files_with_tags`.
    is_tagged: bool = False


@dataclass(frozen=True, eq=False)  # no slots: the page reader is cached
class DeltaSource:
    """A table of `deltalake`. Snapshots refreshed from each other share it. Safe to share between threads."""

    location: Location
    # None: the table is opened when it is used.
    opened: DeltaTable | None = None
    copy: LogCopy | None = None
    lock: Lock = field(default_factory=Lock)

    @property
    def store(self) -> Store:
        """Store of the table."""
        return self.location.store

    @cached_property
    def table(self) -> DeltaTable:
        """The table, at its newest version when it was opened."""
        if self.opened is not None:
            return self.opened
        return _open_newest(self.location) if self._read is None else _open(self._read.path)

    @cached_property
    def _read(self) -> LogCopy | None:
        """The copy of the log that `deltalake` reads, instead of the store of the table.

        `deltalake` cannot request credentials of a catalog again, and has no option for those of Google.
        """
        if self.copy is not None or not self.location.is_lent:
            return self.copy
        return next(sound_copies(self.store, None), None)

    @cached_property
    def pages(self) -> PageReader:
        """Reader of pages. It caches the page directories of data files, which never change."""
        return PageReader(self.store)

    @property
    def log(self) -> LogFiles:
        """The files of the log, at least up to the last requested version."""
        return self.store if self.copy is None else self.copy

    def newer_than(self, version: int) -> DeltaVersion | None:
        """Return the newest version. None: `version` is the newest."""
        if self._read is None:
            refuse_linked_log(self.store)
        else:
            with self.lock:
                self._read.update()
        try:
            with self._held() as table:
                return None if table.version() == version else _known(self.store.uri, table)
        except (InvalidMetadataError, StorageError, TableNotFoundError) as error:
            if self._read is None and not isinstance(error, InvalidMetadataError):
                raise
            raise FileNotFoundError(self.store.uri) from error  # open it again

    def transaction_version(self, app_id: str, *, version: int) -> int | None:
        """Return the transaction version of an application, at `version` or later. None: there is none."""
        with self._held(version) as table:
            return table.transaction_version(app_id)

    def checkpoint(self, version: int, *, files: int) -> None:
        """Write a checkpoint of the newest version, unless `deltalake` lists more than the `files` live files.

        Extra files were removed under another encoding of their path. A checkpoint would make them live again.
        """
        if self.location.is_lent:
            _write_checkpoint(self.location.store, version, files=files)
            return
        with self._held(version) as shared:
            table = shared if self.copy is None else _open_newest(self.location)
            if table.version() != version or len(table.file_uris()) <= files:
                table.create_checkpoint()

    @contextmanager
    def _held(self, version: int | None = None) -> Generator[DeltaTable]:
        """Lock the table and update it to `version` or later, by default to the newest one, or the newest in the copy.

        It does not see commits of this process by itself.
        """
        with self.lock, delta_errors(self.store.uri):
            if version is None or self.table.version() < version:
                if self._read is not None and version is not None:
                    self._read.update()
                self.table.update_incremental()
            yield self.table


def open_short(
    location: Location, *, version: int | None = None
) -> tuple[DeltaSource, DeltaVersion, LogState] | None:
    """Open a local table with a short log, by default its newest version. None: `open_delta` has to."""
    store = location.store
    log = None if store.local_root is None else short_log(store, store.local_root, version)
    return None if log is None else _short_version(DeltaSource(location), log)


def _short_version(source: DeltaSource, log: LogState) -> tuple[DeltaSource, DeltaVersion, LogState] | None:
    read = version_of_commits(log.commits)
    if read is None:
        return None
    metadata, protocol, files = read
    with suppress(QbeastError):  # `open_delta` raises it again
        check_readable(protocol, metadata, path=log.uri)
        return source, DeltaVersion(log.version, files, metadata, protocol, is_tagged=True), log
    return None


def open_delta(
    location: Location, *, version: int | None = None, hint: CheckpointHint | None = None
) -> tuple[DeltaSource, DeltaVersion]:
    """Open a table, by default its newest version. `hint` is the hint of its log, if it was read."""
    store = location.store
    root = store.local_root
    if root is not None and not is_folder(root / LOG_DIRECTORY):
        raise TableNotFoundError(log_instead(store.uri) or found_instead(store.uri, root), path=store.uri)
    refuse_linked_log(store)
    if version is None:
        copied = _copied(location, hint)
        if copied is not None:
            return copied
    if location.is_lent:
        return _open_without_broken(location, version, _unreadable(store, version))
    try:
        with delta_errors(store.uri):
            table = _open_newest(location) if version is None else _open_version(location, version)
            return DeltaSource(location, table), _known(store.uri, table)
    except (InvalidMetadataError, StorageError, VersionNotFoundError) as error:
        if isinstance(error, StorageError) and store.local_root is None:
            raise  # the store cannot be reached
        return _open_without_broken(location, version, error)


def _open_without_broken(
    location: Location, version: int | None, error: QbeastError
) -> tuple[DeltaSource, DeltaVersion]:
    """Open a log that `deltalake` cannot read, without its hint and broken checkpoints; raise `error` if that fails.

    Partition values whose text it does not parse are written in another way.
    """
    store, is_cut = location.store, isinstance(error, InvalidMetadataError)
    rewrite = text_rewriter(store, version) if _OTHER_TEXT in f"{error} {error.__cause__}" else None
    for copy in sound_copies(store, version, rewrite):
        is_cut = False
        with suppress(InvalidMetadataError, StorageError, TableNotFoundError):
            opened = open_copy(location, copy)
            warn_of_faults(store)
            return opened
    broken = (
        [fault for fault in checkpoint_faults(store) if fault.paths[0] != LAST_CHECKPOINT] if is_cut else []
    )
    if not broken:
        raise error
    message = (
        f"the Delta log of {store.uri} is damaged: {broken[0].paths[0]}: {broken[0].problem}. The commits before it "
        "are not there. Restore this file from a copy."
    )
    raise InvalidMetadataError(message) from error


def _unreadable(store: Store, version: int | None) -> QbeastError:
    """Return the error of a log of which no part can be read."""
    newest = max(map(version_of, store.list(LOG_DIRECTORY)), default=-1)
    if newest < 0:
        return TableNotFoundError(_not_found(store.uri, "its log has no version"), path=store.uri)
    if version is not None:
        return _no_version(store.uri, version, newest)
    return InvalidMetadataError(f"the Delta log of {store.uri} is damaged: no version can be read.")


def _write_checkpoint(store: Store, version: int, *, files: int) -> None:
    """Write a checkpoint of a version that `deltalake` makes of a copy of the log."""
    copy = next(sound_copies(store, version), None)
    if copy is None:
        raise FileNotFoundError(store.uri)
    with delta_errors(store.uri):
        table = _open(copy.path)
        if len(table.file_uris()) > files:
            return
        table.create_checkpoint()
    for path in (f"{LOG_DIRECTORY}/{version:020d}.checkpoint.parquet", LAST_CHECKPOINT):
        store.put(path, Path(copy.path, path).read_bytes())


def refuse_linked_log(store: Store) -> None:
    """Raise if symbolic links in the log lead out of the table: `deltalake` follows them."""
    root = store.local_root
    if root is None:
        return
    for folder in (LOG_DIRECTORY, f"{LOG_DIRECTORY}/{SIDECARS}"):
        store.locate(folder)
        with suppress(FileNotFoundError):
            for entry in entries_of(root / folder):
                if entry.is_symlink():
                    store.locate(f"{folder}/{entry.name}")


@contextmanager
def delta_errors(uri: str) -> Generator[None]:
    """Translate errors of `deltalake`, including panics of Rust, which are not an `Exception`."""
    try:
        yield
    except QbeastError:
        raise
    except BaseException as error:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - slow to load

        # The class of panics is not public, so it is matched by name.
        if (
            not isinstance(error, DeltaError | OSError | ValueError)
            and type(error).__name__ != "PanicException"
        ):
            raise
        raise _translated(uri, error) from shown_cause(error)


def open_copy(location: Location, copy: LogCopy) -> tuple[DeltaSource, DeltaVersion]:
    """Open the newest version in a copy of the log."""
    uri = location.store.uri
    with delta_errors(uri):
        table = _open(copy.path)
        return DeltaSource(location, table, copy), _known(uri, table)


def checkpoint_in(copy: LogCopy, version: int) -> pl.DataFrame:
    """Write a checkpoint of the newest version to a copy of the log, and return it."""
    with delta_errors(copy.uri):
        table = _open(copy.path)
        table.create_checkpoint()
        path = f"{copy.path}/{LOG_DIRECTORY}/{version:020d}.checkpoint.parquet"
        return pl.read_parquet(path, glob=False)


def version_in(folder: Path, uri: str) -> DeltaVersion:
    """Read the version in a folder with a log; `uri` is for messages."""
    with delta_errors(uri):
        return _known(uri, _open(str(folder)))


def _copied(location: Location, hint: CheckpointHint | None) -> tuple[DeltaSource, DeltaVersion] | None:
    """Open the newest version with a copy of its log. None: `deltalake` has to open it and raises its own errors."""
    store = location.store
    try:
        copy = copy_log(store, hint)
        if copy is None:
            return None
        log = short_log(copy, Path(copy.path), None)
        short = None if log is None else _short_version(DeltaSource(location, None, copy), log)
        if short is not None:
            return short[:2]
        source, known = open_copy(location, copy)
    except (InvalidMetadataError, StorageError, TableNotFoundError, OSError):
        return None
    if _SIDECARS in (known.protocol.reader_features or ()):
        return None  # the copy does not include sidecar files
    return source, known


def version_at_time(location: Location, timestamp: datetime) -> int:
    """Return the newest version that is not newer than a time, by the times that `Table.history` shows."""
    store = location.store
    try:
        number, oldest = version_at(store, (timestamp - _EPOCH) // timedelta(milliseconds=1))
    except StorageError:
        open_delta(location)  # its errors have more advice
        raise
    if number is not None:
        return number
    if oldest is None:
        open_delta(location)  # raises if there is no table
    its = (
        ""
        if oldest is None
        else f"; its oldest is {oldest[0]}, of {_EPOCH + timedelta(milliseconds=oldest[1])}"
    )
    problem = f"{store.uri} has no version as old as {timestamp.isoformat()}{its}"
    message = f"{problem}. Table.history() lists them."
    raise VersionNotFoundError(message, path=store.uri, version=timestamp)


def refuse_other_log(files: pl.DataFrame, log: LogState) -> None:
    """Raise if the store returned another log to `deltalake`, which takes an empty answer for an empty commit."""
    wrong = contradictions(files["path"].to_list(), log)
    if wrong:
        message = (
            f"the log of {log.uri} was read twice, and the store returned something else each time: file {wrong[0]!r} "
            "is part of the table only once. Try again."
        )
        raise StorageError(message, path=log.uri)


def _open(uri: str, options: Mapping[str, str] | None = None, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable  # noqa: PLC0415 - slow to load, and short logs are read without

    return DeltaTable(uri, version=version, storage_options=dict(options or {}) or None)


def _open_newest(location: Location) -> DeltaTable:
    return _open(location.uri, location.storage_options)


def _open_version(location: Location, version: int) -> DeltaTable:
    store = location.store
    newest: int | None = None
    cause: QbeastError | None = None
    if not _has_commit(store, version):  # deltalake would request each version up to it
        newest = _open_newest(location).version()
    if version >= 0 and (newest is None or version <= newest):
        try:
            with delta_errors(store.uri):
                return _open(store.uri, location.storage_options, version)
        except (InvalidMetadataError, StorageError) as error:
            cause = error
    if newest is None:  # raises if the table cannot be read at all
        newest = _open_newest(location).version()
    raise _no_version(store.uri, version, newest) from cause


def _no_version(uri: str, version: int, newest: int) -> VersionNotFoundError:
    message = f"{uri} has no version {version} that can be read; the newest is {newest}. Table.history() lists them."
    return VersionNotFoundError(message, path=uri, version=version)


def _has_commit(store: Store, version: int) -> bool:
    try:
        return version >= 0 and store.size(commit_path(version)) > 0
    except FileNotFoundError:
        return False


def _known(uri: str, table: DeltaTable) -> DeltaVersion:
    version, files = table.version(), pl.DataFrame(table.get_add_actions())
    # deltalake omits a kind of statistics if no column can have it.
    files = files.with_columns(pl.lit(None, _NOTHING).alias(name) for name in _STATS if name not in files)
    schema_string = _with_ordered_notes(table.schema().to_json())
    about, versions = table.metadata(), table.protocol()
    metadata = Metadata(
        id=str(about.id),
        name=about.name,
        description=about.description,
        schema_string=schema_string,
        partition_columns=tuple(about.partition_columns),
        configuration=about.configuration,
        created_time=about.created_time,
    )
    protocol = Protocol(
        min_reader_version=versions.min_reader_version,
        min_writer_version=versions.min_writer_version,
        reader_features=_sorted(
            versions.reader_features, has_list=versions.min_reader_version >= NAMED_READER
        ),
        writer_features=_sorted(
            versions.writer_features, has_list=versions.min_writer_version >= NAMED_WRITER
        ),
    )
    check_readable(protocol, metadata, path=uri)
    return DeltaVersion(version, files, metadata, protocol)


def _with_ordered_notes(schema_string: str) -> str:
    """Return a schema whose notes of fields are in the order of their names: deltalake's order is random.

    >>> _with_ordered_notes('{"name":"x","metadata":{"b":1,"a":2}}')
    '{"name":"x","metadata":{"a":2,"b":1}}'
    """
    if '"metadata":{"' not in schema_string:
        return schema_string
    return orjson.dumps(json.loads(schema_string, object_hook=_ordered)).decode()


def _ordered(part: dict[str, Any]) -> dict[str, Any]:
    notes = part.get("metadata")
    return {**part, "metadata": dict(sorted(notes.items()))} if isinstance(notes, dict) else part


def _sorted(features: Iterable[str] | None, *, has_list: bool) -> tuple[str, ...] | None:
    """Return names of features, None for versions without names. deltalake returns None for an empty list too."""
    return tuple(sorted(features or ())) if has_list else None


def _not_found(uri: str, reason: str) -> str:
    """Return the message that there is no table at an address, and how to create one."""
    return (
        log_instead(uri) or f"there is no Delta table at {uri}: {reason}. {write_call(uri)} would make one."
    )


def _translated(uri: str, error: BaseException) -> QbeastError:
    from deltalake.exceptions import TableNotFoundError as NoDeltaTableError  # noqa: PLC0415 - as above

    text = str(error).split("\n   0:", maxsplit=1)[0].strip()  # without the stack trace
    if isinstance(error, NoDeltaTableError):
        return TableNotFoundError(_not_found(uri, text), path=uri)
    damage = _damage(text)
    if damage is not None:
        return InvalidMetadataError(f"the Delta log of {uri} is damaged: {damage}.")
    cause = FORKED if "Forked process detected" in text else None
    if cause is None and "://" in uri:
        cause = reason_of_failure(text)
    if cause is not None:
        message = f"the log of {uri} cannot be read: {cause}."
        return StorageError(message, path=uri, argument="storage_options" if "`" in cause else None)
    unsupported = _unsupported(text, uri)
    if unsupported is not None:
        return unsupported
    if isinstance(error, OSError) or _STORE.search(text):
        short = " ".join(for_people(text).split())[:MAX_QUOTED]
        message = f"the log of {uri} cannot be read: {short}. Check the store and try again."
        return StorageError(message, path=uri)
    return InvalidMetadataError(f"the Delta log of {uri} is damaged: {text}.")


def _damage(text: str) -> str | None:
    """Return the damage of a log and the advice, from an error text of deltalake. None: the text is not known.

    >>> _damage("Invalid Checkpoint: Gap between checkpoint version 3 and next commit 5")[:71]
    'version 4 is missing: there is no _delta_log/00000000000000000004.json.'
    """
    gap = _GAP.search(text)
    if gap is not None:
        before, after = (int(number) for number in gap.groups() if number is not None)
        problem, them = f"versions {before + 1} to {after - 1} are missing", "them"
        if after - before == 2:
            problem, them = f"version {before + 1} is missing: there is no {commit_path(before + 1)}", "it"
        return f"{problem}. Restore {them} from a copy; until then version={before} can be opened"
    broken = _PROTOCOL.search(text)
    if broken is not None:
        return f"its protocol breaks the rules of Delta ({broken[1]}). Its writer has to repair it"
    if _NO_BEGINNING.search(text):
        return (
            f"its beginning is missing: neither {commit_path(0)} nor a checkpoint has the metadata of the table. "
            "Restore it from a copy"
        )
    return None


def _unsupported(text: str, path: str) -> UnsupportedTableError | None:
    """Return the error about an unsupported feature. None: the error text of deltalake is not about a feature."""
    if _CATALOG.search(text):
        return _refused(path, "a catalog manages it (catalogManaged)", "catalogManaged")
    if not _UNSUPPORTED.search(text):
        return None
    if _SHAPES.search(text):
        text = "Feature 'geospatial': columns of points and shapes"
    match = _FEATURE.search(text)
    reason = text if match is None else f"it uses {match[1]}, which neither qbeast nor deltalake supports"
    return _refused(path, reason, text if match is None else match[1])


def _refused(path: str, reason: str, feature: str) -> UnsupportedTableError:
    message = f"{path} cannot be read: {reason}. {cure_of([feature], _FUTURE, path)}"
    return UnsupportedTableError(message, path=path, feature=feature)
