"""Rows of live files that no read returns: those that deletion vectors hide, and copies beside other rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.log.deletion_vectors import parse_vector
from qbeast_core.space.values import I64Array
from qbeast_core.spec.blocks import FilePath
from qbeast_core.table.snapshot.deletion_vectors import ListedFiles, deleted_rows

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

    def for_files(self, files: pl.DataFrame) -> VectorCache:
        """Return the vectors of these files only."""
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
