"""Change columns to wider types: in the log only if readers accept the files, otherwise with new files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import UnsupportedTableError, unknown_columns
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.log.type_names import TypeLike
from qbeast_core.results import MetadataResult
from qbeast_core.spec.table_config import SAMPLE_COLUMN
from qbeast_core.table.commit.commit import CommitOutcome, commit_metadata
from qbeast_core.table.data.schema import is_wider
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.maintenance.metadata import result_of, types_of
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.publish import publish_replaced, with_attempts
from qbeast_core.table.rewrite.replace import Replacement, refuse_copies, replace_rows
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.snapshot.with_schema import with_schema

_OPERATION: Final = "CHANGE COLUMNS"


def widen_columns(
    reader: Reader, columns: Mapping[str, TypeLike], *, engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    """Give columns wider types; see `Table.widen_columns` for which, and for what is raised."""
    return with_attempts(reader, lambda newest: _attempt(newest, columns, engine))


def _attempt(
    reader: Reader, columns: Mapping[str, TypeLike], engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    snapshot = reader.snapshot
    types = types_of(columns)
    if snapshot.sample_column in types:
        msg = (
            f"{snapshot.sample_column!r} is the sample column of {snapshot.uri!r}: its values are computed, and "
            "have 16 significant bits. Nothing was changed. Add another column of this type: Table.add_columns."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=SAMPLE_COLUMN)
    wide = with_schema(snapshot, _schema(snapshot, types))
    parameters = {name: str(dtype) for name, dtype in types.items()}
    changed = [name for name in types if snapshot.schema[name] != wide.schema[name]]
    replaced_columns = [name for name in types if _needs_new_files(snapshot.schema[name], wide.schema[name])]
    indexed = sorted(set(replaced_columns) & set(reader.indexed))
    if indexed:
        msg = (
            f"column(s) {indexed} are indexed: rows are placed by the hash of their values as they are stored, which "
            f"another type would change. Nothing was changed. Cast them into a new table: {_copy(snapshot)}."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")
    if not replaced_columns or not snapshot.files.height:
        metadata = wide.metadata
        outcome = commit_metadata(snapshot, metadata, "columns", operation=_OPERATION, parameters=parameters)
        return result_of(outcome, changed)
    outcome, files = rewrite_all(reader, wide, operation=_OPERATION, parameters=parameters, engine=engine)
    return result_of(outcome, changed, rewritten_files=files)


def rewrite_all(
    reader: Reader, changed: Snapshot, *, operation: str, parameters: Mapping[str, str], engine: Engine
) -> tuple[CommitOutcome, int]:
    """Write all rows to new files, as a version with another schema needs them, and publish both in one commit.

    Also return the number of new files. Conflicts with all files that other writers add meanwhile.
    """
    snapshot = reader.snapshot
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings="columns")
    refuse_copies(reader.index_state)
    replacement = Replacement(files=np.arange(snapshot.files.height))
    replaced = replace_rows(reader.at(changed), replacement, "keep", engine=engine)
    metrics = {**replaced.metrics(snapshot.files), "numOutputRows": replaced.rows}
    info = {"operationParameters": dict(parameters), "operationMetrics": metrics}
    intent = WriteIntent(mode="append", brings="files", operation=operation, commit_info=info)
    conflict = partial(_conflict, snapshot)
    outcome = publish_replaced(reader.at(changed), replaced, intent, base=snapshot, conflict_with=conflict)
    return outcome, len(replaced.adds)


def _conflict(planned: Snapshot, newest: Snapshot) -> str | None:
    """Return why the new files conflict with the newest version, or None."""
    if newest.schema_json != planned.schema_json:
        return "another writer changed the schema"
    new = newest.files.filter(~pl.col("path").is_in(planned.files["path"].implode())).height
    return f"another writer added {new} file(s) with the schema from before the change" if new else None


def _schema(snapshot: Snapshot, wanted: Mapping[str, pl.DataType]) -> str:
    """Return the Delta schema with new types; raise if a type is not wider."""
    whole = orjson.loads(snapshot.schema_json)
    fields = {field["name"]: field for field in whole["fields"]}
    unknown = [name for name in wanted if name not in fields]
    if unknown:
        unknown_columns("columns", unknown, fields, "nothing was changed")
    changed = {name: dtype for name, dtype in wanted.items() if dtype != snapshot.schema[name]}
    for name, dtype in changed.items():
        now = snapshot.schema[name]
        if not is_wider(dtype, now):
            msg = (
                f"column {name!r} is {now} and cannot become {dtype}: integers become wider ones, Float32 becomes "
                f"Float64. Nothing was changed. Cast it into a new table: {_copy(snapshot)}."
            )
            raise UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")
        fields[name]["type"] = orjson.loads(schema_to_delta(pl.Schema({"": dtype})))["fields"][0]["type"]
    return orjson.dumps(whole).decode() if changed else snapshot.schema_json


def _copy(snapshot: Snapshot) -> str:
    """Return the call that copies a table, indexed as it is."""
    latest = snapshot.config.latest
    indexed = "[...]" if latest is None else list(latest.column_specs)
    return f"qbeast.write_table(qbeast.scan_table({snapshot.uri!r}), new, columns={indexed})"


def _needs_new_files(now: pl.DataType, wanted: pl.DataType) -> bool:
    """Return whether a new type needs new files: Parquet stores bytes, shorts and integers in the same way."""
    return now != wanted and (now.is_float() or wanted == pl.Int64())
