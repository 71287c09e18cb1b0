"""Open a table with `deltalake` and say in this library's errors what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

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
from qbeast_core.io.store import Store
from qbeast_core.log.names import LOG_DIRECTORY, commit_path
from qbeast_core.log.told_by_deltalake import cause_told, damage_told, feature_told
from qbeast_core.table.data.found_instead import found_instead

__all__ = ["delta_errors", "open_delta"]

_STORE: Final = re.compile(
    r"Generic (?:S3|GCS|\w*Azure|HTTP)|error sending request|credential|denied", re.IGNORECASE
)


def open_delta(
    store: Store,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaTable:
    """Open a table; the newest version unless one is asked for.

    Raises
    ------
    TableNotFoundError
        There is no Delta table; the message says what is there instead.
    VersionNotFoundError
        The table has no such version (any more).
    UnsupportedTableError
        `deltalake` refuses a feature of the table.
    InvalidMetadataError
        The log is damaged.
    StorageError
        The store cannot be read.
    """
    _refuse_what_is_no_table(store)
    options = dict(storage_options or {}) or None
    if version is not None:
        return _open_version(store, version, options)
    with delta_errors(store.uri):
        table = DeltaTable(store.uri, storage_options=options)
        if timestamp is not None:
            table.load_as_version(timestamp)
    return table


@contextmanager
def delta_errors(uri: str) -> Generator[None]:
    """Translate what `deltalake` raises inside; its panics are no `Exception`, so they need this too."""
    try:
        yield
    except QbeastError:
        raise
    except (NoDeltaTableError, DeltaError, OSError, ValueError) as error:
        raise _translated(uri, error) from shown_cause(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _translated(uri, error) from shown_cause(error)


def _open_version(store: Store, version: int, options: dict[str, str] | None) -> DeltaTable:
    uri = store.uri
    newest: int | None = None
    cause: QbeastError | None = None
    if not _has_commit(store, version):  # deltalake would look for every version up to it
        with delta_errors(uri):
            newest = DeltaTable(uri, storage_options=options).version()
    if version >= 0 and (newest is None or version <= newest):
        try:
            with delta_errors(uri):
                return DeltaTable(uri, version=version, storage_options=options)
        except (InvalidMetadataError, StorageError) as error:
            cause = error
    if newest is None:
        with delta_errors(uri):  # a table that cannot be read at all says so here
            newest = DeltaTable(uri, storage_options=options).version()
    message = f"{uri} has no version {version} that can be read; the newest is {newest}."
    raise VersionNotFoundError(message, path=uri, version=version) from cause


def _has_commit(store: Store, version: int) -> bool:
    try:
        return version >= 0 and store.size(commit_path(version)) > 0
    except FileNotFoundError:
        return False


def _refuse_what_is_no_table(store: Store) -> None:
    root = store.local_root
    if root is None or (root / LOG_DIRECTORY).is_dir():
        return
    raise TableNotFoundError(found_instead(store.uri, root), path=store.uri)


def _translated(uri: str, error: BaseException) -> QbeastError:
    told = str(error).split("\n   0:", maxsplit=1)[0].strip()  # the rest is a stack trace
    if isinstance(error, NoDeltaTableError):
        return TableNotFoundError(f"there is no Delta table at {uri}: {told}", path=uri)
    damage = damage_told(told)
    if damage is not None:
        return InvalidMetadataError(f"the Delta log of {uri} is damaged: {damage}.")
    refused = feature_told(told, path=uri)
    if refused is not None:
        return UnsupportedTableError(refused[0], path=uri, feature=refused[1])
    cause = cause_told(told) if "://" in uri or "Forked" in told else None
    if cause is not None:
        return StorageError(
            f"the log of {uri} cannot be read: {cause}. Nothing was changed. ({told})", path=uri
        )
    if isinstance(error, OSError) or _STORE.search(told):
        return StorageError(f"the log of {uri} cannot be read: {told}", path=uri)
    return InvalidMetadataError(f"the Delta log of {uri} is damaged: {told}. Nothing was changed.")
