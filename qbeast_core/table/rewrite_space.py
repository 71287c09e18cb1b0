"""The revision that rewritten rows are indexed in: one of the table's, or a new one where they need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from qbeast_core.log.rebase import dialect_of
from qbeast_core.query.fitting import fits_schema, texts_changed
from qbeast_core.space.arrays import BoolArray
from qbeast_core.spec.column_spec import ColumnKind, ColumnSpec
from qbeast_core.spec.revision import STAGING_REVISION_ID, Revision
from qbeast_core.table.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.index_state import IndexState, blocks_frame
from qbeast_core.table.live_tree import growth_of
from qbeast_core.table.target import check_columns, resolve_specs
from qbeast_core.tree.evolve import IndexWish, first_revision, next_revision
from qbeast_core.tree.summary import IndexSummary

__all__ = ["newest_revision", "space_for"]


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
