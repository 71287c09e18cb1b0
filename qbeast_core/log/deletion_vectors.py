"""Deletion vectors: their descriptors in the log, the rows that they list, and the files that hold them.

The rows are an array of Roaring bitmaps in the portable format of Delta: a magic number, the number of bitmaps, and for
each bitmap the high half of its rows and a 32-bit Roaring bitmap. A Roaring bitmap has a container per 65,536 rows:
sorted numbers, a bit per row, or runs.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
from pyroaring import BitMap64

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import MAX_ROWS, FilePath

# The identity of a file in Delta: the decoded path, and the deletion vector (empty: none).
FileKey: TypeAlias = tuple[str, str]

# First byte of a file of vectors.
FILE_FORMAT: Final = b"\x01"
# Size of the length before a vector, and of the checksum after it.
NUMBER_BYTES: Final = 4

_IDENTITY: Final = ("storageType", "pathOrInlineDv", "offset")
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_FROM_Z85: Final = str.maketrans(_Z85, _B85)
_TO_Z85: Final = str.maketrans(_B85, _Z85)
_UUID_CHARACTERS: Final = 20
# Name of a file of vectors, by the id in their descriptors.
_NAME: Final = "deletion_vector_{}.bin"
_Z85_GROUP: Final = 5
_Z85_SHOWN: Final = 20


def file_key(path: str, vector: Mapping[str, Any] | None) -> FileKey:
    """Return the identity of the file of an add or a remove.

    >>> file_key("a%2Bb", None) == file_key("a+b", {"storageType": None})
    True
    """
    parts = [str(vector[name]) for name in _IDENTITY if vector.get(name) is not None] if vector else []
    return FilePath.of_log(path).text, " ".join(parts)


def parse_vector(text: str | None) -> dict[str, Any] | None:
    """Return a descriptor out of its JSON text, without nulls; None: no vector.

    >>> parse_vector('{"storageType":"i","offset":null}')
    {'storageType': 'i'}
    """
    return None if text is None else without_nulls(orjson.loads(text))


def without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are there: checkpoints hold nulls where commits hold nothing."""
    return {key: value for key, value in raw.items() if value is not None}


def vector_path(vector: Mapping[str, Any]) -> FilePath | None:
    """Return the file that holds a deletion vector; None: the log itself does.

    >>> vector_path({"storageType": "p", "pathOrInlineDv": "s3://b/k/1%20.bin"})
    FilePath(text='s3://b/k/1 .bin')
    """
    kind, text = vector.get("storageType"), str(vector.get("pathOrInlineDv"))
    if kind == "p":
        return FilePath.of_log(text)
    if kind != "u":
        return None
    folder, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    return FilePath(f"{folder}{'/' if folder else ''}{_NAME.format(_uuid(encoded))}")


def file_paths(path: str, vector: Mapping[str, Any] | None) -> Iterator[FilePath]:
    """Yield the files of an add or a remove: the data file, and the file of its deletion vector.

    >>> [file.text for file in file_paths("k/a%20b", {"storageType": "p", "pathOrInlineDv": "s3://b/1.bin"})]
    ['k/a b', 's3://b/1.bin']
    """
    yield FilePath.of_log(path)
    vector_file = vector_path(vector or {})
    if vector_file is not None:
        yield vector_file


def from_z85(text: str) -> bytes:
    """Decode Z85, in which logs write binary texts. Raise `ValueError` for other texts.

    >>> from_z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    if len(text) % _Z85_GROUP or not set(text) <= set(_Z85):
        msg = f"{text[:_Z85_SHOWN]!r} is not Z85"
        raise ValueError(msg)
    return b85decode(text.translate(_FROM_Z85))


def _to_z85(data: bytes) -> str:
    """Encode bytes in Z85; the length is a multiple of four.

    >>> _to_z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    return b85encode(data).decode().translate(_TO_Z85)


def _uuid(text: str) -> uuid.UUID:
    """Decode the 20 characters of Z85 of the id of a deletion vector's file."""
    try:
        return uuid.UUID(bytes=from_z85(text))
    except ValueError as error:  # also: not 16 bytes, or five characters encode more than four
        message = f"a deletion vector of the Delta log has the invalid id {text!r}"
        raise InvalidMetadataError(message) from error


# First four bytes of a vector.
_MAGIC: Final = 1681511377
_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_CONTAINER_ROWS: Final = 1 << 16
_MAX_LISTED: Final = 4096  # containers of more rows have a bit per row
_MIN_WITH_OFFSETS: Final = 4  # smaller bitmaps with runs have no offsets


class MalformedBitmap(Exception):  # noqa: N818 - callers raise an error that names the file
    """The bytes are not a bitmap in this format."""


@dataclass(frozen=True, slots=True, eq=False)
class _Container:
    first_row: int
    count: int
    kind: str
    values: npt.NDArray[Any]

    def rows(self) -> I64Array:
        """Return the listed rows, counted from the first row of the container."""
        if self.kind == "bits":
            return np.flatnonzero(np.unpackbits(self.values, bitorder="little"))
        values = self.values.astype(np.int64)
        if self.kind == "numbers":
            return values
        starts, lengths = values[0::2], values[1::2] + 1
        return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(self.count)


@dataclass(frozen=True, slots=True, eq=False)
class RowBitmap:
    """A parsed bitmap. Its rows take memory only when they are requested."""

    count: int
    containers: tuple[_Container, ...]

    def rows(self) -> I64Array:
        """Return the listed rows, ascending."""
        rows, at = np.empty(self.count, np.int64), 0
        for container in self.containers:
            part = container.rows()
            if len(part) != container.count or part[-1] >= _CONTAINER_ROWS:
                _refuse("a container does not list as many rows as it claims")
            rows[at : at + len(part)] = part + container.first_row
            at += len(part)
        if (rows[1:] <= rows[:-1]).any():
            _refuse("its rows are not in order")
        return rows


def parse_bitmap(data: bytes) -> RowBitmap:
    """Parse the bytes of a deletion vector, without length and checksum. Bytes after its end are ignored.

    >>> header = bytes.fromhex("d1d33964 0100000000000000 00000000 3a300000 01000000")
    >>> parse_bitmap(header + bytes.fromhex("0000 0100 10000000 0300 0700")).rows().tolist()
    [3, 7]
    """
    cursor = _Cursor(data)
    if cursor.number("<u4") != _MAGIC:
        _refuse("it does not begin as a bitmap in the portable format does")
    containers = [
        container
        for _ in range(cursor.number("<u8"))
        for container in _containers(cursor, cursor.number("<u4"))
    ]
    return RowBitmap(sum(container.count for container in containers), tuple(containers))


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, dtype: str, count: int) -> npt.NDArray[Any]:
        end = self._at + count * np.dtype(dtype).itemsize
        if end > len(self._data):
            _refuse("it is cut off")
        values = np.frombuffer(self._data, dtype, count, self._at)
        self._at = end
        return values

    def number(self, dtype: str) -> int:
        return int(self.take(dtype, 1)[0])


def _containers(cursor: _Cursor, high: int) -> Iterator[_Container]:
    """Yield the containers of one bitmap. The cursor stands after its high half."""
    cookie = cursor.number("<u4")
    has_runs = cookie & 0xFFFF == _WITH_RUNS
    if not has_runs and cookie != _WITHOUT_RUNS:
        _refuse("a bitmap begins with an unknown number")
    size = (cookie >> 16) + 1 if has_runs else cursor.number("<u4")
    if size > _CONTAINER_ROWS:
        _refuse("a bitmap claims too many containers")
    flags = cursor.take("u1", (size + 7) // 8) if has_runs else np.zeros((size + 7) // 8, np.uint8)
    runs = np.unpackbits(flags, bitorder="little")[:size]
    keys, counts = cursor.take("<u2", 2 * size).astype(np.int64).reshape(-1, 2).T
    if size and high << 32 >= MAX_ROWS:
        _refuse(f"it lists row {high << 32:,} or a later one")
    if not has_runs or size >= _MIN_WITH_OFFSETS:
        cursor.take("<u4", size)  # offsets of containers, which follow one another
    for key, count, is_run in zip(keys.tolist(), (counts + 1).tolist(), runs.tolist(), strict=True):
        first = (high << 32) + key * _CONTAINER_ROWS
        if is_run:
            values = cursor.take("<u2", 2 * cursor.number("<u2"))
            listed = int(values[1::2].astype(np.int64).sum()) + len(values) // 2
            if listed != count:  # before runs are expanded
                _refuse("a container does not list as many rows as it claims")
            yield _Container(first, count, "runs", values)
        elif count > _MAX_LISTED:
            yield _Container(first, count, "bits", cursor.take("u1", _CONTAINER_ROWS // 8))
        else:
            yield _Container(first, count, "numbers", cursor.take("<u2", count))


def _refuse(reason: str) -> NoReturn:
    raise MalformedBitmap(reason)


def row_set(rows: I64Array) -> BitMap64:
    """Return a set of row indexes.

    >>> row_set(np.array([3, 7]))
    BitMap64([3, 7])
    """
    return BitMap64(rows.astype(np.uint64))


def rows_in(rows: BitMap64) -> I64Array:
    """Return the row indexes of a set, ascending."""
    return np.array(rows.to_array(), np.int64)


def dump_vectors(hidden: Sequence[BitMap64], file_id: uuid.UUID) -> tuple[str, bytes, list[dict[str, Any]]]:
    """Return the path and the bytes of a file of deletion vectors, and their descriptors for the log."""
    parts, offset, descriptors = [FILE_FORMAT], len(FILE_FORMAT), list[dict[str, Any]]()
    for rows in hidden:
        rows.run_optimize()
        body = struct.pack("<I", _MAGIC) + rows.serialize()
        parts += [struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": _to_z85(file_id.bytes),
                "offset": offset,
                "sizeInBytes": len(body),
                "cardinality": len(rows),
            }
        )
        offset += len(body) + 2 * NUMBER_BYTES
    return _NAME.format(file_id), b"".join(parts), descriptors
