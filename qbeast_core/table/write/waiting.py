"""Metadata of a table whose files wait for an index: `optimize` indexes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import StoredColumns, stored_revision, stored_specs
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import ColumnSpec, staging_revision
from qbeast_core.spec.table_config import (
    BLOCKS_DIALECT,
    COLUMN_SPECS,
    HIGHEST_REVISION_ID,
    LAST_REVISION_ID,
    REPLICATED_SET_PREFIX,
    REVISION_PREFIX,
    TableConfig,
    qbeast_spark_entries,
)
from qbeast_core.support.process import now_ms
from qbeast_core.table.data.schema import refuse_names
from qbeast_core.table.index.revision import check_columns
from qbeast_core.table.write.key_columns import partition_columns, sampling_key, with_sampling_key
from qbeast_core.table.write.options import WriteOptions
from qbeast_core.tree.fit import default_cube_size

_DEFAULT: Final[BlocksDialect] = "documented"


def indexed_metadata(
    plain: Metadata,
    schema: pl.Schema,
    specs: Sequence[ColumnSpec],
    options: WriteOptions,
    *,
    uri: str,
    rows: int | None,
) -> Metadata:
    """Return the metadata with revision 0, which owns the files without an index; without `specs`, with no revision."""
    _refuse_columns(schema, specs, options)
    if not specs:
        unindexed = TableConfig.from_configuration(plain.configuration).left_unindexed()
        return plain.model_copy(update={"configuration": unindexed.to_configuration()})
    size = options.cube_size or default_cube_size(rows or 0)
    dialect = options.dialect or _DEFAULT
    sample_by = sampling_key(options.sample_by, schema, now=None, may_change=True, dialect=dialect)
    partition_columns(None, schema, now=plain.partition_columns, may_change=False, dialect=dialect)
    names = [spec.name for spec in specs]
    staging = staging_revision(names, timestamp_ms=now_ms(), table_id=uri, cube_size=size)
    listed = [str(spec) for spec in specs]
    entries: dict[str, str] = {BLOCKS_DIALECT: dialect}
    if dialect == "qbeast-spark":
        entries |= qbeast_spark_entries(listed, cube_size=size)
    config = TableConfig.from_configuration(plain.configuration).without_faults().with_entries(entries)
    columns = StoredColumns.of(plain)
    config = config.with_revisions([stored_revision(staging, columns)])
    config = config.with_column_specs(stored_specs(listed, columns))
    indexed = plain.model_copy(update={"configuration": config.to_configuration()})
    return with_sampling_key(indexed, sample_by)


def _refuse_columns(schema: pl.Schema, specs: Sequence[ColumnSpec], options: WriteOptions) -> None:
    refuse_names(schema, argument="path")
    check_columns(specs, schema, options.dialect or _DEFAULT)


def without_index(metadata: Metadata) -> Metadata:
    """Return the metadata without the revisions of an index. Their numbers are not used again."""
    dropped = (REVISION_PREFIX, REPLICATED_SET_PREFIX, LAST_REVISION_ID, COLUMN_SPECS)
    configuration = metadata.configuration
    kept = {key: text for key, text in configuration.items() if not key.startswith(dropped)}
    highest = TableConfig.from_configuration(configuration).highest_revision_id
    had = {HIGHEST_REVISION_ID: str(highest)} if highest else {}
    return metadata.model_copy(update={"configuration": kept | had})
