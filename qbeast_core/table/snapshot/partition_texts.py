"""Partition values as `deltalake` expects them: it refuses a whole log for texts that Spark reads.

Spark keeps the texts when a partition column gets a wider type: ``1`` of an integer, then of a decimal(12,2).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, TypeAlias

import orjson
import polars as pl

from qbeast_core.errors import QbeastError
from qbeast_core.io.stores.store import Store
from qbeast_core.log.columns.file_values import partition_texts, typed_values
from qbeast_core.log.columns.stored import physical_name
from qbeast_core.log.files.replay import LogState, actions_of
from qbeast_core.log.schema import type_from_delta
from qbeast_core.table.snapshot.log_files import newest_version, read_log

# Returns a file of a log, by its path and bytes, with other texts of partition values.
RewriteFile: TypeAlias = Callable[[str, bytes], bytes]

_KINDS = ("add", "remove", "cdc")
_ENTRIES = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))


def text_rewriter(store: Store, version: int | None) -> RewriteFile | None:
    """Return a function that rewrites the files of a log for `deltalake`. None: its metadata cannot be read."""
    try:
        log = read_log(store, newest_version(store, version), actions=("metaData",))
        types = _partition_types(log)
    except (QbeastError, FileNotFoundError, ValueError, KeyError, TypeError):
        return None

    @cache
    def text_of(name: str, text: str | None) -> str | None:
        return text if text is None or name not in types else _rewritten(text, types[name])

    def rewrite(path: str, body: bytes) -> bytes:
        if path.endswith(".json"):
            return b"\n".join(_line(line, text_of) for line in body.splitlines()) + b"\n"
        return _checkpoint(body, text_of) if path.endswith(".parquet") else body

    return rewrite


def _partition_types(log: LogState) -> dict[str, pl.DataType]:
    """Return the types of the partition columns by their names in files."""
    found: dict[str, Any] = {}
    for part in (*log.checkpoint, *log.commits):
        found = next(actions_of(part, "metaData"), found)
    fields: Mapping[str, Any] = {
        field["name"]: field for field in orjson.loads(found["schemaString"])["fields"]
    }
    partitions = [fields[name] for name in found["partitionColumns"]]
    return {physical_name(field): type_from_delta(field["type"]) for field in partitions}


def _rewritten(text: str, dtype: pl.DataType) -> str | None:
    """Return the text of a value as we write it; unchanged if it is not exactly a value of the type."""
    try:
        values = typed_values(pl.Series([text]), dtype)
        is_exact = not isinstance(dtype, pl.Decimal) or Decimal(text) == values[0]
    except (pl.exceptions.PolarsError, InvalidOperation):
        return text
    return partition_texts(values).item() if is_exact else text


def _line(line: bytes, text_of: Callable[[str, str | None], str | None]) -> bytes:
    if b'"partitionValues"' not in line:
        return line
    action: dict[str, Any] = orjson.loads(line)
    for kind in _KINDS:
        values = (action.get(kind) or {}).get("partitionValues")
        if values:
            action[kind]["partitionValues"] = {name: text_of(name, text) for name, text in values.items()}
    return orjson.dumps(action)


def _checkpoint(body: bytes, text_of: Callable[[str, str | None], str | None]) -> bytes:
    frame = pl.read_parquet(io.BytesIO(body))
    for kind in _KINDS:
        if kind not in frame.columns or "partitionValues" not in frame[kind].struct.fields:
            continue
        values = pl.col(kind).struct.field("partitionValues").cast(_ENTRIES)
        entries = frame.select(values.alias(kind)).explode(kind)[kind].drop_nulls().unique().to_list()
        new = [{"key": entry["key"], "value": text_of(entry["key"], entry["value"])} for entry in entries]
        if new == entries:
            continue
        olds, news = (pl.Series(side, dtype=_ENTRIES.inner) for side in (entries, new))
        rewritten = values.list.eval(pl.element().replace_strict(olds, news, return_dtype=_ENTRIES.inner))
        whole = pl.col(kind).struct.with_fields(
            rewritten.cast(pl.Map(pl.String(), pl.String())).alias("partitionValues")
        )
        frame = frame.with_columns(whole)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
