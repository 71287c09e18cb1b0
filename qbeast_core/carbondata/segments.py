"""The data files of a segment, as its ``.segment`` file and its index files tell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.damage import Damaged
from qbeast_core.carbondata.deletes import BlockDeletes, deltas_of
from qbeast_core.carbondata.encryption import unless_encrypted
from qbeast_core.carbondata.inside import StoredFile, inside, there
from qbeast_core.carbondata.json_files import Load, Location, read_segment_file
from qbeast_core.carbondata.structs.index_file import BlockIndex, read_index_file, read_merged_index_file
from qbeast_core.errors import UnsupportedTableError
from qbeast_core.io.store import Store, open_store

_CARBON: Final = "columnar_v3"


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file of a segment, and the rows of it that are gone."""

    store: Store
    path: str
    segment: str
    # Format of the segment, lower case: `"columnar_v3"`, `"row_v1"`, `"parquet"` ...
    kind: str = _CARBON
    # What index files tell of its blocklets, in their order; none if nothing is told.
    entries: tuple[BlockIndex, ...] = ()
    # Its columns, as its index file has them; what `entries` number.
    columns: tuple[Column, ...] = ()
    # Paths of the delete deltas that count.
    deltas: tuple[str, ...] = ()
    # Its length, or the part that counts; -1 if only the store can tell.
    size_bytes: int = -1
    # As the update status counts them.
    deleted_rows: int = 0

    @property
    def rows(self) -> int | None:
        """Rows, deleted ones included; None if only the file can tell."""
        return self.entries[0].rows if self.entries else None

    @property
    def stored(self) -> StoredFile:
        """The file with its length, asked of the store if need be; `StorageError` if it is not there."""
        with there(self.store.uri, self.path):
            size = self.store.size(self.path) if self.size_bytes < 0 else self.size_bytes
        return StoredFile(self.store, self.path, size)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of a store, and how its files are listed (once)."""

    store: Store
    folder: str
    list_files: Callable[[], list[str]]

    @classmethod
    def of(cls, store: Store, folder: str) -> Place:
        """Return the place of a folder."""
        return cls(store, folder, cache(lambda: store.list(folder)))

    def path(self, name: str) -> str:
        """Return the path of a file in it."""
        return f"{self.folder}/{name}" if self.folder else name


@dataclass(frozen=True, slots=True)
class Stores:
    """The table's store, and what may be opened outside of it."""

    table: Store
    storage_options: Mapping[str, str] = field(repr=False)
    # By a folder as the table has it, where it lies now.
    external: Mapping[str, str]
    # Whether folders outside may be opened that the user did not name.
    allow_absolute_paths: bool

    def place(self, folder: str, *, is_relative: bool) -> Place:
        """Return a folder that a ``.segment`` file names; `UnsupportedTableError` if it may not be opened."""
        if is_relative:
            return Place.of(self.table, folder.strip("/"))
        known = self.external.get(folder, self.external.get(folder.rstrip("/")))
        if known is None and not self.allow_absolute_paths:
            message = (
                f"{self.table.uri!r} has rows in {folder!r}, outside of its folder. They were not read. If you trust "
                "the writer of the table, open it with allow_absolute_paths=True, or name the present folder with "
                f"external_paths={ {folder: '/its/folder'}!r}."
            )
            raise UnsupportedTableError(
                message, path=self.table.uri, feature="external segment", argument="allow_absolute_paths"
            )
        return Place.of(open_store(known or folder, self.storage_options), "")


def columnar_files(stores: Stores, load: Load, deletes: BlockDeletes) -> list[LiveFile]:
    """Return the live data files of a segment of CarbonData's own that has a ``.segment`` file."""
    found: list[LiveFile] = []
    for folder, location in _locations(stores, load).items():
        place = stores.place(folder, is_relative=location.is_relative)
        names = [*([location.merge_file] if location.merge_file else []), *location.files]
        for name in names:
            found += indexed_files(place, name, load, deletes)
    return list({(file.store.uri, file.path): file for file in found}.values())


def external_files(stores: Stores, load: Load) -> list[LiveFile]:
    """Return the files of an added segment of another format."""
    found: list[LiveFile] = []
    for folder, location in _locations(stores, load).items():
        place = stores.place(folder, is_relative=location.is_relative)
        if location.partitions:
            feature = f"a segment of {load.kind} with partitions"
            message = (
                f"segment {load.name!r} of {stores.table.uri!r} was added in the format {load.kind!r}, and the values "
                "of its partitions stand in no file. It was not read; leave it out with `segments`."
            )
            raise UnsupportedTableError(message, path=stores.table.uri, feature=feature)
        paths = [place.path(name) for name in location.files] or place.list_files()
        data = [path for path in paths if not path.rpartition("/")[2].startswith(("_", "."))]
        found += [LiveFile(place.store, path, load.name, load.kind) for path in data]
    return found


def indexed_files(place: Place, name: str, load: Load, deletes: BlockDeletes) -> list[LiveFile]:
    """Return the live data files that an index file, or a merged one, names."""
    path = place.path(name)
    data = place.store.get(path)
    with inside(place.store.uri, path), unless_encrypted(data):
        parts = read_merged_index_file(data) if name.endswith(".carbonindexmerge") else {name: data}
        found: list[LiveFile] = []
        for own, part in parts.items():
            try:
                header, entries = read_index_file(part)
                columns = () if header is None else column_tree(header.columns)
            except Damaged as error:
                error.places.append(own)
                raise
            by_file: dict[str, list[BlockIndex]] = {}
            for entry in entries:
                by_file.setdefault(entry.file_name, []).append(entry)
            for file_name, of_file in by_file.items():
                live = _live(place, load, deletes, file_name, tuple(of_file))
                found += [] if live is None else [replace(live, columns=columns)]
    return found


def _live(
    place: Place, load: Load, deletes: BlockDeletes, file_name: str, entries: tuple[BlockIndex, ...]
) -> LiveFile | None:
    """Return a data file unless all its rows are gone."""
    deltas = deltas_of(deletes, place.folder, file_name, place.list_files)
    if deltas is None:
        return None
    update = deletes.get(file_name.rpartition("-")[0])
    gone = update.deleted_rows if update is not None else "0"
    return LiveFile(
        store=place.store,
        path=place.path(file_name),
        segment=load.name,
        kind=load.kind,
        entries=entries,
        deltas=deltas,
        size_bytes=entries[0].file_bytes if entries[0].file_bytes > 0 else -1,
        deleted_rows=int(gone) if gone.isdecimal() else 0,
    )


def _locations(stores: Stores, load: Load) -> dict[str, Location]:
    path = f"Metadata/segments/{load.segment_file}"
    data = stores.table.get(path)
    with inside(stores.table.uri, path), unless_encrypted(data):
        found = read_segment_file(data).locations
    return {folder: location for folder, location in found.items() if location.status == "Success"}
