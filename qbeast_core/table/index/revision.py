"""The revision that rewritten rows are indexed in: one of the table's, or a new one where they need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from qbeast_core.errors import InvalidColumnsError
from qbeast_core.hints import Message, argument
from qbeast_core.log.rebase import dialect_of
from qbeast_core.query.fitting import fits_schema, texts_changed
from qbeast_core.space.arrays import BoolArray
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import KINDS, ColumnKind, ColumnSpec, parse_column_spec
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.table.data.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.index.state import IndexState, blocks_frame, growth_of
from qbeast_core.tree.columns import data_type_of
from qbeast_core.tree.evolve import IndexWish, first_revision, next_revision
from qbeast_core.tree.summary import IndexSummary

__all__ = ["MOST_COLUMNS", "check_columns", "newest_revision", "resolve_specs", "space_for"]

_UNKNOWN_TO_JVM: Final = (pl.Int8(), pl.Int16(), pl.Datetime("us"))


MOST_COLUMNS: Final = 40
"""Columns that a table can be indexed by."""


def _texts(columns: object) -> list[str]:
    ordered = not isinstance(columns, str | frozenset | set | dict)
    listed: list[object] = list(columns) if ordered and isinstance(columns, Iterable) else [columns]
    texts = [text for text in listed if ordered and isinstance(text, str)]
    if len(texts) < len(listed):
        msg = f"columns must be a list of names, got {columns!r}; nothing was written"
        raise InvalidColumnsError(msg)
    return texts


def newest_revision(state: IndexState) -> Revision | None:
    """Return the newest revision, if it has a space for the columns as they are now."""
    latest = state.snapshot.config.latest
    return latest if latest is not None and fits_schema(latest, state.snapshot.schema) else None


def space_for(
    state: IndexState,
    summary_of: Callable[[Sequence[str]], IndexSummary],
    gone: BoolArray,
    *,
    uri: str,
    now_ms: int,
    redraw: bool = False,
) -> tuple[Revision | None, bool]:
    """Return the revision for rows that may not fit the newest one, and whether it is a new one.

    No rows need no new one, unless it is asked for: where the table has none either, there is none.

    Parameters
    ----------
    state : IndexState
        The table.
    summary_of : callable
        Told the indexed columns, returns what is known of them in the rows that are put back.
    gone : ndarray of bool, shape (files,)
        Files that are taken out: growth is told by those that stay.
    uri : str
        Of the table.
    now_ms : int
        Milliseconds since 1970 UTC.
    redraw : bool
        Make a new one of these rows alone, with columns of the same kinds.

    Raises
    ------
    InvalidColumnsError
        If the columns cannot be indexed.
    """
    snapshot = state.snapshot
    specs = _specs(state, redraw=redraw)
    dialect = dialect_of(snapshot)
    refuse_taken_name(uri, snapshot.schema_json)
    if snapshot.config.latest is not None:
        refuse_lost_columns(uri, snapshot.config.latest.columns, snapshot.schema, done="written")
    check_columns(specs, snapshot.schema, dialect)
    summary = summary_of([spec.name for spec in specs])
    current = None if redraw else newest_revision(state)
    if not (summary.rows or redraw):
        return current, False
    if current is None:
        latest = snapshot.config.latest
        size = None if latest is None else latest.desired_cube_size
        wish = IndexWish(specs=specs, cube_size=size, dialect=dialect)
        return first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms), True
    staying = replace(snapshot, files=snapshot.files.filter(~pl.Series(gone, dtype=pl.Boolean)))
    tree = state.tree(current, gone, blocks_frame([]))
    growth = growth_of(staying, current, tree)
    wish = IndexWish(specs=specs, cube_size=None, dialect=dialect)
    revision = next_revision(current, wish, summary, growth=growth, timestamp_ms=now_ms)
    return revision, revision is not current


def _specs(state: IndexState, *, redraw: bool) -> tuple[ColumnSpec, ...]:
    config = state.snapshot.config
    latest = config.latest
    real = latest is not None and latest.revision_id != STAGING_REVISION_ID
    if latest is None or not real or (newest_revision(state) is not None and not redraw):
        return resolve_specs(None if real else config.column_specs, latest)
    # A new space of the same kinds; so too where a column's type was changed by another writer.
    kinds: dict[str, ColumnKind] = {
        one.column_name: one.kind for one in latest.column_transformers if one.kind != "empty"
    }
    for name in texts_changed(latest, state.snapshot.schema):
        kinds[name] = "auto"
    return tuple(ColumnSpec(name, kinds.get(name, "auto")) for name in latest.columns)


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
            listed = argument(columns=["a", "b:quantiles"])
            raise InvalidColumnsError(
                Message("a new table needs columns to index; nothing was written. Pass ", listed, ".")
            )
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
        msg = Message(
            f"the table is indexed by {list(current.columns)}, not by {names}; nothing was written. Append with its "
            "own columns in that order (or leave ",
            *(argument(columns=None), " out), or use ", argument(mode="overwrite"), "."),
        )
        raise InvalidColumnsError(msg, columns=names)
    return specs


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
