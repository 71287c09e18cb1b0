"""Opens tables: what a table is now, its segments and the data files of each, for every layout there was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qbeast_core.carbondata.columns import Column, column_tree
from qbeast_core.carbondata.deletes import deletes_by_block
from qbeast_core.carbondata.encryption import unless_encrypted
from qbeast_core.carbondata.fields import read_fields
from qbeast_core.carbondata.inside import inside
from qbeast_core.carbondata.json_files import Load, UpdatedBlock, read_update_status
from qbeast_core.carbondata.listed_segments import files_of_folder, listed_files
from qbeast_core.carbondata.segments import Stores, columnar_files, external_files
from qbeast_core.carbondata.snapshot import Segment, TableSnapshot
from qbeast_core.carbondata.structs.schema import TableInfo, TableSchema
from qbeast_core.carbondata.table_status import load_table_status
from qbeast_core.errors import StorageError, TableNotFoundError, UnsupportedTableError
from qbeast_core.io.local import LocalStore
from qbeast_core.io.store import Store

_CARBON: Final = ("columnar_v3", "columnar_v1", "carbondata", "carbon")
# What a secondary index has beside its columns; CarbonData lets no other table have a column of this name.
_POSITIONS: Final = "positionreference"


def load_table(stores: Stores) -> TableSnapshot:
    """Read schema, table status and update status of a table, or find that it is a folder of data files."""
    store = stores.table
    if isinstance(store, LocalStore) and store.local_root.is_file():
        message = (
            f"there is no CarbonData table at {store.uri!r}: it is a file; give the folder that it is in"
        )
        raise TableNotFoundError(message, path=store.uri)
    schema, columns = _schema(store)
    _refuse_index_table(store, columns)
    loads = load_table_status(store, schema)
    if loads is None:
        if schema is None:
            _refuse_without_data(store)
        return TableSnapshot(stores, schema, columns, (), (), is_transactional=False)
    return TableSnapshot(stores, schema, columns, loads, _updates(store, loads), is_transactional=True)


def load_segment(table: TableSnapshot, load: Load | None) -> Segment:
    """Return a segment with its data files."""
    stores = table.stores
    if load is None:
        whole = Load.model_validate({"loadName": "", "loadStatus": "Success"})
        return Segment(whole, tuple(files_of_folder(stores, whole)))
    try:
        if load.segment_file and load.kind not in _CARBON and not load.kind.startswith("row"):
            return Segment(load, tuple(external_files(stores, load)))
        deletes = deletes_by_block(table.updates, load.name)
        found = (columnar_files if load.segment_file else listed_files)(stores, load, deletes)
        return Segment(load, tuple(found))
    except FileNotFoundError as error:
        path = str(error.filename or error)
        message = (
            f"segment {load.name!r} of {table.uri!r} names a file that is not there: {path!r}. Restore it."
        )
        raise StorageError(message, path=path) from error


def _schema(store: Store) -> tuple[TableSchema | None, tuple[Column, ...]]:
    """Return the schema and the columns it shows; of the files whose names begin so, the plain name counts first."""
    names = [path for path in _below(store, "Metadata") if path.rpartition("/")[2].startswith("schema")]
    for path in sorted(names, key=lambda one: (one != "Metadata/schema", one))[:1]:
        data = store.get(path)
        with inside(store.uri, path), unless_encrypted(data):
            schema = read_fields(data, TableInfo.of)[0].fact_table
            return schema, _shown(schema)
    return None, ()


def _shown(schema: TableSchema) -> tuple[Column, ...]:
    """Return the columns that a user sees, in their order; partition columns last, as Spark has them."""
    found = [one for one in column_tree(schema.columns) if not one.schema.invisible and not one.is_dummy]
    last = {one.column_id for one in schema.partitioning.columns} if schema.partitioning else set[str]()
    return tuple(sorted(found, key=lambda one: (one.schema.column_id in last, _ordinal(one))))


def _ordinal(column: Column) -> int:
    return column.schema.ordinal if column.schema.ordinal >= 0 else 1 << 31


def _updates(store: Store, loads: Sequence[Load]) -> tuple[UpdatedBlock, ...]:
    """Return the live update status: the first entry names it."""
    name = next((load.update_status_file for load in loads if load.update_status_file), "")
    if not name:
        return ()
    path = f"Metadata/{name}"
    try:
        data = store.get(path)
    except FileNotFoundError as error:
        if not any(load.is_visible for load in loads):
            return ()
        message = (
            f"{store.uri!r} lost {path!r}, which tells the deleted rows of the table. Nothing was read: deleted rows "
            "would come back. Restore the file."
        )
        raise StorageError(message, path=path) from error
    with inside(store.uri, path), unless_encrypted(data):
        return read_update_status(data)


def _refuse_index_table(store: Store, columns: Sequence[Column]) -> None:
    """Raise where a table is the secondary index of another."""
    names = [column.schema.name for column in columns]
    if any(name.lower() == _POSITIONS for name in names):
        held = ", ".join(name for name in names if name.lower() != _POSITIONS)
        message = (
            f"{store.uri!r} is a secondary index of CarbonData: it repeats columns of another table ({held}) beside "
            "the places of their rows in its files, which mean nothing elsewhere. Nothing was read. Open the table "
            "that it belongs to, which has all of the rows; index these columns when you import it."
        )
        raise UnsupportedTableError(message, path=store.uri, feature="secondary index table")


def _refuse_without_data(store: Store) -> None:
    """Raise where a folder without schema holds no data file."""
    paths = store.list("")
    if any(path.endswith(".carbondata") for path in paths):
        return
    indexes = [path for path in paths if path.endswith((".carbonindex", ".carbonindexmerge"))]
    if indexes:
        message = (
            f"{store.uri!r} holds index files of CarbonData ({indexes[0]!r} ...) and no data file: there is no row to "
            "read. Give the folder where the *.carbondata files are, or bring them back."
        )
        raise UnsupportedTableError(message, path=store.uri, feature="index files alone")
    message = f"there is no CarbonData table at {store.uri!r}: no Metadata/schema, and no *.carbondata file."
    raise TableNotFoundError(message, path=store.uri)


def _below(store: Store, folder: str) -> list[str]:
    """List the files right in a folder."""
    prefix = f"{folder}/"
    return [path for path in store.list(folder) if "/" not in path.removeprefix(prefix)]
