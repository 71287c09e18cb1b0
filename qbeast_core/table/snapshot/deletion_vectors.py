"""Rows that deletion vectors hide, by the files they are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from qbeast_core.errors import InvalidMetadataError, QbeastError, StorageError
from qbeast_core.io.stores.store import Store
from qbeast_core.log.files.deletion_vector import parse_vector, vector_path
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.file_path import FilePath

if TYPE_CHECKING:
    from qbeast_core.table.snapshot.snapshot import Snapshot


def deleted_rows(snapshot: Snapshot) -> dict[int, I64Array]:
    """Return per file number the rows that a deletion vector hides, counted from 0 in the file."""
    numbers = snapshot.files["has_deletion_vector"].arg_true().to_list()
    if not numbers:
        return {}
    held = {vector_path(parse_vector(snapshot.files["deletion_vector"][number]) or {}) for number in numbers}
    store = snapshot.source.store
    files = sorted(path.text for path in held if path is not None)
    for path in files:
        store.locate(path)
    try:
        vectors = snapshot.source.deletion_vectors(snapshot.version)
    except QbeastError as error:
        _refuse_missing(snapshot, files, error)
        raise
    paths = snapshot.data_paths
    wanted = {told: number for number in numbers for told in _as_told(store, paths[number])}
    found: dict[int, I64Array] = {}
    for told, keep in zip(vectors["filepath"], vectors["selection_vector"], strict=True):
        number = wanted.get(FilePath.of_log(told).text)
        if number is not None:
            found[number] = np.flatnonzero(~np.asarray(keep, np.bool_))
    lost = [paths[number] for number in numbers if number not in found]
    if lost:
        message = (
            f"the deletion vector of {lost[0]!r} of {snapshot.uri!r} cannot be found, so which of its rows were "
            "deleted is not known. Nothing was read. Let the engine that wrote it rewrite the file."
        )
        raise InvalidMetadataError(message)
    return found


def _as_told(store: Store, path: str) -> Iterator[str]:
    """Yield how `deltalake` may name a data file, decoded: as a URL, joined to that of the table."""
    if FilePath(path).kind != "inside":
        yield path
        return
    yield f"{store.uri}/{path}"
    scheme, colon, rest = path.partition(":")
    if colon:  # where the log does not encode the colon, a name with a time looks like an address to it
        yield f"{scheme.lower()}:{rest}"


def _refuse_missing(snapshot: Snapshot, files: list[str], cause: QbeastError) -> None:
    """Raise where the file of a vector is not there."""
    for path in files:
        try:
            snapshot.source.store.size(path)
        except FileNotFoundError:
            message = (
                f"{path!r} of {snapshot.uri!r} is gone: it says which rows were deleted. Nothing was read. Restore "
                "the file, or an older version of the table."
            )
            raise StorageError(message, path=path) from cause
