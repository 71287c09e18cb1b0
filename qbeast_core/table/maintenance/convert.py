"""Convert a Delta table, or a folder of Parquet files, to a table that optimize indexes; files stay (format 12)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl

from qbeast_core.errors import (
    CommitConflictError,
    InvalidColumnsError,
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
)
from qbeast_core.io.location import Location
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import PLAIN, StoredColumns, config_by_name
from qbeast_core.log.protocol import WriteIntent, check_writable
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.results import Result
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import ColumnSpec
from qbeast_core.support.process import now_ms
from qbeast_core.table.commit import commit
from qbeast_core.table.data.scan import open_files
from qbeast_core.table.data.schema import listed_names, log_instead, refuse_mapping, refuse_vectors
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.engine.files import rows_of
from qbeast_core.table.engine.local import MEMORY
from qbeast_core.table.index.revision import column_texts, refuse_collations, resolve_specs
from qbeast_core.table.maintenance.parquet_folder import AT_ONCE, add_of, find_parquet
from qbeast_core.table.snapshot.snapshot import Snapshot, load_snapshot
from qbeast_core.table.write.by_tasks import indexed_metadata
from qbeast_core.table.write.options import WriteOptions, check_options, sampling_key

_DEFAULT: Final[BlocksDialect] = "documented"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvertResult(Result):
    """Outcome of `qbeast.convert_table`.

    Attributes
    ----------
    version : int
        The version that names the columns to index; the present one if it did so before, or after a dry run
        (-1 if there is no table yet).
    committed : bool
        False if it was a qbeast table with the same columns already, and after a dry run.
    dry_run : bool
        Whether the conversion is only planned.
    created_log : bool
        Whether Parquet files became a Delta table first.
    files, bytes : int
        Data files and their bytes; none is changed.
    rows : int or None
        Rows in these files; None if their statistics do not count them.
    columns : tuple of str
        The columns to index.
    cube_size : int
        Target rows per cube of the first revision.
    """

    created_log: bool
    files: int
    bytes: int
    rows: int | None
    columns: tuple[str, ...]
    cube_size: int


def convert(location: Location, options: WriteOptions, *, engine: Engine = MEMORY) -> ConvertResult:
    """Convert a table; see `qbeast.convert_table` for the options and errors."""
    check_options(options)
    specs = resolve_specs(options.columns, None)
    # If another writer was first, perhaps with the same conversion, try once more.
    with suppress(CommitConflictError, TableExistsError):
        return _convert(location, specs, options, engine)
    return _convert(location, specs, options, engine)


def _convert(
    location: Location, specs: Sequence[ColumnSpec], options: WriteOptions, engine: Engine
) -> ConvertResult:
    store, uri = location.store, location.uri
    location.refuse_changes()
    rows: int | None
    try:
        snapshot = load_snapshot(location)
    except TableNotFoundError as error:
        snapshot = Snapshot.empty(location)
        if log_instead(uri) is not None:
            raise  # its checkpoints are Parquet files
        paths, in_files, partitions = find_parquet(store, error)
        schema = pl.Schema({**in_files, **partitions})
        facts = {"schema_string": schema_to_delta(schema), "partition_columns": tuple(partitions)}
        plain = snapshot.metadata.model_copy(update=facts)
        indexed_metadata(plain, schema, specs, options, uri=uri, rows=0)  # raises before every file is read
        look = partial(add_of, files=open_files(location, PLAIN), schema=in_files, now_ms=now_ms())
        adds = tuple(engine.map(look, paths, at_once=AT_ONCE))
        sizes = [add.size for add in adds]
        rows = rows_of(adds)
        intent = WriteIntent(mode="create", adds=adds)
    else:
        plain, schema, sizes = snapshot.metadata, snapshot.schema, snapshot.files["size_bytes"].to_list()
        counts: pl.Series = snapshot.files["num_records"]
        rows = None if counts.null_count() else int(counts.sum())
        if snapshot.config.latest is not None or (snapshot.config.is_left_unindexed and not specs):
            _refuse_other_index(snapshot, specs, options)
            return _result(plain, snapshot.version, sizes, rows, dry_run=options.dry_run)
        check_writable(snapshot.protocol, plain, mode="metadata", path=uri, brings="settings")
        _refuse_stored_columns(snapshot, specs, options)
        intent = WriteIntent(mode="metadata", brings="settings")
    metadata = indexed_metadata(plain, schema, specs, options, uri=uri, rows=rows)
    result = _result(metadata, snapshot.version, sizes, rows, dry_run=options.dry_run)
    if options.dry_run:
        return result
    columns = {"columnsToIndex": ",".join(column_texts(options.columns or ()))}
    info = {**options.commit_metadata, "operationParameters": columns}
    intent = replace(intent, metadata=metadata, operation="CONVERT", commit_info=info)
    outcome = commit(store, snapshot, intent)
    return replace(result, version=outcome.version, committed=True)


def _refuse_stored_columns(snapshot: Snapshot, specs: Sequence[ColumnSpec], options: WriteOptions) -> None:
    if options.dialect == "qbeast-spark":
        refuse_mapping(snapshot.uri, snapshot.columns)
        refuse_vectors(snapshot.uri, snapshot.protocol)
    key = listed_names(options.sample_by or (), "sample_by")
    refuse_collations([*(spec.name for spec in specs), *key], snapshot.columns.collated)


def _refuse_other_index(snapshot: Snapshot, specs: Sequence[ColumnSpec], options: WriteOptions) -> None:
    """Raise if a qbeast table is indexed otherwise than requested."""
    config = snapshot.config
    latest = config.latest
    indexed = config.column_specs or (latest.columns if latest is not None else ())
    requested = [str(spec) for spec in specs] if config.column_specs else [spec.name for spec in specs]
    if tuple(requested) != tuple(indexed):
        msg = (
            f"{snapshot.uri!r} is a qbeast table already, indexed by {list(indexed)}, not by {requested}. "
            "Table.reindex(columns=[...]) indexes it by other columns."
        )
        raise InvalidColumnsError(msg, columns=requested)
    sampling_key(
        options.sample_by,
        snapshot.schema,
        now=config.sample_by,
        may_change=False,
        dialect=config.dialect or _DEFAULT,
    )
    if options.dialect not in (None, config.dialect) and config.column_specs:
        what = f"{snapshot.uri!r} is a qbeast table already, in dialect {config.dialect!r}"
        msg = f"{what}. Use Table.switch_dialect()."
        raise InvalidInputError(msg, argument="dialect")


def _result(
    metadata: Metadata, version: int, sizes: Sequence[int], rows: int | None, *, dry_run: bool
) -> ConvertResult:
    """Return the result of a conversion that is not committed, of files of these sizes in bytes."""
    latest = config_by_name(metadata.configuration, StoredColumns.of(metadata)).latest
    return ConvertResult(
        version=version,
        committed=False,
        dry_run=dry_run,
        created_log=version < 0,
        files=len(sizes),
        bytes=sum(sizes),
        rows=rows,
        columns=() if latest is None else latest.columns,
        cube_size=0 if latest is None else latest.desired_cube_size,
    )
