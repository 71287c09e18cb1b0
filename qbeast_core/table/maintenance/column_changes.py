"""Rename and drop columns by metadata alone, and add a sample column, which rewrites the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, UnsupportedTableError, invalid_argument, unknown_columns
from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import dropped, renamed, with_mapping, with_sample_column
from qbeast_core.log.rebase import dialect_of
from qbeast_core.log.schema import Field, FieldPath, field_paths, fields_of, inner_fields
from qbeast_core.results import MetadataResult
from qbeast_core.spec.blocks import WEIGHT_COLUMN
from qbeast_core.spec.table_config import BLOCKS_DIALECT
from qbeast_core.support.process import new_id
from qbeast_core.table.commit import commit_metadata
from qbeast_core.table.data.schema import case_problems, check_sample_column, name_problems
from qbeast_core.table.engine.engine import Engine
from qbeast_core.table.index.counts import refuse_unindexed
from qbeast_core.table.maintenance.metadata import result_of
from qbeast_core.table.maintenance.widen import rewrite_all
from qbeast_core.table.rewrite.replace import with_attempts
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh, with_metadata

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
        _refuse_rename(snapshot, path)
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
        _refuse_drop(snapshot, path)
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


def _conflict(planned: Snapshot, newest: Snapshot) -> str | None:
    """Return why the change has to be checked again: the column may be indexed or constrained by now."""
    same = planned.metadata == newest.metadata and planned.protocol == newest.protocol
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


def _refuse_rename(snapshot: Snapshot, path: FieldPath) -> None:
    """Raise if a column cannot be renamed."""
    _refuse_dialect(snapshot)
    _refuse(path, "renamed", list(_rules_with(snapshot.metadata, path)))


def _refuse_drop(snapshot: Snapshot, path: FieldPath) -> None:
    """Raise if a column cannot be dropped."""
    _refuse_dialect(snapshot)
    uses = list(_uses(snapshot, path))
    rules = _rules_with(snapshot.metadata, path, is_dropped=True)
    _refuse(path, "dropped", [*uses, *rules, *_last_of(snapshot.metadata, path)])


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


def _refuse(path: FieldPath, done: str, reasons: list[str]) -> None:
    if reasons:
        name = ".".join(path)
        msg = (
            f"{name!r} cannot be {done}: {'; '.join(reasons)}. Change that first, or write the "
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
