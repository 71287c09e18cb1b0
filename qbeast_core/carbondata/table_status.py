"""The table status of a table: which of its versions counts, and what is refused where it is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qbeast_core.carbondata.encryption import unless_encrypted
from qbeast_core.carbondata.inside import inside
from qbeast_core.carbondata.json_files import Load, read_table_status
from qbeast_core.carbondata.structs.schema import TableSchema
from qbeast_core.errors import DamagedFileError, StorageError, UnsupportedTableError
from qbeast_core.io.store import Store

_STATUS: Final = "Metadata/tablestatus"
_TRIES: Final = 3  # it is replaced in place
_OF_LOADS: Final = ("Fact/Part0/Segment_", "Metadata/segments/")


def load_table_status(store: Store, schema: TableSchema | None) -> tuple[Load, ...] | None:
    """Return the entries of the table status; None of a folder that has and had none."""
    version = "" if schema is None else schema.properties.get("latestversion", "")
    path = f"{_STATUS}_{version}" if version else _STATUS
    try:
        return _read(store, path)
    except FileNotFoundError as error:
        if version:
            raise _lost(store, path) from error
    if schema is not None:
        _refuse_lost(store, store.list(""))
    return None


def _read(store: Store, path: str) -> tuple[Load, ...]:
    for left in reversed(range(_TRIES)):
        data = store.get(path)
        try:
            with inside(store.uri, path), unless_encrypted(data):
                return read_table_status(data)
        except DamagedFileError:  # it may be written just now
            if not left:
                raise
    raise AssertionError  # the last round returns or raises


def _refuse_lost(store: Store, paths: Sequence[str]) -> None:
    """Raise where a table without status has loads: those that were deleted would come back."""
    versions = sorted(path for path in paths if path.startswith(f"{_STATUS}_"))
    if versions:
        message = (
            f"{store.uri!r} keeps versions of its table status ({', '.join(versions[-3:])}), and its schema does not "
            f"tell which one counts. Nothing was read. Copy the one that counts, as a rule the last, to {_STATUS!r}."
        )
        raise UnsupportedTableError(message, path=versions[-1], feature="versions of a table status")
    if any(path.startswith(_OF_LOADS) for path in paths):
        raise _lost(store, _STATUS)


def _lost(store: Store, path: str) -> StorageError:
    message = (
        f"{store.uri!r} lost {path!r}, which tells the live segments of the table. Nothing was read: segments that "
        "were deleted or compacted would come back. Restore the file."
    )
    return StorageError(message, path=path)
