"""Opens tables: schema, loads before and after compactions, and the data files of each segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from qbeast_carbondata.columns import Column, column_tree
from qbeast_carbondata.metadata.json_files import Load, UpdatedBlock, read_table_status, read_update_status
from qbeast_carbondata.metadata.segments import (
    LiveFile,
    Stores,
    columnar_files,
    external_files,
    files_of_folder,
    listed_files,
)
from qbeast_carbondata.stored_file import read_file
from qbeast_carbondata.structs import TableSchema, member, read_thrift
from qbeast_core.errors import DamagedFileError, StorageError, TableNotFoundError, UnsupportedTableError
from qbeast_core.io.store import LocalStore, Store, is_file

_CARBON: Final = ("columnar_v3", "columnar_v1", "carbondata", "carbon")
# A column of every secondary index; CarbonData reserves the name.
_POSITIONS: Final = "positionreference"
_STATUS: Final = "Metadata/tablestatus"
_ATTEMPTS: Final = 3  # a writer replaces it in place
_LISTED: Final = ("live segments", "deleted and compacted segments")
_OF_LOADS: Final = ("Fact/Part0/Segment_", "Metadata/segments/")


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A load and its live data files."""

    load: Load
    files: tuple[LiveFile, ...]

    @property
    def rows(self) -> int | None:
        """Rows that are not deleted, as index and update status count them; None if only the files know."""
        counts = [file.rows for file in self.files]
        if None in counts:
            return None
        return sum(count or 0 for count in counts) - sum(file.deleted_rows for file in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class TableSnapshot:
    """The metadata of a table at one moment."""

    stores: Stores
    # None for a folder of data files.
    schema: TableSchema | None
    # Visible columns in the order of the user; empty for a folder of data files.
    columns: tuple[Column, ...]
    # All entries of the table status; empty for a folder of data files.
    loads: tuple[Load, ...]
    updates: tuple[UpdatedBlock, ...]
    # Whether it has a table status.
    is_transactional: bool

    @property
    def uri(self) -> str:
        """The table's root."""
        return self.stores.table.uri

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""
        return {} if self.schema is None else self.schema.properties


def load_table(stores: Stores) -> TableSnapshot:
    """Read schema, table status and update status; a folder of data files has none of them."""
    store = stores.table
    if isinstance(store, LocalStore) and is_file(store.local_root):
        message = f"there is no CarbonData table at {store.uri!r}: it is a file; name the folder that holds the file"
        raise TableNotFoundError(message, path=store.uri)
    schema, columns = _schema(store)
    _refuse_index_table(store, columns)
    loads = _table_status(store, schema)
    if schema is None and loads is None:
        _refuse_without_data(store)
    updates = _updates(store, loads or ())
    return TableSnapshot(stores, schema, columns, loads or (), updates, is_transactional=loads is not None)


def load_segment(table: TableSnapshot, load: Load | None) -> Segment:
    """Return a segment with its data files; None means all files of a folder."""
    stores = table.stores
    if load is None:
        whole = Load.model_validate({"loadName": "", "loadStatus": "Success"})
        return Segment(whole, tuple(files_of_folder(stores, whole)))
    updates = {update.block: update for update in table.updates if update.segment == load.name}
    try:
        if not load.segment_file:
            files = listed_files(stores, load, updates)
        elif load.kind in _CARBON or load.kind.startswith("row"):
            files = columnar_files(stores, load, updates)
        else:
            files = external_files(stores, load)
    except FileNotFoundError as error:
        path = str(error.filename or error)
        message = (
            f"segment {load.name!r} of {table.uri!r} refers to {path!r}, which does not exist. Restore it."
        )
        raise StorageError(message, path=path) from error
    return Segment(load, tuple(files))


def _schema(store: Store) -> tuple[TableSchema | None, tuple[Column, ...]]:
    """Return the schema and its visible columns; ``Metadata/schema`` counts before names that begin with it."""
    below = [path for path in store.list("Metadata") if path.startswith("Metadata/schema")]
    paths = [path for path in below if path.count("/") == 1]
    if not paths:
        return None, ()
    path = min(paths, key=lambda path: (path != "Metadata/schema", path))
    return read_file(store, path, _read_schema)


def _read_schema(data: bytes) -> tuple[TableSchema, tuple[Column, ...]]:
    """Return the schema and the columns a user sees, in their order; partition columns last, as in Spark."""
    schema, _ = read_thrift(data, member(1, TableSchema.of))
    last = {column.column_id for column in schema.partitioning.columns}
    visible = [column for column in column_tree(schema.columns) if column.is_visible]
    visible.sort(key=lambda c: (c.schema.column_id in last, c.schema.ordinal < 0, c.schema.ordinal))
    return schema, tuple(visible)


def _table_status(store: Store, schema: TableSchema | None) -> tuple[Load, ...] | None:
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
            raise _lost(store, path, *_LISTED) from error
    if schema is not None:
        _refuse_lost(store, store.list(""))
    return None


def _refuse_lost(store: Store, paths: Sequence[str]) -> None:
    """Raise if a table without a status has loads: deleted ones would come back."""
    versions = sorted(path for path in paths if path.startswith(f"{_STATUS}_"))
    if versions:
        message = (
            f"{store.uri!r} keeps versions of its table status ({', '.join(versions[-3:])}), and its schema does not "
            f"name the one that counts. Copy the one that counts, as a rule the last, to {_STATUS!r}."
        )
        raise UnsupportedTableError(message, path=versions[-1], feature="versions of a table status")
    if any(path.startswith(_OF_LOADS) for path in paths):
        raise _lost(store, _STATUS, *_LISTED)


def _lost(store: Store, path: str, listed: str, returning: str) -> StorageError:
    message = (
        f"{store.uri!r} lost {path!r}, which lists the {listed} of the table: {returning} would come "
        "back. Restore the file."
    )
    return StorageError(message, path=path)


def _updates(store: Store, loads: Sequence[Load]) -> tuple[UpdatedBlock, ...]:
    """Return the live update status, whose name the first entry has."""
    name = next((load.update_status_file for load in loads if load.update_status_file), "")
    path = f"Metadata/{name}"
    try:
        return read_file(store, path, read_update_status) if name else ()
    except FileNotFoundError as error:
        if not any(load.is_visible for load in loads):
            return ()
        raise _lost(store, path, "deleted rows", "deleted rows") from error


def _refuse_index_table(store: Store, columns: Sequence[Column]) -> None:
    """Raise if a table is the secondary index of another table."""
    names = [column.schema.name for column in columns]
    indexed = [name for name in names if name.lower() != _POSITIONS]
    if len(indexed) < len(names):
        message = (
            f"{store.uri!r} is a secondary index of CarbonData: it repeats columns of another table "
            f"({', '.join(indexed)}) beside the positions of their rows in its files. Open the table "
            "that it belongs to, which has all of the rows; index these columns when you import it."
        )
        raise UnsupportedTableError(message, path=store.uri, feature="secondary index table")


def _refuse_without_data(store: Store) -> None:
    """Raise if a folder without a schema has no data file."""
    paths = store.list("")
    if any(path.endswith(".carbondata") for path in paths):
        return
    indexes = [path for path in paths if path.endswith((".carbonindex", ".carbonindexmerge"))]
    if indexes:
        message = (
            f"{store.uri!r} has index files of CarbonData ({indexes[0]!r} ...) and no data file: there are no rows to "
            "read. Name the folder of the *.carbondata files, or restore them."
        )
        raise UnsupportedTableError(message, path=store.uri, feature="index files alone")
    message = f"there is no CarbonData table at {store.uri!r}: no Metadata/schema and no *.carbondata file."
    raise TableNotFoundError(message, path=store.uri)


def replayed_loads(table: TableSnapshot, live: Sequence[Segment]) -> list[Segment]:
    """Return the segments to replay, oldest first; together they have the rows of the live ones.

    A compacted segment is replaced by its loads if all of them can still be read and no row of any was deleted or
    updated, before or after.
    """
    segments = [load for segment in live for load in _inputs(table, segment) or [segment]]
    return sorted(segments, key=lambda segment: segment.load.order)


def _inputs(table: TableSnapshot, segment: Segment, above: frozenset[str] = frozenset()) -> list[Segment]:
    """Return the loads that a segment was compacted from, or an empty list."""
    above |= {segment.load.name}
    loads = [load for load in table.loads if load.merged_into == segment.load.name and not load.is_visible]
    if any(load.name in above for load in loads):  # a cycle
        return []
    changed = {update.segment for update in table.updates}
    changed |= {load.name for load in table.loads if load.update_end}
    if not loads or changed & {segment.load.name, *(load.name for load in loads)}:
        return []
    try:
        inputs = [load_segment(table, load) for load in loads]
        for file in (file for load in inputs for file in load.files):
            file.store.size(file.path)  # compacted loads are cleaned up after a while
    except (UnsupportedTableError, DamagedFileError, StorageError, FileNotFoundError):
        return []
    expanded = [inner for load in inputs for inner in (_inputs(table, load, above) or [load])]
    counts = [load.rows for load in expanded]
    is_complete = None not in counts and sum(count or 0 for count in counts) == segment.rows
    return expanded if is_complete else []
