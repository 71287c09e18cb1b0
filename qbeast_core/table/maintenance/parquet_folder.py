"""A folder of Parquet files as the first version of a Delta table: its columns, and an add for each file."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.errors import (
    InvalidInputError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.stores.store import Store, map_files
from qbeast_core.log.actions import AddFile
from qbeast_core.log.files.stats import file_stats, stats_columns
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.spec.file_path import FilePath
from qbeast_core.spec.layout import WEIGHT_COLUMN
from qbeast_core.table.data.footers import Unreadable, read_footer_bytes
from qbeast_core.table.data.found_instead import hive_copy
from qbeast_core.table.data.frames import replaced_types
from qbeast_core.table.data.parquet_scan import scan_files
from qbeast_core.table.read.scan_task import TableFiles

_SHOWN: Final = 5
# Files that one process reads at the same time.
AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class AddParquet:
    """Makes adds of Parquet files: the columns with statistics are read, nothing is written."""

    files: TableFiles
    schema: pl.Schema
    # Their age where the store does not know it, milliseconds since 1970 UTC.
    now_ms: int

    def __call__(self, path: str) -> AddFile:
        """Return the add of a file, with statistics."""
        store, options = self.files.store, dict(self.files.storage_options)
        leaves = stats_columns(self.schema, {})
        names = list(dict.fromkeys(leaf[0] for leaf in leaves))
        lazy = scan_files(store, [path], names, self.schema, storage_options=options)
        try:
            stats = file_stats(lazy, columns=leaves)
        except pl.exceptions.PolarsError as error:
            msg = f"{path!r} of {store.uri!r} cannot be read: {error}. Nothing was changed."
            raise InvalidInputError(msg, argument="path") from error
        root = store.local_root
        changed_ms = self.now_ms if root is None else (root / path).stat().st_mtime_ns // 1_000_000
        size = store.size(path)
        return AddFile(path=FilePath(path).encoded, size=size, modification_time=changed_ms, stats=stats)


def find_parquet(store: Store, missing: TableNotFoundError) -> tuple[list[str], pl.Schema]:
    """Return the Parquet files of a folder, sorted, and all their columns; only the ends of the files are read.

    Timestamps count in microseconds. Those with a time zone, and those of Parquet's old INT96 kind, which Spark
    and Hive write, become instants in UTC.
    """
    hidden = re.compile(r"(^|/)[_.]")
    paths = [path for path in store.list("") if path.endswith(".parquet") and not hidden.search(path)]
    if not paths:
        raise missing
    _refuse_folders(store, paths)
    columns_of = map_files(store, partial(_columns_of, store), paths)
    schema: dict[str, pl.DataType] = {}
    problems: list[str] = []
    for path, columns in zip(paths, columns_of, strict=True):
        for name, dtype in columns.items():
            if schema.setdefault(name, dtype) != dtype:
                problems.append(f"{name!r} is {dtype} in {path!r}, {schema[name]} in others")
    if problems:
        shown = "; ".join(problems[:_SHOWN])
        msg = f"the Parquet files of {store.uri!r} do not fit together: {shown}. Nothing was changed."
        raise SchemaMismatchError(msg, problems=problems)
    if WEIGHT_COLUMN in schema:
        msg = (
            f"{store.uri!r} holds data files of a qbeast table whose log was lost, or that an interrupted write "
            f"left: they have a column {WEIGHT_COLUMN!r}. Nothing was changed; read what you need, write it anew."
        )
        raise InvalidInputError(msg, argument="path")
    schema_to_delta(pl.Schema(schema))
    return paths, pl.Schema(schema)


def _refuse_folders(store: Store, paths: Sequence[str]) -> None:
    below = sorted({path.rpartition("/")[0] for path in paths if "/" in path})
    if not below:
        return
    parts = [part for folder in below for part in folder.split("/")]
    names = list(dict.fromkeys(part.partition("=")[0] for part in parts if "=" in part))
    if names:
        feature = f"partitioning by {', '.join(names)}"
        message = (
            f"{store.uri} cannot be converted: qbeast tables have no {feature}. Nothing was changed. "
            f"Write its rows to a new table, indexed by these columns: {hive_copy(store.uri, names)}."
        )
        raise UnsupportedTableError(message, path=store.uri, feature=feature)
    message = (
        f"{store.uri} cannot be converted: Parquet files lie in folders below it ({', '.join(below[:_SHOWN])}). "
        "Nothing was changed. Move them into one folder."
    )
    raise UnsupportedTableError(message, path=store.uri, feature="folders")


def _columns_of(store: Store, path: str) -> dict[str, pl.DataType]:
    """Return the columns of a file in the types of a Delta table, as far as it has them."""
    try:
        footer = read_footer_bytes(store, path, store.size(path))
        schema = pl.read_parquet_schema(io.BytesIO(footer))
        stored: Any = pq.read_metadata(io.BytesIO(footer)).schema
        leaves = map(stored.column, range(len(stored)))
        instants = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, Unreadable) as error:
        msg = f"{path!r} of {store.uri!r} is not a readable Parquet file: {error}. Nothing was changed."
        raise InvalidInputError(msg, argument="path") from error
    stored_as = {name: partial(_stored, instant=name in instants) for name in schema}
    return {name: replaced_types(dtype, stored_as[name]) for name, dtype in schema.items()}


def _stored(dtype: pl.DataType, *, instant: bool) -> pl.DataType:
    """Return the type that a Delta table has for one of a file; `instant`: timestamps are of the INT96 kind."""
    match dtype:
        case pl.Datetime():
            is_instant = dtype.time_zone is not None or (instant and dtype.time_unit == "ns")
            return pl.Datetime("us", "UTC" if is_instant else None)
        case pl.Categorical() | pl.Enum():
            return pl.String()
        case _:
            return dtype
