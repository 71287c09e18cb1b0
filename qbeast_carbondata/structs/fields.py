"""Thrift structs as dataclasses: the annotation of a field holds its number in the struct and its reader.

A reader takes a value as `read_struct` returns it, and raises `Damaged` where it has another type or lies out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, Self, TypeVar, cast, get_type_hints

from qbeast_carbondata.damage import Damaged, damaged
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

_T = TypeVar("_T")
Reader = Callable[[object], _T]


class Struct:
    """Base of the dataclasses."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a struct; fields that it lacks get their defaults, and `Damaged` where there is none."""
        stored = _struct(value).fields
        values: dict[str, Any] = {}
        for name, number, read, is_required in _layout(cast("type", cls)):
            if number in stored:
                try:
                    values[name] = read(stored[number])
                except Damaged as error:
                    error.places.append(f"{cls.__name__}.{name}")
                    raise
            elif is_required:
                damaged(f"{cls.__name__} has no {name}")
        return cls(**values)


@cache
def _layout(kind: type) -> list[tuple[str, int, Reader[Any], bool]]:
    """Return name, number and reader of each field, and whether it is required."""
    hints = get_type_hints(kind, include_extras=True)
    layout: list[tuple[str, int, Reader[Any], bool]] = []
    for entry in fields(kind):
        number, read = hints[entry.name].__metadata__
        is_required = entry.default is MISSING and entry.default_factory is MISSING
        layout.append((entry.name, number, read, is_required))
    return layout


def integer(least: int = 0, most: int = 2**63 - 1) -> Reader[int]:
    """Return a reader of integers in a range."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            damaged(f"{value!r:.40} is not an integer in [{least}, {most}]")
        return value

    return read


I16: Final = integer(most=2**15 - 1)
I32: Final = integer(most=2**31 - 1)
I64: Final = integer()
ENUM: Final = integer(most=255)


def _of_type(kind: type[_T]) -> Reader[_T]:
    """Return a reader of values of a type."""

    def read(value: object) -> _T:
        if not isinstance(value, kind):
            damaged(f"not of type {kind.__name__}")
        return value

    return read


flag: Final = _of_type(bool)
binary: Final = _of_type(bytes)
_struct: Final = _of_type(ThriftStruct)
_list: Final[Reader[list[Any]]] = _of_type(list)
_map: Final[Reader[dict[Any, Any]]] = _of_type(dict)


def text(value: object) -> str:
    """Read a text."""
    try:
        return binary(value).decode()
    except UnicodeDecodeError:
        damaged("not UTF-8 text")


def texts(value: object) -> dict[str, str]:
    """Read a map of texts."""
    return {text(key): text(item) for key, item in _map(value).items()}


def list_of(read: Reader[_T]) -> Reader[tuple[_T, ...]]:
    """Return a reader of lists."""

    def read_list(value: object) -> tuple[_T, ...]:
        return tuple([read(item) for item in _list(value)])

    return read_list


def member(number: int, read: Reader[_T], default: Any = None) -> Reader[_T]:
    """Return a reader of one field of a struct; without a default it is required."""

    def read_member(value: object) -> _T:
        stored = _struct(value).fields
        if number in stored:
            return read(stored[number])
        if default is None:
            damaged(f"it has no field {number}")
        fallback: _T = default
        return fallback

    return read_member


def read_thrift(data: bytes, read: Reader[_T], at: int = 0) -> tuple[_T, int]:
    """Read the struct that begins at a byte; return where it ends, too."""
    try:
        struct = read_struct(data, at)
    except ThriftError as error:
        damaged(str(error))
    return read(struct), struct.end


def read_all(data: bytes, read: Reader[_T], at: int = 0) -> list[_T]:
    """Read the structs that follow each other from a byte to the end."""
    values: list[_T] = []
    while at < len(data):
        value, at = read_thrift(data, read, at)
        values.append(value)
    return values
