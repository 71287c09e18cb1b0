"""The meta of a measure in versions 1 and 2: a serialised Java object of class ValueEncoderMeta, read without Java.

It needs little of Java's object streams: class descriptors with their ancestors, references to them, fields that are
numbers, and boxed numbers. The object of a decimal ends in BigDecimals, which are not needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.pages.old.legacy_measures import LegacyMeta

# The first bytes of a stream of Java objects.
JAVA_MAGIC: Final = b"\xac\xed\x00\x05"

_OBJECT, _CLASS, _REFERENCE, _NULL, _STRING, _END = 0x73, 0x72, 0x71, 0x70, 0x74, 0x78
_FIRST_HANDLE: Final = 0x7E0000
_META_CLASS: Final = "ValueEncoderMeta"
_MAX_ANCESTORS: Final = 8
# By Java's letters of the primitive types.
_NUMBERS: Final = {
    letter: struct.Struct(f">{form}") for letter, form in zip("BCDFIJSZ", "bHdfiqh?", strict=True)
}


def read_java_meta(data: bytes) -> LegacyMeta:
    """Read a serialised ValueEncoderMeta."""
    try:
        return _read_meta(_Stream(data, len(JAVA_MAGIC)))
    except (struct.error, IndexError) as error:
        damaged(f"the meta of a measure of {len(data)} bytes cannot be read: {error}")


def _read_meta(stream: _Stream) -> LegacyMeta:
    own = stream.object_class(stream.tag())
    if not own.name.endswith(_META_CLASS):
        unreadable(f"the meta of a measure is an object of class {own.name!r}")
    values: dict[str, Any] = {}
    for name, letter in own.fields:
        if letter in _NUMBERS:
            values[name] = stream.number(letter)
        elif values.get("type") == ord("b"):
            break
        else:
            values[name] = stream.boxed()
    kind = chr(values.get("type", 0))
    maximum, minimum = values.get("maxValue"), values.get("minValue")
    if kind not in "bdlnjk" or (kind != "b" and (maximum is None or minimum is None)):
        damaged(f"the meta of a measure is of type {kind!r}, with bounds {minimum} and {maximum}")
    return LegacyMeta(kind, maximum or 0, minimum or 0, values.get("decimal", 0))


@dataclass(frozen=True, slots=True)
class _Class:
    """A class with the (name, type) of its fields, those of ancestors first, in the order of their values."""

    name: str
    fields: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Stream:
    """Bytes of Java objects, read from the front."""

    data: bytes
    # Bytes already read.
    at: int
    # Targets of references in order: classes, and None for anything else.
    handles: list[_Class | None] = field(default_factory=list["_Class | None"])

    def number(self, letter: str) -> Any:
        """Read a primitive value by the letter of its type."""
        form = _NUMBERS[letter]
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def tag(self) -> int:
        """Read a tag."""
        self.at += 1
        return self.data[self.at - 1]

    def text(self) -> str:
        """Read a text that follows its length."""
        size = self.number("C")
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            damaged("the meta of a measure ends inside a name")
        return self.data[start : self.at].decode(errors="replace")

    def object_class(self, tag: int) -> _Class:
        """Read the class at the begin of an object."""
        own = self.class_descriptor() if tag == _OBJECT else None
        if own is None:
            damaged(f"the meta of a measure has tag {tag} instead of an object")
        self.handles.append(None)
        return own

    def boxed(self) -> Any:
        """Read an object with one number, None for null."""
        tag = self.tag()
        if tag == _NULL:
            return None
        own = self.object_class(tag)
        if any(letter not in _NUMBERS for _, letter in own.fields):
            unreadable(f"the meta of a measure has an object of class {own.name!r}")
        return [None, *(self.number(letter) for _, letter in own.fields)][-1]

    def class_descriptor(self, depth: int = 0) -> _Class | None:
        """Read a class, or a reference to one; None ends the ancestors."""
        tag = self.tag()
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            handle = int(self.number("I")) - _FIRST_HANDLE
            described = self.handles[handle] if 0 <= handle < len(self.handles) else None
            if described is None:
                damaged("the meta of a measure refers to a missing class")
            return described
        if tag != _CLASS or depth > _MAX_ANCESTORS:
            damaged(f"the meta of a measure has tag {tag} instead of a class")
        name = self.text()
        self.at += 9  # a serial number, and flags: none of these classes has a method of its own
        handle = len(self.handles)
        self.handles.append(None)
        own = [self._field() for _ in range(self.number("C"))]
        if (end := self.tag()) != _END:
            damaged(f"the meta of a measure has tag {end} instead of the end of a class")
        parent = self.class_descriptor(depth + 1)
        described = _Class(name, (*(parent.fields if parent else ()), *own))
        self.handles[handle] = described
        return described

    def _field(self) -> tuple[str, str]:
        """Read name and type of a field; the name of its class, or a reference to it, is skipped."""
        letter = chr(self.tag())
        name = self.text()
        if letter not in "L[":
            if letter not in _NUMBERS:
                damaged(f"the meta of a measure has a field of type {letter!r}")
            return name, letter
        tag = self.tag()
        if tag == _REFERENCE:
            self.at += 4
        elif tag == _STRING:
            self.text()
            self.handles.append(None)
        else:
            damaged(f"the meta of a measure has tag {tag} instead of a text")
        return name, letter
