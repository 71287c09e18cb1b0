"""Measures of CarbonData 1.0 and 1.1, and their meta: a serialised Java object, read without Java.

Version 3 stores the bounds in bytes (`read_byte_meta`), older versions as a serialised Java object.

Such an object needs little of Java's object streams: class descriptors with their ancestors, references to them, fields
that are numbers, and boxed numbers. The object of a decimal ends in BigDecimals, which are not needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np

from qbeast_carbondata.damage import damaged, unreadable
from qbeast_carbondata.pages.numbers import as_type, decimal_width, fixed_decimals, scaled_decimals
from qbeast_carbondata.pages.texts import length_value
from qbeast_core.space.values import BoolArray, U8Array

_FORMS: Final = {
    "n": struct.Struct(">ddd"),
    "d": struct.Struct(">qqq"),
    "l": struct.Struct(">qqq"),
    "j": struct.Struct(">hhq"),
    "k": struct.Struct(">iiq"),
}
_WIDTHS: Final[dict[int, np.dtype[Any]]] = {width: np.dtype(f"<i{width}") for width in (1, 2, 4, 8)}
_INT64: Final = 2**63
_MAX_DECIMALS: Final = 400
_MAX_PRECISION: Final = 38
_EXACT_POWER: Final = 22  # powers of ten up to here are doubles
_EXACT_DIGITS: Final = 10**15  # decimals of fewer digits are distinct doubles
_BARE: Final = 7  # bytes of the meta of a decimal without bounds


@dataclass(frozen=True, slots=True)
class LegacyMeta:
    """ValueEncoderMeta."""

    # `"d"`, `"j"`, `"k"`: integers; `"l"`: integers as they are; `"n"`: doubles; `"b"`: decimals.
    kind: str
    # 0 for decimals.
    maximum: int | float
    minimum: int | float
    # Digits behind the point, of doubles.
    decimals: int
    # Of decimals that have one width, in builds before 1.2; 0 where they follow their lengths.
    precision: int = 0


def read_byte_meta(data: bytes) -> LegacyMeta:
    """Read the meta of a page of version 3 by CarbonData 1.1."""
    kind = chr(int.from_bytes(data[:2], "big"))
    if kind == "b":  # with bounds, a scale, a precision, decimals and a byte, or without all of these
        precision = int.from_bytes(data[-9:-5], "big") if len(data) > _BARE else 0
        return LegacyMeta(kind, 0, 0, 0, precision)
    form = _FORMS.get(kind)
    if form is None or len(data) < 2 + form.size + 4:
        damaged(f"the meta of a measure of {len(data)} bytes and kind {kind!r} cannot be read")
    maximum, minimum, _ = form.unpack_from(data, 2)
    decimals = int.from_bytes(data[2 + form.size : 6 + form.size], "big", signed=True)
    return LegacyMeta(kind, maximum, minimum, decimals)


def decode_legacy_measure(
    data: U8Array, meta: LegacyMeta, rows: int, kind: Any, nulls: BoolArray | None
) -> Any:
    """Decode a page of a measure."""
    if meta.kind == "b" and 0 < meta.precision <= _MAX_PRECISION:
        return fixed_decimals(data, decimal_width(meta.precision), kind, nulls)
    if meta.kind == "b":
        slices = length_value(data, 4)
        if len(slices) != rows:
            damaged(f"a page of {rows} rows has {len(slices)} decimals")
        return scaled_decimals(slices, kind, nulls)
    if rows == 0:
        return as_type(np.empty(0, np.int64), kind, nulls)
    width = len(data) // rows
    if width * rows != len(data) or width not in _WIDTHS:
        damaged(f"a measure of {rows} rows has {len(data)} bytes")
    values = np.frombuffer(data, _WIDTHS[width])
    decoded = _doubles(data, values, width, meta) if meta.kind == "n" else _integers(values, width, meta)
    return as_type(decoded, kind, nulls)


def has_lost_values(meta: LegacyMeta, size_bytes: int, rows: int) -> bool:
    """Return whether a page has differences of integers that CarbonData 1.0 cut when it wrote them.

    >>> meta = LegacyMeta("d", 2**63 - 1, -(2**63), 0)
    >>> [has_lost_values(meta, width * 10, 10) for width in (1, 8)]
    [True, False]
    """
    if meta.kind != "d" or not rows:
        return False
    return size_bytes // rows < _size(meta.maximum) and meta.maximum - meta.minimum >= _INT64


def _integers(values: Any, width: int, meta: LegacyMeta) -> Any:
    """Return integers: they are differences from the maximum exactly if they are narrower than it."""
    maximum, minimum = int(meta.maximum), int(meta.minimum)
    if meta.kind == "l" or width >= _size(maximum):
        return values
    integers = np.int64(maximum) - values.astype(np.int64)
    if maximum - minimum < _INT64:
        return integers
    # Differences that were cut may be negative; CarbonData's own reader returns the largest integer then.
    return np.where((values < 0) & (integers < maximum), _INT64 - 1, integers)


def _doubles(data: U8Array, values: Any, width: int, meta: LegacyMeta) -> Any:
    maximum, minimum = float(meta.maximum), float(meta.minimum)
    far = maximum if abs(maximum) >= abs(minimum) else minimum
    if not 0 <= meta.decimals <= _MAX_DECIMALS:
        damaged(f"a measure has {meta.decimals} decimals")
    if meta.decimals:
        if width == 8:
            return np.frombuffer(data, "<f8")
        factor = 10.0**meta.decimals if meta.decimals <= 308 else np.inf
        if width >= _size(far * factor):
            return values / factor
        return _exact_difference(maximum, values, meta.decimals, factor)
    if width == 8 and not abs(far) < _INT64:
        return np.frombuffer(data, "<f8")
    if width < _size(far):
        return maximum - values.astype(np.float64)
    return values


def _exact_difference(maximum: float, stored: Any, decimals: int, factor: float) -> Any:
    """Return ``maximum - stored / factor`` by the shortest texts of both, as Java's BigDecimal does."""
    high = Decimal(repr(maximum))
    whole = high.scaleb(decimals)
    if decimals <= _EXACT_POWER and whole == whole.to_integral_value() and abs(whole) < _EXACT_DIGITS:
        numbers = stored.astype(np.int64)
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) < _EXACT_DIGITS:
            # These digits are the shortest text, and one division of whole numbers is rounded once.
            return (int(whole) - numbers) / factor
    distinct, at = np.unique(stored / factor, return_inverse=True)
    return np.array([float(high - Decimal(repr(value))) for value in distinct.tolist()], np.float64)[at]


def _size(value: float) -> int:
    """Return the bytes that a number takes: 1, 2, 4 or 8."""
    for width in (1, 2, 4):
        if -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1):
            return width
    return 8


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
