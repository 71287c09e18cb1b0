"""Plan a write: whether the rows fit the table, its new schema, and how to index it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, SchemaMismatchError, unknown_columns
from qbeast_core.log.actions import AddFile, Metadata, Txn
from qbeast_core.log.columns import with_fields, with_sample_column, without_values
from qbeast_core.log.protocol import (
    CHANGE_FEED,
    COMPRESSION,
    DELETION_VECTORS,
    WriteIntent,
    WriteMode,
    codec_of,
    is_true,
)
from qbeast_core.log.rebase import dialect_of, found_dialect
from qbeast_core.log.rules import Identity
from qbeast_core.log.schema import merged_schema, noted_fields, schema_to_delta, with_notes, without_nulls
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import ColumnSpec
from qbeast_core.spec.table_config import BLOCKS_DIALECT, TableConfig, qbeast_spark_entries
from qbeast_core.support.process import new_id
from qbeast_core.table.data.files import FileTarget, RowShape
from qbeast_core.table.data.rules import RowRules, drawn_for, rules_of, with_numbers
from qbeast_core.table.data.schema import (
    check_sample_column,
    fit_frame,
    refuse_feed_columns,
    refuse_lost_columns,
    refuse_mapping,
    refuse_sample_column,
    refuse_taken_name,
    refuse_vectors,
)
from qbeast_core.table.engine.files import rows_of
from qbeast_core.table.engine.sources import target_of
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import (
    check_columns,
    refuse_collations,
    resolve_specs,
    specs_of_overwrite,
    specs_of_table,
)
from qbeast_core.table.snapshot.snapshot import Snapshot, with_metadata
from qbeast_core.table.write.options import (
    WriteOptions,
    parse_column_stats,
    partition_columns,
    sampling_key,
    with_importance,
    with_sampling_key,
)
from qbeast_core.tree.fit import IndexWish


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A table as a write of rows leaves it."""

    # The table with its new metadata, without a new revision.
    table: Snapshot
    # The new files, and the shape of their rows.
    target: FileTarget
    # The requested index: columns, cube size, dialect, ranges.
    wish: IndexWish
    # Index of the table to append to. None: a new index begins.
    index: Index | None
    # Identity columns that rows lack: the table draws their numbers.
    drawn: tuple[Identity, ...]


def prepare(
    frame: pl.DataFrame, before: Snapshot, options: WriteOptions, *, required: Collection[str] = ()
) -> PreparedTable:
    """Return the table after a write of rows with these columns. In a new schema, `required` ones allow no nulls."""
    index = Index(before) if options.mode == "append" and not before.is_new else None
    latest = before.config.latest
    dialect = _dialect(options, before)
    _refuse_dialect(before, options, dialect)
    sample_column = _sample_column(frame, before, options, dialect)
    present = frame.columns
    rules = None if _redefines(before, options) else rules_of(before, present=present)
    drawn = () if rules is None else drawn_for(rules.identities, present, "df")
    frame = with_numbers(frame, drawn) if drawn else frame
    frame = _with_computed(without_values(frame, sample_column), before, rules)
    frame, schema_json = _fitted(frame, before, options, required)
    schema = frame.schema  # once: Polars makes it anew each time
    if index is not None and latest is not None:
        refuse_lost_columns(before.uri, latest, schema, before.columns)
    specs = _specs(before, index, options, schema)
    if not specs:
        _refuse_index_options(options, sample_column)
    sample_by = _sampling_key(schema, before, options, dialect, sample_column) if specs else ()
    refuse_sample_column(sample_column, [spec.name for spec in specs], argument="columns")
    check_columns(specs, schema, dialect)
    # A converted table, or one whose columns another writer changed, still waits for a real revision.
    stays = latest is not None and (options.columns is None if index is None else index.newest is None)
    size = options.cube_size or (latest.desired_cube_size if stays and latest is not None else None)
    metadata = _metadata(before, schema_json, schema, options, dialect)
    if sample_column is not None:
        metadata = with_sample_column(metadata, sample_column, new_id)
    metadata = _with_importance(with_sampling_key(metadata, sample_by), before, options.importance, specs)
    if index is None:
        metadata = _with_index_entries(metadata, before, specs, size, dialect)
    bounds = parse_column_stats(options.column_stats, schema, [spec.name for spec in specs])
    table = with_metadata(before, metadata)
    new_names = {*(spec.name for spec in specs), *sample_by}.difference(latest.key_columns if latest else ())
    refuse_collations(sorted(new_names), table.columns.collated)
    wish = IndexWish(specs, size, dialect, bounds, table.columns.rehashed, sample_by)
    if options.schema_mode == "overwrite" and not before.is_new:
        rules = rules_of(replace(table, schema=schema), present=present)
    shape = RowShape(table.schema_json, schema, merge=options.schema_mode == "merge", rules=rules)
    rows = 0 if index is None else before.counted_rows
    return PreparedTable(table, target_of(table, shape, dialect, table_rows=rows), wish, index, drawn)


def _redefines(before: Snapshot, options: WriteOptions) -> bool:
    """Return whether the schema of the table is that of the rows."""
    return before.is_new or options.schema_mode == "overwrite"


def _with_index_entries(
    metadata: Metadata,
    before: Snapshot,
    specs: Sequence[ColumnSpec],
    size: int | None,
    dialect: BlocksDialect,
) -> Metadata:
    """Return the metadata of a table whose index begins, or which is left without one."""
    if before.is_new and not specs:
        configuration = (
            TableConfig.from_configuration(metadata.configuration).left_unindexed().to_configuration()
        )
    elif dialect == "qbeast-spark" and specs:
        entries = qbeast_spark_entries([str(spec) for spec in specs], cube_size=size or 0)
        configuration = {**metadata.configuration, **entries}
    else:
        return metadata
    return metadata.model_copy(update={"configuration": configuration})


def _fitted(
    frame: pl.DataFrame, before: Snapshot, options: WriteOptions, required: Collection[str]
) -> tuple[pl.DataFrame, str]:
    """Return a frame without rows with the columns of the table after the write, and their Delta schema."""
    if _redefines(before, options):
        _refuse_lost_clustering(before, frame.schema)
        schema_json = without_nulls(schema_to_delta(frame.schema), required)
        return frame, schema_json if before.is_new else with_notes(schema_json, before.schema_json)
    refuse_taken_name(before.uri, before.schema_json)
    merge, replaces = options.schema_mode == "merge", options.mode == "overwrite"
    frame = fit_frame(frame, before.schema_json, before.schema, merge=merge, replaces=replaces)
    return frame, merged_schema(before.schema_json, frame.schema)


def _refuse_lost_clustering(before: Snapshot, schema: pl.Schema) -> None:
    """Raise if the new schema lacks a column that the table is clustered by."""
    lost = sorted({column[0] for column in before.clustered_by if column[0] not in schema})
    if lost:
        msg = (
            f"{before.uri!r} is clustered by {lost}, and the rows lack these columns. Keep the columns, or "
            "let Spark change the clustering first: ALTER TABLE ... CLUSTER BY NONE."
        )
        raise SchemaMismatchError(
            msg, problems=[f"column {name!r} is missing" for name in lost], argument="df"
        )


def rows_intent(
    mode: WriteMode, adds: Sequence[AddFile], options: WriteOptions, *, operation: str = ""
) -> WriteIntent:
    """Return the intent of a commit of new rows."""
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(rows_of(adds)),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    return WriteIntent(
        mode=mode,
        adds=tuple(adds),
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        operation=operation,
        commit_info={**options.commit_metadata, "operationMetrics": metrics},
    )


def _with_computed(frame: pl.DataFrame, before: Snapshot, rules: RowRules | None) -> pl.DataFrame:
    """Return a frame without rows with the columns that the table computes if rows lack them."""
    missing = [] if rules is None else rules.on_new(frame.columns).columns
    return frame.with_columns(pl.lit(None, before.schema[name]).alias(name) for name in missing)


def _specs(
    before: Snapshot, index: Index | None, options: WriteOptions, schema: pl.Schema
) -> tuple[ColumnSpec, ...]:
    """Return the columns to index: the requested columns, or the columns of the table."""
    columns, config = options.columns, before.config
    if config.is_left_unindexed and (index is not None or columns is None):
        if columns is not None and resolve_specs(columns, None):
            msg = (
                "the table has no index, and an append does not begin one. Append without "
                "`columns`, and index the table, which moves no data: Table.reindex([...])."
            )
            raise InvalidColumnsError(msg, value=columns)
        return ()
    if columns is None and config.latest is None:
        columns = options.columns_if_none
    if index is None:
        return specs_of_overwrite(columns, config, schema)
    return specs_of_table(index) if columns is None else resolve_specs(columns, config.latest)


def _refuse_index_options(options: WriteOptions, sample_column: str | None) -> None:
    """Raise if options of a write need an index, and the table has none."""
    requested = {
        "sample_column": sample_column,
        "cube_size": options.cube_size,
        "column_stats": options.column_stats,
        "sample_by": options.sample_by or None,
        "dialect": None if options.dialect == "documented" else options.dialect,
    }
    for name, value in requested.items():
        if value is not None:
            msg = f"`{name}` needs an index, and the table has none (columns=[]). Pass columns to index."
            raise InvalidInputError(msg, argument=name, value=value)


def _dialect(options: WriteOptions, before: Snapshot) -> BlocksDialect:
    requested, mode = options.dialect, options.mode
    intent = WriteIntent(mode="overwrite" if mode == "overwrite" else "append", dialect=requested)
    dialect = found_dialect(intent, before.metadata, before.some_files)
    if requested not in (None, dialect):
        cure = "Append without `dialect`."
        msg = f"the table uses the dialect {dialect!r}, not {requested!r}. {cure}"
        raise InvalidInputError(msg, argument="dialect", value=requested, known=[dialect])
    return dialect


def _refuse_dialect(before: Snapshot, options: WriteOptions, dialect: BlocksDialect) -> None:
    """Raise if qbeast-spark would not support the table after the write, whose dialect is for it."""
    if dialect != "qbeast-spark":
        return
    if options.deletion_vectors:
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have deletion vectors: qbeast-spark reads files without them, "
            "and its optimize refuses the table. Leave `deletion_vectors` out: changes then rewrite files."
        )
        if before.is_new or options.mode == "overwrite":
            msg += " Or use the dialect 'documented'."
        raise InvalidInputError(msg, argument="deletion_vectors", value=options.deletion_vectors)
    refuse_mapping(before.uri, before.columns)
    if dialect_of(before) != dialect:
        refuse_vectors(before.uri, before.protocol)


def _sample_column(
    frame: pl.DataFrame, before: Snapshot, options: WriteOptions, dialect: BlocksDialect
) -> str | None:
    """Return the sample column of the table after the write. A table keeps the one that it has."""
    now, name = before.sample_column, options.sample_column
    if name not in (None, now) and not _redefines(before, options):
        has = "no sample column" if now is None else f"the sample column {now!r}"
        cure = (
            'Leave `sample_column` out, or replace the table with mode="overwrite", schema_mode="overwrite"'
        )
        cure += "." if now is not None else ", or add it first: Table.add_sample_column(name)."
        msg = f"the table has {has}, not {name!r}. {cure}"
        raise InvalidInputError(msg, argument="sample_column", value=name)
    if name is None or name == now:
        return None if now is None else check_sample_column(now, (), dialect)
    return check_sample_column(name, frame.columns, dialect)


def _sampling_key(
    schema: pl.Schema,
    before: Snapshot,
    options: WriteOptions,
    dialect: BlocksDialect,
    sample_column: str | None,
) -> tuple[str, ...]:
    """Return the sampling key of the table after the write."""
    return sampling_key(
        options.sample_by,
        schema,
        now=before.config.sample_by,
        may_change=before.is_new or options.mode == "overwrite",
        dialect=dialect,
        sample_column=sample_column,
    )


def _metadata(
    before: Snapshot,
    schema_json: str,
    schema: pl.Schema,
    options: WriteOptions,
    dialect: BlocksDialect,
) -> Metadata:
    if not before.is_new:
        _refuse_other_properties(before.metadata, options)
    names = partition_columns(
        options.partition_by,
        schema,
        now=before.metadata.partition_columns,
        may_change=_redefines(before, options),
        dialect=dialect,
    )
    comments = {name: {"comment": text} for name, text in options.column_comments.items()}
    unknown = [name for name in comments if name not in schema]
    if unknown:
        unknown_columns("column_comments", unknown, schema)
    if not _redefines(before, options):
        _refuse_new_comments(before.metadata, schema_json, comments, options)
        return with_fields(before.metadata, schema_json, new_id)
    changes: dict[str, Any] = {"partition_columns": names}
    if options.comment is not None:
        changes["description"] = options.comment
    if before.is_new:
        refuse_feed_columns(options.table_properties, schema, "df")
        schema_json = noted_fields(schema_json, options.field_metadata)
        changes["configuration"] = {**options.table_properties, BLOCKS_DIALECT: dialect}
    described = before.metadata.model_copy(update=changes)
    return with_fields(described, noted_fields(schema_json, comments), new_id)


def _refuse_other_properties(metadata: Metadata, options: WriteOptions) -> None:
    """Raise if a write would set a property of a table that exists."""
    for argument, key in (("deletion_vectors", DELETION_VECTORS), ("change_feed", CHANGE_FEED)):
        wanted = getattr(options, argument)
        if wanted not in (None, is_true(metadata, key)):
            value = '"true"' if wanted else "None"
            msg = (
                f"`{argument}` is for new tables, and this one exists with another value. "
                f"Change it first: Table.set_properties({{{key!r}: {value}}})."
            )
            raise InvalidInputError(msg, argument=argument, value=wanted)
    if options.compression not in (None, codec_of(metadata.configuration)):
        stored = options.table_properties[COMPRESSION]
        msg = (
            "`compression` is for new tables, and this one exists with another one. "
            f"Change it first: Table.set_properties({{{COMPRESSION!r}: {stored!r}}})."
        )
        raise InvalidInputError(msg, argument="compression", value=options.compression)


def _with_importance(
    metadata: Metadata,
    before: Snapshot,
    importance: Mapping[str, float] | None,
    specs: Sequence[ColumnSpec],
) -> Metadata:
    """Return the metadata with an importance of columns; raise if the table exists with another one."""
    if importance is None:
        return metadata
    changed = with_importance(metadata, importance, [spec.name for spec in specs])
    if not before.is_new and changed.configuration != metadata.configuration:
        msg = (
            "`importance` is for new tables, and this one exists with another one. "
            f"Change it first: Table.set_importance({dict(importance)!r})."
        )
        raise InvalidInputError(msg, argument="importance", value=importance)
    return changed


def _refuse_new_comments(
    metadata: Metadata, schema_json: str, comments: Mapping[str, Mapping[str, str]], options: WriteOptions
) -> None:
    """Raise if a write would change comments of a table that it keeps."""
    changed = options.comment not in (None, metadata.description)
    if changed or noted_fields(schema_json, comments) != noted_fields(schema_json, {"": {}}):
        argument = "comment" if changed else "column_comments"
        msg = (
            f"`{argument}` differs from the comments of the table. Comments are set when a table is made, "
            'or replaced by mode="overwrite", schema_mode="overwrite": leave them out.'
        )
        raise InvalidInputError(msg, argument=argument)
