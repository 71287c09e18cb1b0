from __future__ import annotations

import json

import polars as pl
import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.log.schema import schema_from_delta, schema_problems, schema_to_delta
from tests.helpers.schemas import SCHEMAS


@given(SCHEMAS)
def test_deltalake_reads_our_schema_equally(schema: pl.Schema) -> None:
    text = schema_to_delta(schema)
    theirs = Schema.from_json(text)
    assert json.loads(theirs.to_json()) == json.loads(text)
    arrow = pa.schema(theirs.to_arrow())
    assert pl.Schema(pl.from_arrow(arrow.empty_table()).schema) == schema
    assert schema_from_delta(text) == schema


def test_maps_are_read_and_fixed_arrays_become_lists() -> None:
    field = {"type": "map", "keyType": "string", "valueType": "decimal(9, 2)", "valueContainsNull": True}
    text = json.dumps({"type": "struct", "fields": [{"name": "m", "type": field, "nullable": True}]})
    assert schema_from_delta(text) == pl.Schema({"m": pl.Map(pl.String(), pl.Decimal(9, 2))})
    fixed = schema_to_delta(pl.Schema({"x": pl.Array(pl.Int8, 3)}))
    assert schema_from_delta(fixed) == pl.Schema({"x": pl.List(pl.Int8)})


def test_all_unsupported_columns_are_named() -> None:
    schema = pl.Schema(
        {
            "fine": pl.Int8(),
            "u": pl.UInt32(),
            "c": pl.Categorical(),
            "digits": pl.Decimal(99, 98),
            "empty": pl.List(pl.Struct({})),
            "e": pl.Enum(["a"]),
            "t": pl.Time(),
            "d": pl.Duration("us"),
            "n": pl.Null(),
            "ns": pl.Datetime("ns"),
            "z": pl.Datetime("us", "Europe/Paris"),
            "o": pl.Object(),
            "s": pl.Struct({"x": pl.List(pl.UInt8)}),
        }
    )
    with pytest.raises(InvalidInputError) as caught:
        schema_to_delta(schema)
    message = str(caught.value)
    assert all(f"{name} (" in message for name in ["u", "c", "e", "t", "d", "n", "ns", "z", "o"])
    assert all(f"{name} (" in message for name in ["s.x.element", "digits", "empty.element"])
    assert "fine" not in message


def test_unknown_type_error_names_type_and_table() -> None:
    with pytest.raises(UnsupportedTableError, match="geometry") as caught:
        schema_from_delta('{"type":"struct","fields":[{"name":"v","type":"geometry"}]}', path="s3://b/t")
    assert caught.value.path == "s3://b/t"


def field(name: str, told: object = "long", *, nullable: bool = True, comment: str = "") -> dict[str, object]:
    return {"name": name, "type": told, "nullable": nullable, "metadata": {"comment": comment}}


def text(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


INNER = {"type": "struct", "fields": [field("x", comment="old")]}
SAME = {"type": "struct", "fields": [field("x", comment="new")]}
OTHER = {"type": "struct", "fields": [field("x"), field("y")]}


@pytest.mark.parametrize(
    ("files", "table", "problem"),
    [
        (text(field("a")), text(field("b"), field("a")), None),
        (text(field("a", INNER)), text(field("a", SAME)), None),
        (text(field("a", nullable=False)), text(field("a")), None),
        (text(field("a")), text(field("b")), "a is gone"),
        (text(field("a")), text(field("a", "string")), "a is string now"),
        (text(field("a", INNER)), text(field("a", OTHER)), "a is {"),
        (text(field("a")), text(field("a", nullable=False)), "a allows no nulls now"),
        (text(field("a")), text(field("a"), field("b", nullable=False)), "b is new and allows no nulls"),
    ],
)
def test_files_fit_while_their_columns_remain(files: str, table: str, problem: str | None) -> None:
    problems = schema_problems(files, table)
    assert bool(problems) == (problem is not None)
    assert problem is None or problems[0].startswith(problem)
