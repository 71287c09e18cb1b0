"""The meta of a measure in versions 1 and 2: a ValueEncoderMeta as Java serialised it, read without its classes.

Of Java's object streams only what such an object needs: class descriptors with their ancestors, references to them,
fields that are numbers, and boxed numbers. The object of a decimal ends in BigDecimals, which nothing needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from qbeast_core.carbondata.damage import Unreadable, damaged
from qbeast_core.carbondata.pages.legacy_measures import LegacyMeta

# What a stream of Java objects begins with.
JAVA_MAGIC: Final = b"\xac\xed\x00\x05"

_OBJECT, _CLASS, _REFERENCE, _NULL, _STRING, _END = 0x73, 0x72, 0x71, 0x70, 0x74, 0x78
_FIRST_HANDLE: Final = 0x7E0000
_META_CLASS: Final = "ValueEncoderMeta"
_MOST_ANCESTORS: Final = 8
_NUMBERS: Final = {
    "B": struct.Struct(">b"),
    "C": struct.Struct(">H"),
    "D": struct.Struct(">d"),
    "F": struct.Struct(">f"),
    "I": struct.Struct(">i"),
    "J": struct.Struct(">q"),
    "S": struct.Struct(">h"),
    "Z": struct.Struct(">?"),
}


def read_java_meta(data: bytes) -> LegacyMeta:
    """Read a serialised ValueEncoderMeta."""
    try:
        return _read_meta(_Stream(data, len(JAVA_MAGIC)))
    except (struct.error, IndexError) as error:
        damaged(f"the meta of a measure of {len(data)} bytes cannot be read: {error}")


def _read_meta(stream: _Stream) -> LegacyMeta:
    stream.expect(_OBJECT)
    own = stream.class_descriptor()
    if own is None or not own.name.endswith(_META_CLASS):
        message = f"the meta of a measure is an object of class {own.name if own else None!r}"
        raise Unreadable(message)
    stream.handles.append(None)
    numbers: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for name, kind in own.all_fields():
        if kind in _NUMBERS:
            numbers[name] = stream.number(kind)
        elif chr(numbers.get("type", 0)) == "b":
            break
        else:
            bounds[name] = stream.boxed()
    kind = chr(numbers.get("type", 0))
    most, least = bounds.get("maxValue"), bounds.get("minValue")
    if kind not in "bdlnjk" or (kind != "b" and (most is None or least is None)):
        damaged(f"the meta of a measure is of type {kind!r}, with bounds {least} and {most}")
    return LegacyMeta(kind, most, least, numbers.get("decimal", 0))


@dataclass(slots=True)
class _ClassDescriptor:
    """A class: its own fields as (name, type), and what it descends from."""

    name: str
    fields: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    parent: _ClassDescriptor | None = None

    def all_fields(self) -> Iterator[tuple[str, str]]:
        """Yield fields in the order in which their values stand: those of ancestors first."""
        if self.parent is not None:
            yield from self.parent.all_fields()
        yield from self.fields


@dataclass(slots=True)
class _Stream:
    """Bytes of Java objects, read from the front."""

    # The bytes, and how many of them were read.
    data: bytes
    at: int
    # What references may refer to, in order: class descriptors, and None for all else.
    handles: list[_ClassDescriptor | None] = field(default_factory=list["_ClassDescriptor | None"])

    def number(self, kind: str) -> Any:
        """Read a primitive value of a type, by its letter."""
        form = _NUMBERS[kind]
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def expect(self, tag: int) -> None:
        """Read a tag that has to be there."""
        if (found := self.tag()) != tag:
            damaged(f"the meta of a measure has tag {found} where {tag} is to be")

    def tag(self) -> int:
        """Read a tag."""
        self.at += 1
        return self.data[self.at - 1]

    def text(self) -> str:
        """Read a text behind its length."""
        size = self.number("C")
        end = self.at + size
        if end > len(self.data):
            damaged("the meta of a measure ends inside a name")
        found = self.data[self.at : end].decode(errors="replace")
        self.at = end
        return found

    def class_descriptor(self, depth: int = 0) -> _ClassDescriptor | None:
        """Read a class, or a reference to one; None ends the ancestors."""
        tag = self.tag()
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            return self._referred()
        if tag != _CLASS or depth > _MOST_ANCESTORS:
            damaged(f"the meta of a measure has tag {tag} where a class is to be")
        found = _ClassDescriptor(self.text())
        self.at += 9  # its serial number, and flags that say how it was written: none of these has a method of its own
        self.handles.append(found)
        for _ in range(self.number("C")):
            kind = chr(self.tag())
            name = self.text()
            if kind in "L[":
                self._type_name()
            elif kind not in _NUMBERS:
                damaged(f"the meta of a measure has a field of type {kind!r}")
            found.fields.append((name, kind))
        self.expect(_END)
        found.parent = self.class_descriptor(depth + 1)
        return found

    def boxed(self) -> Any:
        """Read an object that holds one number, None for null."""
        tag = self.tag()
        if tag == _NULL:
            return None
        if tag != _OBJECT:
            damaged(f"the meta of a measure has tag {tag} where a number is to be")
        own = self.class_descriptor()
        self.handles.append(None)
        value = None
        for _, kind in own.all_fields() if own is not None else ():
            if kind not in _NUMBERS:
                message = f"the meta of a measure holds an object of class {own.name if own else None!r}"
                raise Unreadable(message)
            value = self.number(kind)
        return value

    def _type_name(self) -> None:
        """Read the text that names the class of a field, or a reference to one."""
        tag = self.tag()
        if tag == _REFERENCE:
            self.at += 4
        elif tag == _STRING:
            self.text()
            self.handles.append(None)
        else:
            damaged(f"the meta of a measure has tag {tag} where a text is to be")

    def _referred(self) -> _ClassDescriptor | None:
        place = int(self.number("I")) - _FIRST_HANDLE
        found = self.handles[place] if 0 <= place < len(self.handles) else None
        if found is None:
            damaged("the meta of a measure refers to a class that is not there")
        return found
