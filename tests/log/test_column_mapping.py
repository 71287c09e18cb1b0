"""Ids and names in files of mapped columns: kept by every change of the schema, and never used twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbeast_core.log.actions import Metadata
from qbeast_core.log.columns import (
    StoredColumns,
    dropped,
    renamed,
    stored_schema,
    with_fields,
    with_mapping,
    with_max_id,
)
from qbeast_core.log.schema import (
    field_paths,
    fields_of,
    merged_schema,
    schema_from_delta,
    schema_problems,
    schema_to_delta,
)
from tests.helpers.schemas import SCHEMAS

ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
NESTED, HIGHEST = "delta.columnMapping.nested.ids", "delta.columnMapping.maxColumnId"
ICEBERG = {"delta.enableIcebergCompatV2": "true"}


def table(schema: pl.Schema | dict[str, Any], **configuration: str) -> Metadata:
    return Metadata(id="t", schema_string=schema_to_delta(pl.Schema(schema)), configuration=configuration)


def counter() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"new{next(numbers)}"


def ids_of(metadata: Metadata) -> list[int]:
    ids: list[int] = []
    for _, field in fields_of(json.loads(metadata.schema_string)):
        ids += [field["metadata"][ID], *field["metadata"].get(NESTED, {}).values()]
    return ids


def identities(metadata: Metadata) -> dict[int, tuple[str, ...]]:
    """Return the names in files, down from the column, by id."""

    def walk(dtype: Any, above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        if not isinstance(dtype, dict):
            return
        for field in dtype.get("fields", ()):
            place = (*above, field["metadata"][NAME])
            yield field["metadata"][ID], place
            yield from walk(field["type"], place)
        for part in ("elementType", "keyType", "valueType"):
            yield from walk(dtype.get(part), (*above, part))

    return dict(walk(json.loads(metadata.schema_string), ()))


def assert_sound(metadata: Metadata) -> None:
    ids = ids_of(metadata)
    assert len(set(ids)) == len(ids)
    assert int(metadata.configuration[HIGHEST]) >= max(ids)
    places = list(identities(metadata).values())
    assert len(set(places)) == len(places)


@given(SCHEMAS, st.booleans())
def test_mapping_begins_with_the_names_of_today(schema: pl.Schema, iceberg: bool) -> None:  # noqa: FBT001
    plain = table(schema, **(ICEBERG if iceberg else {}))
    mapped = with_mapping(plain)
    assert_sound(mapped)
    assert schema_from_delta(mapped.schema_string) == schema
    assert schema_problems(stored_schema(mapped), plain.schema_string) == []
    assert sorted(ids_of(mapped)) == list(range(1, len(ids_of(mapped)) + 1))


@given(SCHEMAS, st.lists(st.tuples(st.sampled_from("mord"), SCHEMAS, st.integers(0, 99)), max_size=6))
def test_changes_keep_ids_and_never_repeat_them(
    schema: pl.Schema, changes: list[tuple[str, pl.Schema, int]]
) -> None:
    now, new_id = with_mapping(table(schema, **ICEBERG)), counter()
    history = identities(now)
    for kind, other, number in changes:
        paths = sorted(field_paths(now.schema_string))
        path = paths[number % len(paths)]
        match kind:
            case "m":
                changed = with_fields(now, merged_schema(now.schema_string, other), new_id)
                assert identities(now).items() <= identities(changed).items()
            case "o":
                changed = with_fields(now, schema_to_delta(other), new_id)
            case "r":
                changed = renamed(now, path, f"renamed{number}")
                assert identities(changed) == identities(now)
            case _:
                changed = dropped(now, path)
                assert identities(changed).items() < identities(now).items()
                if not schema_from_delta(changed.schema_string) or '"fields":[]' in changed.schema_string:
                    continue
        assert_sound(changed)
        assert int(changed.configuration[HIGHEST]) >= int(now.configuration[HIGHEST])
        for number_of_field, place in identities(changed).items():
            assert history.setdefault(number_of_field, place) == place
        now = changed


def test_new_fields_get_ids_above_the_highest_and_own_names() -> None:
    mapped = with_mapping(table({"a": pl.Int64, "s": pl.List(pl.Struct({"x": pl.Int8}))}))
    more = {"s": pl.List(pl.Struct({"y": pl.Int8})), "m": pl.Map(pl.String, pl.Struct({"v": pl.Int8}))}
    changed = with_fields(mapped, merged_schema(mapped.schema_string, more), counter())
    notes = {path: field["metadata"] for path, field in fields_of(json.loads(changed.schema_string))}
    assert notes[("s", "element", "y")] == {ID: 4, NAME: "col-new0"}
    assert notes[("m",)] == {ID: 5, NAME: "col-new1"}
    assert notes[("m", "value", "v")] == {ID: 6, NAME: "col-new2"}
    assert changed.configuration[HIGHEST] == "6"


def test_iceberg_tables_get_ids_of_elements_keys_and_values() -> None:
    nested = pl.List(pl.List(pl.Map(pl.String, pl.Int64)))
    mapped = with_mapping(table({"l": nested, "x": pl.Int8}, **ICEBERG))
    fields = json.loads(mapped.schema_string)["fields"]
    places = ("l.element", "l.element.element", "l.element.element.key", "l.element.element.value")
    assert fields[0]["metadata"][NESTED] == dict(zip(places, range(2, 6), strict=True))
    assert fields[1]["metadata"] == {ID: 6, NAME: "x", NESTED: {}}


def test_overwrite_keeps_the_ids_of_the_same_names() -> None:
    mapped = with_mapping(table({"a": pl.Int64, "b": pl.Int64}))
    changed = with_fields(mapped, schema_to_delta(pl.Schema({"c": pl.Int8, "b": pl.String})), counter())
    assert identities(changed) == {2: ("b",), 3: ("col-new0",)}


def test_settings_follow_names() -> None:
    listed = {"delta.dataSkippingStatsColumns": "a,`s`.x,`s`.`y z`"}
    schema = {"a": pl.Int64, "s": pl.Struct({"x": pl.Int8, "y z": pl.Int8})}
    mapped = with_mapping(table(schema, **listed)).model_copy(update={"partition_columns": ("a",)})
    changed = renamed(renamed(mapped, ("s",), "t.u"), ("a",), "b c")
    assert changed.configuration["delta.dataSkippingStatsColumns"] == "`b c`,`t.u`.x,`t.u`.`y z`"
    assert changed.partition_columns == ("b c",)
    changed = dropped(changed, ("t.u", "x"))
    assert changed.configuration["delta.dataSkippingStatsColumns"] == "`b c`,`t.u`.`y z`"


def test_collations_follow_names() -> None:
    mapped = with_mapping(table({"s": pl.String}))
    text = mapped.schema_string.replace(
        '"metadata":{', '"metadata":{"__COLLATIONS":{"s":"ICU.de","s.key":"ICU.fr"},'
    )
    changed = renamed(mapped.model_copy(update={"schema_string": text}), ("s",), "t")
    notes = json.loads(changed.schema_string)["fields"][0]["metadata"]
    assert notes["__COLLATIONS"] == {"t": "ICU.de", "t.key": "ICU.fr"}


@pytest.mark.parametrize(
    ("collation", "is_collated"),
    [
        ("spark.UTF8_BINARY", False),
        ("spark.UTF8_BINARY.75", False),
        ("spark.UTF8_LCASE", True),
        ("icu.de_CI.75", True),
    ],
)
def test_collations_of_bytes_are_plain_strings(collation: str, is_collated: bool) -> None:  # noqa: FBT001
    flat, nested = table({"s": pl.String}), table({"r": pl.Struct({"s": pl.String})})
    for metadata, name in ((flat, "s"), (nested, "r")):
        schema = json.loads(metadata.schema_string)
        field = schema["fields"][0]
        field = field if name == "s" else field["type"]["fields"][0]
        field["metadata"] = {"__COLLATIONS": {"s": collation}}
        collated = metadata.model_copy(update={"schema_string": json.dumps(schema)})
        assert StoredColumns.of(collated).collated == ({name} if is_collated else set())


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_iceberg_tables_store_partition_columns_in_files(version: str) -> None:
    for value, stored in (("true", ["p", "x"]), ("false", ["x"])):
        metadata = table({"p": pl.Int64, "x": pl.Int64}, **{f"delta.enableIcebergCompat{version}": value})
        columns = StoredColumns.of(metadata.model_copy(update={"partition_columns": ("p",)}))
        assert columns.in_files(["p", "x"]) == stored


def test_restored_metadata_uses_no_id_twice() -> None:
    old = table({"a": pl.Int64, "b": pl.Int64})
    newest = with_fields(
        with_mapping(old), schema_to_delta(pl.Schema({"a": pl.Int8, "c": pl.Int8})), counter()
    )
    restored = with_max_id(old, newest)
    assert StoredColumns.of(restored).stored_names == {"a": "a", "b": "b"}
    assert min(ids_of(restored)) > int(newest.configuration[HIGHEST])
    assert_sound(restored)
    older = with_max_id(with_mapping(old), newest)
    assert identities(older) == {1: ("a",), 2: ("b",)}
    assert older.configuration[HIGHEST] == newest.configuration[HIGHEST]
    assert with_max_id(old, old) == old


def test_dropped_column_is_not_the_new_one_of_its_name() -> None:
    mapped = with_mapping(table({"a": pl.Int64, "b": pl.Int64}))
    again = with_fields(
        dropped(mapped, ("a",)), schema_to_delta(pl.Schema({"a": pl.Int64, "b": pl.Int64})), counter()
    )
    columns = StoredColumns.of(again)
    assert columns.stored_name("a") == "col-new0"
    assert columns.name("a") not in columns.columns
