"""Rename and drop columns: commits of metadata alone, in tables that map columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import orjson

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns.mapping import dropped, renamed, with_mapping
from qbeast_core.results import MetadataResult
from qbeast_core.table.commit.commit import commit_metadata
from qbeast_core.table.maintenance.columns.refusals import (
    find_column,
    refuse_drop,
    refuse_new_name,
    refuse_rename,
    refuse_without_mapping,
)
from qbeast_core.table.maintenance.metadata import result_of
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.publish import with_attempts
from qbeast_core.table.snapshot.snapshot import Snapshot


def rename_column(
    reader: Reader, column: str, name: str, *, upgrade_protocol: bool
) -> tuple[MetadataResult, Snapshot | None]:
    """Rename a column or a field; see `Table.rename_column`."""

    def attempt(newest: Reader) -> tuple[MetadataResult, Snapshot | None]:
        snapshot = newest.snapshot
        path = find_column(snapshot, column)
        refuse_new_name(snapshot, path, name)
        refuse_rename(snapshot, path)
        changed = renamed(_mapped(snapshot, upgrade_protocol=upgrade_protocol), path, name)
        new = ".".join((*path[:-1], name))
        parameters = {"oldColumnPath": column, "newColumnPath": new}
        return _publish(snapshot, changed, "RENAME COLUMN", parameters, new)

    return with_attempts(reader, attempt)


def drop_column(
    reader: Reader, column: str, *, upgrade_protocol: bool
) -> tuple[MetadataResult, Snapshot | None]:
    """Drop a column or a field; see `Table.drop_column`."""

    def attempt(newest: Reader) -> tuple[MetadataResult, Snapshot | None]:
        snapshot = newest.snapshot
        path = find_column(snapshot, column)
        refuse_drop(snapshot, path)
        changed = dropped(_mapped(snapshot, upgrade_protocol=upgrade_protocol), path)
        parameters = {"columns": orjson.dumps([column]).decode()}
        return _publish(snapshot, changed, "DROP COLUMNS", parameters, column)

    return with_attempts(reader, attempt)


def _mapped(snapshot: Snapshot, *, upgrade_protocol: bool) -> Metadata:
    """Return the metadata with column mapping, which a table without it gets only if the user wants it."""
    if snapshot.columns.is_mapped:
        return snapshot.metadata
    if not upgrade_protocol:
        refuse_without_mapping(snapshot)
    return with_mapping(snapshot.metadata)


def _publish(
    snapshot: Snapshot, changed: Metadata, operation: str, parameters: Mapping[str, str], name: str
) -> tuple[MetadataResult, Snapshot | None]:
    outcome = commit_metadata(
        snapshot,
        changed,
        "columns",
        operation=operation,
        parameters=parameters,
        conflict_with=partial(_conflict, snapshot),
    )
    return result_of(outcome, [name])


def _conflict(planned: Snapshot, newest: Snapshot) -> str | None:
    """Return why the change has to be checked again: the column may be indexed or constrained by now."""
    same = planned.metadata == newest.metadata and planned.protocol == newest.protocol
    return None if same else "another writer changed the columns or the settings of the table"
