"""A folder of Parquet files as the first version of a Delta table: its columns, and an add for each file.

Files in folders like ``day=2024-05-01`` become the partitions of the table.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from qbeast_core.errors import (
    InvalidInputError,
    SchemaMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from qbeast_core.io.footer import Unreadable, read_footer_bytes
from qbeast_core.io.store import Store, map_files
from qbeast_core.log.actions import AddFile, file_stats, stats_columns
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.log.values import NULL_FOLDER, typed_values
from qbeast_core.spec.blocks import WEIGHT_COLUMN, FilePath
from qbeast_core.table.data.frames import replaced_types
from qbeast_core.table.data.scan import FileScan, TableFiles, scan_files
from qbeast_core.table.data.schema import hive_copy

_SHOWN: Final = 5
# Types of partition columns that only folders name.
_INFERRED: Final[Sequence[pl.DataType]] = (pl.Int64(), pl.Float64(), pl.Date())
# Files that one process reads at the same time.
AT_ONCE: Final = 4


def add_of(path: str, *, files: TableFiles, schema: pl.Schema, now_ms: int) -> AddFile:
    """Return the add of a Parquet file: the columns with statistics are read, nothing is written.

    `schema` has the columns of the file, without those of the partitions. `now_ms` is its time if the store does not
    know it.
    """
    store = files.store
    size = store.size(path)
    leaves = stats_columns(schema, {})
    names = list(dict.fromkeys(leaf[0] for leaf in leaves))
    lazy = scan_files(files, [FileScan(path=path, size_bytes=size)], names, schema)
    try:
        stats = file_stats(lazy, columns=leaves)
    except pl.exceptions.PolarsError as error:
        msg = f"{path!r} of {store.uri!r} cannot be read: {error}."
        raise InvalidInputError(msg, argument="path") from error
    root = store.local_root
    changed_ms = now_ms if root is None else (root / path).stat().st_mtime_ns // 1_000_000
    return AddFile(
        path=FilePath(path).encoded,
        partition_values=_partition_of(path),
        size=size,
        modification_time=changed_ms,
        stats=stats,
    )


def find_parquet(store: Store, missing: TableNotFoundError) -> tuple[list[str], pl.Schema, pl.Schema]:
    """Return the Parquet files of a folder, sorted, their columns, and the partition columns that folders name.

    Only the ends of the files are read. Timestamps count in microseconds. Those with a time zone, and those of
    Parquet's old INT96 kind, which Spark and Hive write, become instants in UTC.
    """
    hidden = re.compile(r"(^|/)[_.]")
    paths = [path for path in store.list("") if path.endswith(".parquet") and not hidden.search(path)]
    if not paths:
        raise missing
    broken = next((path for path in paths if FilePath(path).kind != "inside"), None)
    if broken is not None:
        msg = (
            f"the name of {broken!r} of {store.uri!r} is not valid UTF-8, and a Delta log cannot name the file. "
            "Rename the file."
        )
        raise InvalidInputError(msg, argument="path")
    values = _values_of_folders(store, paths)
    columns_of = map_files(store, partial(_columns_of, store), paths)
    schema: dict[str, pl.DataType] = {}
    problems: list[str] = []
    for path, columns in zip(paths, columns_of, strict=True):
        for name, dtype in columns.items():
            if schema.setdefault(name, dtype) != dtype:
                problems.append(f"{name!r} is {dtype} in {path!r}, {schema[name]} in others")
    if problems:
        shown = "; ".join(problems[:_SHOWN])
        msg = f"the Parquet files of {store.uri!r} do not fit together: {shown}."
        raise SchemaMismatchError(msg, problems=problems)
    if WEIGHT_COLUMN in schema:
        msg = (
            f"{store.uri!r} holds data files of a qbeast table whose log was lost, or that an interrupted write "
            f"left: they have a column {WEIGHT_COLUMN!r}; read what you need, write it anew."
        )
        raise InvalidInputError(msg, argument="path")
    partitions = _partitions_of(store, values, schema)
    schema = {name: dtype for name, dtype in schema.items() if name not in partitions}
    schema_to_delta(pl.Schema(schema))
    return paths, pl.Schema(schema), partitions


def _values_of_folders(store: Store, paths: Sequence[str]) -> pl.DataFrame:
    """Return the texts that Hive's folders name, one row per file; raise if files lie in other folders."""
    values = [_partition_of(path) for path in paths]
    named = [path.count("/") == len(of_file) for path, of_file in zip(paths, values, strict=True)]
    if not all(named) or any(list(of_file) != list(values[0]) for of_file in values):
        below = sorted({path.rpartition("/")[0] for path in paths if "/" in path})
        message = (
            f"{store.uri} cannot be converted: Parquet files lie in folders below it ({', '.join(below[:_SHOWN])}). "
            "Move them into one folder, or into folders that all name the same columns, like "
            "day=2024-05-01."
        )
        raise UnsupportedTableError(message, path=store.uri, feature="folders")
    return pl.DataFrame(values, schema=dict.fromkeys(values[0], pl.String), orient="row")


def _partitions_of(store: Store, values: pl.DataFrame, in_files: Mapping[str, pl.DataType]) -> pl.Schema:
    """Return the types of the partition columns.

    It is that of the column in the files, if they have it, as those of Polars do. Otherwise it is the first of whole
    numbers, floats and dates that holds all values, else text.
    """
    types: dict[str, pl.DataType] = {}
    for column in values:
        stored = in_files.get(column.name)
        dtype = _first_type(column.unique(), _INFERRED if stored is None else [stored])
        if dtype is None and stored is not None:
            problem = f"{column.name!r} is {stored} in the files, and their folders name other values"
            msg = (
                f"{store.uri!r} cannot be converted: {problem}. Write the rows to a new table: "
                f"{hive_copy(store.uri, values.columns)}."
            )
            raise SchemaMismatchError(msg, problems=[problem])
        types[column.name] = dtype or pl.String()
    return pl.Schema(types)


def _first_type(texts: pl.Series, types: Sequence[pl.DataType]) -> pl.DataType | None:
    for dtype in types if len(types) == 1 or texts.drop_nulls().len() else ():
        with suppress(pl.exceptions.PolarsError):
            typed_values(texts, dtype)
            return dtype
    return None


def _partition_of(path: str) -> dict[str, str | None]:
    """Return the values that the folders of a path name.

    >>> _partition_of("day=2024-05-01/city=a%2Fb/0.parquet")
    {'day': '2024-05-01', 'city': 'a/b'}
    """
    parts = [part.partition("=") for part in path.split("/")[:-1]]
    texts = {unquote(name): unquote(text) for name, sign, text in parts if sign and name}
    return {name: None if text == NULL_FOLDER else text for name, text in texts.items()}


def _columns_of(store: Store, path: str) -> dict[str, pl.DataType]:
    """Return the columns of a file in the types of a Delta table, as far as it has them."""
    try:
        footer = read_footer_bytes(store, path, store.size(path))
        schema = pl.read_parquet_schema(io.BytesIO(footer))
        stored: Any = pq.read_metadata(io.BytesIO(footer)).schema
        leaves = [leaf for leaf in map(stored.column, range(len(stored))) if leaf.physical_type == "INT96"]
        instants = {name for name in schema if any(_is_in(leaf, name) for leaf in leaves)}
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, Unreadable) as error:
        msg = f"{path!r} of {store.uri!r} is not a readable Parquet file: {error}."
        raise InvalidInputError(msg, argument="path") from error
    stored_as = {name: partial(_stored, instant=name in instants) for name in schema}
    return {name: replaced_types(dtype, stored_as[name]) for name, dtype in schema.items()}


def _is_in(leaf: Any, column: str) -> bool:
    """Return whether a leaf is a column, or a part of it. The name of a column may have dots."""
    return bool(leaf.name == column if leaf.name == leaf.path else leaf.path.startswith(f"{column}."))


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
