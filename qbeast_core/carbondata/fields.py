"""Fields of Thrift structs, taken one by one: each of the type and in the range that its reader relies on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from qbeast_core.carbondata.damage import damaged
from qbeast_core.io.thrift import ThriftError, ThriftStruct, read_struct

I16_MAX: Final = 2**15 - 1
I32_MAX: Final = 2**31 - 1
I64_MAX: Final = 2**63 - 1
_T = TypeVar("_T")


class Fields:
    """The fields of a struct; what is missing, of another type or out of range is `Damaged`."""

    __slots__ = ("_fields", "_what", "end")

    def __init__(self, struct: object, what: str) -> None:
        if not isinstance(struct, ThriftStruct):
            damaged(f"{what} is no struct")
        self.end = struct.end
        """Position behind the struct in the buffer it was read from."""
        self._fields = struct.fields
        self._what = what

    def has(self, number: int) -> bool:
        """Tell whether an optional field is there."""
        return number in self._fields

    def integer(self, number: int, default: int | None = None, *, least: int = 0, most: int = I64_MAX) -> int:
        """Return an integer in a range."""
        value = self._fields.get(number, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong(number, "is no integer")
        if not least <= value <= most:
            self._wrong(number, f"is {value}, not in [{least}, {most}]")
        return value

    def flag(self, number: int, default: bool | None = None) -> bool:  # noqa: FBT001 - as `dict.get` takes it
        """Return a boolean."""
        value = self._fields.get(number, default)
        if not isinstance(value, bool):
            self._wrong(number, "is no boolean")
        return value

    def binary(self, number: int, default: bytes | None = None) -> bytes:
        """Return a byte string."""
        value = self._fields.get(number, default)
        if not isinstance(value, bytes):
            self._wrong(number, "is no byte string")
        return value

    def text(self, number: int, default: str | None = None) -> str:
        """Return a text."""
        if default is not None and number not in self._fields:
            return default
        return self._text(number, self.binary(number))

    def integers(self, number: int, *, least: int = 0, most: int = I64_MAX) -> tuple[int, ...]:
        """Return a list of integers in a range; none if the field is missing."""
        found = self._list(number)
        if not all(
            isinstance(one, int) and not isinstance(one, bool) and least <= one <= most for one in found
        ):
            self._wrong(number, f"is no list of integers in [{least}, {most}]")
        return tuple(found)

    def binaries(self, number: int) -> tuple[bytes, ...]:
        """Return a list of byte strings; none if the field is missing."""
        found = self._list(number)
        if not all(isinstance(one, bytes) for one in found):
            self._wrong(number, "is no list of byte strings")
        return tuple(found)

    def flags(self, number: int) -> tuple[bool, ...]:
        """Return a list of booleans; none if the field is missing."""
        found = self._list(number)
        if not all(isinstance(one, bool) for one in found):
            self._wrong(number, "is no list of booleans")
        return tuple(found)

    def texts(self, number: int) -> dict[str, str]:
        """Return a map of texts; empty if the field is missing."""
        found = self._fields.get(number, {})
        if not isinstance(found, dict):
            self._wrong(number, "is no map")
        return {self._text(number, key): self._text(number, value) for key, value in found.items()}

    def struct(self, number: int, read: Callable[[ThriftStruct], _T]) -> _T:
        """Return a struct, read by `read`."""
        return read(self._struct(number, self._fields.get(number)))

    def structs(self, number: int, read: Callable[[ThriftStruct], _T]) -> tuple[_T, ...]:
        """Return a list of structs, each read by `read`; none if the field is missing."""
        return tuple(read(self._struct(number, one)) for one in self._list(number))

    def _struct(self, number: int, value: object) -> ThriftStruct:
        if not isinstance(value, ThriftStruct):
            self._wrong(number, "is no struct")
        return value

    def _list(self, number: int) -> Sequence[Any]:
        found = self._fields.get(number, [])
        if not isinstance(found, list):
            self._wrong(number, "is no list")
        return found

    def _text(self, number: int, value: object) -> str:
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                return value.decode()
        return self._wrong(number, "is no UTF-8 text")

    def _wrong(self, number: int, reason: str) -> NoReturn:
        damaged(f"field {number} of {self._what} {reason}")


def read_fields(data: bytes, read: Callable[[ThriftStruct], _T], *, at: int = 0) -> tuple[_T, int]:
    """Read the struct that begins at a byte."""
    try:
        found = read_struct(data, at)
    except ThriftError as error:
        damaged(str(error))
    return read(found), found.end
