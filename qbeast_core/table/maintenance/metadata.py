"""Changes of a table's metadata alone: properties, columns that files need not have, types that hold theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
import polars as pl

from qbeast_core.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError, refuse
from qbeast_core.hints import Message, did_you_mean, named
from qbeast_core.log.actions import Metadata
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.properties import SETTABLE, expected_value
from qbeast_core.log.protocol import Brings, check_writable
from qbeast_core.table.commit.commit import CommitOutcome, commit
from qbeast_core.table.data.column_names import name_problems
from qbeast_core.table.data.schema import merged_schema
from qbeast_core.table.snapshot.snapshot import Snapshot

__all__ = ["add_columns", "set_properties", "widen_columns"]

# What may end, though not begin: a table without it asks less of everyone.
_ENDABLE: Final = frozenset({"delta.enableChangeDataFeed"})
_OUTCOME: Final = "nothing was changed"
_TYPES: Final = 'must map names to Polars types, {"price": pl.Float64}'
_RULE: Final = "delta.constraints."

# Parquet stores them alike, so files of the narrower type are files of the wider one (Delta asks for no feature).
_BYTES: Final[Mapping[pl.DataType, int]] = {pl.Int8(): 1, pl.Int16(): 2, pl.Int32(): 4}
_NAMES: Final[Mapping[int, str]] = {2: "short", 4: "integer"}


def set_properties(snapshot: Snapshot, properties: Mapping[str, str | None]) -> CommitOutcome:
    """Set and unset properties; see `Table.set_properties` for which, and for what is raised."""
    if not isinstance(cast("object", properties), Mapping):
        refuse("properties", "must map names to texts, or to None to unset them", _OUTCOME, given=properties)
    for key, value in properties.items():
        _refuse_property(snapshot, key, value)
    configuration = dict(snapshot.metadata.configuration)
    for key, value in properties.items():
        if value is None:
            configuration.pop(key, None)
        else:
            configuration[key] = value
    told = {key: "" if value is None else value for key, value in properties.items()}
    changed = snapshot.metadata.model_copy(update={"configuration": configuration})
    return _publish(snapshot, changed, brings="settings", operation="SET TBLPROPERTIES", told=told)


def add_columns(snapshot: Snapshot, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> CommitOutcome:
    """Add columns; see `Table.add_columns` for which, and for what is raised."""
    new = pl.DataFrame(schema=_types(columns))
    known = {name.lower(): name for name in snapshot.schema}
    problems = [
        f"{name!r} is there as {known[name.lower()]!r}" for name in new.columns if name.lower() in known
    ]
    problems += name_problems(new.schema)
    if problems:
        msg = f"columns cannot be added to {snapshot.uri!r}: {'; '.join(problems)}. Nothing was changed."
        raise SchemaMismatchError(msg, problems=problems)
    schema = merged_schema(snapshot.schema_json, snapshot.schema, new)
    changed = snapshot.metadata.model_copy(update={"schema_string": schema})
    return _publish(
        snapshot, changed, brings="columns", operation="ADD COLUMNS", told={"columns": ",".join(new.columns)}
    )


def widen_columns(
    snapshot: Snapshot, columns: Mapping[str, pl.DataType | type[pl.DataType]]
) -> CommitOutcome:
    """Give columns wider types; see `Table.widen_columns` for which, and for what is raised."""
    wider = _types(columns)
    whole = orjson.loads(snapshot.schema_json)
    fields = {field["name"]: field for field in whole["fields"]}
    unknown = [name for name in wider if name not in fields]
    if unknown:
        msg = Message(
            named("columns", unknown, fields),
            f" names no such column(s): {unknown}; nothing was changed. {snapshot.uri!r} has {list(fields)}."
            f"{did_you_mean(unknown, fields)}",
        )
        raise InvalidInputError(msg, argument="columns")
    for name, wanted in wider.items():
        now = snapshot.schema[name]
        if now != wanted and (now not in _BYTES or _BYTES.get(wanted, 0) < _BYTES[now]):
            text = (
                f"column {name!r} is {now} and cannot become {wanted}: that takes Delta's feature typeWidening, which "
                "qbeast does not support. Nothing was changed; without it Int8 can become Int16 or Int32, Int16 Int32."
            )
            raise UnsupportedTableError(text, path=snapshot.uri, feature="typeWidening")
        if now != wanted:
            fields[name]["type"] = _NAMES[_BYTES[wanted]]
    changed = snapshot.metadata.model_copy(update={"schema_string": orjson.dumps(whole).decode()})
    told = {name: str(dtype) for name, dtype in wider.items()}
    kept = all(snapshot.schema[name] == dtype for name, dtype in wider.items())
    published = snapshot.metadata if kept else changed
    return _publish(snapshot, published, brings="columns", operation="CHANGE COLUMNS", told=told)


def _types(columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.Schema:
    try:
        return pl.DataFrame(schema=pl.Schema(columns)).schema
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        refuse("columns", _TYPES, _OUTCOME, given=columns)


def _publish(
    snapshot: Snapshot, metadata: Metadata, *, brings: Brings, operation: str, told: Mapping[str, Any]
) -> CommitOutcome:
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings=brings)
    intent = WriteIntent(
        mode="metadata",
        brings=brings,
        metadata=metadata,
        operation=operation,
        commit_info={"operationParameters": dict(told)},
    )
    return commit(snapshot.source.store, snapshot, intent)


def _refuse_property(snapshot: Snapshot, key: object, value: object) -> None:
    if not isinstance(key, str) or not key or not isinstance(value, str | None):
        msg = f"properties map texts to texts, or to None to unset them; got {key!r}: {value!r}. Nothing was changed."
        raise InvalidInputError(msg, argument="properties")
    if key.lower().startswith("qbeast."):
        msg = f"{key!r} describes the index and is qbeast's own; nothing was changed. Use the method that it is about."
        raise InvalidInputError(msg, argument="properties")
    ends = value is None or (key in _ENDABLE and value.lower() == "false")
    if ends and (key in _ENDABLE or key.startswith(_RULE)):
        return
    if key.lower().startswith("delta.") and key not in SETTABLE:
        msg = (
            f"{key!r} cannot be set by qbeast: it may ask for features of Delta that qbeast does not support. Nothing "
            f"was changed; these can be set: {', '.join(sorted(SETTABLE))}, and names of your own; these can be unset "
            f"with None as well: {', '.join(sorted(_ENDABLE))}, {_RULE}<name>."
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature=key)
    expected = None if value is None else expected_value(key, value)
    if expected is not None:
        msg = f"{key!r} takes {expected}, got {value!r}. Nothing was changed."
        raise InvalidInputError(msg, argument="properties")
    named = snapshot.protocol.writer_features
    if key == "delta.appendOnly" and value is not None and named is not None and "appendOnly" not in named:
        msg = f"{key!r} needs the feature appendOnly, which {snapshot.uri!r} does not have. Nothing was changed."
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="appendOnly")
