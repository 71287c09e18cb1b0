"""A table as `deltalake` reads it, and its errors as errors of this library."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import Final

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.exceptions import TableNotFoundError as NoDeltaTableError

from qbeast_core.errors import (
    InvalidMetadataError,
    QbeastError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
    shown_cause,
)
from qbeast_core.io.parquet.pages import PageReader
from qbeast_core.io.stores.location import SCHEMES
from qbeast_core.io.stores.store import Store
from qbeast_core.log.actions import Metadata, Protocol
from qbeast_core.log.protocol import check_readable
from qbeast_core.log.refusals import COPIES, copy_of
from qbeast_core.support.forked import FORKED
from qbeast_core.support.suggestions import write_call
from qbeast_core.table.data.found_instead import LOG_DIRECTORY, found_instead, log_instead
from qbeast_core.table.snapshot.log_copy import LogCopy, copy_log
from qbeast_core.table.snapshot.log_files import LogFiles, commit_path

_STATS: Final = ("min", "max", "null_count")
_NOTHING: Final = pl.Struct([])

_STORE: Final = re.compile(
    r"Generic (?:S3|GCS|\w*Azure|HTTP)|error sending request|credential|denied", re.IGNORECASE
)
_UNSUPPORTED: Final = re.compile(
    r"unsupported|not supported|catalog-managed|column mapping|variant", re.IGNORECASE
)
_FEATURE: Final = re.compile(r"[Ff]eature '?(\w+)")
_CATALOG: Final = re.compile(r"catalog-managed|max catalog version", re.IGNORECASE)
_PROTOCOL: Final = re.compile(r"Invalid protocol action in the delta log: (.*)", re.DOTALL)
_GAP: Final = re.compile(
    r"found gap: .*?/0*(\d+)\.(?:json|checkpoint).*? -> .*?/0*(\d+)\.json"
    r"|Gap between checkpoint version (\d+) and next commit (\d+)",
    re.DOTALL,
)
_NO_BEGINNING: Final = re.compile(
    r"No (?:table metadata|protocol|table metadata or protocol) found in delta log"
)
_NO_CREDENTIALS: Final = "there are no usable credentials: give them in `storage_options` or the environment"
_PLAIN_HTTP: Final = (
    "the endpoint is http, which has to be allowed: AWS_ALLOW_HTTP='true' in `storage_options`"
)
_NO_STORE: Final = (
    "the store cannot be reached: check the endpoint in `storage_options` or the environment (AWS_ENDPOINT_URL, "
    "a whole address like https://host:port), and the network"
)
_REFUSED: Final = "the store refuses these credentials: check them, and what they may do"
_CAUSES: Final = (
    (r"Forked process detected", FORKED),
    (r"api/token|169\.254\.169\.254|credential", _NO_CREDENTIALS),  # requested where there is no such service
    (r"URL scheme is not allowed", _PLAIN_HTTP),
    (r"dns error|Connection refused|tcp connect|builder error|Executor has crashed", _NO_STORE),
    (r"denied|Unauthorized|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|InvalidToken", _REFUSED),
)
_SIDECARS: Final = "v2Checkpoint"
# What no reader here knows: left is an engine that may.
_FUTURE: Final = Protocol(min_reader_version=3, min_writer_version=7, reader_features=("unknown",))


@dataclass(frozen=True, slots=True, eq=False)
class DeltaVersion:
    """What `deltalake` alone knows of a version."""

    version: int
    # Its live files: `path` (as in the log), `size_bytes`, `modification_time` (ms), `num_records`, and the
    # typed structs `min`, `max` and `null_count`.
    files: pl.DataFrame
    metadata: Metadata
    protocol: Protocol


@dataclass(frozen=True, eq=False)  # no slots: the page reader is cached
class DeltaSource:
    """A table as `deltalake` holds it; shared by the snapshots refreshed from one another, from any thread."""

    store: Store
    table: DeltaTable
    storage_options: Mapping[str, str] = field(repr=False)
    copy: LogCopy | None = None
    lock: Lock = field(default_factory=Lock)

    @cached_property
    def pages(self) -> PageReader:
        """The reader of pages, which caches the tails of data files: these never change."""
        return PageReader(self.store)

    @property
    def log(self) -> LogFiles:
        """What the log is read from, up to the version last asked for."""
        return self.store if self.copy is None else self.copy

    def newer_than(self, version: int) -> DeltaVersion | None:
        """Look for newer versions; None: `version` is the newest."""
        if self.copy is None:
            _refuse_linked_log(self.store)
            return self._newer_than(version)
        with self.lock:
            self.copy.update()
        try:
            return self._newer_than(version)
        except (InvalidMetadataError, StorageError, TableNotFoundError) as error:
            raise FileNotFoundError(self.copy.path) from error

    def transaction_version(self, app_id: str, *, version: int) -> int | None:
        """Return how far an application says the table has come, at `version` or later; None: it never said."""
        with self._held(version) as table:
            return table.transaction_version(app_id)

    def deletion_vectors(self, version: int) -> pl.DataFrame:
        """Return for each file that has a vector its `filepath` and its `selection_vector`."""
        with self._held(version) as table:
            if table.version() == version and self.copy is None:
                return pl.DataFrame(table.deletion_vectors())
        # This one was refreshed since, or knows the log alone.
        source, _ = open_delta(self.store, version=version, storage_options=self.storage_options)
        return source.deletion_vectors(version)

    def checkpoint(self, version: int, *, files: int) -> None:
        """Write a checkpoint of the newest version, but not where `deltalake` takes more files of `version` for live.

        There are `files` of them; the others were removed under another spelling. A checkpoint would keep them, and not
        for ever what removed them.
        """
        with self._held(version) as held:
            table = held if self.copy is None else _open_newest(self.store, self.storage_options)
            if table.version() != version or len(table.file_uris()) <= files:
                table.create_checkpoint()

    def _newer_than(self, version: int) -> DeltaVersion | None:
        with self._held() as table:
            table.update_incremental()
            return None if table.version() == version else _known(self.store.uri, table)

    @contextmanager
    def _held(self, version: int = 0) -> Generator[DeltaTable]:
        """Hold the table at `version` or a later one: of commits of our own it does not know until it is asked."""
        with self.lock, delta_errors(self.store.uri):
            if self.table.version() < version:
                if self.copy is not None:
                    self.copy.update()
                self.table.update_incremental()
            yield self.table


def open_delta(
    store: Store,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    storage_options: Mapping[str, str],
) -> tuple[DeltaSource, DeltaVersion]:
    """Open a table; the newest version unless one is asked for."""
    root = store.local_root
    if root is not None and not (root / LOG_DIRECTORY).is_dir():
        raise TableNotFoundError(log_instead(store.uri) or found_instead(store.uri, root), path=store.uri)
    _refuse_linked_log(store)
    if version is None and timestamp is None:
        copied = _open_copy(store, storage_options)
        if copied is not None:
            return copied
    with delta_errors(store.uri):
        if version is not None:
            table = _open_version(store, version, storage_options)
        else:
            table = _open_newest(store, storage_options)
        if timestamp is not None:
            table.load_as_version(timestamp)
        return DeltaSource(store, table, storage_options), _known(store.uri, table)


def _refuse_linked_log(store: Store) -> None:
    """Refuse a log, or files in it, that symbolic links lead out of the table: `deltalake` follows them."""
    root = store.local_root
    if root is None:
        return
    for folder in (LOG_DIRECTORY, f"{LOG_DIRECTORY}/_sidecars"):
        store.locate(folder)
        with suppress(FileNotFoundError), os.scandir(root / folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    store.locate(f"{folder}/{entry.name}")


@contextmanager
def delta_errors(uri: str) -> Generator[None]:
    """Translate what `deltalake` raises inside; its panics are no `Exception`, so they need this too."""
    try:
        yield
    except QbeastError:
        raise
    except (NoDeltaTableError, DeltaError, OSError, ValueError) as error:
        raise _translated(uri, error) from shown_cause(error)
    except BaseException as error:  # a panic of Rust is no `Exception`; all else is raised again
        if type(error).__name__ != "PanicException":  # a class that deltalake offers under no name
            raise
        raise _translated(uri, error) from shown_cause(error)


def _open_copy(store: Store, storage_options: Mapping[str, str]) -> tuple[DeltaSource, DeltaVersion] | None:
    """Open the newest version by a copy of its log; None: `deltalake` has to look itself, and says what is wrong."""
    try:
        copy = copy_log(store)
        if copy is None:
            return None
        with delta_errors(store.uri):
            table = DeltaTable(copy.path)
            known = _known(store.uri, table)
    except (InvalidMetadataError, StorageError, TableNotFoundError, OSError):
        return None
    if _SIDECARS in (known.protocol.reader_features or ()):
        return None  # files beside the checkpoint, of which the copy has none
    return DeltaSource(store, table, storage_options, copy), known


def _open_newest(store: Store, storage_options: Mapping[str, str]) -> DeltaTable:
    return DeltaTable(store.uri, storage_options=dict(storage_options) or None)


def _open_version(store: Store, version: int, storage_options: Mapping[str, str]) -> DeltaTable:
    options = dict(storage_options) or None
    newest: int | None = None
    cause: QbeastError | None = None
    if not _has_commit(store, version):  # deltalake would look for every version up to it
        newest = _open_newest(store, storage_options).version()
    if version >= 0 and (newest is None or version <= newest):
        try:
            with delta_errors(store.uri):
                return DeltaTable(store.uri, version=version, storage_options=options)
        except (InvalidMetadataError, StorageError) as error:
            cause = error
    if newest is None:  # a table that cannot be read at all says so here
        newest = _open_newest(store, storage_options).version()
    message = (
        f"{store.uri} has no version {version} that can be read; the newest is {newest}. Table.history() lists "
        "them."
    )
    raise VersionNotFoundError(message, path=store.uri, version=version) from cause


def _has_commit(store: Store, version: int) -> bool:
    try:
        return version >= 0 and store.size(commit_path(version)) > 0
    except FileNotFoundError:
        return False


def _known(uri: str, table: DeltaTable) -> DeltaVersion:
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
    return DeltaVersion(version, files, metadata, protocol)


def _sorted(features: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if features is None else tuple(sorted(features))


def _nothing_there(uri: str, told: str) -> str:
    """Return why an address holds no table, and what would make one, if one can be there."""
    scheme, found, _ = uri.partition("://")
    if found and scheme.lower() not in SCHEMES:
        kinds = ", ".join(f"{one}://" for one in SCHEMES)
        return f"there is no Delta table at {uri}: addresses begin with {kinds}. Nothing was changed."
    return log_instead(uri) or f"there is no Delta table at {uri}: {told}. {write_call(uri)} would make one."


def _translated(uri: str, error: BaseException) -> QbeastError:
    told = str(error).split("\n   0:", maxsplit=1)[0].strip()  # the rest is a stack trace
    if isinstance(error, NoDeltaTableError):
        return TableNotFoundError(_nothing_there(uri, told), path=uri)
    damage = _damage(told)
    if damage is not None:
        return InvalidMetadataError(f"the Delta log of {uri} is damaged: {damage}.")
    causes = _CAUSES if "://" in uri or "Forked" in told else ()
    cause = next((why for pattern, why in causes if re.search(pattern, told, re.IGNORECASE)), None)
    if cause is not None:
        said = " ".join(told.split())
        message = f"the log of {uri} cannot be read: {cause}. Nothing was changed. ({said})"
        return StorageError(message, path=uri, argument="storage_options" if "`" in cause else None)
    refused = _feature(told, uri)
    if refused is not None:
        return UnsupportedTableError(refused[0], path=uri, feature=refused[1])
    if isinstance(error, OSError) or _STORE.search(told):
        return StorageError(f"the log of {uri} cannot be read: {told}", path=uri)
    return InvalidMetadataError(f"the Delta log of {uri} is damaged: {told}. Nothing was changed.")


def _damage(told: str) -> str | None:
    """Return what is broken in a log and what can be done; None: deltalake's own words have to do.

    >>> _damage("Invalid Checkpoint: Gap between checkpoint version 3 and next commit 5")[:71]
    'version 4 is missing: there is no _delta_log/00000000000000000004.json.'
    """
    gap = _GAP.search(told)
    if gap is not None:
        before, after = (int(number) for number in gap.groups() if number is not None)
        return _missing(before, after)
    broken = _PROTOCOL.search(told)
    if broken is not None:
        return (
            f"its protocol breaks the rules of Delta ({broken[1]}). Nothing was changed. Its writer has to repair "
            "it"
        )
    if _NO_BEGINNING.search(told):
        return (
            f"its beginning is missing: neither {commit_path(0)} nor a checkpoint says what the table is. Nothing was "
            "changed. Put it back from a copy"
        )
    return None


def _feature(told: str, path: str) -> tuple[str, str] | None:
    """Return why a table is refused, and by which name; None: no feature stands in the way."""
    if _CATALOG.search(told):
        message = (
            f"{path} cannot be read: a catalog manages it (catalogManaged). Nothing was changed. "
            f"{COPIES['catalogManaged']}"
        )
        return message, "catalogManaged"
    if not _UNSUPPORTED.search(told):
        return None
    found = _FEATURE.search(told)
    what = told if found is None else f"it uses {found[1]}, which neither qbeast nor deltalake knows"
    message = f"{path} cannot be read: {what}. Nothing was changed. Copy it with {copy_of(_FUTURE, path)}."
    return message, told if found is None else found[1]


def _missing(before: int, after: int) -> str:
    if after - before == 2:
        what, them = f"version {before + 1} is missing: there is no {commit_path(before + 1)}", "it"
    else:
        what, them = f"versions {before + 1} to {after - 1} are missing", "them"
    return (
        f"{what}. Nothing was changed. Put {them} back from a copy; until then version={before} can be opened"
    )
