"""Change columns to wider types: in the log only if readers accept the files, otherwise with new files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import UnsupportedTableError, unknown_columns
from qbeast_core.log.columns import StoredColumns
from qbeast_core.log.protocol import WriteIntent, check_writable
from qbeast_core.log.schema import (
    ENABLED,
    TYPE_CHANGES,
    VARIANT,
    VOID,
    TypeChange,
    TypeLike,
    changes_hash,
    is_variant,
    is_widening,
    schema_to_delta,
)
from qbeast_core.results import MetadataResult
from qbeast_core.spec.table_config import SAMPLE_COLUMN
from qbeast_core.table.commit import CommitOutcome, commit_metadata
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.maintenance.metadata import result_of, types_of
from qbeast_core.table.rewrite.replace import (
    Replacement,
    publish_replaced,
    refuse_copies,
    replace_rows,
    with_attempts,
)
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh, with_schema

_WIDENING: Final = "CHANGE COLUMNS"
# Types that Parquet stores in the same way.
_ALIKE: Final = frozenset({"byte", "short", "integer"})

# Names in the path of a change, by the keys of lists and maps.
_PATHS: Final[Mapping[str, str]] = {"elementType": "element", "keyType": "key", "valueType": "value"}
# A variant, as the schema of its rows has it.
_AS_STRUCT: Final = orjson.loads(schema_to_delta(pl.Schema({"": VARIANT})))["fields"][0]["type"]


@dataclass(frozen=True, slots=True)
class _Widened:
    """The schema with wider types."""

    # As the table has it when all files have the new types, and with notes of the changes.
    schema_json: str
    noted_json: str
    changes: list[TypeChange]
    changed: list[str]


def widen_columns(
    snapshot: Snapshot, columns: Mapping[str, TypeLike], *, upgrade_protocol: bool = False, engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    """Give columns wider types; see `Table.widen_columns` for which, and for what is raised."""
    attempt = partial(_attempt_widening, columns=columns, upgrade_protocol=upgrade_protocol, engine=engine)
    return with_attempts(refresh(snapshot), attempt)


def _attempt_widening(
    snapshot: Snapshot, *, columns: Mapping[str, TypeLike], upgrade_protocol: bool, engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    types = types_of(columns)
    _refuse_sample_column(snapshot, types)
    new = _widened(snapshot, types)
    _refuse_indexed(snapshot, new.changes)
    parameters = {name: str(dtype) for name, dtype in types.items()}
    has_feature = "typeWidening" in (snapshot.protocol.writer_features or ())
    is_enabled = has_feature and snapshot.metadata.configuration.get(ENABLED, "").lower() == "true"
    needs_files = any(not {change.from_type, change.to_type} <= _ALIKE for change in new.changes)
    if needs_files and snapshot.files.height and not (is_enabled or upgrade_protocol):
        outcome, files = rewrite_all(
            snapshot, _read_as(snapshot, new), operation=_WIDENING, parameters=parameters, engine=engine
        )
        return result_of(outcome, new.changed, rewritten_files=files)
    upgrades = needs_files and bool(snapshot.files.height) and not is_enabled
    metadata = snapshot.metadata.model_copy(
        update={
            "schema_string": new.noted_json if has_feature or upgrades else new.schema_json,
            "configuration": {**snapshot.metadata.configuration, **({ENABLED: "true"} if upgrades else {})},
        }
    )
    features = ("typeWidening",) if upgrades else ()
    outcome = commit_metadata(
        snapshot, metadata, "columns", operation=_WIDENING, parameters=parameters, features=features
    )
    return result_of(outcome, new.changed)


def rewrite_all(
    snapshot: Snapshot, changed: Snapshot, *, operation: str, parameters: Mapping[str, str], engine: Engine
) -> tuple[CommitOutcome, int]:
    """Write all rows to new files, as a version with another schema needs them, and publish both in one commit.

    Also return the number of new files. Conflicts with all files that other writers add meanwhile.
    """
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings="columns")
    refuse_copies(Index(snapshot))
    replacement = Replacement(files=np.arange(snapshot.files.height))
    replaced = replace_rows(changed, replacement, "keep", engine=engine)
    metrics = {**replaced.metrics(snapshot.files), "numOutputRows": replaced.rows}
    info = {"operationParameters": dict(parameters), "operationMetrics": metrics}
    intent = WriteIntent(mode="append", brings="files", operation=operation, commit_info=info)
    conflict = partial(_widening_conflict, snapshot)
    outcome = publish_replaced(changed, replaced, intent, base=snapshot, conflict_with=conflict)
    return outcome, len(replaced.adds)


def _widening_conflict(planned: Snapshot, newest: Snapshot) -> str | None:
    """Return why the new files conflict with the newest version, or None."""
    if newest.schema_json != planned.schema_json:
        return "another writer changed the schema"
    new = newest.files.filter(~pl.col("path").is_in(planned.files["path"].implode())).height
    return f"another writer added {new} file(s) with the schema from before the change" if new else None


def _widened(snapshot: Snapshot, wanted: Mapping[str, pl.DataType]) -> _Widened:
    """Return the Delta schema with new types; raise if a type is not wider."""
    whole = orjson.loads(snapshot.schema_json)
    names = [field["name"] for field in whole["fields"]]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        unknown_columns("columns", unknown, names)
    changed = {name: dtype for name, dtype in wanted.items() if dtype != snapshot.schema[name]}
    if not changed:
        return _Widened(snapshot.schema_json, snapshot.schema_json, [], [])
    wider = orjson.loads(schema_to_delta(pl.Schema(changed)))["fields"]
    types = {field["name"]: field["type"] for field in wider}
    changes: list[TypeChange] = []
    noted: list[Any] = []
    for field in whole["fields"]:
        name = field["name"]
        try:
            new, of_field = _widened_field(field, types.get(name, field["type"]))
        except NotWiderError as error:
            raise _not_wider(snapshot, name, changed[name]) from error
        noted.append(new)
        changes += of_field
    plain = [_without_notes(new, field) for new, field in zip(noted, whole["fields"], strict=True)]
    texts = [orjson.dumps({**whole, "fields": fields}).decode() for fields in (plain, noted)]
    return _Widened(texts[0], texts[1], changes, list(changed))


def _read_as(snapshot: Snapshot, new: _Widened) -> Snapshot:
    """Return the version with the new schema, which reads files of the old types."""
    noted = snapshot.metadata.model_copy(update={"schema_string": new.noted_json})
    columns = StoredColumns.of(noted, snapshot.protocol.writer_features)
    return replace(with_schema(snapshot, new.schema_json), columns=columns)


def _refuse_sample_column(snapshot: Snapshot, types: Mapping[str, pl.DataType]) -> None:
    if snapshot.sample_column in types:
        msg = (
            f"{snapshot.sample_column!r} is the sample column of {snapshot.uri!r}: its values are computed, and "
            "have 16 significant bits. Add another column of this type: Table.add_columns."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=SAMPLE_COLUMN)


def _refuse_indexed(snapshot: Snapshot, changes: Sequence[TypeChange]) -> None:
    indexed = sorted(
        {change.column for change in changes if changes_hash(change)} & set(snapshot.key_columns)
    )
    if indexed:
        msg = (
            f"column(s) {indexed} are indexed or in the sampling key: rows are placed by the hash of their "
            "values as they are stored, which "
            f"another type would change. Cast them into a new table: {_copy(snapshot)}."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")


def _not_wider(snapshot: Snapshot, name: str, dtype: pl.DataType) -> UnsupportedTableError:
    msg = (
        f"column {name!r} is {snapshot.schema[name]} and cannot become {dtype}: integers become wider ones, decimals "
        "or (up to Int32) Float64, Float32 becomes Float64, decimals get more digits on both sides of the point, dates "
        "become timestamps without zone. "
        f"Cast it into a new table: {_copy(snapshot)}."
    )
    return UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")


def _copy(snapshot: Snapshot) -> str:
    """Return the call that copies a table, indexed as it is."""
    latest = snapshot.config.latest
    indexed = "[...]" if latest is None else list(latest.column_specs)
    key = f", sample_by={list(snapshot.config.sample_by)}" if snapshot.config.sample_by else ""
    return f"qbeast.write_table(qbeast.scan_table({snapshot.uri!r}), new, columns={indexed}{key})"


class NotWiderError(Exception):
    """A type of a schema cannot become another one without new values."""


def _widened_field(field: Mapping[str, Any], wanted: Any) -> tuple[dict[str, Any], list[TypeChange]]:
    """Return a field with a wider type and notes of the changes, for older files, and the changes.

    >>> field, changes = _widened_field({"name": "x", "type": "byte", "metadata": {}}, "long")
    >>> field["metadata"]["delta.typeChanges"], changes[0].to_type
    ([{'fromType': 'byte', 'toType': 'long'}], 'long')
    """
    widening = _Widening(field["name"])
    dtype = widening.of(field["type"], wanted, ())
    new = {**field, "type": dtype}
    if widening.notes:
        metadata = dict(field.get("metadata") or {})
        new["metadata"] = {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, ()), *widening.notes]}
    return new, widening.changes


class _Widening:
    """Walks through the type of a field; the structs inside it have fields with notes of their own."""

    def __init__(self, column: str) -> None:
        self._column = column
        self.notes: list[dict[str, str]] = []
        self.changes: list[TypeChange] = []

    def of(self, dtype: Any, wanted: Any, path: tuple[str, ...]) -> Any:
        """Return the wider type. The path leads to it, through lists and maps."""
        if dtype in (wanted, VOID) or (is_variant(dtype) and wanted == _AS_STRUCT):
            return wanted if dtype == VOID else dtype
        if isinstance(dtype, str):
            self._note(dtype, wanted, path)
            return wanted
        if not isinstance(wanted, dict) or dtype["type"] != wanted["type"]:
            raise NotWiderError
        if dtype["type"] == "struct":
            return {**dtype, "fields": self._fields(dtype["fields"], wanted["fields"])}
        inner = {
            key: self.of(dtype[key], wanted[key], (*path, name))
            for key, name in _PATHS.items()
            if key in dtype
        }
        return {**dtype, **inner}

    def _note(self, dtype: str, wanted: Any, path: tuple[str, ...]) -> None:
        if not isinstance(wanted, str) or not is_widening(dtype, wanted):
            raise NotWiderError
        where = {"fieldPath": ".".join(path)} if path else {}
        self.notes.append({"fromType": dtype, "toType": wanted, **where})
        self.changes.append(TypeChange(self._column, not path, dtype, wanted))

    def _fields(self, fields: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if [field["name"] for field in fields] != [field["name"] for field in wanted]:
            raise NotWiderError
        new: list[dict[str, Any]] = []
        for field, wider in zip(fields, wanted, strict=True):
            part, changes = _widened_field(field, wider["type"])
            new.append(part)
            self.changes += [change._replace(column=self._column, is_whole=False) for change in changes]
        return new


def _without_notes(field: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a widened field with the notes that it had before, for tables whose files all have the new types."""
    new = {**field, "metadata": before.get("metadata", {}), "type": _plain(field["type"], before["type"])}
    return new if "metadata" in before else {key: value for key, value in new.items() if key != "metadata"}


def _plain(dtype: Any, before: Any) -> Any:
    if not isinstance(dtype, dict) or not isinstance(before, dict):
        return dtype
    if dtype["type"] == "struct":
        pairs = zip(dtype["fields"], before["fields"], strict=True)
        return {**dtype, "fields": [_without_notes(field, old) for field, old in pairs]}
    return {**dtype, **{key: _plain(dtype[key], before[key]) for key in _PATHS if key in dtype}}
