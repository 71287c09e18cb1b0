"""The table status: which of its versions counts, and what happens where it is lost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from qbeast_core.carbondata.metadata.json_files import Load, read_table_status
from qbeast_core.carbondata.stored_file import read_file
from qbeast_core.carbondata.structs.schema import TableSchema
from qbeast_core.errors import DamagedFileError, StorageError, UnsupportedTableError
from qbeast_core.io.stores.store import Store

_STATUS: Final = "Metadata/tablestatus"
_ATTEMPTS: Final = 3  # a writer replaces it in place
_OF_LOADS: Final = ("Fact/Part0/Segment_", "Metadata/segments/")


def load_table_status(store: Store, schema: TableSchema | None) -> tuple[Load, ...] | None:
    """Return the entries of the table status; None for a folder that never had one."""
    version = "" if schema is None else schema.properties.get("latestversion", "")
    path = f"{_STATUS}_{version}" if version else _STATUS
    try:
        for _ in range(_ATTEMPTS - 1):
            with suppress(DamagedFileError):  # perhaps it is being written
                return read_file(store, path, read_table_status)
        return read_file(store, path, read_table_status)
    except FileNotFoundError as error:
        if version:
            raise _lost(store, path) from error
    if schema is not None:
        _refuse_lost(store, store.list(""))
    return None


def _refuse_lost(store: Store, paths: Sequence[str]) -> None:
    """Raise if a table without a status has loads: deleted ones would come back."""
    versions = sorted(path for path in paths if path.startswith(f"{_STATUS}_"))
    if versions:
        message = (
            f"{store.uri!r} keeps versions of its table status ({', '.join(versions[-3:])}), and its schema does not "
            f"name the one that counts. Nothing was read. Copy the one that counts, as a rule the last, to {_STATUS!r}."
        )
        raise UnsupportedTableError(message, path=versions[-1], feature="versions of a table status")
    if any(path.startswith(_OF_LOADS) for path in paths):
        raise _lost(store, _STATUS)


def _lost(store: Store, path: str) -> StorageError:
    message = (
        f"{store.uri!r} lost {path!r}, which lists the live segments of the table. Nothing was read: deleted and "
        "compacted segments would come back. Restore the file."
    )
    return StorageError(message, path=path)
