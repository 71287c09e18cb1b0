"""Columns as the files of a table store them: names, ids, mapping, and settings of the index by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import orjson
import polars as pl

from qbeast_core.log.actions import STATS_COLUMNS, Metadata, names_text, parse_names
from qbeast_core.log.schema import (
    Field,
    FieldPath,
    TypeChange,
    changed_field,
    changes_hash,
    changes_of,
    fields_of,
    inner_fields,
    is_special,
    merged_schema,
    nearest_fields,
    schema_from_delta,
    type_from_delta,
    with_inner_fields,
)
from qbeast_core.spec.revision import ColumnSpec, Revision, parse_column_spec
from qbeast_core.spec.table_config import SAMPLE_COLUMN, SAMPLE_COLUMN_READER, TableConfig, min_reader_entry
from qbeast_core.support.frames import own_column

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


_ICEBERG: Final = "delta.enableIcebergCompatV2"
_KEYS: Final = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)


def with_fields(metadata: Metadata, schema_string: str, new_id: Callable[[], str]) -> Metadata:
    """Return the metadata with another schema.

    If the table maps columns, fields keep their ids and names in files by their names in the table, and new fields get
    new ones. `new_id` returns a text that no other call returns.
    """
    if schema_string == metadata.schema_string:
        return metadata
    changed = metadata.model_copy(update={"schema_string": schema_string})
    if mapping_mode(metadata.configuration) == "none":
        return changed
    return _assigned(changed, known=metadata, name_of=lambda _: f"col-{new_id()}")


def with_sample_column(metadata: Metadata, name: str, new_id: Callable[[], str]) -> Metadata:
    """Return the metadata with a sample column at the end of the schema, unless it has this one.

    A version of this library that does not compute the column must refuse the table. Versions from before
    ``qbeast.minReader`` do not know this, so the values in their files are not trusted.
    """
    columns = {**schema_from_delta(metadata.schema_string), name: DTYPE}
    changed = with_fields(metadata, merged_schema(metadata.schema_string, columns), new_id)
    entries = {
        SAMPLE_COLUMN: StoredColumns.of(changed).stored_name(name),
        **min_reader_entry(metadata.configuration, SAMPLE_COLUMN_READER),
    }
    return changed.model_copy(update={"configuration": {**changed.configuration, **entries}})


def with_mapping(metadata: Metadata) -> Metadata:
    """Return the metadata with column mapping by name: files have the columns under their current names.

    >>> schema = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
    >>> mapped = with_mapping(Metadata(id="", schema_string=schema))
    >>> dict(mapped.configuration)
    {'delta.columnMapping.mode': 'name', 'delta.columnMapping.maxColumnId': '1'}
    >>> orjson.loads(mapped.schema_string)["fields"][0]["metadata"]
    {'delta.columnMapping.id': 1, 'delta.columnMapping.physicalName': 'x'}
    """
    # Keys of a mapping that was switched off again do not count.
    plain = orjson.dumps(with_inner_fields(orjson.loads(metadata.schema_string), _without_mapping)).decode()
    configuration = {**metadata.configuration, MAPPING_MODE: "name"}
    changed = metadata.model_copy(update={"schema_string": plain, "configuration": configuration})
    return _assigned(changed, known=None, name_of=lambda field: str(field["name"]))


def with_max_id(metadata: Metadata, newest: Metadata) -> Metadata:
    """Return older metadata, restored so that no id of a column is used twice.

    If only the newer metadata maps columns, the mapping stays.
    """
    if mapping_mode(newest.configuration) == "none":
        return metadata
    highest = str(max(_max_id(metadata), _max_id(newest)))
    configuration = {**metadata.configuration, MAX_COLUMN_ID: highest}
    raised = metadata.model_copy(update={"configuration": configuration})
    return raised if mapping_mode(metadata.configuration) != "none" else with_mapping(raised)


def renamed(metadata: Metadata, path: FieldPath, name: str) -> Metadata:
    """Return the metadata of a mapped table with another name of a column, or of a field in a column."""

    def rename(field: Field) -> Field:
        notes = dict(field.get("metadata") or {})
        if COLLATIONS in notes:  # by the names of the field and of the fields inside of it
            keys = {_renamed_key(key, field["name"], name): text for key, text in notes[COLLATIONS].items()}
            notes[COLLATIONS] = keys
        return {**field, "name": name, "metadata": notes}

    update: dict[str, Any] = {"schema_string": changed_field(metadata.schema_string, path, rename)}
    if len(path) == 1:
        update["partition_columns"] = tuple(
            name if column == path[0] else column for column in metadata.partition_columns
        )
    whole = (*path[:-1], name)
    listed = _stats_columns(metadata)
    if listed is not None:
        leaves = [(*whole, *leaf[len(path) :]) if leaf[: len(path)] == path else leaf for leaf in listed]
        update["configuration"] = {**metadata.configuration, STATS_COLUMNS: names_text(leaves)}
    return metadata.model_copy(update=update)


def dropped(metadata: Metadata, path: FieldPath) -> Metadata:
    """Return the metadata of a mapped table without a column, or without a field in a column."""
    update: dict[str, Any] = {"schema_string": changed_field(metadata.schema_string, path, lambda _: None)}
    listed = _stats_columns(metadata)
    if listed is not None:
        leaves = [leaf for leaf in listed if leaf[: len(path)] != path]
        update["configuration"] = {**metadata.configuration, STATS_COLUMNS: names_text(leaves)}
    return metadata.model_copy(update=update)


def _assigned(metadata: Metadata, *, known: Metadata | None, name_of: Callable[[Field], str]) -> Metadata:
    """Return the metadata with ids and names in files for all fields that have none."""
    old = {} if known is None else dict(inner_fields(orjson.loads(known.schema_string)))
    nests = metadata.configuration.get(_ICEBERG, "").lower() == "true"
    ids = _Ids(max(_max_id(metadata), 0 if known is None else _max_id(known)), name_of, nests=nests)
    schema = with_inner_fields(
        orjson.loads(metadata.schema_string), lambda path, field: ids.assign(field, old.get(path))
    )
    return metadata.model_copy(
        update={
            "schema_string": orjson.dumps(schema).decode(),
            "configuration": {**metadata.configuration, MAX_COLUMN_ID: str(ids.highest)},
        }
    )


@dataclass(slots=True)
class _Ids:
    """Gives ids and names in files to fields, from the outside to the inside."""

    highest: int
    name_of: Callable[[Field], str]
    nests: bool

    def assign(self, field: Field, known: Field | None) -> Field:
        """Return a field with ids, and names in files, at each depth."""
        before = {} if known is None else known.get("metadata") or {}
        notes = {key: before[key] for key in _KEYS if key in before} | (field.get("metadata") or {})
        if COLUMN_ID not in notes:
            notes[COLUMN_ID] = self._next()
        if PHYSICAL_NAME not in notes:
            notes[PHYSICAL_NAME] = self.name_of(field)
        if self.nests:
            places = _places(field["type"], notes[PHYSICAL_NAME])
            nested = notes.get(NESTED_IDS, {})
            notes[NESTED_IDS] = {
                place: nested[place] if place in nested else self._next() for place in places
            }
        old = {} if known is None else dict(inner_fields(known["type"]))
        dtype = with_inner_fields(field["type"], lambda path, inner: self.assign(inner, old.get(path)))
        return {**field, "type": dtype, "metadata": notes}

    def _next(self) -> int:
        self.highest += 1
        return self.highest


def _places(dtype: Any, above: str) -> list[str]:
    """Return the names of elements, keys and values of a field, which need ids of their own in Iceberg.

    >>> _places({"type": "array", "elementType": {"type": "map", "keyType": "long", "valueType": "long"}}, "x")
    ['x.element', 'x.element.key', 'x.element.value']
    """
    places: list[str] = []
    for part in ("element", "key", "value") if isinstance(dtype, dict) else ():
        if f"{part}Type" in dtype:
            place = f"{above}.{part}"
            places += [place, *_places(dtype[f"{part}Type"], place)]
    return places


def _without_mapping(_: FieldPath, field: Field) -> Field:
    """Return a field without ids and names in files, at each depth."""
    notes = {key: value for key, value in (field.get("metadata") or {}).items() if key not in _KEYS}
    return {**field, "type": with_inner_fields(field["type"], _without_mapping), "metadata": notes}


def _max_id(metadata: Metadata) -> int:
    """Return the highest id that fields of the table have, or had."""
    text = metadata.configuration.get(MAX_COLUMN_ID, "")
    ids = [int(text) if text.isascii() and text.isdigit() else 0]
    for _, field in fields_of(orjson.loads(metadata.schema_string)):
        notes = field.get("metadata") or {}
        ids += [notes.get(COLUMN_ID, 0), *(notes.get(NESTED_IDS) or {}).values()]
    return max(ids)


def _stats_columns(metadata: Metadata) -> Sequence[tuple[str, ...]] | None:
    text = metadata.configuration.get(STATS_COLUMNS)
    return None if text is None else list(parse_names(text))


def _renamed_key(key: str, old: str, new: str) -> str:
    return new + key[len(old) :] if key == old or key.startswith(f"{old}.") else key
