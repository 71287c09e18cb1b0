"""A version with a new schema that is not committed yet: the same files, with more or wider columns."""

from __future__ import annotations

import warnings
from dataclasses import replace

import polars as pl

from qbeast_core.errors import AddedColumnWarning
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns, config_by_name, with_fields
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.schema import schema_from_delta
from qbeast_core.support.process import caller_stacklevel, new_id
from qbeast_core.table.data.foreign_schema import visible_columns
from qbeast_core.table.snapshot.snapshot import Snapshot


def with_schema(snapshot: Snapshot, schema_json: str) -> Snapshot:
    """Return a version with another schema; the version itself if the schema is the same."""
    return with_metadata(snapshot, with_fields(snapshot.metadata, schema_json, new_id))


def with_metadata(snapshot: Snapshot, metadata: Metadata) -> Snapshot:
    """Return a version with other metadata; the version itself if they are the same."""
    if metadata == snapshot.metadata:
        return snapshot
    columns = StoredColumns.of(metadata, snapshot.protocol.writer_features)
    return replace(
        snapshot,
        metadata=metadata,
        config=config_by_name(metadata.configuration, columns),
        columns=columns,
        schema=visible_columns(schema_from_delta(metadata.schema_string, path=snapshot.uri)),
        schema_json=metadata.schema_string,
    )


def warn_of_added_columns(before: Snapshot, schema: pl.Schema) -> None:
    """Warn if columns were added to a table with rows that qbeast-spark may optimize."""
    added = [name for name in schema if name not in before.schema]
    if not added or not before.files.height or dialect_of(before) != "qbeast-spark":
        return
    message = (
        f"column(s) {added} were added to {before.uri!r}. qbeast-spark 0.7.1 ignores the schema of the table when it "
        "optimizes files, and their values become null then. Do not optimize this table with it; Table.optimize() "
        "keeps them."
    )
    warnings.warn(message, AddedColumnWarning, stacklevel=caller_stacklevel())
