"""Do these rows fit that table, what will it look like, and in which space are they indexed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.log.actions import Metadata
from qbeast_core.log.intent import WriteIntent
from qbeast_core.log.rebase import found_dialect
from qbeast_core.log.schema import schema_to_delta
from qbeast_core.query.fitting import texts_changed
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.spec.column_spec import ColumnSpec
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import BLOCKS_DIALECT, qbeast_spark_entries
from qbeast_core.table.data.foreign_schema import refuse_lost_columns, refuse_taken_name
from qbeast_core.table.data.schema import fit_frame, merged_schema
from qbeast_core.table.index.revision import check_columns, resolve_specs
from qbeast_core.table.index.state import growth_of, live_tree
from qbeast_core.table.runtime import Runtime
from qbeast_core.table.snapshot.snapshot import Snapshot
from qbeast_core.table.write.options import WriteOptions, parse_column_stats
from qbeast_core.tree.evolve import IndexWish, first_revision, next_revision
from qbeast_core.tree.existing import ExistingTree
from qbeast_core.tree.summary import IndexSummary

__all__ = ["ChosenRevision", "Prepared", "choose_space", "planned_cube_size", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the table will look like when the rows are in it.

    Attributes
    ----------
    metadata : Metadata
        Of the table, without a new revision.
    specs : tuple of ColumnSpec
        The columns to index.
    dialect : BlocksDialect
        Spelling of the blocks.
    current : Revision or None
        The revision to go on with; None: a new one begins.
    """

    metadata: Metadata
    specs: tuple[ColumnSpec, ...]
    dialect: BlocksDialect
    current: Revision | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the indexed columns, in order."""
        return tuple(spec.name for spec in self.specs)


@dataclass(frozen=True, slots=True)
class ChosenRevision:
    """The revision to index in, its live tree if it has one, and whether this write makes it."""

    revision: Revision
    tree: ExistingTree | None
    is_new: bool


def prepare(
    frame: pl.DataFrame, target: Snapshot | None, options: WriteOptions, runtime: Runtime
) -> tuple[pl.DataFrame, Prepared]:
    """Return the rows with the table's columns and types, and what the table will look like.

    Parameters
    ----------
    frame : polars.DataFrame
        As `to_frame` gives it; without rows it stands for any number of them.
    target : Snapshot or None
        The table, if there is one.
    options : WriteOptions
        What was asked for.
    runtime : Runtime
        Clock and ids for a new table.

    Raises
    ------
    InvalidInputError, InvalidColumnsError, SchemaMismatchError
        What does not fit; nothing was written.
    """
    appending = target is not None and options.mode == "append"
    latest = target.config.latest if target is not None else None
    known = latest if appending or options.columns is None else None
    specs = resolve_specs(_asked(options, target), known)
    dialect = _dialect(options, target)
    if target is None or options.schema_mode == "overwrite":
        schema_json = schema_to_delta(frame.schema)
    else:
        refuse_taken_name(target.uri, target.schema_json)
        merge = options.schema_mode == "merge"
        replaces = options.mode == "overwrite"
        frame = fit_frame(frame, target.schema_json, target.schema, merge=merge, replaces=replaces)
        schema_json = merged_schema(target.schema_json, target.schema, frame)
    if target is not None and appending and known is not None:
        refuse_lost_columns(target.uri, known.columns, frame.schema, done="written")
    check_columns(specs, frame.schema, dialect)
    metadata = _metadata(target, schema_json, options, runtime)
    if dialect == "qbeast-spark" and not appending:
        listed = [str(spec) for spec in specs]
        entries = qbeast_spark_entries(listed, cube_size=options.cube_size or 0)
        metadata = metadata.model_copy(update={"configuration": {**metadata.configuration, **entries}})
    current = latest if appending and latest is not None and latest.transformations else None
    if current is not None and (current.revision_id == 0 or texts_changed(current, frame.schema)):
        # A converted table, or one whose columns another writer changed: a real revision is still to be made.
        current = None
    return frame, Prepared(metadata, specs, dialect, current)


def choose_space(
    prepared: Prepared,
    schema: pl.Schema,
    summary: IndexSummary,
    target: Snapshot | None,
    options: WriteOptions,
    *,
    uri: str,
    now_ms: int,
) -> ChosenRevision:
    """Return the revision that the summarised rows are indexed in: the table's newest, or a new one.

    Parameters
    ----------
    prepared : Prepared
        From `prepare`.
    schema : polars.Schema
        Of the rows.
    summary : IndexSummary
        Of their indexed columns.
    target, options
        As for `prepare`.
    uri : str
        Of the table.
    now_ms : int
        Milliseconds since 1970 UTC.
    """
    wish = IndexWish(
        specs=prepared.specs,
        cube_size=options.cube_size or _announced_size(target, options),
        dialect=prepared.dialect,
        bounds=parse_column_stats(options.column_stats, schema, prepared.names),
    )
    current = prepared.current
    if current is None or target is None:
        return ChosenRevision(
            first_revision(wish, summary, table_id=uri, timestamp_ms=now_ms), None, is_new=True
        )
    tree = live_tree(target, current)
    growth = growth_of(target, current, tree)
    revision = next_revision(current, wish, summary, growth=growth, timestamp_ms=now_ms)
    if revision is current:
        return ChosenRevision(current, tree, is_new=False)
    return ChosenRevision(revision, None, is_new=True)


def planned_cube_size(prepared: Prepared, target: Snapshot | None, options: WriteOptions) -> int | None:
    """Return the rows that a cube will aim at; None where their number decides.

    Parameters
    ----------
    prepared, target, options
        As for `choose_space`.
    """
    kept = prepared.current.desired_cube_size if prepared.current is not None else None
    return options.cube_size or kept or _announced_size(target, options)


def _asked(options: WriteOptions, target: Snapshot | None) -> Sequence[str] | None:
    if options.columns is None and target is not None and options.mode == "append":
        return target.config.column_specs
    return options.columns


def _announced_size(target: Snapshot | None, options: WriteOptions) -> int | None:
    """Return the cube size that a converted table waits to use."""
    latest = target.config.latest if target is not None and options.mode == "append" else None
    return latest.desired_cube_size if latest is not None and latest.revision_id == 0 else None


def _dialect(options: WriteOptions, target: Snapshot | None) -> BlocksDialect:
    if target is None:
        return options.dialect or "documented"
    intent = WriteIntent(
        mode="overwrite" if options.mode == "overwrite" else "append", dialect=options.dialect
    )
    found = found_dialect(intent, target.metadata, target.files)
    if options.dialect not in (None, found):
        msg = (
            f"the table's blocks are spelled in dialect {found!r}, not {options.dialect!r}; nothing was written. "
            "Append without `dialect`."
        )
        raise InvalidInputError(msg, argument="dialect")
    return found


def _metadata(target: Snapshot | None, schema_json: str, options: WriteOptions, runtime: Runtime) -> Metadata:
    if target is None:
        return Metadata(
            id=runtime.new_id(),
            schema_string=schema_json,
            configuration={BLOCKS_DIALECT: options.dialect or "documented"},
            created_time=runtime.now_ms(),
        )
    return target.metadata.model_copy(update={"schema_string": schema_json})
