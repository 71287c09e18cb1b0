"""Rows of live files that reads skip: those in deletion vectors, and copies beside other rows.

`deltalake` is not used: it allocates a boolean for each row up to the last listed one, and refuses tables with features
that do not matter here.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
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


# A file by its path in the log, and the descriptor of its vector.
_Key: TypeAlias = tuple[str, str]

UNKNOWN: Final = -1


class VectorCache:
    """Deletion vectors that were read. They never change. Versions of a table share those that they have in common.

    Safe to share between threads.
    """

    def __init__(self) -> None:
        self._rows: dict[_Key, I64Array] = {}
        self.size_bytes = 0

    def __setitem__(self, key: _Key, rows: I64Array) -> None:
        if key not in self._rows:
            self.size_bytes += rows.nbytes
        self._rows[key] = rows

    def get(self, key: _Key) -> I64Array | None:
        """Return the rows of a vector. None: it was not read yet."""
        return self._rows.get(key)

    def for_files(self, files: pl.DataFrame | None) -> VectorCache:
        """Return the vectors of these files only; None: of all files."""
        if files is None:
            return self
        cache = VectorCache()
        if self._rows:
            listed = files.filter("has_deletion_vector").select("path", "deletion_vector")
            for key in listed.iter_rows():
                rows = self.get(key)
                if rows is not None:
                    cache[key] = rows
        return cache


class HiddenRows:
    """The hidden rows of each live file, by its index. A vector is read when its rows are requested."""

    def __init__(self, listed: ListedFiles, cache: VectorCache) -> None:
        self._listed, self._cache = listed, cache

    @cached_property
    def files(self) -> frozenset[int]:
        """Indexes of the files with a deletion vector."""
        return frozenset(self._listed.files["has_deletion_vector"].arg_true().to_list())

    @property
    def counts(self) -> I64Array:
        """Number of hidden rows of each file, shape (files,). Vectors without a count in the log are read."""
        return self._counts

    @cached_property
    def _counts(self) -> I64Array:
        counts = logged_counts(self._listed.files)
        for number, rows in self.of(np.flatnonzero(counts == UNKNOWN).tolist()).items():
            counts[number] = len(rows)
        return counts

    def of(self, numbers: Iterable[int]) -> dict[int, I64Array]:
        """Return the indexes of the hidden rows, ascending, of those of the files that have some.

        Vectors that were not read before are read at the same time.
        """
        wanted = [number for number in numbers if number in self.files]
        vectors, keys = dict[int, I64Array](), dict[int, _Key]()
        for number in wanted:
            key = self._key(number)
            if key is None:
                continue
            rows = self._cache.get(key)
            if rows is None:
                keys[number] = key
            else:
                vectors[number] = rows
        for number, rows in deleted_rows(self._listed, list(keys)).items():
            self._refuse_other_count(number, len(rows))
            self._cache[keys[number]] = vectors[number] = rows
        return {number: vectors[number] for number in wanted}

    def get(self, number: int) -> I64Array | None:
        """Return the indexes of the hidden rows of a file, ascending. None: it has none."""
        return self.of([number]).get(number)

    def _refuse_other_count(self, number: int, count: int) -> None:
        """Raise if the log counts other rows: changes rely on its counts."""
        logged = (parse_vector(self._listed.files["deletion_vector"][number]) or {}).get("cardinality", count)
        if logged != count:
            path = FilePath.of_log(self._listed.files["path"][number]).text
            message = (
                f"the deletion vector of {path!r} of {self._listed.uri!r} hides {count:,} rows, and the log counts "
                f"{logged!r}. Table.repair() corrects the log."
            )
            raise InvalidMetadataError(message)

    def _key(self, number: int) -> _Key | None:
        vector = self._listed.files["deletion_vector"][number]
        return None if vector is None else (self._listed.files["path"][number], vector)


def logged_counts(files: pl.DataFrame) -> I64Array:
    """Return the number of rows that deletion vectors hide of each file, by the log. `UNKNOWN` if it does not count.

    >>> vectors = [None, '{"cardinality":2}', '{"cardinality":9}', "{}"]
    >>> logged_counts(pl.DataFrame({"deletion_vector": vectors, "num_records": [5, 5, 5, 5]})).tolist()
    [0, 2, -1, -1]
    """
    vector = pl.col("deletion_vector").cast(pl.String)
    count = vector.str.json_path_match("$.cardinality").cast(pl.Int64, strict=False)
    is_possible = count.is_between(0, pl.coalesce("num_records", count))
    counts = pl.when(vector.is_null()).then(0).when(is_possible).then(count).otherwise(UNKNOWN)
    rows: I64Array = files.select(counts.cast(pl.Int64).alias("rows"))["rows"].to_numpy().copy()
    return rows


def logged_totals(files: pl.DataFrame) -> tuple[int, int, int]:
    """Return the rows of files that the log counts, rows of them that vectors hide, by the log, and bytes."""
    hidden = int(np.maximum(logged_counts(files), 0).sum())
    return int(files["num_records"].sum()), hidden, int(files["size_bytes"].sum())
