"""Find the newest version of a table, and drop a table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, cast

from qbeast_core.errors import TableNotFoundError, changed_before, invalid_argument
from qbeast_core.io.stores.location import open_store
from qbeast_core.io.stores.resolve import refuse_link_out
from qbeast_core.io.stores.store import Entry, Store, map_files
from qbeast_core.results import Result
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.maintenance.vacuum import is_data_file

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
    """

    committed: bool = field(default=False, repr=False)
    files: tuple[str, ...]
    bytes: int


def drop(
    path: str | os.PathLike[str], storage_options: Mapping[str, str] | None, *, confirm: bool
) -> DropResult:
    """Delete a table; see `qbeast.drop_table`."""
    store = open_store(path, storage_options)
    version = newest_version(store)
    if version is None:
        message = f"there is no Delta table at {store.uri}"
        raise TableNotFoundError(message, path=store.uri)
    if cast("object", confirm) is not True:
        problem = "must be True: dropping a table cannot be undone"
        invalid_argument("confirm", problem, value=confirm)
    if store.local_root is not None:
        refuse_link_out(store.uri, LOG_DIRECTORY)
    own = list(_own(store.entries("")))
    with changed_before(lambda: None):
        for is_log in (False, True):  # the log goes last: it lists the other files
            map_files(store, store.delete, [entry.path for entry in own if _is_log(entry.path) is is_log])
    if store.local_root is not None:
        _remove_empty_folders(store.local_root, own)
    size = sum(entry.size for entry in own)
    return DropResult(version=version, files=tuple(entry.path for entry in own), bytes=size)


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
        if _is_log(item.path) or (not in_table and is_data_file(item.path)):
            yield item


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def _remove_empty_folders(root: Path, deleted: Sequence[Entry]) -> None:
    """Remove empty folders of deleted files, and the folder of the table if it is empty."""
    folders = {folder for item in deleted for folder in PurePosixPath(item.path).parents}
    for folder in sorted(folders, key=lambda item: len(item.parts), reverse=True):
        with suppress(OSError):  # it has entries, or is a link
            (root / folder).rmdir()
