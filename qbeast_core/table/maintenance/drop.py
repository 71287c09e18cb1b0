"""Whether there is a table, and the end of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, cast

from qbeast_core.errors import TableNotFoundError, changed_before, invalid_argument
from qbeast_core.io.stores.location import refuse_link_out
from qbeast_core.io.stores.store import Entry, Store, map_files, open_store
from qbeast_core.results import Result
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.maintenance.vacuum import is_data_file

_VERSION: Final = re.compile(rf"{LOG_DIRECTORY}/(\d{{20}})\.(?:json|checkpoint\..*)")
_CHANGES: Final = "_change_data/"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DropResult(Result):
    """Outcome of `qbeast.drop_table`.

    Attributes
    ----------
    version : int
        The newest version that the table had.
    committed : bool
        Always False: the table is gone.
    files : tuple of str
        Paths of the deleted files, relative to the table, sorted.
    bytes : int
        Their size.
    """

    committed: bool = field(default=False, repr=False)
    files: tuple[str, ...]
    bytes: int


def drop(
    path: str | os.PathLike[str], storage_options: Mapping[str, str] | None, *, confirm: bool
) -> DropResult:
    """Delete a table; see `qbeast.drop_table`."""
    if cast("object", confirm) is not True:
        problem = "must be True: dropping a table cannot be undone"
        invalid_argument("confirm", problem, "nothing was deleted", value=confirm)
    store = open_store(path, storage_options)
    version = newest_version(store)
    if version is None:
        message = f"there is no Delta table at {store.uri}; nothing was deleted"
        raise TableNotFoundError(message, path=store.uri)
    if store.local_root is not None:
        refuse_link_out(store.uri, LOG_DIRECTORY)
    own = list(_own(store.entries("")))
    with changed_before(lambda: None):
        for is_log in (False, True):  # without its log nobody would know what the other files are
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
    split = (one.path.partition(f"/{LOG_DIRECTORY}/") for one in entries)
    inner = {folder for folder, separator, _ in split if separator}
    for one in entries:
        in_table = any(str(folder) in inner for folder in PurePosixPath(one.path).parents)
        if _is_log(one.path) or (not in_table and is_data_file(one.path.removeprefix(_CHANGES))):
            yield one


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def _remove_empty_folders(root: Path, deleted: Sequence[Entry]) -> None:
    """Remove the folders of deleted files that have no entry left, and the table's."""
    folders = {folder for one in deleted for folder in PurePosixPath(one.path).parents}
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        with suppress(OSError):  # it has entries, or is a link
            (root / folder).rmdir()
