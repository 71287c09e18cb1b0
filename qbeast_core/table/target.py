"""What stands at the path of a write, and what the write's mode makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import polars as pl

from qbeast_core.errors import (
    InvalidColumnsError,
    InvalidInputError,
    NotQbeastTableError,
    TableExistsError,
    TableNotFoundError,
)
from qbeast_core.log.protocol import check_writable
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import KINDS, ColumnSpec, parse_column_spec
from qbeast_core.spec.revision import Revision
from qbeast_core.table.frames import WEIGHT_COLUMN
from qbeast_core.table.snapshot import Snapshot, load_snapshot
from qbeast_core.tree.columns import data_type_of

__all__ = ["MOST_COLUMNS", "Mode", "check_columns", "check_mode", "find_target", "is_ours", "resolve_specs"]

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]

MOST_COLUMNS: Final = 40
"""Columns that a table can be indexed by."""

_UNKNOWN_TO_JVM: Final = (pl.Int8(), pl.Int16(), pl.Datetime("us"))


def find_target(uri: str, mode: Mode, storage_options: Mapping[str, str] | None) -> Snapshot | None:
    """Return the table that a write of this mode works on; None: it creates one.

    Parameters
    ----------
    uri : str
        Path or address of the table.
    mode : {"error", "append", "overwrite", "ignore"}
        What to do when there is a table.
    storage_options : mapping, optional
        As `deltalake` takes them.

    Raises
    ------
    TableExistsError
        Mode ``"error"`` met a table, or a file or foreign data lie at the path.
    NotQbeastTableError
        An append met a Delta table without index.
    UnsupportedTableError
        The table has a feature that must not be written.
    """
    try:
        snapshot = load_snapshot(uri, storage_options=storage_options)
    except TableNotFoundError as error:
        _refuse_what_is_there(uri, error)
        return None
    if mode == "error":
        msg = (
            f"a table is at {uri!r} already; nothing was written. "
            'Pass mode="append", "overwrite" or "ignore", or choose another path.'
        )
        raise TableExistsError(msg, path=uri)
    if mode == "ignore":
        return snapshot
    if mode == "append" and snapshot.config.latest is None:
        msg = (
            f"{uri!r} is a Delta table without Qbeast index; nothing was written. Convert it "
            f"(qbeast.convert_table({uri!r}, columns=[...])), or write to another path, or replace it with "
            'mode="overwrite".'
        )
        raise NotQbeastTableError(msg, path=uri)
    check_writable(snapshot.protocol, snapshot.metadata, mode=mode, path=uri)
    return snapshot


def resolve_specs(columns: Sequence[str] | None, current: Revision | None) -> tuple[ColumnSpec, ...]:
    """Return the columns to index: those asked for, checked against those of the table.

    Parameters
    ----------
    columns : sequence of str or None
        ``"name"`` or ``"name:kind"``; None takes those of the table.
    current : Revision or None
        The revision that is appended to; None: the columns are free to choose.

    Raises
    ------
    InvalidColumnsError
        If there are none, too many, one twice, or other ones than the table's, or in another order.
    """
    if columns is None:
        if current is None:
            msg = (
                'a new table needs columns to index; nothing was written. Pass columns=["a", "b:quantiles"].'
            )
            raise InvalidColumnsError(msg)
        return tuple(ColumnSpec(name) for name in current.columns)
    specs = tuple(parse_column_spec(text) for text in _texts(columns))
    names = [spec.name for spec in specs]
    if not 1 <= len(names) <= MOST_COLUMNS:
        msg = f"a table is indexed by 1 to {MOST_COLUMNS} columns, got {len(names)}; nothing was written"
        raise InvalidColumnsError(msg, columns=names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"columns to index named twice: {twice}; nothing was written. Name each once."
        raise InvalidColumnsError(msg, columns=twice)
    if current is not None and tuple(names) != current.columns:
        msg = (
            f"the table is indexed by {list(current.columns)}, not by {names}; nothing was written. Append with "
            'its own columns in that order (or leave `columns` out), or use mode="overwrite".'
        )
        raise InvalidColumnsError(msg, columns=names)
    return specs


def _texts(columns: object) -> list[str]:
    ordered = not isinstance(columns, str | frozenset | set | dict)
    listed: list[object] = list(columns) if ordered and isinstance(columns, Iterable) else [columns]
    texts = [text for text in listed if ordered and isinstance(text, str)]
    if len(texts) < len(listed):
        msg = f"columns must be a list of names, got {columns!r}; nothing was written"
        raise InvalidColumnsError(msg)
    return texts


def check_columns(specs: Sequence[ColumnSpec], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Refuse columns that are not there or cannot be indexed.

    Raises
    ------
    InvalidColumnsError
        Naming all unknown columns, or the first one of a type that has no place in the index.
    """
    unknown = [spec.name for spec in specs if spec.name not in schema]
    if unknown:
        msg = f"no such column(s): {unknown}; nothing was written. The rows have {list(schema)}."
        misspelled = [name for name in unknown if name.rpartition(":")[0] in schema]
        if misspelled:
            msg += f" {misspelled[0].rpartition(':')[2]!r} is no kind of index: there are {', '.join(KINDS)}."
        raise InvalidColumnsError(msg, columns=unknown)
    for spec in specs:
        data_type_of(spec.name, schema[spec.name])
        if dialect == "qbeast-spark" and schema[spec.name] in _UNKNOWN_TO_JVM:
            msg = (
                f"column {spec.name!r} has type {schema[spec.name]}, which qbeast-spark cannot index; nothing was "
                "written. Cast it to int or to a timestamp with time zone."
            )
            raise InvalidColumnsError(msg, columns=[spec.name])


def _refuse_what_is_there(uri: str, error: TableNotFoundError) -> None:
    """Tell an empty place from a file or from data that no Delta log knows."""
    from qbeast_core.io.store import open_store  # noqa: PLC0415 - used on this road alone

    root = open_store(uri).local_root
    if root is None or not root.exists():
        return
    if not root.is_dir():
        msg = f"{uri!r} is a file, not a folder; nothing was written. Choose another path."
        raise TableExistsError(msg, path=uri) from error
    files = list(root.glob("*.parquet"))
    if files and all(is_ours(path) for path in files):
        msg = (
            f"{uri!r} holds data files of a table, but no log that names them: an interrupted write left them, or the "
            "log was lost; nothing was written. Delete them if nobody needs them, or choose another path."
        )
        raise TableExistsError(msg, path=uri) from error
    if files or (root / "_delta_log").exists():
        msg = (
            f"{uri!r} holds files but no readable Delta table; nothing was written. Convert it to a table first "
            f"(qbeast.convert_table({uri!r}, columns=[...])), or choose an empty place."
        )
        raise TableExistsError(msg, path=uri) from error


def is_ours(path: Path) -> bool:
    """Tell whether a Parquet file is one that this library wrote."""
    try:
        return WEIGHT_COLUMN in pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError):
        return False


def check_mode(mode: object) -> None:
    """Refuse an unknown mode."""
    if mode not in ("error", "append", "overwrite", "ignore"):
        msg = f'mode must be "error", "append", "overwrite" or "ignore", got {mode!r}; nothing was written'
        raise InvalidInputError(msg, argument="mode")
