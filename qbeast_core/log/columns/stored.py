"""The columns of a table as its files store them, and the settings of the index by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import orjson
import polars as pl

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns.schema_fields import (
    TypeChange,
    changes_hash,
    changes_of,
    is_special,
    nearest_fields,
)
from qbeast_core.log.delta_schema import schema_from_delta, type_from_delta
from qbeast_core.spec.revision import ColumnSpec, Revision, parse_column_spec
from qbeast_core.spec.table_config import SAMPLE_COLUMN, TableConfig
from qbeast_core.support.joins import own_column

MappingMode: TypeAlias = Literal["none", "name", "id"]

MAPPING_MODE: Final = "delta.columnMapping.mode"
MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
COLLATIONS: Final = "__COLLATIONS"
COLUMN_ID: Final = "delta.columnMapping.id"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"

# The collation of plain strings.
_OF_BYTES: Final = "UTF8_BINARY"
# Properties with which partition columns are also stored in the files.
_MATERIALIZED: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")
_MATERIALIZED_FEATURE: Final = "materializePartitionColumns"


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """A column of a table."""

    name: str
    # Name in files, statistics and partition values, with the type in files: its fields have their names in files.
    stored_name: str
    stored_type: pl.DataType
    dtype: pl.DataType
    # The field of the Delta schema; it has the ids of column mapping.
    field: Mapping[str, Any]


@dataclass(frozen=True, eq=False)  # no slots: derived values are cached
class StoredColumns:
    """The columns of a version, by their names in the table. Picklable."""

    columns: Mapping[str, StoredColumn]
    mode: MappingMode = "none"
    # Partition columns, in the order of the metadata.
    partitions: tuple[str, ...] = ()
    # Whether new files also have the partition columns.
    materialized: bool = False

    @staticmethod
    def of(metadata: Metadata, writer_features: Iterable[str] | None = None) -> StoredColumns:
        """Return the columns of a table.

        >>> field = '{"name":"x","type":"long","metadata":{"delta.columnMapping.physicalName":"col-1"}}'
        >>> schema = '{"type":"struct","fields":[' + field + "]}"
        >>> metadata = Metadata(id="", schema_string=schema, configuration={"delta.columnMapping.mode": "name"})
        >>> StoredColumns.of(metadata).stored_names
        {'x': 'col-1'}
        """
        configuration = metadata.configuration
        mode = mapping_mode(configuration)
        fields = orjson.loads(metadata.schema_string)["fields"]
        named = physical_name if mode != "none" else _own_name
        materialized = _MATERIALIZED_FEATURE in (writer_features or ()) or any(
            configuration.get(key, "").lower() == "true" for key in _MATERIALIZED
        )
        return StoredColumns(_columns(fields, named), mode, metadata.partition_columns, materialized)

    def with_names(self, names: Mapping[int, str]) -> StoredColumns:
        """Return the columns of a file whose fields have these names, by id. Other fields are not in the file."""

        def named(field: Mapping[str, Any]) -> str:
            # Arrow refuses NUL in the names of fields.
            absent = own_column(physical_name(field)).removesuffix("\0")
            return names.get((field.get("metadata") or {}).get(COLUMN_ID, -1), absent)

        fields = [column.field for column in self.columns.values()]
        return replace(self, columns=_columns(fields, named))

    @property
    def is_plain(self) -> bool:
        """Whether files have all columns under their names in the table."""
        return self.mode == "none" and not self.partitions

    @cached_property
    def special_types(self) -> dict[str, Any]:
        """Types in the Delta schema of the columns that are or contain variants or voids."""
        return {
            name: column.field["type"]
            for name, column in self.columns.items()
            if is_special(column.field["type"])
        }

    @property
    def stored_special_types(self) -> dict[str, Any]:
        """`special_types` by the names of the columns in files."""
        return {self.stored_name(name): dtype for name, dtype in self.special_types.items()}

    @cached_property
    def type_changes(self) -> tuple[TypeChange, ...]:
        """The changes of types since which older files may have other types."""
        return tuple(change for column in self.columns.values() for change in changes_of(column.field))

    @cached_property
    def rehashed(self) -> dict[str, str]:
        """Decimal columns whose older files have other weights, with their types.

        Revisions note the type of these columns. Changes of other types show in the data type that all revisions have.
        """
        return {
            change.column: self.columns[change.column].field["type"]
            for change in self.type_changes
            if change.is_whole and change.from_type.startswith("decimal") and changes_hash(change)
        }

    @cached_property
    def reweighted(self) -> frozenset[str]:
        """Columns whose older files have other weights because the type was widened."""
        return frozenset(
            change.column for change in self.type_changes if change.is_whole and changes_hash(change)
        )

    @cached_property
    def collated(self) -> frozenset[str]:
        """Columns that are or contain strings with a collation other than the order of bytes."""
        return frozenset(name for name, column in self.columns.items() if _is_collated(column.field))

    @cached_property
    def stored_names(self) -> dict[str, str]:
        """Names in files by the names in the table."""
        return {name: column.stored_name for name, column in self.columns.items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """Names in the table by the names in files."""
        return {column.stored_name: name for name, column in self.columns.items()}

    def stored_name(self, name: str) -> str:
        """Return the name of a column in files; the same name for other columns, such as hidden ones."""
        return self.stored_names.get(name, name)

    def name(self, stored_name: str) -> str:
        """Return the name of a column in the table; the same name for other columns."""
        known = self.names.get(stored_name)
        # It was dropped, and another column has its name now.
        if known is None and stored_name in self.columns:
            return f"{stored_name} (dropped)"
        return stored_name if known is None else known

    @property
    def is_mapped(self) -> bool:
        """Whether the table maps columns, so that they can be renamed and dropped."""
        return self.mode != "none"

    def stored_leaf(self, leaf: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in files from a column down to a field of structs."""
        if self.mode == "none":
            return leaf
        column = self.columns[leaf[0]]
        names, dtype = [column.stored_name], column.field["type"]
        for name in leaf[1:]:
            field = next(field for field in dtype["fields"] if field["name"] == name)
            names.append(physical_name(field))
            dtype = field["type"]
        return tuple(names)

    def in_files(self, names: Iterable[str]) -> list[str]:
        """Return the columns among `names` that new files have."""
        return [name for name in names if self.materialized or name not in self.partitions]

    def read_from_files(self, names: Iterable[str]) -> list[str]:
        """Return the columns among `names` whose values are in files; those of partition columns are in the log.

        New files may have partition columns too, but older ones do not.
        """
        return [name for name in names if name not in self.partitions]


def mapping_mode(configuration: Mapping[str, str]) -> MappingMode:
    """Return the mode of column mapping.

    >>> mapping_mode({"delta.columnMapping.mode": "Name"}), mapping_mode({})
    ('name', 'none')
    """
    mode = configuration.get(MAPPING_MODE, "none").lower()
    return cast("MappingMode", mode) if mode in get_args(MappingMode) else "none"


def physical_name(field: Mapping[str, Any]) -> str:
    """Return the name of a field in files of a table with column mapping."""
    return str((field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]))


def stored_schema(metadata: Metadata) -> str:
    """Return the schema of a table with the names of fields in files."""
    if mapping_mode(metadata.configuration) == "none":
        return metadata.schema_string
    return orjson.dumps(stored_type(orjson.loads(metadata.schema_string))).decode()


def _is_collated(field: Mapping[str, Any]) -> bool:
    collations: Mapping[str, str] = (field.get("metadata") or {}).get(COLLATIONS) or {}
    # As "provider.NAME" or "provider.NAME.version".
    return any(_OF_BYTES not in collation.split(".") for collation in collations.values()) or any(
        _is_collated(part) for part in nearest_fields(field["type"])
    )


def stored_type(dtype: Any, named: Callable[[Mapping[str, Any]], str] = physical_name) -> Any:
    """Return a type of a Delta schema with the names of its fields in files."""
    if not isinstance(dtype, dict):
        return dtype
    kind = cast("dict[str, Any]", dtype)
    match kind.get("type"):
        case "struct":
            fields = [
                {**field, "name": named(field), "type": stored_type(field["type"], named)}
                for field in kind["fields"]
            ]
            return {**kind, "fields": fields}
        case "array":
            return {**kind, "elementType": stored_type(kind["elementType"], named)}
        case "map":
            key, value = (stored_type(kind[part], named) for part in ("keyType", "valueType"))
            return {**kind, "keyType": key, "valueType": value}
        case _:
            return dtype


def _own_name(field: Mapping[str, Any]) -> str:
    return str(field["name"])


def _columns(
    fields: Iterable[Mapping[str, Any]], named: Callable[[Mapping[str, Any]], str]
) -> dict[str, StoredColumn]:
    columns: dict[str, StoredColumn] = {}
    for field in fields:
        dtype = type_from_delta(field["type"])
        stored = dtype if named is _own_name else type_from_delta(stored_type(field["type"], named))
        columns[field["name"]] = StoredColumn(field["name"], named(field), stored, dtype, field)
    return columns


# The columns of a table without mapping and partitions.
PLAIN: Final = StoredColumns({})


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


DTYPE: Final = pl.Float32()


def sample_column_of(
    configuration: Mapping[str, str], schema: pl.Schema, columns: StoredColumns = PLAIN
) -> str | None:
    """Return the name of the sample column, or None if the table has none.

    A column that another writer dropped, or whose type it changed, does not count.

    >>> sample_column_of({"qbeast.sampleColumn": "s"}, pl.Schema({"a": pl.Int64, "s": pl.Float32}))
    's'
    >>> sample_column_of({"qbeast.sampleColumn": "s"}, pl.Schema({"a": pl.Int64})) is None
    True
    """
    stored = configuration.get(SAMPLE_COLUMN)
    name = None if stored is None else columns.name(stored)
    return name if name is not None and schema.get(name) == DTYPE else None


def has_sample_column(metadata: Metadata) -> bool:
    """Return whether a table has a sample column; see `sample_column_of`."""
    if SAMPLE_COLUMN not in metadata.configuration:
        return False
    schema, columns = schema_from_delta(metadata.schema_string), StoredColumns.of(metadata)
    return sample_column_of(metadata.configuration, schema, columns) is not None


def without_values(frame: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Return rows whose sample column, if the table has one, is null and the last column: writes compute it."""
    if name is None:
        return frame
    return frame.drop(name, strict=False).with_columns(pl.lit(None, DTYPE).alias(name))
