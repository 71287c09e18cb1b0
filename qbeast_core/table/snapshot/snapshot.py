"""A table at one version: what `deltalake` says is live, with the index tags that it leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import polars as pl
from deltalake import DeltaTable

from qbeast_core.errors import (
    InvalidInputError,
    InvalidMetadataError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.live_files import LiveFiles, live_files
from qbeast_core.log.names import commit_path
from qbeast_core.log.protocol import check_readable
from qbeast_core.log.replay import TAG_COLUMNS, join_tags, newest_tags
from qbeast_core.log.schema import schema_from_delta
from qbeast_core.log.spellings import may_be_respelled
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.table_config import TableConfig
from qbeast_core.table.data.foreign_schema import visible_columns
from qbeast_core.table.snapshot.delta import delta_errors, open_delta
from qbeast_core.table.snapshot.log_files import (
    read_commit_info,
    read_state,
    read_tags,
    read_tags_since,
    read_taken_back,
)

__all__ = [
    "LogSource",
    "Snapshot",
    "files_for",
    "has_old_layout",
    "load_snapshot",
    "read_live_files",
    "refresh",
    "travel",
]


_STATS: Final = ("min", "max", "null_count")

_NOTHING: Final = pl.Struct([])

_Print: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class LogSource:
    """Where a snapshot came from; shared by the snapshots refreshed from it."""

    store: Store
    table: DeltaTable
    lock: Lock = field(default_factory=Lock)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Snapshot:
    """One version of a table, immutable.

    Attributes
    ----------
    uri : str
        The table, in the one form of its place (`qbeast_core.io.location.resolve_location`).
    version : int
        0 or more.
    timestamp_ms : int
        When the version was committed, milliseconds since 1970 UTC; 0 if the log does not say.
    metadata, protocol : Metadata, Protocol
        The newest of the version.
    config : TableConfig
        What the configuration says about the index.
    schema : pl.Schema
        The table's columns in Polars' types, but for one of the name that our files hide a column under.
    schema_json : str
        The same as Delta's ``schemaString``.
    files : pl.DataFrame
        One row per live file: `path` (as in the log, encoded), `size_bytes`, `modification_time` (ms),
        `num_records`, typed structs `min`, `max`, `null_count` (null where nothing is known), the tags
        `revision`, `blocks`, `layout`, `rules`, `keys` and, of layouts before 0.6.0, `state`, `cube`, `min_weight`,
        `max_weight`, `element_count`, all null where a file has none; `deletion_vector` (its descriptor as
        JSON) and `has_deletion_vector`. `num_records` counts deleted rows as well.
    storage_options : Mapping
        As they were given.
    """

    uri: str
    version: int
    timestamp_ms: int
    metadata: Metadata
    protocol: Protocol
    config: TableConfig
    schema: pl.Schema
    schema_json: str
    files: pl.DataFrame = field(repr=False)
    storage_options: Mapping[str, str] = field(repr=False)
    source: LogSource = field(repr=False)
    fingerprint: _Print | None = field(repr=False)

    @property
    def data_paths(self) -> list[str]:
        """Paths of the live files, decoded, in the order of `files`: relative to the table or absolute."""
        return [FilePath.of_log(path).text for path in self.files["path"].to_list()]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the table is and which version is meant; loading it opens the table again."""
        return _reopened, (self.uri, self.version, dict(self.storage_options), self.metadata.id)

    def transaction_version(self, app_id: str) -> int | None:
        """Return how far an application says the table has come; None: it never said.

        That of the newest version refreshed from this one, if there is one.
        """
        with self.source.lock, delta_errors(self.uri):
            return self.source.table.transaction_version(app_id)


def load_snapshot(
    uri: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Snapshot:
    """Load a table: the newest version, the one asked for, or the newest at a time.

    Parameters
    ----------
    uri : str or PathLike
        The table.
    version : int, optional
        0 or more.
    timestamp : datetime, optional
        With a time zone. The age of a version is that of its log file, or its in-commit timestamp.
    storage_options : Mapping, optional
        As `deltalake` takes them.
    allow_absolute_paths : bool, default False
        Read files that the log names by absolute paths too.

    Raises
    ------
    TableNotFoundError
        There is no Delta table.
    VersionNotFoundError
        There is no such version, or the table is younger than `timestamp`.
    UnsupportedTableError
        The table cannot be read right: a feature, a type or partitioning stands in the way.
    InvalidMetadataError
        The log or the index metadata is damaged.
    StorageError
        The store cannot be read.
    InvalidInputError
        Both `version` and `timestamp` are given, or a time without zone; or the place cannot be told.

    Examples
    --------
    >>> from deltalake import write_deltalake
    >>> write_deltalake("sales", pl.DataFrame({"price": [1.5, 2.5]}))
    >>> snapshot = load_snapshot("sales")
    >>> snapshot.version, snapshot.schema, snapshot.files["num_records"].to_list()
    (0, Schema([('price', Float64)]), [2])
    """
    if timestamp is not None and (version is not None or timestamp.tzinfo is None):
        message = "give a version or a timestamp with a time zone, not both; nothing was read"
        raise InvalidInputError(message, argument="timestamp")
    options = MappingProxyType(dict(storage_options or {}))
    store = open_store(uri, options, allow_absolute_paths=allow_absolute_paths)
    missing: FileNotFoundError | None = None
    for _ in range(2):  # once more if another process cleans the log at this moment
        table = open_delta(store, version=version, timestamp=timestamp, storage_options=options)
        live = _live(store.uri, table)
        try:
            live = _without_taken_back(store, live)
            tags = read_tags(store, version=live.version)
        except FileNotFoundError as error:
            missing = error
            continue
        snapshot = _joined(LogSource(store, table), live, tags, options)
        if timestamp is not None:
            _refuse_too_young(snapshot, timestamp)
        return snapshot
    message = f"a file of the log of {store.uri} is missing: {missing}. Nothing was changed."
    raise StorageError(message, path=store.uri) from missing


def _reopened(uri: str, version: int, storage_options: Mapping[str, str], table_id: str) -> Snapshot:
    """Load what was pickled: that version of that table."""
    snapshot = load_snapshot(uri, version=version, storage_options=storage_options)
    if snapshot.metadata.id != table_id:
        message = f"the table that was pickled is not at {uri} any more: another one stands there now"
        raise TableNotFoundError(message, path=uri)
    return snapshot


def refresh(snapshot: Snapshot) -> Snapshot:
    """Return the newest version of the table; `snapshot` itself if there is nothing new, which is cheap.

    Raises
    ------
    The same errors as `load_snapshot`.
    """
    source, options = snapshot.source, snapshot.storage_options
    if _fingerprint(source.store, snapshot.version) != snapshot.fingerprint:
        return _reload(snapshot)  # another table stands there now
    with source.lock, delta_errors(snapshot.uri):
        source.table.update_incremental()
        if source.table.version() == snapshot.version:
            return snapshot
        live = _live(snapshot.uri, source.table)
    try:
        live = _without_taken_back(source.store, live)
        added = read_tags_since(source.store, after=snapshot.version, version=live.version)
    except FileNotFoundError:
        return _reload(snapshot)
    return _joined(source, live, newest_tags([snapshot.files.select(TAG_COLUMNS), added]), options)


def _reload(snapshot: Snapshot) -> Snapshot:
    return load_snapshot(
        snapshot.uri,
        storage_options=snapshot.storage_options,
        allow_absolute_paths=snapshot.source.store.allow_absolute_paths,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Live:
    """What `deltalake` alone knows of a version."""

    version: int
    files: pl.DataFrame
    metadata: Metadata
    protocol: Protocol


def _live(uri: str, table: DeltaTable) -> _Live:
    with delta_errors(uri):
        version, files = table.version(), pl.DataFrame(table.get_add_actions())
        # A kind of statistics is missing where no column of the table can have it.
        files = files.with_columns(pl.lit(None, _NOTHING).alias(name) for name in _STATS if name not in files)
        schema_string, about, versions = table.schema().to_json(), table.metadata(), table.protocol()
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
        reader_features=_sorted(versions.reader_features),
        writer_features=_sorted(versions.writer_features),
    )
    check_readable(protocol, metadata, path=uri)
    return _Live(version, files, metadata, protocol)


def _without_taken_back(store: Store, live: _Live) -> _Live:
    """Leave out files that were removed under another spelling, which `deltalake` does not see."""
    if not may_be_respelled(live.files["path"]):
        return live
    gone = read_taken_back(store, live.files["path"].to_list(), version=live.version)
    return replace(live, files=live.files.filter(~pl.col("path").is_in(gone))) if gone else live


def _sorted(features: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if features is None else tuple(sorted(features))


def _joined(source: LogSource, live: _Live, tags: pl.DataFrame, options: Mapping[str, str]) -> Snapshot:
    info = read_commit_info(source.store, live.version)
    stamps = () if info is None else (info.in_commit_timestamp, info.timestamp)
    schema_string = live.metadata.schema_string
    return Snapshot(
        uri=source.store.uri,
        version=live.version,
        timestamp_ms=next((stamp for stamp in stamps if stamp is not None), 0),
        metadata=live.metadata,
        protocol=live.protocol,
        config=TableConfig.from_configuration(live.metadata.configuration),
        schema=visible_columns(schema_from_delta(schema_string, path=source.store.uri)),
        schema_json=schema_string,
        files=join_tags(live.files, tags),
        storage_options=options,
        source=source,
        fingerprint=_fingerprint(source.store, live.version),
    )


def _refuse_too_young(snapshot: Snapshot, timestamp: datetime) -> None:
    """Raise where `deltalake` gives the oldest version for want of an older one."""
    if snapshot.timestamp_ms <= timestamp.timestamp() * 1000:
        return
    oldest = snapshot.version == 0 or read_commit_info(snapshot.source.store, snapshot.version - 1) is None
    if oldest:
        when = timestamp.isoformat()
        message = f"{snapshot.uri} has no version as old as {when}; its oldest is {snapshot.version}"
        raise VersionNotFoundError(message, path=snapshot.uri, version=timestamp)


def _fingerprint(store: Store, version: int) -> _Print | None:
    """Identify a local commit: a table deleted and written again has the version too, but not this file."""
    if store.local_root is None:
        return None
    try:
        found = (store.local_root / commit_path(version)).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_live_files(snapshot: Snapshot) -> LiveFiles:
    """Return the files of a snapshot as the log has them, and those that only Spark takes for live.

    Raises
    ------
    InvalidMetadataError
        The log is damaged.
    StorageError
        A file of the log is gone: another process cleaned it up.
    """
    store = snapshot.source.store
    try:
        state = read_state(store, version=snapshot.version)
        return live_files(snapshot.files["path"].to_list(), state.checkpoint, state.commits)
    except FileNotFoundError as error:
        message = f"a file of the log of {store.uri} is missing: {error}. Nothing was changed; try again."
        raise StorageError(message, path=store.uri) from error
    except (ValueError, KeyError) as error:
        message = f"the log of {store.uri} is damaged: {error}. Nothing was changed."
        raise InvalidMetadataError(message) from error


def files_for(intent: WriteIntent, head: Snapshot | None) -> LiveFiles | None:
    """Return the whole files of the newest version where a change needs them; reading them costs."""
    if head is None:
        return None
    replaces_all = intent.mode == "overwrite" and has_old_layout(head)
    return read_live_files(head) if intent.files is not None or replaces_all else None


def has_old_layout(snapshot: Snapshot) -> bool:
    """Tell whether a table carries marks of the layout before 0.6.0 (format 11)."""
    return (
        bool(snapshot.config.replicated_sets) or snapshot.files["state"].null_count() < snapshot.files.height
    )


def travel(version: object) -> tuple[int | None, datetime | None]:
    """Tell a version number from a time; a time without zone is UTC.

    Parameters
    ----------
    version : int, datetime, str or None
        A number, a time, its ISO 8601 text, or None for the newest version.

    Raises
    ------
    InvalidInputError
        If it is none of these.

    Examples
    --------
    >>> travel(3), travel("2026-01-31")[1].isoformat()
    ((3, None), '2026-01-31T00:00:00+00:00')
    """
    match version:
        case None:
            return None, None
        case bool():
            pass
        case int() if version >= 0:
            return version, None
        case datetime():
            return None, _zoned(version)
        case str():
            try:
                return None, _zoned(datetime.fromisoformat(version))
            except ValueError:
                pass
        case _:
            pass
    msg = f"version must be a number of at least 0, a datetime or its ISO 8601 text, got {version!r}"
    raise InvalidInputError(msg, argument="version")


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
