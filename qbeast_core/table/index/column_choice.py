"""The columns to index: what an argument or a table names, and whether they can be indexed."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.plan.decode_tags import texts_changed
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import (
    KINDS,
    STAGING_REVISION_ID,
    ColumnKind,
    ColumnSpec,
    Revision,
    parse_column_spec,
)
from qbeast_core.spec.table_config import TableConfig
from qbeast_core.support.text import did_you_mean
from qbeast_core.table.index.live_index import Index
from qbeast_core.tree.grid import data_type_of

# A list of names, `"name:kind"`, pairs of name and kind, or `pl.col`; or a mapping from name to kind (None: any kind).
IndexColumns: TypeAlias = Sequence[str | tuple[str, str | None] | pl.Expr] | Mapping[str, str | None]

_UNKNOWN_TO_JVM: Final = (pl.Int8(), pl.Int16(), pl.Datetime("us"))

# Maximum number of indexed columns.
MAX_COLUMNS: Final = 40


def specs_of_table(state: Index, *, redraw: bool = False) -> tuple[ColumnSpec, ...]:
    """Return the indexed columns of a table. A new revision keeps their kinds."""
    config = state.snapshot.config
    latest = config.latest
    real = latest is not None and latest.revision_id != STAGING_REVISION_ID
    if latest is None or not real or (state.newest is not None and not redraw):
        return resolve_specs(None if real else config.column_specs, latest)
    # A new revision: for a redraw, or because another writer changed the type of a column.
    return _of_same_kinds(latest, state.snapshot.schema)


def specs_of_overwrite(
    columns: IndexColumns | None, config: TableConfig, schema: pl.Schema
) -> tuple[ColumnSpec, ...]:
    """Return the columns to index in an overwrite.

    A hashed column stays hashed unless another kind is named: other kinds put values into the metadata.
    """
    latest = config.latest
    if latest is None or latest.revision_id == STAGING_REVISION_ID:
        specs = () if config.column_specs is None else resolve_specs(config.column_specs, latest)
    else:
        specs = _of_same_kinds(latest, schema)
    if columns is None:
        return specs or resolve_specs(None, latest)
    hashed = {spec.name for spec in specs if spec.kind == "hashing"}
    return tuple(
        ColumnSpec(spec.name, "hashing") if spec.kind == "auto" and spec.name in hashed else spec
        for spec in resolve_specs(columns, None)
    )


def _of_same_kinds(revision: Revision, schema: pl.Schema) -> tuple[ColumnSpec, ...]:
    """Return the columns of a revision with their kinds. A column that changed from or to text may change its kind."""
    changed = texts_changed(revision, schema)
    kinds: dict[str, ColumnKind] = {
        item.column_name: item.kind
        for item in revision.column_transformers
        if item.kind != "empty" and (item.kind == "hashing" or item.column_name not in changed)
    }
    return tuple(ColumnSpec(name, kinds.get(name, "auto")) for name in revision.columns)


def resolve_specs(columns: IndexColumns | None, current: Revision | None) -> tuple[ColumnSpec, ...]:
    """Return the columns to index, by default the columns of `current`. Raise if they differ from `current`.

    An empty list is a table without index.
    """
    if columns is None:
        if current is None:
            msg = (
                "a new table needs columns to index. Pass columns=['a', 'b:quantiles'], or "
                "columns that qbeast.suggest_columns(rows) proposes, with its reasons; or columns=[] for a table "
                "without index."
            )
            raise InvalidColumnsError(msg)
        return tuple(ColumnSpec(name) for name in current.columns)
    specs = tuple(parse_column_spec(text) for text in column_texts(columns))
    names = [spec.name for spec in specs]
    if not names and current is None:
        return ()  # no index
    if len(names) > MAX_COLUMNS:
        msg = f"a table is indexed by at most {MAX_COLUMNS} columns, got {len(names)}"
        raise InvalidColumnsError(msg, columns=names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"columns to index named twice: {twice}. Name each once."
        raise InvalidColumnsError(msg, columns=twice)
    if current is not None and tuple(names) != current.columns:
        msg = (
            f"the table is indexed by {list(current.columns)}, not by {names}. Append with its "
            "own columns in that order (or leave `columns` out). Table.reindex indexes it by other columns, and "
            'mode="overwrite" replaces its rows.'
        )
        raise InvalidColumnsError(msg, columns=names)
    return specs


def check_columns(specs: Sequence[ColumnSpec], schema: pl.Schema, dialect: BlocksDialect) -> None:
    """Raise if a column is missing or cannot be indexed."""
    unknown = [spec.name for spec in specs if spec.name not in schema]
    if unknown:
        misspelled = [name.rpartition(":") for name in unknown if name.rpartition(":")[0] in schema]
        if misspelled:
            _, _, kind = misspelled[0]
            guess = f" {kind!r} is not a kind of index: there are {', '.join(KINDS)}.{did_you_mean([kind], KINDS)}"
        else:
            guess = did_you_mean(unknown, schema)
            nested = [name for name in unknown if name.partition(".")[0] in schema]
            if nested:
                guess = f" A field cannot be indexed: write {nested[0]!r} as a column of its own."
        message = f"`columns` names no such column(s): {unknown}. The rows have {list(schema)}.{guess}"
        raise InvalidColumnsError(message, columns=unknown, value=unknown, known=schema)
    for spec in specs:
        data_type_of(spec.name, schema[spec.name])
        if dialect == "qbeast-spark" and schema[spec.name] in _UNKNOWN_TO_JVM:
            msg = (
                f"column {spec.name!r} has type {schema[spec.name]}, which qbeast-spark cannot index. "
                "Cast it to int or to a timestamp with time zone."
            )
            raise InvalidColumnsError(msg, columns=[spec.name])


def refuse_collations(names: Sequence[str], collated: Collection[str]) -> None:
    """Raise if new indexed columns have a collation: filters of Spark would compare otherwise than the index."""
    refused = [name for name in names if name in collated]
    if refused:
        msg = (
            f"columns {refused} have a collation: values that are equal by it would be far apart in the index, and "
            "have different weights. Choose other columns, or cast them to plain strings (collate "
            "UTF8_BINARY)."
        )
        raise InvalidColumnsError(msg, columns=refused)


def column_texts(columns: IndexColumns) -> list[str]:
    """Return columns to index as texts, ``"name"`` or ``"name:kind"``.

    >>> column_texts(["a", ("b", "hash"), pl.col("c")]), column_texts({"a": "linear", "b": None})
    (['a', 'b:hash', 'c'], ['a:linear', 'b:auto'])
    """
    value = cast("object", columns)
    ordered = isinstance(value, Iterable) and not isinstance(value, str | frozenset | set)
    pairs: object = value.items() if isinstance(value, Mapping) else value
    items: list[object] = list(cast("Iterable[object]", pairs)) if ordered else []
    texts = [text for item in items if (text := _column_text(item)) is not None]
    if not ordered or len(texts) < len(items):
        split = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
        message = (
            "`columns` must be a list of names, 'a' or 'a:hash', or map names to kinds, not "
            f"{reprlib.repr(value)}.{f' Did you mean columns={split}?' if any(split) else ''}"
        )
        raise InvalidColumnsError(message, value=value)
    return texts


def _column_text(item: object) -> str | None:
    match item:
        case str():
            return item
        case (str(name), None):
            return f"{name}:auto"
        case (str(name), str(kind)):
            return f"{name}:{kind}"
        case pl.Expr() if item.meta.is_column():
            return item.meta.output_name()
        case _:
            return None
