"""Add a sample column to a table: its rows are written to new files, which have the values."""

from __future__ import annotations

from typing import Final

from qbeast_core.errors import InvalidInputError
from qbeast_core.log.columns.mapping import with_sample_column
from qbeast_core.log.rebase import dialect_of
from qbeast_core.results import MetadataResult
from qbeast_core.support.runtime import new_id
from qbeast_core.table.commit.commit import commit_metadata
from qbeast_core.table.data.column_names import check_sample_column
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.index.unindexed import refuse_unindexed
from qbeast_core.table.maintenance.metadata import result_of
from qbeast_core.table.maintenance.widen import rewrite_all
from qbeast_core.table.rewrite.publish import with_attempts
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.snapshot.with_schema import with_metadata

_OPERATION: Final = "ADD SAMPLE COLUMN"


def add_sample_column(
    snapshot: Snapshot, name: str, *, engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    """Add a sample column; see `Table.add_sample_column`."""
    return with_attempts(snapshot, lambda newest: _attempt(newest, name, engine))


def _attempt(snapshot: Snapshot, name: str, engine: Engine) -> tuple[MetadataResult, Snapshot | None]:
    refuse_unindexed(snapshot)
    if snapshot.sample_column is not None:
        msg = (
            f"{snapshot.uri!r} has the sample column {snapshot.sample_column!r} already. "
            "Use that column: a table has one at most."
        )
        raise InvalidInputError(msg, argument="name", value=name)
    check_sample_column(name, snapshot.schema, dialect_of(snapshot), argument="name")
    changed, parameters = _with_column(snapshot, name), {"column": name}
    if not snapshot.files.height:
        metadata = changed.metadata
        outcome = commit_metadata(snapshot, metadata, "columns", operation=_OPERATION, parameters=parameters)
        return result_of(outcome, [name])
    outcome, files = rewrite_all(
        snapshot, changed, operation=_OPERATION, parameters=parameters, engine=engine
    )
    return result_of(outcome, [name], rewritten_files=files)


def _with_column(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the version with the column, which is null in its files."""
    return with_metadata(snapshot, with_sample_column(snapshot.metadata, name, new_id))
