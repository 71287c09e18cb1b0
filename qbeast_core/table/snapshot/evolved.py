"""A version as a change of it sees it that brings a new schema: the same files, more columns, or wider ones."""

from __future__ import annotations

from dataclasses import replace

from qbeast_core.log.schema import schema_from_delta
from qbeast_core.table.data.foreign_schema import visible_columns
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["with_schema"]


def with_schema(snapshot: Snapshot, schema_json: str) -> Snapshot:
    """Return a version with another schema, which no commit has yet; the version itself if it is the same.

    Parameters
    ----------
    snapshot : Snapshot
        As it is in the log.
    schema_json : str
        A Delta schema that its files can be read with.
    """
    if schema_json == snapshot.schema_json:
        return snapshot
    return replace(
        snapshot,
        metadata=snapshot.metadata.model_copy(update={"schema_string": schema_json}),
        schema=visible_columns(schema_from_delta(schema_json, path=snapshot.uri)),
        schema_json=schema_json,
    )
