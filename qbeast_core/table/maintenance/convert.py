"""Make a Delta table, or a folder of Parquet files, a table with an index to come; data stays in place (format 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import orjson
import polars as pl

from qbeast_core.errors import (
    CommitConflictError,
    InvalidColumnsError,
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
)
from qbeast_core.hints import Message, argument, call
from qbeast_core.io.s3_locking import refuse_unsafe_locking
from qbeast_core.io.store import Store, open_store
from qbeast_core.log.actions import Metadata
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.results import Result
from qbeast_core.runtime import new_id, now_ms
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.revision import staging_revision
from qbeast_core.spec.table_config import BLOCKS_DIALECT, TableConfig, qbeast_spark_entries
from qbeast_core.table.commit.commit import commit
from qbeast_core.table.data.column_names import refuse_names
from qbeast_core.table.data.found_instead import log_instead
from qbeast_core.table.engine.memory import MEMORY
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.index.column_texts import column_texts
from qbeast_core.table.index.revision import check_columns, resolve_specs
from qbeast_core.table.maintenance.parquet_folder import AT_ONCE, AddParquet, ParquetFolder, find_parquet
from qbeast_core.table.read.scan_task import open_files
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_core.table.write.options import WriteOptions, check_options
from qbeast_core.tree.evolve import default_cube_size

_DEFAULT: Final[BlocksDialect] = "documented"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvertResult(Result):
    """Outcome of `qbeast.convert_table`.

    Attributes
    ----------
    version : int
        Version of the table that knows its index; the present one when it knew it before, and after a dry run
        (-1 where there is no table yet).
    committed : bool
        False when the table was one of qbeast's already, with the same columns, and after a dry run.
    dry_run : bool
        Whether this is only what would be done.
    created_log : bool
        Whether Parquet files became a Delta table first, or would.
    files, bytes : int
        Data files and their bytes, none of them touched.
    rows : int or None
        Rows in these files; None where their statistics do not say.
    columns : tuple of str
        The columns to index.
    cube_size : int
        Rows that a cube of the first revision will aim to hold.
    """

    created_log: bool
    files: int
    bytes: int
    rows: int | None
    columns: tuple[str, ...]
    cube_size: int

    also: ClassVar[tuple[str, ...]] = ("converted",)

    @property
    def converted(self) -> bool:
        """The older name of `committed`."""
        return self.committed


def convert(uri: str, options: WriteOptions, *, engine: Engine = MEMORY) -> ConvertResult:
    """Convert a table; see `qbeast.convert_table` for what the options mean and what is raised."""
    check_options(options)
    specs = resolve_specs(options.columns, None)
    try:
        return _convert(uri, specs, options, engine)
    except (CommitConflictError, TableExistsError):  # another writer was first: perhaps it did just this
        return _convert(uri, specs, options, engine)


def _convert(uri: str, specs: Sequence[ColumnSpec], options: WriteOptions, engine: Engine) -> ConvertResult:
    store = open_store(uri, options.storage_options)
    uri = store.uri
    refuse_unsafe_locking(store.uri, options.storage_options)
    try:
        snapshot = load_snapshot(uri, storage_options=options.storage_options)
    except TableNotFoundError as error:
        if log_instead(uri) is not None:
            raise  # its checkpoints are Parquet files
        folder = find_parquet(store, error)
        return _convert_parquet(store, folder, specs, options, engine=engine)
    if snapshot.config.latest is not None:
        _refuse_other_index(snapshot, specs, options)
        return replace(_result(snapshot, committed=False, created_log=False), dry_run=options.dry_run)
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=uri, brings="settings")
    rows = _rows(snapshot)
    metadata = _indexed(
        snapshot.metadata, snapshot.schema, specs, options, uri=uri, rows=rows, now_ms=now_ms()
    )
    if options.dry_run:
        bytes_there = int(snapshot.files["size_bytes"].sum())
        return _planned(
            metadata, snapshot.version, files=snapshot.files.height, size_bytes=bytes_there, rows=rows
        )
    intent = WriteIntent(mode="metadata", brings="settings", metadata=metadata, **_told(options))
    return _published(store, snapshot, intent, options)


def _convert_parquet(
    store: Store,
    folder: ParquetFolder,
    specs: Sequence[ColumnSpec],
    options: WriteOptions,
    *,
    engine: Engine,
) -> ConvertResult:
    now = now_ms()
    plain = Metadata(id=new_id(), schema_string=schema_to_delta(folder.schema), created_time=now)
    _refuse_columns(folder.schema, specs, options)  # before every file is read
    look = AddParquet(open_files(store.uri, options.storage_options or {}), folder.schema, now)
    adds = tuple(engine.map(look, folder.paths, at_once=AT_ONCE))
    rows = sum(int(orjson.loads(file.stats or "{}")["numRecords"]) for file in adds)
    metadata = _indexed(plain, folder.schema, specs, options, uri=store.uri, rows=rows, now_ms=now)
    if options.dry_run:
        return _planned(metadata, -1, files=len(adds), size_bytes=sum(file.size for file in adds), rows=rows)
    intent = WriteIntent(mode="create", adds=adds, metadata=metadata, **_told(options))
    return _published(store, None, intent, options)


def _published(
    store: Store, snapshot: Snapshot | None, intent: WriteIntent, options: WriteOptions
) -> ConvertResult:
    outcome = commit(store, snapshot, intent, storage_options=options.storage_options)
    newest = outcome.snapshot or load_snapshot(store.uri, storage_options=options.storage_options)
    done = _result(newest, committed=True, created_log=snapshot is None)
    return replace(done, version=outcome.version)


def _told(options: WriteOptions) -> dict[str, Any]:
    """Return what the history says of every conversion."""
    columns = {"columnsToIndex": ",".join(column_texts(options.columns or ()))}
    return {
        "operation": "CONVERT",
        "commit_info": {**options.commit_metadata, "operationParameters": columns},
    }


def _refuse_other_index(snapshot: Snapshot, specs: Sequence[ColumnSpec], options: WriteOptions) -> None:
    """Raise where a table of qbeast's is to be converted into another one."""
    config = snapshot.config
    latest = config.latest
    known = config.column_specs or (latest.columns if latest is not None else ())
    asked = [str(spec) for spec in specs] if config.column_specs else [spec.name for spec in specs]
    if tuple(asked) != tuple(known):
        msg = Message(
            f"{snapshot.uri!r} is a qbeast table already, indexed by {list(known)}, not by {asked}; nothing was "
            "changed. Only a write with ",
            *(argument(mode="overwrite"), " can index other columns."),
        )
        raise InvalidColumnsError(msg, columns=asked)
    if options.dialect not in (None, config.dialect) and config.column_specs:
        msg = Message(
            f"{snapshot.uri!r} is a qbeast table already, in dialect {config.dialect!r}; nothing was changed. Use ",
            *(call("Table.switch_dialect"), "."),
        )
        raise InvalidInputError(msg, argument="dialect")


def _refuse_columns(schema: pl.Schema, specs: Sequence[ColumnSpec], options: WriteOptions) -> None:
    refuse_names(schema, argument="path")
    check_columns(specs, schema, options.dialect or _DEFAULT)


def _indexed(
    plain: Metadata,
    schema: pl.Schema,
    specs: Sequence[ColumnSpec],
    options: WriteOptions,
    *,
    uri: str,
    rows: int | None,
    now_ms: int,
) -> Metadata:
    """Return the metadata with revision 0, which owns what is not indexed yet."""
    _refuse_columns(schema, specs, options)
    size = options.cube_size or default_cube_size(rows or 0)
    dialect = options.dialect or _DEFAULT
    staging = staging_revision(
        [spec.name for spec in specs], timestamp_ms=now_ms, table_id=uri, cube_size=size
    )
    listed = [str(spec) for spec in specs]
    more: Mapping[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
        more = {**more, **qbeast_spark_entries(listed, cube_size=size)}
    config = TableConfig.from_configuration(plain.configuration).without_faults().with_entries(more)
    config = config.with_revisions([staging]).with_column_specs(listed)
    return plain.model_copy(update={"configuration": config.to_configuration()})


def _rows(snapshot: Snapshot) -> int | None:
    counts: pl.Series = snapshot.files["num_records"]
    return None if counts.null_count() else int(counts.sum())


def _result(snapshot: Snapshot, *, committed: bool, created_log: bool) -> ConvertResult:
    bytes_there = int(snapshot.files["size_bytes"].sum())
    known = _planned(
        snapshot.metadata,
        snapshot.version,
        files=snapshot.files.height,
        size_bytes=bytes_there,
        rows=_rows(snapshot),
    )
    return replace(known, committed=committed, dry_run=False, created_log=created_log)


def _planned(
    metadata: Metadata, version: int, *, files: int, size_bytes: int, rows: int | None
) -> ConvertResult:
    """Return what a conversion that is not carried out would make of these files."""
    latest = TableConfig.from_configuration(metadata.configuration).latest
    return ConvertResult(
        version=version,
        committed=False,
        dry_run=True,
        created_log=version < 0,
        files=files,
        bytes=size_bytes,
        rows=rows,
        columns=() if latest is None else latest.columns,
        cube_size=0 if latest is None else latest.desired_cube_size,
    )
