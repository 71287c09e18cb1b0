"""Wider types for columns: by the log alone where narrow files are files of the wide type too, else by new files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
import polars as pl

from qbeast_core.errors import CommitConflictError, InvalidInputError, UnsupportedTableError
from qbeast_core.hints import Hint, Message, call, did_you_mean, named
from qbeast_core.log.protocol import check_writable
from qbeast_core.log.type_names import TypeLike
from qbeast_core.results import MetadataResult
from qbeast_core.table.engine.protocol import Engine
from qbeast_core.table.maintenance.metadata import publish_metadata, result_of, types_of
from qbeast_core.table.read.reader import Reader
from qbeast_core.table.rewrite.rewrite import Rewrite, rewrite
from qbeast_core.table.snapshot.evolved import with_schema
from qbeast_core.table.snapshot.snapshot import Snapshot, refresh

_BYTES: Final[Mapping[pl.DataType, int]] = {pl.Int8(): 1, pl.Int16(): 2, pl.Int32(): 4, pl.Int64(): 8}
_FLOATS: Final[Mapping[pl.DataType, int]] = {pl.Float32(): 4, pl.Float64(): 8}
_NAMES: Final[Mapping[pl.DataType, str]] = {
    pl.Int16(): "short",
    pl.Int32(): "integer",
    pl.Int64(): "long",
    pl.Float64(): "double",
}
_MOST_PLANS: Final = 5
_OPERATION: Final = "CHANGE COLUMNS"


def widen_columns(
    reader: Reader,
    columns: Mapping[str, TypeLike],
    *,
    engine: Engine,
) -> tuple[MetadataResult, Snapshot | None]:
    """Give columns wider types; see `Table.widen_columns` for which, and for what is raised."""
    for left in reversed(range(_MOST_PLANS)):
        reader = reader.renewed()
        try:
            return _attempt(reader, columns, engine)
        except CommitConflictError:
            if not left or refresh(reader.snapshot) is reader.snapshot:
                raise
    raise AssertionError  # the last round returns or raises


def _attempt(
    reader: Reader, columns: Mapping[str, TypeLike], engine: Engine
) -> tuple[MetadataResult, Snapshot | None]:
    snapshot = reader.snapshot
    wanted = types_of(columns)
    wide = with_schema(snapshot, _schema(snapshot, wanted))
    told = {name: str(dtype) for name, dtype in wanted.items()}
    changed = [name for name in wanted if snapshot.schema[name] != wide.schema[name]]
    stored_anew = [name for name in wanted if _is_stored_anew(snapshot.schema[name], wide.schema[name])]
    indexed = sorted(set(stored_anew) & set(reader.indexed))
    if indexed:
        msg = Message(
            f"column(s) {indexed} are indexed: rows lie by the hash of their values as they are stored, which another "
            "type would change. Nothing was changed. Cast them into a new table: ",
            *(_copy(snapshot), "."),
        )
        raise UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")
    if not stored_anew or not snapshot.files.height:
        outcome = publish_metadata(snapshot, wide.metadata, brings="columns", operation=_OPERATION, told=told)
        return result_of(outcome, changed)
    check_writable(snapshot.protocol, snapshot.metadata, mode="metadata", path=snapshot.uri, brings="columns")
    asked = Rewrite(
        files=np.arange(snapshot.files.height),
        keeps_places=True,
        keeps_keys=True,
        operation=_OPERATION,
        parameters=told,
        base=snapshot,
        conflict_with=_ConflictWith(snapshot),
    )
    replaced = rewrite(reader.at(wide), asked, engine=engine)
    if replaced is None or replaced.outcome is None:
        return MetadataResult(version=snapshot.version, committed=False, changed=()), snapshot
    return result_of(replaced.outcome, changed, rewritten_files=len(replaced.adds))


@dataclass(frozen=True, slots=True)
class _ConflictWith:
    """Why new files must not follow commits that came after the version they were made of; None: they may."""

    planned: Snapshot

    def __call__(self, newest: Snapshot) -> str | None:
        if newest.schema_json != self.planned.schema_json:
            return "another writer changed the schema"
        fresh = newest.files.filter(~pl.col("path").is_in(self.planned.files["path"].implode())).height
        return f"another writer added {fresh} file(s) of the narrower types" if fresh else None


def _schema(snapshot: Snapshot, wanted: Mapping[str, pl.DataType]) -> str:
    """Return the Delta schema with other types, or refuse them."""
    whole = orjson.loads(snapshot.schema_json)
    fields = {field["name"]: field for field in whole["fields"]}
    unknown = [name for name in wanted if name not in fields]
    if unknown:
        told = Message(
            named("columns", unknown, fields),
            f" names no such column(s): {unknown}; nothing was changed. {snapshot.uri!r} has {list(fields)}."
            f"{did_you_mean(unknown, fields)}",
        )
        raise InvalidInputError(told, argument="columns")
    for name, dtype in wanted.items():
        if dtype != snapshot.schema[name]:
            _check_wider(snapshot, name, dtype)
            fields[name]["type"] = _NAMES[dtype]
    changed = any(snapshot.schema[name] != dtype for name, dtype in wanted.items())
    return orjson.dumps(whole).decode() if changed else snapshot.schema_json


def _check_wider(snapshot: Snapshot, name: str, dtype: pl.DataType) -> None:
    now = snapshot.schema[name]
    if any(now in widths and widths.get(dtype, 0) > widths[now] for widths in (_BYTES, _FLOATS)):
        return
    msg = Message(
        f"column {name!r} is {now} and cannot become {dtype}: integers become wider ones, Float32 becomes Float64. "
        "Nothing was changed. Cast it into a new table: ",
        *(_copy(snapshot), "."),
    )
    raise UnsupportedTableError(msg, path=snapshot.uri, feature="typeWidening")


def _copy(snapshot: Snapshot) -> Hint:
    """Advise the call that copies a table, indexed as it is."""
    latest = snapshot.config.latest
    indexed = [...] if latest is None else list(latest.column_specs)
    return call("write_table", snapshot.uri, scan="scan_table", columns=indexed)


def _is_stored_anew(now: pl.DataType, wanted: pl.DataType) -> bool:
    """Tell whether files of a type are no files of the other: Parquet stores bytes, shorts and integers alike."""
    return now != wanted and (now.is_float() or _BYTES[wanted] > _BYTES[pl.Int32()])
