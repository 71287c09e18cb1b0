"""Column mapping: ids and names in files of new fields, and changes of names that leave the files as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns.schema_fields import (
    Field,
    FieldPath,
    changed_field,
    fields_of,
    inner_fields,
    with_inner_fields,
)
from qbeast_core.log.columns.stored import (
    COLUMN_ID,
    DTYPE,
    MAPPING_MODE,
    MAX_COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    StoredColumns,
    mapping_mode,
)
from qbeast_core.log.delta_schema import merged_schema, schema_from_delta
from qbeast_core.log.files.stats import STATS_COLUMNS, names_text, parse_names
from qbeast_core.spec.table_config import SAMPLE_COLUMN, SAMPLE_COLUMN_READER, min_reader_entry

_ICEBERG: Final = "delta.enableIcebergCompatV2"
_COLLATIONS: Final = "__COLLATIONS"
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
        if _COLLATIONS in notes:  # by the names of the field and of the fields inside of it
            keys = {_renamed_key(key, field["name"], name): text for key, text in notes[_COLLATIONS].items()}
            notes[_COLLATIONS] = keys
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
