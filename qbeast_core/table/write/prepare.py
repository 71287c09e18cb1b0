"""Plan a write: whether the rows fit the table, its new schema, and how to index it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from qbeast_core.errors import InvalidColumnsError, InvalidInputError, SchemaMismatchError, unknown_columns
from qbeast_core.io.location import Location
from qbeast_core.log.actions import AddFile, Metadata, Txn
from qbeast_core.log.columns import StoredColumns, with_fields, with_sample_column, without_values
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
from qbeast_core.log.schema import merged_schema, noted_fields, schema_to_delta, with_notes, without_nulls
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import ColumnSpec
from qbeast_core.spec.table_config import BLOCKS_DIALECT, TableConfig, qbeast_spark_entries, stored_importance
from qbeast_core.support.process import new_id, now_ms
from qbeast_core.table.data.rules import RowRules, rules_of
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
from qbeast_core.table.engine.engine import FileTarget, RowShape
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import (
    check_columns,
    refuse_collations,
    resolve_specs,
    specs_of_overwrite,
    specs_of_table,
)
from qbeast_core.table.snapshot.snapshot import Snapshot
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
    """The table after the write."""

    # Metadata of the table, without a new revision.
    metadata: Metadata
    # How files store the columns.
    columns: StoredColumns
    # Columns of the table, in the order of the rows.
    schema: pl.Schema
    # The requested index: columns, cube size, dialect, ranges.
    wish: IndexWish
    # Index of the table to append to. None: a new index begins.
    state: Index | None
    # Rules of the table for the rows.
    rules: RowRules | None
    # Columns that the table is clustered by.
    clustered_by: tuple[tuple[str, ...], ...] = ()

    @property
    def has_index(self) -> bool:
        """Whether the table has an index after the write."""
        return bool(self.wish.specs)

    @property
    def cube_size(self) -> int | None:
        """Target number of rows per cube. None: it depends on the number of rows."""
        newest = None if self.state is None else self.state.newest
        return self.wish.cube_size or (None if newest is None else newest.desired_cube_size)

    def target(self, location: Location, options: WriteOptions) -> FileTarget:
        """Return the location of the files, and the shape of their rows."""
        merge = options.schema_mode == "merge"
        return FileTarget.of(
            location,
            RowShape(self.metadata.schema_string, self.schema, merge=merge, rules=self.rules),
            self.metadata.configuration,
            dialect=self.wish.dialect,
            columns=self.columns,
            clustered_by=self.clustered_by,
            sample_by=self.wish.sample_by,
            importance=stored_importance(self.metadata.configuration),
            table_rows=0 if self.state is None else self.state.snapshot.counted_rows,
        )


def prepare(
    frame: pl.DataFrame, target: Snapshot | None, options: WriteOptions, *, required: Collection[str] = ()
) -> PreparedTable:
    """Return the table after a write of rows with these columns. In a new schema, `required` ones allow no nulls."""
    appending = target is not None and options.mode == "append"
    state = Index(target) if target is not None and appending else None
    latest = target.config.latest if target is not None else None
    dialect = _dialect(options, target)
    _refuse_dialect(target, options, dialect)
    sample_column = _sample_column(frame, target, options, dialect)
    present = frame.columns
    rules = _rules_of_rows(target, options, present)
    frame = _with_computed(without_values(frame, sample_column), target, rules)
    frame, schema_json = _fitted(frame, target, options, required)
    if target is not None and appending and latest is not None:
        refuse_lost_columns(target.uri, latest, frame.schema, target.columns)
    specs = _specs(target, state, options, frame.schema)
    if not specs:
        _refuse_index_options(options, sample_column)
    sample_by = _sampling_key(frame.schema, target, options, dialect, sample_column) if specs else ()
    refuse_sample_column(sample_column, [spec.name for spec in specs], argument="columns")
    check_columns(specs, frame.schema, dialect)
    metadata = _metadata(target, schema_json, frame.schema, options, dialect)
    if target is None and not specs:
        config = TableConfig.from_configuration(metadata.configuration).left_unindexed()
        metadata = metadata.model_copy(update={"configuration": config.to_configuration()})
    if sample_column is not None:
        metadata = with_sample_column(metadata, sample_column, new_id)
    metadata = _with_importance(with_sampling_key(metadata, sample_by), target, options.importance, specs)
    # A converted table, or one whose columns another writer changed, still waits for a real revision.
    waits = state is not None and state.newest is None
    stays = latest is not None and (waits or (not appending and options.columns is None))
    size = options.cube_size or (latest.desired_cube_size if stays and latest is not None else None)
    if dialect == "qbeast-spark" and specs and not appending:
        metadata = _with_spark_entries(metadata, specs, size)
    bounds = parse_column_stats(options.column_stats, frame.schema, [spec.name for spec in specs])
    columns = StoredColumns.of(metadata, None if target is None else target.protocol.writer_features)
    clustered_by = () if target is None else target.clustered_by
    new_names = {*(spec.name for spec in specs), *sample_by}.difference(latest.key_columns if latest else ())
    refuse_collations(sorted(new_names), columns.collated)
    wish = IndexWish(specs, size, dialect, bounds, columns.rehashed, sample_by)
    if target is not None and options.schema_mode == "overwrite":
        rules = rules_of(metadata, target.protocol, frame.schema, path=target.uri, present=present)
    return PreparedTable(metadata, columns, frame.schema, wish, state, rules, clustered_by)


def _with_spark_entries(metadata: Metadata, specs: Sequence[ColumnSpec], size: int | None) -> Metadata:
    entries = qbeast_spark_entries([str(spec) for spec in specs], cube_size=size or 0)
    return metadata.model_copy(update={"configuration": {**metadata.configuration, **entries}})


def _fitted(
    frame: pl.DataFrame, target: Snapshot | None, options: WriteOptions, required: Collection[str]
) -> tuple[pl.DataFrame, str]:
    """Return a frame without rows with the columns of the table after the write, and their Delta schema."""
    if target is None or options.schema_mode == "overwrite":
        _refuse_lost_clustering(target, frame.schema)
        schema_json = without_nulls(schema_to_delta(frame.schema), required)
        return frame, schema_json if target is None else with_notes(schema_json, target.schema_json)
    refuse_taken_name(target.uri, target.schema_json)
    merge, replaces = options.schema_mode == "merge", options.mode == "overwrite"
    frame = fit_frame(frame, target.schema_json, target.schema, merge=merge, replaces=replaces)
    return frame, merged_schema(target.schema_json, frame.schema)


def _refuse_lost_clustering(target: Snapshot | None, schema: pl.Schema) -> None:
    """Raise if the new schema lacks a column that the table is clustered by."""
    columns = () if target is None else target.clustered_by
    lost = sorted({column[0] for column in columns if column[0] not in schema})
    if target is not None and lost:
        msg = (
            f"{target.uri!r} is clustered by {lost}, and the rows lack these columns. Keep the columns, or "
            "let Spark change the clustering first: ALTER TABLE ... CLUSTER BY NONE."
        )
        raise SchemaMismatchError(
            msg, problems=[f"column {name!r} is missing" for name in lost], argument="df"
        )


def rows_intent(
    mode: WriteMode, adds: Sequence[AddFile], rows: int, options: WriteOptions, *, operation: str = ""
) -> WriteIntent:
    """Return the intent of a commit of new rows."""
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(rows),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }
    return WriteIntent(
        mode=mode,
        adds=tuple(adds),
        txn=None if options.txn is None else Txn(app_id=options.txn[0], version=options.txn[1]),
        operation=operation,
        commit_info={**options.commit_metadata, "operationMetrics": metrics},
    )


def _rules_of_rows(target: Snapshot | None, options: WriteOptions, present: Sequence[str]) -> RowRules | None:
    """Return the rules of the table for rows with these columns. None: it has none, or gets a new schema."""
    if target is None or options.schema_mode == "overwrite":
        return None
    return rules_of(target.metadata, target.protocol, target.schema, path=target.uri, present=present)


def _with_computed(frame: pl.DataFrame, target: Snapshot | None, rules: RowRules | None) -> pl.DataFrame:
    """Return a frame without rows with the columns that the table computes if rows lack them."""
    if target is None or rules is None:
        return frame
    missing = rules.on_new(frame.columns).columns
    return frame.with_columns(pl.lit(None, target.schema[name]).alias(name) for name in missing)


def _specs(
    target: Snapshot | None, state: Index | None, options: WriteOptions, schema: pl.Schema
) -> tuple[ColumnSpec, ...]:
    """Return the columns to index: the requested columns, or the columns of the table."""
    columns = options.columns
    if target is not None and target.config.is_left_unindexed and (state is not None or columns is None):
        if columns is not None and resolve_specs(columns, None):
            msg = (
                "the table has no index, and an append does not begin one. Append without "
                "`columns`, and index the table, which moves no data: Table.reindex([...])."
            )
            raise InvalidColumnsError(msg, value=columns)
        return ()
    if columns is None and (target is None or target.config.latest is None):
        columns = options.columns_if_none
    if target is None:
        return resolve_specs(columns, None)
    if state is None:
        return specs_of_overwrite(columns, target.config, schema)
    return specs_of_table(state) if columns is None else resolve_specs(columns, target.config.latest)


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


def _dialect(options: WriteOptions, target: Snapshot | None) -> BlocksDialect:
    if target is None:
        return options.dialect or "documented"
    requested, mode = options.dialect, options.mode
    intent = WriteIntent(mode="overwrite" if mode == "overwrite" else "append", dialect=requested)
    dialect = found_dialect(intent, target.metadata, target.files)
    if requested not in (None, dialect):
        cure = "Append without `dialect`."
        msg = f"the table uses the dialect {dialect!r}, not {requested!r}. {cure}"
        raise InvalidInputError(msg, argument="dialect", value=requested, known=[dialect])
    return dialect


def _refuse_dialect(target: Snapshot | None, options: WriteOptions, dialect: BlocksDialect) -> None:
    """Raise if qbeast-spark would not support the table after the write, whose dialect is for it."""
    if dialect != "qbeast-spark":
        return
    if options.deletion_vectors:
        msg = (
            "tables of the dialect 'qbeast-spark' cannot have deletion vectors: qbeast-spark reads files without them, "
            "and its optimize refuses the table. Leave `deletion_vectors` out: changes then rewrite files."
        )
        if target is None or options.mode == "overwrite":
            msg += " Or use the dialect 'documented'."
        raise InvalidInputError(msg, argument="deletion_vectors", value=options.deletion_vectors)
    if target is not None:
        refuse_mapping(target.uri, target.columns)
        if dialect_of(target) != dialect:
            refuse_vectors(target.uri, target.protocol)


def _sample_column(
    frame: pl.DataFrame, target: Snapshot | None, options: WriteOptions, dialect: BlocksDialect
) -> str | None:
    """Return the sample column of the table after the write. A table keeps the one that it has."""
    now, name = None if target is None else target.sample_column, options.sample_column
    if name is not None and target is not None and name != now and options.schema_mode != "overwrite":
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
    target: Snapshot | None,
    options: WriteOptions,
    dialect: BlocksDialect,
    sample_column: str | None,
) -> tuple[str, ...]:
    """Return the sampling key of the table after the write."""
    return sampling_key(
        options.sample_by,
        schema,
        now=None if target is None else target.config.sample_by,
        may_change=options.mode == "overwrite",
        dialect=dialect,
        sample_column=sample_column,
    )


def _metadata(
    target: Snapshot | None,
    schema_json: str,
    schema: pl.Schema,
    options: WriteOptions,
    dialect: BlocksDialect,
) -> Metadata:
    if target is not None:
        _refuse_other_properties(target.metadata, options)
    names = partition_columns(
        options.partition_by,
        schema,
        now=None if target is None else target.metadata.partition_columns,
        may_change=options.schema_mode == "overwrite",
        dialect=dialect,
    )
    comments = {name: {"comment": text} for name, text in options.column_comments.items()}
    unknown = [name for name in comments if name not in schema]
    if unknown:
        unknown_columns("column_comments", unknown, schema)
    if target is None:
        refuse_feed_columns(options.table_properties, schema, "df")
        return Metadata(
            id=new_id(),
            description=options.comment,
            schema_string=noted_fields(noted_fields(schema_json, options.field_metadata), comments),
            configuration={**options.table_properties, BLOCKS_DIALECT: options.dialect or "documented"},
            created_time=now_ms(),
            partition_columns=names,
        )
    if options.schema_mode == "overwrite":
        about = target.metadata.description if options.comment is None else options.comment
        described = target.metadata.model_copy(update={"description": about, "partition_columns": names})
        return with_fields(described, noted_fields(schema_json, comments), new_id)
    _refuse_new_comments(target.metadata, schema_json, comments, options)
    return with_fields(target.metadata, schema_json, new_id)


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
    target: Snapshot | None,
    importance: Mapping[str, float] | None,
    specs: Sequence[ColumnSpec],
) -> Metadata:
    """Return the metadata with an importance of columns; raise if the table exists with another one."""
    if importance is None:
        return metadata
    changed = with_importance(metadata, importance, [spec.name for spec in specs])
    if target is not None and changed.configuration != metadata.configuration:
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
