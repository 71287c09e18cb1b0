"""Which files hold rows that a condition means, and how many: files are chosen by the index, then read exactly."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import BoolArray, I64Array
from qbeast_core.table.data.expressions import Condition, evaluating
from qbeast_core.table.read.reader import Reader, ScanPlan
from qbeast_core.table.read.scan_task import TableFiles, read_parts
from qbeast_core.table.read.split_scan import file_parts

__all__ = ["UNKNOWN", "Matches", "count_matches", "live_rows", "read_one"]

UNKNOWN: Final = -1
"""Instead of a number of rows that the log does not tell."""

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Files with rows that are meant.

    Attributes
    ----------
    files : ndarray of int64
        Their numbers in the snapshot, ascending.
    rows : ndarray of int64
        Rows that are meant in each, at least one.
    live : ndarray of int64
        Rows that a read returns of each; `UNKNOWN` where the log does not tell.
    """

    files: I64Array
    rows: I64Array
    live: I64Array

    @property
    def whole(self) -> BoolArray:
        """Whether every row of a file is meant."""
        return np.equal(self.rows, self.live)


def count_matches(reader: Reader, condition: Condition, *, among: BoolArray | None = None) -> Matches:
    """Count the rows that a condition means, file by file.

    Of a file that cannot hold one, by its statistics or its cubes, nothing is read; of the others the pages
    that can, and the columns that the condition looks at.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    condition : Condition
        Which rows.
    among : ndarray of bool, shape (files,), optional
        Files to look at; all by default.

    Raises
    ------
    InvalidInputError
        If the condition cannot be evaluated for every row.
    StorageError, FileNotFoundError
        If a file cannot be read.
    """
    live = live_rows(reader)
    wanted = np.ones(len(live), np.bool_) if among is None else among
    if condition.constant is not None:
        files = np.flatnonzero(wanted & (live != 0)) if condition.constant else np.zeros(0, np.int64)
        unknown = files[live[files] == UNKNOWN]
        live[unknown] = _count(reader, reader.plan(None, None), unknown, list(reader.snapshot.schema)[:1])
        return _matches(files, live[files], live)
    job = reader.plan(condition.expr, None)
    files = np.flatnonzero(job.selection.opened & wanted)
    with evaluating(condition.text):
        counts = _count(reader, job, files, condition.columns[:1])
    return _matches(files, counts, live)


def _matches(files: I64Array, counts: I64Array, live: I64Array) -> Matches:
    found = counts > 0
    return Matches(files[found], counts[found], live[files[found]])


def _count(reader: Reader, job: ScanPlan, files: I64Array, columns: Sequence[str]) -> I64Array:
    def count(number: int) -> int:
        return sum(frame.height for frame in read_one(reader, job, number, columns))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return np.fromiter(pool.map(count, files.tolist()), np.int64, len(files))


def live_rows(reader: Reader) -> I64Array:
    """Return how many rows a read returns of each file, shape (files,); `UNKNOWN` where the log does not tell."""
    rows = reader.blocks.num_records.copy()  # those that nothing contradicts
    for number, hidden in reader.deleted_rows.items():
        if rows[number] != UNKNOWN:
            rows[number] -= len(hidden)
    return rows


def read_one(reader: Reader, job: ScanPlan, number: int, columns: Sequence[str]) -> Sequence[pl.DataFrame]:
    """Return what a read keeps of one file, in frames of bounded size.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    job : ScanPlan
        The read.
    number : int
        Of a file that it opens.
    columns : sequence of str
        Columns to return, at least one.
    """
    place = TableFiles(reader.store, reader.pages, reader.snapshot.storage_options)
    return list(read_parts(file_parts(reader, job, number), reader.wanted(job, columns), place))
