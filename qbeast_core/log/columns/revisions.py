"""Names of columns in revisions and other settings of the index, which are names in files (format 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from qbeast_core.log.columns.stored import StoredColumns
from qbeast_core.spec.column_spec import ColumnSpec, parse_column_spec
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.table_config import TableConfig


def config_by_name(configuration: Mapping[str, str], columns: StoredColumns) -> TableConfig:
    """Return the settings of the index with the names of columns in the table; `entries` stay as they are."""
    config = TableConfig.from_configuration(configuration)
    if columns.mode == "none":
        return config
    revisions = {number: _renamed(revision, columns.name) for number, revision in config.revisions.items()}
    specs = config.column_specs
    if specs is not None:
        specs = tuple(_renamed_spec(spec, columns.name) for spec in specs)
    sample_by = tuple(columns.name(name) for name in config.sample_by)
    return replace(config, revisions=revisions, column_specs=specs, sample_by=sample_by)


def named_revision(revision: Revision, columns: StoredColumns) -> Revision:
    """Return a revision with the names of columns in the table."""
    return revision if columns.mode == "none" else _renamed(revision, columns.name)


def stored_revision(revision: Revision, columns: StoredColumns) -> Revision:
    """Return a revision with the names of columns in files."""
    return revision if columns.mode == "none" else _renamed(revision, columns.stored_name)


def stored_specs(specs: Sequence[str], columns: StoredColumns) -> tuple[str, ...]:
    """Return column specs with the names of columns in files."""
    return tuple(_renamed_spec(spec, columns.stored_name) for spec in specs)


def _renamed(revision: Revision, name_of: Callable[[str], str]) -> Revision:
    transformers = tuple(
        transformer.model_copy(update={"column_name": name_of(transformer.column_name)})
        for transformer in revision.column_transformers
    )
    renamed = revision.model_copy(update={"column_transformers": transformers})
    return renamed.with_sample_by([name_of(name) for name in revision.sample_by])


def _renamed_spec(spec: str, name_of: Callable[[str], str]) -> str:
    parsed = parse_column_spec(spec)
    return str(ColumnSpec(name_of(parsed.name), parsed.kind))
