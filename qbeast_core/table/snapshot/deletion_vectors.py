"""Rows that deletion vectors hide, by file."""

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
    """Return a mapping from file index to the indexes of the rows that a deletion vector hides."""
    numbers = snapshot.files["has_deletion_vector"].arg_true().to_list()
    if not numbers:
        return {}
    stored = {vector_path(parse_vector(snapshot.files["deletion_vector"][file]) or {}) for file in numbers}
    store = snapshot.source.store
    files = sorted(path.text for path in stored if path is not None)  # None: the vector is in the log
    for path in files:
        store.locate(path)
    try:
        vectors = snapshot.source.deletion_vectors(snapshot.version)
    except QbeastError as error:
        _refuse_missing(snapshot, files, error)
        raise
    paths = snapshot.data_paths
    numbers_by_name = {name: number for number in numbers for name in _deltalake_names(store, paths[number])}
    rows: dict[int, I64Array] = {}
    for name, keep in zip(vectors["filepath"], vectors["selection_vector"], strict=True):
        number = numbers_by_name.get(FilePath.of_log(name).text)
        if number is not None:
            rows[number] = np.flatnonzero(~np.asarray(keep, np.bool_))
    missing = [paths[number] for number in numbers if number not in rows]
    if missing:
        message = (
            f"the deletion vector of {missing[0]!r} of {snapshot.uri!r} cannot be found, so its deleted rows are not "
            "known. Nothing was read. Rewrite the file with the engine that wrote it."
        )
        raise InvalidMetadataError(message)
    return rows


def _deltalake_names(store: Store, path: str) -> Iterator[str]:
    """Yield the names that `deltalake` may use for a data file (decoded): URLs, joined to the URL of the table."""
    if FilePath(path).kind != "inside":
        yield path
        return
    yield f"{store.uri}/{path}"
    scheme, colon, rest = path.partition(":")
    if colon:  # if the log does not encode the colon, deltalake takes a name with a time for a URL
        yield f"{scheme.lower()}:{rest}"


def _refuse_missing(snapshot: Snapshot, files: list[str], cause: QbeastError) -> None:
    """Raise if the file of a deletion vector is missing."""
    for path in files:
        try:
            snapshot.source.store.size(path)
        except FileNotFoundError:
            message = (
                f"{path!r} of {snapshot.uri!r} is missing: it lists deleted rows. Nothing was read. Restore the file, "
                "or an older version of the table."
            )
            raise StorageError(message, path=path) from cause
