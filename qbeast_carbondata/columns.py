"""The columns of a file or a table as a tree, and the Arrow type of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from operator import ge
from typing import Any, Final

import pyarrow as pa

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.structs import ColumnSchema, DataType, Encoding

_MAX_DEPTH: Final = 32
_MAX_PRECISION: Final = 38
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
_WIDENS: Final = {
    (DataType.BYTE, DataType.SHORT),
    (DataType.SHORT, DataType.INT),
    (DataType.INT, DataType.LONG),
    (DataType.SHORT, DataType.LONG),
    (DataType.FLOAT, DataType.DOUBLE),
    (DataType.STRING, DataType.VARCHAR),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column and the columns nested in it."""

    schema: ColumnSchema
    # Position in the flat list of the file or table, and of its chunk in a blocklet.
    number: int
    # Position among the dimensions, children included, and of its cardinality; -1 for a measure.
    dimension: int
    # Array: the element. Map: the struct of key and value. Struct: its fields.
    children: tuple[Column, ...]
    # Name of a struct's field in Arrow: the last part of its dotted name.
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
    def is_visible(self) -> bool:
        """Whether users see it; old releases add a measure to tables without measures."""
        return not self.schema.invisible and self.schema.name != _DUMMY

    @property
    def has_global_dictionary(self) -> bool:
        """Whether its pages hold numbers of a global dictionary."""
        encoders = self.schema.encoders
        is_direct = Encoding.DIRECT_DICTIONARY in encoders
        return Encoding.DICTIONARY in encoders and not is_direct and not self.is_nested

    @property
    def arrow_type(self) -> Any:
        """Its type in Arrow."""
        if self.kind == DataType.STRUCT:
            return pa.struct([pa.field(child.field_name, child.arrow_type) for child in self.children])
        if self.kind == DataType.MAP:
            return pa.map_(*(child.arrow_type for child in self.children[0].children))
        if self.is_nested:
            return pa.large_list(self.children[0].arrow_type)
        if self.kind == DataType.DECIMAL:
            return pa.decimal128(self.schema.precision, self.schema.scale)
        return _PLAIN[self.kind]

    @property
    def byte_width(self) -> int:
        """Bytes of a value where CarbonData stores it with a fixed width; of a type that Arrow also stores so."""
        bits: int = self.arrow_type.bit_width
        return max(bits // 8, 1)  # a boolean takes one bit in Arrow

    def walk(self) -> tuple[Column, ...]:
        """Return the column and all columns nested in it, depth first."""
        return (self, *(inner for child in self.children for inner in child.walk()))


def column_tree(flat: Sequence[ColumnSchema]) -> tuple[Column, ...]:
    """Return the top-level columns of a flat list, in its order."""
    before = accumulate((own.is_dimension for own in flat), initial=0)
    nodes = (
        Column(own, number, dimension if own.is_dimension else -1, (), own.name)
        for number, (own, dimension) in enumerate(zip(flat, before, strict=False))
    )
    return tuple(_with_children(column, nodes) for column in nodes)


def _with_children(column: Column, nodes: Iterator[Column], depth: int = 0) -> Column:
    """Return a column with all that is nested in it, which is taken from the columns behind it."""
    own = column.schema
    if column.is_nested and depth > _MAX_DEPTH:
        damaged(f"column {own.name!r} is nested deeper than {_MAX_DEPTH}")
    count = own.num_child if column.is_nested else 0
    children = [_with_children(child, nodes, depth + 1) for child in islice(nodes, count)]
    if len(children) < count:
        damaged("the schema ends before the last child of a column")
    _check(own, children)
    if column.kind == DataType.STRUCT:
        names = _field_names(own, children)
        children = [replace(child, field_name=name) for child, name in zip(children, names, strict=True)]
    return replace(column, children=tuple(children))


def _check(own: ColumnSchema, children: Sequence[Column]) -> None:
    if own.data_type == DataType.DECIMAL and not (
        0 < own.precision <= _MAX_PRECISION and 0 <= own.scale <= own.precision
    ):
        damaged(f"column {own.name!r} is a decimal of precision {own.precision} and scale {own.scale}")
    if own.data_type == DataType.STRUCT and not children:
        damaged(f"column {own.name!r} is a struct without fields")
    if own.data_type in (DataType.ARRAY, DataType.MAP) and len(children) != 1:
        damaged(f"column {own.name!r} is an array or map of {len(children)} children")
    if own.data_type == DataType.MAP and len(children[0].children) != 2:
        unreadable(f"column {own.name!r} is a map whose entries are not pairs")


def _field_names(own: ColumnSchema, children: Sequence[Column]) -> list[str]:
    """Return the last parts of dotted names; if two are equal, the names without the parent's."""
    names = [child.schema.name.rpartition(".")[2] for child in children]
    if len(set(names)) < len(names):
        names = [child.schema.name.removeprefix(f"{own.name}.") for child in children]
    if len(set(names)) < len(names):
        damaged(f"column {own.name!r} has two fields of the same name")
    return names


def columns_of_files(files: Sequence[Sequence[Column]]) -> tuple[Column, ...]:
    """Return the columns of a folder without a schema: those of all files by name, each in its widest type."""
    columns: dict[str, Column] = {}
    for of_file in files:
        for column in sorted(of_file, key=lambda c: c.schema.ordinal if c.schema.ordinal >= 0 else c.number):
            if column.is_visible:
                name = column.schema.name.lower()
                columns[name] = _wider(columns.get(name, column), column)
    return tuple(columns.values())


def _wider(column: Column, other: Column) -> Column:
    for wide, narrow in ((column, other), (other, column)):
        if wide.arrow_type == narrow.arrow_type or (narrow.kind, wide.kind) in _WIDENS:
            return wide
        is_decimal = wide.kind == narrow.kind == DataType.DECIMAL
        if is_decimal and all(map(ge, _digits(wide), _digits(narrow))):
            return wide
    types = f"{column.arrow_type} and {other.arrow_type}"
    return unreadable(f"its files disagree about column {column.schema.name!r}: {types}")


def _digits(column: Column) -> tuple[int, int]:
    """Return the digits before and behind the point."""
    return column.schema.precision - column.schema.scale, column.schema.scale
