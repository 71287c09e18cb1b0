"""The columns of a file or a table as a tree, and the Arrow type of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.structs.schema import ColumnSchema, DataType, Encoding

_MOST_DEPTH: Final = 32
_MOST_PRECISION: Final = 38
_DUMMY: Final = "default_dummy_measure"
_PLAIN: Final[dict[DataType, Any]] = {
    DataType.STRING: pa.large_string(),
    DataType.VARCHAR: pa.large_string(),
    DataType.BYTE: pa.int8(),
    DataType.SHORT: pa.int16(),
    DataType.INT: pa.int32(),
    DataType.LONG: pa.int64(),
    DataType.FLOAT: pa.float32(),
    DataType.DOUBLE: pa.float64(),
    DataType.BOOLEAN: pa.bool_(),
    DataType.DATE: pa.date32(),
    DataType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    DataType.BINARY: pa.large_binary(),
}
_NESTED: Final = frozenset({DataType.ARRAY, DataType.STRUCT, DataType.MAP})


@dataclass(frozen=True, slots=True)
class Column:
    """A column with what is nested in it."""

    schema: ColumnSchema
    # Its place in the flat list of the file or table: that of its chunk in a blocklet.
    number: int
    # Its place among the dimensions, children included: that of its cardinality. -1 of a measure.
    dimension: int
    # Of an array: the element. Of a map: the struct of key and value. Of a struct: its fields.
    children: tuple[Column, ...]
    # What a struct's field is called in Arrow: the last part of its dotted name.
    field_name: str

    @property
    def kind(self) -> DataType:
        """Its type."""
        return self.schema.data_type

    @property
    def is_nested(self) -> bool:
        """Whether it is an array, a struct or a map."""
        return self.kind in _NESTED

    @property
    def is_dummy(self) -> bool:
        """Whether it is the measure that tables without measures of old releases have."""
        return self.schema.name == _DUMMY

    @property
    def has_global_dictionary(self) -> bool:
        """Whether its pages hold numbers of a global dictionary."""
        encoders = self.schema.encoders
        return (
            Encoding.DICTIONARY in encoders
            and Encoding.DIRECT_DICTIONARY not in encoders
            and not self.is_nested
        )

    @property
    def arrow_type(self) -> Any:
        """Its type in Arrow."""
        if self.kind == DataType.STRUCT:
            return pa.struct([pa.field(one.field_name, one.arrow_type) for one in self.children])
        if self.kind == DataType.MAP:
            return pa.map_(*(one.arrow_type for one in self.children[0].children))
        if self.is_nested:
            return pa.large_list(self.children[0].arrow_type)
        if self.kind == DataType.DECIMAL:
            return pa.decimal128(self.schema.precision, self.schema.scale)
        return _PLAIN[self.kind]

    def walk(self) -> tuple[Column, ...]:
        """Return the column and all that is nested in it, depth first."""
        return (self, *(inner for one in self.children for inner in one.walk()))


def column_tree(flat: Sequence[ColumnSchema]) -> tuple[Column, ...]:
    """Return the top-level columns of a flat list, in its order."""
    found: list[Column] = []
    dimensions = _numbers_of_dimensions(flat)
    at = 0
    while at < len(flat):
        column, at = _column(flat, dimensions, at, depth=0)
        found.append(column)
    return tuple(found)


def _numbers_of_dimensions(flat: Sequence[ColumnSchema]) -> list[int]:
    numbers: list[int] = []
    count = 0
    for one in flat:
        numbers.append(count if one.is_dimension else -1)
        count += one.is_dimension
    return numbers


def _column(
    flat: Sequence[ColumnSchema], dimensions: Sequence[int], at: int, *, depth: int
) -> tuple[Column, int]:
    if at >= len(flat):
        damaged("the schema ends before the last child of a column")
    own = flat[at]
    if depth > _MOST_DEPTH:
        damaged(f"column {own.name!r} is nested deeper than {_MOST_DEPTH}")
    children: list[Column] = []
    number, at = at, at + 1
    if own.data_type in _NESTED:
        for _ in range(own.num_child):
            child, at = _column(flat, dimensions, at, depth=depth + 1)
            children.append(child)
    _check(own, children)
    names = _field_names(own, children) if own.data_type == DataType.STRUCT else [""] * len(children)
    named = tuple(
        Column(one.schema, one.number, one.dimension, one.children, name)
        for one, name in zip(children, names, strict=True)
    )
    return Column(own, number, dimensions[number], named, own.name), at


def _check(own: ColumnSchema, children: Sequence[Column]) -> None:
    if own.data_type == DataType.DECIMAL and not (
        0 < own.precision <= _MOST_PRECISION and 0 <= own.scale <= own.precision
    ):
        damaged(f"column {own.name!r} is a decimal of precision {own.precision} and scale {own.scale}")
    if own.data_type == DataType.STRUCT and not children:
        damaged(f"column {own.name!r} is a struct without fields")
    if own.data_type in (DataType.ARRAY, DataType.MAP) and len(children) != 1:
        damaged(f"column {own.name!r} is an array or map of {len(children)} children")
    if own.data_type == DataType.MAP and len(children[0].children) != 2:
        message = f"column {own.name!r} is a map of entries that are no pairs"
        raise Unreadable(message)


def _field_names(own: ColumnSchema, children: Sequence[Column]) -> list[str]:
    """Return the last parts of dotted names; where two are alike, what follows the parent's name."""
    names = [one.schema.name.rpartition(".")[2] for one in children]
    if len(set(names)) < len(names):
        names = [one.schema.name.removeprefix(f"{own.name}.") for one in children]
    if len(set(names)) < len(names):
        damaged(f"column {own.name!r} has two fields of one name")
    return names
