"""Change columns: rename, drop and widen by metadata alone if files allow it; add a sample column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, UnsupportedTableError, invalid_argument, unknown_columns
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns, dropped, renamed, with_mapping, with_sample_column
from qbeast_core.log.protocol import WriteIntent
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.schema import (
    ENABLED,
    TYPE_CHANGES,
    VARIANT,
    VOID,
    Field,
    FieldPath,
    TypeChange,
    TypeLike,
    changes_hash,
    field_paths,
    fields_of,
    inner_fields,
    is_variant,
    is_widening,
    schema_to_delta,
)
from qbeast_core.results import MetadataResult
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.spec.table_config import BLOCKS_DIALECT, SAMPLE_COLUMN
from qbeast_core.support.process import new_id
from qbeast_core.table.commit import CommitOutcome, commit_metadata
from qbeast_core.table.data.schema import case_problems, check_sample_column, name_problems
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.index.counts import refuse_unindexed
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.maintenance.metadata import result_of, types_of
from qbeast_core.table.rewrite.replace import (
    Replacement,
    publish_replaced,
    refuse_copies,
    replace_rows,
    with_attempts,
)
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh, with_metadata, with_schema

_WIDENING: Final = "CHANGE COLUMNS"
# Types that Parquet stores in the same way.
_ALIKE: Final = frozenset({"byte", "short", "integer"})

# Names in the path of a change, by the keys of lists and maps.
_PATHS: Final[Mapping[str, str]] = {"elementType": "element", "keyType": "key", "valueType": "value"}
# A variant, as the schema of its rows has it.
_AS_STRUCT: Final = orjson.loads(schema_to_delta(pl.Schema({"": VARIANT})))["fields"][0]["type"]


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
    changed = [name for name, dtype in types.items() if dtype != snapshot.schema.get(name)]
    schema_json, noted_json, changes = _widened(snapshot, types)
    _refuse_indexed(snapshot, changes)
    parameters = {name: str(dtype) for name, dtype in types.items()}
    has_feature = "typeWidening" in (snapshot.protocol.writer_features or ())
    is_enabled = has_feature and snapshot.metadata.configuration.get(ENABLED, "").lower() == "true"
    needs_files = any(not {change.from_type, change.to_type} <= _ALIKE for change in changes)
    if needs_files and snapshot.files.height and not (is_enabled or upgrade_protocol):
        noted = snapshot.metadata.model_copy(update={"schema_string": noted_json})
        stored = StoredColumns.of(noted, snapshot.protocol.writer_features)
        wider = replace(with_schema(snapshot, schema_json), columns=stored)
        outcome, files = _rewrite_all(
            snapshot, wider, operation=_WIDENING, parameters=parameters, engine=engine
        )
        return result_of(outcome, changed, rewritten_files=files)
    upgrades = needs_files and bool(snapshot.files.height) and not is_enabled
    metadata = snapshot.metadata.model_copy(
        update={
            "schema_string": noted_json if has_feature or upgrades else schema_json,
            "configuration": {**snapshot.metadata.configuration, **({ENABLED: "true"} if upgrades else {})},
        }
    )
    features = ("typeWidening",) if upgrades else ()
    outcome = commit_metadata(
        snapshot, metadata, "columns", operation=_WIDENING, parameters=parameters, features=features
    )
    return result_of(outcome, changed)


def _rewrite_all(
    snapshot: Snapshot, changed: Snapshot, *, operation: str, parameters: Mapping[str, str], engine: Engine
) -> tuple[CommitOutcome, int]:
    """Write all rows to new files, as a version with another schema needs them, and publish both in one commit.

    Also return the number of new files. Conflicts with all files that other writers add meanwhile.
    """
    snapshot.check_writable("metadata", brings="columns")
    refuse_copies(Index(snapshot))
    replacement = Replacement(files=np.arange(snapshot.files.height))
    replaced = replace_rows(changed, replacement, "keep", engine=engine)
    metrics = {**replaced.metrics(snapshot.files), "numOutputRows": replaced.rows}
    info = {"operationParameters": dict(parameters), "operationMetrics": metrics}
    intent = WriteIntent(mode="append", brings="files", operation=operation, commit_info=info)
    conflict = partial(_widening_conflict, snapshot)
    outcome = publish_replaced(changed, replaced, intent, base=snapshot, conflict_with=conflict)
    return outcome, len(replaced.adds)


def _widening_conflict(base: Snapshot, newest: Snapshot) -> str | None:
    """Return why the new files conflict with the newest version, or None."""
    if newest.schema_json != base.schema_json:
        return "another writer changed the schema"
    new = newest.files.filter(~pl.col("path").is_in(base.files["path"].implode())).height
    return f"another writer added {new} file(s) with the schema from before the change" if new else None


def _widened(snapshot: Snapshot, wanted: Mapping[str, pl.DataType]) -> tuple[str, str, list[TypeChange]]:
    """Return the schema with new types as JSON, without and with notes for older files, and the changes."""
    whole = orjson.loads(snapshot.schema_json)
    names = [field["name"] for field in whole["fields"]]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        unknown_columns("columns", unknown, names)
    changed = {name: dtype for name, dtype in wanted.items() if dtype != snapshot.schema[name]}
    if not changed:
        return snapshot.schema_json, snapshot.schema_json, []
    wider = orjson.loads(schema_to_delta(pl.Schema(changed)))["fields"]
    types = {field["name"]: field["type"] for field in wider}
    changes: list[TypeChange] = []
    plain, noted = list[Any](), list[Any]()
    for field in whole["fields"]:
        name = field["name"]
        wanted_type = types.get(name, field["type"])
        try:
            new, of_field = _widened_field(field, wanted_type)
        except NotWiderError as error:
            raise _not_wider(snapshot, name, changed[name]) from error
        noted.append(new)
        changes += of_field
        # For tables whose files all have the new types.
        plain.append(_widened_field(field, wanted_type, noting=False)[0])
    schema_json, noted_json = (
        orjson.dumps({**whole, "fields": fields}).decode() for fields in (plain, noted)
    )
    return schema_json, noted_json, changes


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


def _widened_field(
    field: Mapping[str, Any], wanted: Any, *, noting: bool = True
) -> tuple[dict[str, Any], list[TypeChange]]:
    """Return a field with a wider type, with notes of the changes for older files, and the changes.

    >>> field, changes = _widened_field({"name": "x", "type": "byte", "metadata": {}}, "long")
    >>> field["metadata"]["delta.typeChanges"], changes[0].to_type
    ([{'fromType': 'byte', 'toType': 'long'}], 'long')
    """
    widening = _Widening(field["name"], noting=noting)
    dtype = widening.of(field["type"], wanted, ())
    new = {**field, "type": dtype}
    if noting and widening.notes:
        metadata = dict(field.get("metadata") or {})
        new["metadata"] = {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, ()), *widening.notes]}
    return new, widening.changes


class _Widening:
    """Walks through the type of a field; the structs inside it have fields with notes of their own."""

    def __init__(self, column: str, *, noting: bool) -> None:
        self._column, self._noting = column, noting
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
            part, changes = _widened_field(field, wider["type"], noting=self._noting)
            new.append(part)
            self.changes += [change._replace(column=self._column, is_whole=False) for change in changes]
        return new


_CONSTRAINT: Final = "delta.constraints."
_INVARIANT: Final = "delta.invariants"
_GENERATED: Final = "delta.generationExpression"
_IDENTITY: Final = "delta.identity."
_CLUSTERING: Final = "clustering"


def rename_column(
    snapshot: Snapshot, column: str, name: str, *, upgrade_protocol: bool
) -> tuple[MetadataResult, Snapshot | None]:
    """Rename a column or a field; see `Table.rename_column`."""

    def attempt(snapshot: Snapshot) -> tuple[MetadataResult, Snapshot | None]:
        path = _find_column(snapshot, column)
        _refuse_new_name(snapshot, path, name)
        _refuse_dialect(snapshot)
        _refuse(path, "renamed", _rules_with(snapshot.metadata, path))
        changed = renamed(_mapped(snapshot, upgrade_protocol=upgrade_protocol), path, name)
        new = ".".join((*path[:-1], name))
        parameters = {"oldColumnPath": column, "newColumnPath": new}
        return _publish(snapshot, changed, "RENAME COLUMN", parameters, new)

    return with_attempts(refresh(snapshot), attempt)


def drop_column(
    snapshot: Snapshot, column: str, *, upgrade_protocol: bool
) -> tuple[MetadataResult, Snapshot | None]:
    """Drop a column or a field; see `Table.drop_column`."""

    def attempt(snapshot: Snapshot) -> tuple[MetadataResult, Snapshot | None]:
        path = _find_column(snapshot, column)
        _refuse_dialect(snapshot)
        rules = _rules_with(snapshot.metadata, path, is_dropped=True)
        _refuse(path, "dropped", [*_uses(snapshot, path), *rules, *_last_of(snapshot.metadata, path)])
        changed = dropped(_mapped(snapshot, upgrade_protocol=upgrade_protocol), path)
        parameters = {"columns": orjson.dumps([column]).decode()}
        return _publish(snapshot, changed, "DROP COLUMNS", parameters, column)

    return with_attempts(refresh(snapshot), attempt)


def _mapped(snapshot: Snapshot, *, upgrade_protocol: bool) -> Metadata:
    """Return the metadata with column mapping, which a table without it gets only if the user wants it."""
    if snapshot.columns.is_mapped:
        return snapshot.metadata
    if not upgrade_protocol:
        _refuse_without_mapping(snapshot)
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


def _conflict(base: Snapshot, newest: Snapshot) -> str | None:
    """Return why the change has to be checked again: the column may be indexed or constrained by now."""
    same = base.metadata == newest.metadata and base.protocol == newest.protocol
    return None if same else "another writer changed the columns or the settings of the table"


def _find_column(snapshot: Snapshot, column: object) -> FieldPath:
    """Return the path of a column, or of a field in a column; raise if the table does not have it."""
    if not isinstance(column, str):
        problem = "must be the name of a column, or of a field: 'address.street'"
        invalid_argument("column", problem, value=column)
    paths = [path for path in field_paths(snapshot.schema_json) if path[0].lower() != WEIGHT_COLUMN]
    matches = [path for path in paths if column in (".".join(path), _quoted(path))]
    if not matches:
        unknown_columns("column", [column], map(".".join, paths))
    if len(matches) > 1:
        msg = f"`column` {column!r} names a column and a field, or two fields. "
        cure = f"Put each name into backticks: {' or '.join(map(_quoted, matches))}."
        raise InvalidInputError(msg + cure, argument="column", value=column)
    return matches[0]


def _quoted(path: FieldPath) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def _refuse_without_mapping(snapshot: Snapshot) -> NoReturn:
    """Raise for a table without column mapping."""
    msg = (
        f"{snapshot.uri!r} does not map columns, so no column can be renamed or dropped. "
        "upgrade_protocol=True adds the table feature columnMapping, which cannot be removed. Then these refuse the "
        "table: Polars' "
        "scan_delta; to_pandas, to_pyarrow_table, optimize and alter of deltalake (QueryBuilder and write_deltalake go "
        "on); Daft; and Spark with Delta before 2.3."
    )
    raise UnsupportedTableError(msg, path=snapshot.uri, feature="columnMapping")


def _refuse_new_name(snapshot: Snapshot, path: FieldPath, name: object) -> None:
    """Raise if a column or a field cannot have a name."""
    if not isinstance(name, str):
        invalid_argument("name", "must be the new name, a text", value=name)
    beside = [
        other[-1] for other, _ in _fields(snapshot.metadata) if other[:-1] == path[:-1] and other != path
    ]
    problems = name_problems({name: None}) + case_problems(
        [name], pl.Schema(dict.fromkeys(beside, pl.Null()))
    )
    problems = [f"there is a column {name!r}"] if name in (*beside, path[-1]) else problems
    if problems:
        msg = f"{'.'.join(path)!r} cannot be renamed to {name!r}: {'; '.join(problems)}."
        raise InvalidInputError(msg, argument="name", value=name)


def _uses(snapshot: Snapshot, path: FieldPath) -> Iterator[str]:
    """Yield what a table needs a column for."""
    name, config = path[0], snapshot.config
    if _CLUSTERING in (snapshot.protocol.writer_features or ()):
        yield "the table has liquid clustering, perhaps by it"
    if any(
        key.startswith(_IDENTITY)
        for place, field in _fields(snapshot.metadata)
        for key in field.get("metadata") or {}
        if place == path
    ):
        yield "it is an identity column"
    if len(path) > 1:  # only whole columns have the other uses
        return
    if name in snapshot.columns.partitions:
        yield "the table is partitioned by it"
    if name == snapshot.sample_column:
        yield "it is the sample column"
    if name in config.sample_by:
        yield "it is in the sampling key of the table"
    numbers = [str(number) for number, revision in config.revisions.items() if name in revision.columns]
    if numbers:
        yield f"it is indexed (revision {', '.join(numbers)}); Table.reindex takes other columns"


def _rules_with(metadata: Metadata, path: FieldPath, *, is_dropped: bool = False) -> Iterator[str]:
    """Yield the rules of a table that name a column, in which a rename or a drop would change the meaning.

    A name in a text counts, whatever it refers to there.
    """
    for key, text in metadata.configuration.items():
        if key.startswith(_CONSTRAINT) and _names(text, path[-1]):
            yield f"the constraint {key.removeprefix(_CONSTRAINT)!r} names it"
    for place, field in _fields(metadata):
        if is_dropped and place[: len(path)] == path:
            continue  # its own rules go with it
        notes = field.get("metadata") or {}
        if _names(str(notes.get(_INVARIANT, "")), path[-1]):
            yield f"the invariant of {'.'.join(place)!r} names it"
        if _names(str(notes.get(_GENERATED, "")), path[-1]):
            yield f"the generated column {'.'.join(place)!r} is computed from it"


def _names(text: str, name: str) -> bool:
    """Return whether an SQL text has a name, in any case.

    >>> _names("`Price` > 0 AND note <> 'n'", "price"), _names("unit_price > 0", "price")
    (True, False)
    """
    without_texts = re.sub(r"'(?:[^'\\\\]|\\\\.)*'", "''", text)
    escaped = re.escape(name.replace("`", "``"))
    return re.search(rf"(?<!\w){escaped}(?!\w)", without_texts, re.IGNORECASE) is not None


def _last_of(metadata: Metadata, path: FieldPath) -> Iterator[str]:
    """Yield why the table, a struct, or the keys of a map need the field."""
    beside = [other for other, _ in _fields(metadata) if other[:-1] == path[:-1] and other != path]
    if len(path) == 1:
        hidden = {*metadata.partition_columns, WEIGHT_COLUMN}
        beside = [other for other in beside if other[0] not in hidden]
    if not beside:
        yield "it is the last one"
    if _is_in_key(orjson.loads(metadata.schema_string), path):
        yield "it is part of the keys of a map, which have to differ"


def _is_in_key(dtype: Any, path: FieldPath) -> bool:
    for place, field in inner_fields(dtype):
        if path[: len(place)] == place:
            return "key" in place[:-1] or _is_in_key(field["type"], path[len(place) :])
    return False


def _fields(metadata: Metadata) -> Iterator[tuple[FieldPath, Field]]:
    return fields_of(orjson.loads(metadata.schema_string))


def _refuse_dialect(snapshot: Snapshot) -> None:
    if dialect_of(snapshot) == "qbeast-spark" and snapshot.config.is_indexed:
        msg = (
            f"{snapshot.uri!r} has the dialect 'qbeast-spark', and qbeast-spark does not support column mapping. "
            "Use the dialect 'documented': Table.switch_dialect."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=BLOCKS_DIALECT)


def _refuse(path: FieldPath, done: str, reasons: Iterable[str]) -> None:
    why = "; ".join(reasons)
    if why:
        name = ".".join(path)
        msg = (
            f"{name!r} cannot be {done}: {why}. Change that first, or write the "
            "rows as you need them to a new table."
        )
        raise InvalidInputError(msg, argument="column", value=name)


_OPERATION: Final = "ADD SAMPLE COLUMN"


def add_sample_column(
    snapshot: Snapshot, name: str, *, engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    """Add a sample column; see `Table.add_sample_column`."""
    return with_attempts(refresh(snapshot), lambda newest: _attempt(newest, name, engine))


def _attempt(snapshot: Snapshot, name: str, engine: Engine) -> tuple[MetadataResult, Snapshot | None]:
    refuse_unindexed(snapshot)
    if snapshot.sample_column is not None:
        msg = (
            f"{snapshot.uri!r} has the sample column {snapshot.sample_column!r} already. "
            "Use that column: a table has one at most."
        )
        raise InvalidInputError(msg, argument="name", value=name)
    check_sample_column(name, snapshot.schema, dialect_of(snapshot), argument="name")
    # The column is null in the files of this version.
    changed = with_metadata(snapshot, with_sample_column(snapshot.metadata, name, new_id))
    parameters = {"column": name}
    if not snapshot.files.height:
        metadata = changed.metadata
        outcome = commit_metadata(snapshot, metadata, "columns", operation=_OPERATION, parameters=parameters)
        return result_of(outcome, [name])
    outcome, files = _rewrite_all(
        snapshot, changed, operation=_OPERATION, parameters=parameters, engine=engine
    )
    return result_of(outcome, [name], rewritten_files=files)
