"""The data files of a segment, and the deleted rows of their blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.damage import place
from qbeast_carbondata.metadata.json_files import (
    DEAD_BLOCK,
    Load,
    SegmentFolder,
    UpdatedBlock,
    read_delete_delta,
    read_segment_file,
)
from qbeast_carbondata.stored_file import StoredFile, must_exist, read_file
from qbeast_carbondata.structs import BlockIndex, read_index_file, read_merged_index_file
from qbeast_core.errors import DamagedFileError, UnsupportedTableError
from qbeast_core.io.location import open_store
from qbeast_core.io.store import Store
from qbeast_core.space.values import I64Array

_STAMP: Final = re.compile(r"-(\d+)\.deletedelta$")


def _deltas_of(
    update: UpdatedBlock | None, block_path: str, list_files: Callable[[], Sequence[str]]
) -> tuple[str, ...] | None:
    """Return the paths of the delete deltas of a block that count; None if all its rows are deleted."""
    if update is not None and update.status in DEAD_BLOCK:
        return None
    if update is None or not update.start:
        return ()
    stamps: Sequence[str]
    if update.start == update.end:
        stamps = [update.start]
    elif update.stamps is not None:
        stamps = update.stamps
    else:
        names = [path for path in list_files() if path.startswith(f"{block_path}-")]
        listed = [match[1] for match in map(_STAMP.search, names) if match]
        stamps = [stamp for stamp in listed if int(update.start) <= int(stamp) <= int(update.end)]
    return tuple(f"{block_path}-{stamp}.deletedelta" for stamp in stamps)


def read_deleted_rows(store: Store, paths: Sequence[str]) -> dict[tuple[int, int], I64Array]:
    """Return the deleted rows by blocklet and page, from all deltas together; several may name the same row."""
    by_page: dict[tuple[int, int], list[I64Array]] = {}
    for path in paths:
        with must_exist(store.uri, path):
            pages = read_file(store, path, read_delete_delta).pages
        for page in pages:
            by_page.setdefault((page.blocklet, page.page), []).append(np.array(page.rows, np.int64))
    return {page: np.unique(np.concatenate(parts)) for page, parts in by_page.items()}


_CARBON: Final = "columnar_v3"
_INDEXES: Final = (".carbonindex", ".carbonindexmerge")

# The update status of a segment, by block (the name of its file up to the last `-`).
BlockUpdates = Mapping[str, UpdatedBlock]


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file of a segment and its deleted rows."""

    store: Store
    path: str
    segment: str
    # Format of the segment, lower case: `"columnar_v3"`, `"row_v1"`, `"parquet"` ...
    kind: str = _CARBON
    # Its blocklets in their order, as index files list them; none where no index file does.
    entries: tuple[BlockIndex, ...] = ()
    # Its columns as its index file lists them; `entries` use their numbers.
    columns: tuple[Column, ...] = ()
    # Paths of the delete deltas that count.
    deltas: tuple[str, ...] = ()
    # Its length, or the length of the committed part; -1 if only the store knows it.
    size_bytes: int = -1
    # As the update status counts them.
    deleted_rows: int = 0

    @property
    def rows(self) -> int | None:
        """Rows, deleted ones included; None if only the file knows."""
        return self.entries[0].rows if self.entries else None

    @property
    def stored(self) -> StoredFile:
        """The file with its length; `StorageError` if it does not exist."""
        with must_exist(self.store.uri, self.path):
            size = self.store.size(self.path) if self.size_bytes < 0 else self.size_bytes
        return StoredFile(self.store, self.path, size)


@dataclass(frozen=True)  # no slots: it caches `files`
class Folder:
    """A folder of a store; its files are listed once."""

    store: Store
    name: str

    @cached_property
    def files(self) -> list[str]:
        """Paths of the files in it."""
        return self.store.list(self.name)

    def path(self, name: str) -> str:
        """Return the path of a file in it."""
        return f"{self.name}/{name}" if self.name else name


@dataclass(frozen=True, slots=True)
class Stores:
    """The table's store, and the folders outside of it that may be opened."""

    table: Store
    storage_options: Mapping[str, str] = field(repr=False)
    # By a folder's path in the table, its path now.
    external: Mapping[str, str]
    # Whether other folders outside may be opened too.
    allow_absolute_paths: bool

    def folder(self, path: str, *, is_relative: bool) -> Folder:
        """Return a folder of a ``.segment`` file; `UnsupportedTableError` if it may not be opened."""
        if is_relative:
            return Folder(self.table, path.strip("/"))
        moved_to = self.external.get(path, self.external.get(path.rstrip("/")))
        if moved_to is None and not self.allow_absolute_paths:
            message = (
                f"{self.table.uri!r} has rows in {path!r}, outside of its folder. They were not read. If you trust "
                "the writer of the table, open it with allow_absolute_paths=True, or name the present folder with "
                f"external_paths={ {path: '/its/folder'}!r}."
            )
            raise UnsupportedTableError(
                message, path=self.table.uri, feature="external segment", argument="allow_absolute_paths"
            )
        return Folder(open_store(moved_to or path, self.storage_options), "")


def columnar_files(stores: Stores, load: Load, updates: BlockUpdates) -> list[LiveFile]:
    """Return the live data files of a segment in CarbonData's own format, by its ``.segment`` file."""
    files: list[LiveFile] = []
    for folder, location in _locations(stores, load):
        for name in (*([location.merge_file] if location.merge_file else []), *location.files):
            files += _indexed_files(folder, name, load, updates)
    return list({(file.store.uri, file.path): file for file in files}.values())


def external_files(stores: Stores, load: Load) -> list[LiveFile]:
    """Return the files of an added segment in another format."""
    files: list[LiveFile] = []
    for folder, location in _locations(stores, load):
        if location.partitions:
            feature = f"a segment of {load.kind} with partitions"
            message = (
                f"segment {load.name!r} of {stores.table.uri!r} was added in the format {load.kind!r}, and no file "
                "holds the values of its partitions. It was not read; leave it out with `segments`."
            )
            raise UnsupportedTableError(message, path=stores.table.uri, feature=feature)
        paths = [folder.path(name) for name in location.files] or folder.files
        data = [path for path in paths if not path.rpartition("/")[2].startswith(("_", "."))]
        files += [LiveFile(folder.store, path, load.name, load.kind) for path in data]
    return files


def _locations(stores: Stores, load: Load) -> list[tuple[Folder, SegmentFolder]]:
    """Return the folders of a segment with what it has in each."""
    segment = read_file(stores.table, f"Metadata/segments/{load.segment_file}", read_segment_file)
    return [
        (stores.folder(path, is_relative=location.is_relative), location)
        for path, location in segment.locations.items()
        if location.status == "Success"
    ]


def listed_files(stores: Stores, load: Load, updates: BlockUpdates) -> list[LiveFile]:
    """Return the live data files of a segment without a ``.segment`` file, by the index files in its folder."""
    folder = Folder(stores.table, f"Fact/Part0/Segment_{load.merged_into or load.name}")
    names = [path.rpartition("/")[2] for path in folder.files if path.endswith(_INDEXES)]
    files = [file for name in names for file in _indexed_files(folder, name, load, updates)]
    return list({file.path: file for file in _not_abandoned(files, load)}.values())


def _not_abandoned(files: list[LiveFile], load: Load) -> list[LiveFile]:
    """Leave out the files that failed updates left beside the segment's files, in CarbonData before 1.3.1.

    Files of the load have the smallest time in their names; files of updates count if their time lies in the range of
    the table status. The load's own times are texts in an unknown time zone there, so they are not compared.
    """
    first, last = load.update_start, load.update_end
    if not (first.isdecimal() and last.isdecimal()):
        return files
    times = [_written_ms(file.path) for file in files]
    loaded = min((time_ms for time_ms in times if time_ms is not None), default=0)
    return [
        file
        for file, time_ms in zip(files, times, strict=True)
        if time_ms is None or time_ms == loaded or int(first) <= time_ms <= int(last)
    ]


def _written_ms(path: str) -> int | None:
    """Return the time in a data file's name, None if there is none.

    >>> _written_ms("Fact/Part0/Segment_0/part-0-0_batchno0-0-1502698524040.carbondata")
    1502698524040
    """
    text = path.rpartition("-")[2].partition(".")[0]
    return int(text) if text.isdecimal() else None


def files_of_folder(stores: Stores, load: Load) -> list[LiveFile]:
    """Return all data files of a folder without a table status, with their index entries."""
    paths = stores.table.list("")
    files = {path: LiveFile(stores.table, path, "") for path in paths if path.endswith(".carbondata")}
    for path in paths:
        if path.endswith(_INDEXES):
            folder, _, name = path.rpartition("/")
            with suppress(DamagedFileError, UnsupportedTableError):  # the data files repeat all of it
                for file in _indexed_files(Folder(stores.table, folder), name, load, {}):
                    if file.path in files:
                        files[file.path] = replace(file, size_bytes=-1)
    return list(files.values())


def _indexed_files(folder: Folder, name: str, load: Load, updates: BlockUpdates) -> list[LiveFile]:
    """Return the data files of an index file, or of a merged one, that have rows left."""
    files: list[LiveFile] = []
    for columns, entries in read_file(folder.store, folder.path(name), partial(_read_index, name)):
        first = entries[0]
        block = first.file_name.rpartition("-")[0]
        update = updates.get(block)
        deltas = _deltas_of(update, folder.path(block), lambda: folder.files)
        if deltas is not None:
            path, size = folder.path(first.file_name), first.file_bytes if first.file_bytes > 0 else -1
            gone = int(update.deleted_rows or 0) if update is not None else 0
            files.append(
                LiveFile(folder.store, path, load.name, load.kind, entries, columns, deltas, size, gone)
            )
    return files


def _read_index(name: str, data: bytes) -> list[tuple[tuple[Column, ...], tuple[BlockIndex, ...]]]:
    """Return columns and entries of each data file."""
    parts = read_merged_index_file(data) if name.endswith(".carbonindexmerge") else {name: data}
    files: list[tuple[tuple[Column, ...], tuple[BlockIndex, ...]]] = []
    for part_name, part in parts.items():
        with place(part_name):
            flat, entries = read_index_file(part)
            columns = column_tree(flat)
        by_file: dict[str, list[BlockIndex]] = {}
        for entry in entries:
            by_file.setdefault(entry.file_name, []).append(entry)
        files += [(columns, tuple(of_file)) for of_file in by_file.values()]
    return files
