"""Rows that deletion vectors hide, by file.

`deltalake` is not used: it allocates a boolean for each row up to the last listed one, and refuses tables with features
that do not matter here.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from qbeast_core.errors import InvalidMetadataError, StorageError
from qbeast_core.io.footer import Unreadable, read_footer
from qbeast_core.io.store import Range, Store, map_files
from qbeast_core.log.deletion_vectors import (
    FILE_FORMAT,
    NUMBER_BYTES,
    MalformedBitmap,
    from_z85,
    parse_bitmap,
    parse_vector,
    vector_path,
)
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.support.sizing import sizing


class ListedFiles(Protocol):
    """A `Snapshot`: its live files, in the order of the log, and where they are."""

    @property
    def files(self) -> pl.DataFrame:
        """See `Snapshot`."""
        ...

    @property
    def uri(self) -> str:
        """See `Snapshot`."""
        ...

    @property
    def store(self) -> Store:
        """See `Snapshot`."""
        ...


def deleted_rows(listed: ListedFiles, numbers: Sequence[int]) -> dict[int, I64Array]:
    """Return the indexes of the rows that the deletion vectors of some files hide, by index of the file.

    All vectors are read at the same time.
    """
    bodies: dict[int, bytes] = {}
    stored: dict[str, dict[int, Range]] = defaultdict(dict)  # by the file that holds the vectors
    for number in numbers:
        try:
            descriptor = parse_vector(listed.files["deletion_vector"][number]) or {}
            path = vector_path(descriptor)
            if path is None:
                bodies[number] = _inline(descriptor)
            else:
                stored[path.text][number] = _range(descriptor)
        except (MalformedBitmap, ValueError) as error:
            raise _malformed(listed, number, error) from error
    parts = map_files(listed.store, lambda path: _read(listed, path, stored[path]), list(stored))
    for part in parts:
        bodies |= part
    return {number: _rows(listed, number, bodies[number]) for number in numbers}


def _inline(descriptor: Mapping[str, Any]) -> bytes:
    if descriptor.get("storageType") != "i":
        msg = f"it is stored in an unknown way, {descriptor.get('storageType')!r}"
        raise MalformedBitmap(msg)
    return from_z85(str(descriptor.get("pathOrInlineDv")))[: _whole_number(descriptor, "sizeInBytes")]


def _range(descriptor: Mapping[str, Any]) -> Range:
    start = _whole_number({"offset": len(FILE_FORMAT), **descriptor}, "offset")
    return start, _whole_number(descriptor, "sizeInBytes") + 2 * NUMBER_BYTES


def _whole_number(descriptor: Mapping[str, Any], name: str) -> int:
    value = descriptor.get(name)
    if not isinstance(value, int) or not 0 <= value < 2**31:
        msg = f"its {name} is {value!r}"
        raise MalformedBitmap(msg)
    return value


def _read(listed: ListedFiles, path: str, ranges: Mapping[int, Range]) -> dict[int, bytes]:
    """Return the bitmaps in a file of deletion vectors, by data file, without length and checksum."""
    store, ordered = listed.store, sorted(ranges, key=lambda number: ranges[number])
    try:
        _refuse_long(store, path, ranges)
        whole = store.get_ranges(path, [(0, len(FILE_FORMAT)), *(ranges[number] for number in ordered)])
    except FileNotFoundError as error:
        message = (
            f"{path!r} of {listed.uri!r} is missing: it lists deleted rows. A vacuum removed it from an old "
            "version, or somebody deleted it. Open a newer version (Table.versions() lists the readable ones), or "
            "restore the file."
        )
        raise StorageError(message, path=path) from error
    bitmaps: dict[int, bytes] = {}
    for number, stored in zip(ordered, whole[1:], strict=True):
        bitmap = bytes(stored[NUMBER_BYTES:-NUMBER_BYTES])
        ends = stored[:NUMBER_BYTES], stored[-NUMBER_BYTES:]
        length, checksum = (int.from_bytes(end, "big") for end in ends)
        if bytes(whole[0]) != FILE_FORMAT or length != len(bitmap) or checksum != zlib.crc32(bitmap):
            problem = f"{path!r} has other bytes there than the log describes, or is damaged"
            raise _malformed(listed, number, problem)
        bitmaps[number] = bitmap
    return bitmaps


def _refuse_long(store: Store, path: str, ranges: Mapping[int, Range]) -> None:
    """Raise before memory is allocated for more bytes than a file has."""
    if max(length for _, length in ranges.values()) <= sizing().trusted_vector_bytes:
        return
    end, size = max(sum(part) for part in ranges.values()), store.size(path)
    if end > size:
        message = (
            f"{path!r} has {size:,} bytes, and the log names {end:,}: it was cut. Restore it and try again."
        )
        raise StorageError(message, path=path)


def _rows(listed: ListedFiles, number: int, body: bytes) -> I64Array:
    """Return the rows in a bitmap. The log's count of rows is not trusted with much memory, nor in order to refuse."""
    height, checked = listed.files["num_records"][number], False
    try:
        bitmap = parse_bitmap(body)
        if height is None or bitmap.count > min(height, sizing().trusted_vector_rows):
            height, checked = _height(listed, number), True
        rows = bitmap.rows() if bitmap.count <= height else None
        if rows is not None and len(rows) and rows[-1] >= height and not checked:
            height = _height(listed, number)
    except MalformedBitmap as error:
        raise _malformed(listed, number, error) from error
    if rows is None:
        raise _malformed(listed, number, f"it lists {bitmap.count:,} rows, and the file has {height:,}")
    if len(rows) and rows[-1] >= height:
        raise _malformed(listed, number, f"it lists row {rows[-1]:,}, and the file has {height:,}")
    return rows


def _height(listed: ListedFiles, number: int) -> int:
    """Return the number of rows of a data file by its footer."""
    path, store = _path(listed, number), listed.store
    try:
        return int(read_footer(store, path, store.size(path)).num_rows)
    except (Unreadable, FileNotFoundError) as error:
        raise _malformed(listed, number, f"the rows of the file cannot be counted: {error}") from error


def _path(listed: ListedFiles, number: int) -> str:
    return FilePath.of_log(listed.files["path"][number]).text


def _malformed(listed: ListedFiles, number: int, problem: object) -> InvalidMetadataError:
    message = (
        f"the deletion vector of {_path(listed, number)!r} of {listed.uri!r} cannot be used: {problem}. Its "
        "deleted rows are not known. Restore the file of the vector, or an older version of the "
        "table."
    )
    return InvalidMetadataError(message)
