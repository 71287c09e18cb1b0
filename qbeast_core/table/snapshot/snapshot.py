"""A table at one version: what `deltalake` says is live, with the index tags that it leaves out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import polars as pl

from qbeast_core.errors import (
    InvalidInputError,
    QbeastError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from qbeast_core.io.stores.location import resolve_location
from qbeast_core.io.stores.store import checked_options, open_store
from qbeast_core.log.actions import CommitInfo, Metadata, Protocol
from qbeast_core.log.files.live_files import LiveFiles
from qbeast_core.log.files.replay import LogState, files_with_tags, needs_removes, whole_files
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.schema import schema_from_delta
from qbeast_core.query.index.build import build_index_table
from qbeast_core.query.index.index_table import IndexTable
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.table_config import TableConfig
from qbeast_core.support.forked import refuse_forked
from qbeast_core.support.logs import LOG
from qbeast_core.table.data.foreign_schema import visible_columns
from qbeast_core.table.snapshot.deletion_vectors import deleted_rows
from qbeast_core.table.snapshot.delta import DeltaSource, DeltaVersion, open_delta
from qbeast_core.table.snapshot.log_files import commit_path, fingerprint, read_commit_info, read_log
from qbeast_core.table.snapshot.lru_cache import LruCache

# Address, whether absolute paths are read, and storage options.
_Place: TypeAlias = tuple[str, bool, tuple[tuple[str, str], ...]]

_CACHED_TABLES: Final = 8

_TIMES_THE_FILES: Final = 4


@dataclass(frozen=True, eq=False, kw_only=True)  # no slots: derived values are cached
class Snapshot:
    """One version of a table, immutable. All reads of it share what was derived from it."""

    # The table, in the one form of its place (`qbeast_core.io.stores.location.resolve_location`).
    uri: str
    version: int
    # When the version was committed, milliseconds since 1970 UTC; 0 if the log does not say.
    timestamp_ms: int
    metadata: Metadata
    protocol: Protocol
    # What the configuration says about the index.
    config: TableConfig
    # The table's columns in Polars' types, but for one of the name that our files hide a column under.
    schema: pl.Schema
    schema_json: str
    # One row per live file: `path` (as in the log, encoded), `size_bytes`, `modification_time` (ms),
    # `num_records`, typed structs `min`, `max`, `null_count` (null where nothing is known), the tags
    # `revision`, `blocks`, `layout`, `rules`, `keys` and, of layouts before 0.6.0, `state`, `cube`,
    # `min_weight`, `max_weight`, `element_count`, all null where a file has none; `deletion_vector` (its
    # descriptor as JSON) and `has_deletion_vector`. `num_records` counts deleted rows as well.
    files: pl.DataFrame = field(repr=False)
    storage_options: Mapping[str, str] = field(repr=False)
    source: DeltaSource = field(repr=False)
    fingerprint: tuple[int, int, int] | None = field(repr=False)
    # The index, where an append of ours extended the index of the version before. `replace` does not copy it.
    known_index: InitVar[IndexTable | None] = None

    def __post_init__(self, known_index: IndexTable | None) -> None:
        """Cache an index that is known already."""
        if known_index is not None:
            self.__dict__["index"] = known_index

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the version: its files, as `deltalake` holds them too, its index and file tails."""
        of_index = 0 if self.decoded_index is None else self.decoded_index.size_bytes
        return int(self.files.estimated_size()) * _TIMES_THE_FILES + of_index + self.source.pages.size_bytes

    @cached_property
    def index(self) -> IndexTable:
        """The blocks of all live files."""
        return build_index_table(self.files, self.config.revisions, self.schema)

    @property
    def decoded_index(self) -> IndexTable | None:
        """The index; None if the tags are not decoded yet."""
        return self.index if "index" in self.__dict__ else None

    @cached_property
    def deleted_rows(self) -> dict[int, I64Array]:
        """Per file number the rows that a deletion vector hides, counted from 0 in the file."""
        return deleted_rows(self)

    @cached_property
    def data_paths(self) -> list[str]:
        """Paths of the live files, decoded, in the order of `files`: relative to the table or absolute."""
        return [FilePath.of_log(path).text for path in self.files["path"].to_list()]

    @property
    def counted_rows(self) -> int:
        """Rows of the live files, as far as the log counts them; those that deletion vectors hide are counted too."""
        return int(self.files["num_records"].fill_null(0).sum())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the table is and which version is meant; loading it opens the table again."""
        return _reopened, (self.uri, self.version, dict(self.storage_options), self.metadata.id)

    def transaction_version(self, app_id: str) -> int | None:
        """Return how far an application says the table has come; None: it never said.

        That of the newest version refreshed from this one, if there is one.
        """
        return self.source.transaction_version(app_id, version=self.version)


# The newest versions seen of the local tables used last, with all that reads derived from them.
_NEWEST: Final = LruCache[_Place, Snapshot](_CACHED_TABLES, lambda snapshot: snapshot.size_bytes)


def load_snapshot(
    uri: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Snapshot:
    """Load a table: the newest version, the one asked for, or the newest at a time.

    >>> from deltalake import write_deltalake
    >>> write_deltalake("sales", pl.DataFrame({"price": [1.5, 2.5]}))
    >>> snapshot = load_snapshot("sales")
    >>> snapshot.version, snapshot.schema, snapshot.files["num_records"].to_list()
    (0, Schema([('price', Float64)]), [2])
    """
    if timestamp is not None and (version is not None or timestamp.tzinfo is None):
        message = "give a version or a timestamp with a time zone, not both; nothing was read"
        raise InvalidInputError(message, argument="timestamp")
    refuse_forked(str(uri))
    options = MappingProxyType(checked_options(storage_options))
    store = open_store(uri, options, allow_absolute_paths=allow_absolute_paths)
    missing: FileNotFoundError | None = None
    for _ in range(2):  # once more if another process cleans the log at this moment
        source, known = open_delta(store, version=version, timestamp=timestamp, storage_options=options)
        try:
            log = read_log(
                source.log, known.version, actions=("add", *["remove"] * needs_removes(known.files))
            )
        except FileNotFoundError as error:
            missing = error
            continue
        snapshot = _snapshot(source, known, log)
        if timestamp is not None:
            _refuse_too_young(snapshot, timestamp)
        elif version is None:
            keep(snapshot)
        return snapshot
    message = f"a file of the log of {store.uri} is missing: {missing}. Nothing was changed."
    raise StorageError(message, path=store.uri) from missing


def newest_snapshot(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    allow_absolute_paths: bool = False,
) -> Snapshot:
    """Return the newest version of a table, from memory as far as it is there.

    The local tables used last stay in memory, as far as they take little of it (`CACHE_SHARE`): log, blocks and
    the tails of files that were read. The log is checked every time, so a new version, or another table in the same
    place, is seen at once. Tables in object stores are always loaded: no cheap request shows that one was replaced.
    """
    refuse_forked(str(uri))
    options = checked_options(storage_options)
    cached = _NEWEST.get((resolve_location(uri), allow_absolute_paths, tuple(sorted(options.items()))))
    if cached is not None:
        with suppress(QbeastError, OSError):  # it is gone or damaged: loading says what is wrong
            return refresh(cached)
    return load_snapshot(uri, storage_options=options, allow_absolute_paths=allow_absolute_paths)


def _reopened(uri: str, version: int, storage_options: Mapping[str, str], table_id: str) -> Snapshot:
    """Load what was pickled: that version of that table."""
    snapshot = load_snapshot(uri, version=version, storage_options=storage_options)
    if snapshot.metadata.id != table_id:
        message = f"the table that was pickled is not at {uri} any more: another one stands there now"
        raise TableNotFoundError(message, path=uri)
    return snapshot


def refresh(snapshot: Snapshot) -> Snapshot:
    """Return the newest version of the table; `snapshot` itself if there is nothing new, which is cheap."""
    return follow(snapshot)[0]


def follow(snapshot: Snapshot) -> tuple[Snapshot, LogState | None]:
    """Return the newest version as `refresh` does, and the commits since, where they were read."""
    refuse_forked(snapshot.uri)
    known = _known_since(snapshot) or snapshot
    if known is not snapshot or _stands(snapshot):
        with suppress(FileNotFoundError):  # a commit that was cleaned up
            newer = None if _is_newest(known) else known.source.newer_than(known.version)
            if newer is None:
                return known, None
            log = read_log(known.source.log, newer.version, after=known.version)
            newest = _snapshot(known.source, newer, log, before=known)
            keep(newest)
            return newest, log if known is snapshot else None
    absolute = snapshot.source.store.allow_absolute_paths  # perhaps another table stands there now
    options = snapshot.storage_options
    return load_snapshot(snapshot.uri, storage_options=options, allow_absolute_paths=absolute), None


def _known_since(snapshot: Snapshot) -> Snapshot | None:
    """Return a later version of the same table that is in memory; None: none is, or another table stands there."""
    kept = _NEWEST.get(_place(snapshot))
    if kept is None or kept.metadata.id != snapshot.metadata.id or kept.version <= snapshot.version:
        return None
    return kept if _stands(kept) else None


def _stands(snapshot: Snapshot) -> bool:
    """Return whether this table still has the version, as far as files of a folder show."""
    return fingerprint(snapshot.source.store, snapshot.version) == snapshot.fingerprint


def _is_newest(snapshot: Snapshot) -> bool:
    """Return whether a table in a folder has no next version yet; False where that is not certain."""
    root = snapshot.source.store.local_root
    if root is None or snapshot.fingerprint is None:
        return False
    return not (root / commit_path(snapshot.version + 1)).exists()


def _place(snapshot: Snapshot) -> _Place:
    options = tuple(sorted(snapshot.storage_options.items()))
    return snapshot.uri, snapshot.source.store.allow_absolute_paths, options


def keep(snapshot: Snapshot) -> None:
    """Cache the newest version of a table in a folder."""
    if snapshot.source.store.local_root is not None:
        _NEWEST.put(_place(snapshot), snapshot)


def _snapshot(
    source: DeltaSource, known: DeltaVersion, log: LogState, *, before: Snapshot | None = None
) -> Snapshot:
    info, schema_json = log.commit_info, known.metadata.schema_string
    if before is not None and before.metadata == known.metadata:
        config, schema = before.config, before.schema
    else:
        config = TableConfig.from_configuration(known.metadata.configuration)
        schema = visible_columns(schema_from_delta(schema_json, path=log.uri))
    LOG.debug("opens version %d of %s: %d files", known.version, log.uri, known.files.height)
    return Snapshot(
        uri=log.uri,
        version=known.version,
        timestamp_ms=timestamp_of(info),
        metadata=known.metadata,
        protocol=known.protocol,
        config=config,
        schema=schema,
        schema_json=schema_json,
        files=files_with_tags(known.files, log, known=None if before is None else before.files),
        storage_options=source.storage_options,
        source=source,
        fingerprint=log.fingerprint,
    )


def timestamp_of(info: CommitInfo | None) -> int:
    """Return when a version was committed, milliseconds since 1970 UTC; 0 if the log does not say."""
    stamps = () if info is None else (info.in_commit_timestamp, info.timestamp)
    return next((stamp for stamp in stamps if stamp is not None), 0)


def _refuse_too_young(snapshot: Snapshot, timestamp: datetime) -> None:
    """Raise where `deltalake` gives the oldest version for want of an older one."""
    if snapshot.timestamp_ms <= timestamp.timestamp() * 1000:
        return
    oldest = snapshot.version == 0 or read_commit_info(snapshot.source.store, snapshot.version - 1) is None
    if oldest:
        when = timestamp.isoformat()
        message = (
            f"{snapshot.uri} has no version as old as {when}; its oldest is {snapshot.version}. "
            "Table.history() lists them."
        )
        raise VersionNotFoundError(message, path=snapshot.uri, version=timestamp)


def read_live_files(snapshot: Snapshot) -> LiveFiles:
    """Return the files of a snapshot as the log has them, and those that only Spark takes for live."""
    store = snapshot.source.store
    try:
        log = read_log(store, snapshot.version)
    except FileNotFoundError as error:
        message = f"a file of the log of {store.uri} is missing: {error}. Nothing was changed; try again."
        raise StorageError(message, path=store.uri) from error
    return whole_files(snapshot.files["path"].to_list(), log)


def files_for(intent: WriteIntent, head: Snapshot | None) -> LiveFiles | None:
    """Return the whole files of the newest version where a change needs them; reading them costs."""
    if head is None:
        return None
    replaces_all = intent.mode == "overwrite" and has_old_layout(head)
    return read_live_files(head) if intent.files is not None or replaces_all else None


def has_old_layout(snapshot: Snapshot) -> bool:
    """Return whether a table carries marks of the layout before 0.6.0 (format 11)."""
    return (
        bool(snapshot.config.replicated_sets) or snapshot.files["state"].null_count() < snapshot.files.height
    )


def travel(version: object) -> tuple[int | None, datetime | None]:
    """Return a version number or a time; a time without zone is UTC.

    >>> travel(3), travel("3"), travel("2026-01-31")[1].isoformat()
    ((3, None), (3, None), '2026-01-31T00:00:00+00:00')
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
        case date():
            return None, datetime(version.year, version.month, version.day, tzinfo=UTC)
        case str():
            try:
                return None, _zoned(datetime.fromisoformat(version))
            except ValueError:
                if version.isdecimal():
                    return int(version), None
        case _:
            pass
    msg = (
        "`version` must be a number of at least 0, a date, a datetime, or the text of one (ISO 8601), not "
        f"{version!r}; nothing was read"
    )
    raise InvalidInputError(msg, argument="version", value=version)


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
