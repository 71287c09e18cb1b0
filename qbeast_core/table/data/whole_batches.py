"""Run scans of whole files to their end: every row comes, or an error names the damaged file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.table.data.query_batches import query_batches

# What a damaged file makes Polars raise; a panic is not an `Exception`.
SCAN_ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)

# A condition that is evaluated inside the reader of a file fails under the reader's name.
_IS_OF_A_FILE: Final = re.compile(r"^parquet:(?! Invalid parameter: conversion from )")


def whole_batches(
    lazy: pl.LazyFrame,
    paths: Sequence[str],
    scan: Callable[[str], pl.LazyFrame],
    *,
    again: Callable[[], Iterator[pl.DataFrame]] | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield all rows of a scan, in frames of bounded size and in order.

    >>> pl.DataFrame({"x": [1, 2]}).write_parquet("x.parquet")
    >>> batches = whole_batches(pl.scan_parquet("x.parquet"), ["x.parquet"], pl.scan_parquet)
    >>> sum(batch.height for batch in batches)
    2
    """
    rows = 0
    try:
        for batch in query_batches(lazy):
            rows += batch.height
            yield batch
    except SCAN_ERRORS as error:
        for path in paths:
            _refuse_damaged(path, scan(path))
        if again is None:
            is_of_a_file = isinstance(error, pl.exceptions.PanicException) or _IS_OF_A_FILE.search(str(error))
            if not is_of_a_file:
                raise  # the condition is at fault, not a file
            message = f"one of {len(paths)} data files cannot be read: {error}."
            raise StorageError(message, path=paths[0]) from error
    else:
        return
    for batch in again():
        yield batch.slice(rows)
        rows = max(rows - batch.height, 0)


def _refuse_damaged(path: str, lazy: pl.LazyFrame) -> None:
    try:
        for _ in query_batches(lazy):
            pass
    except SCAN_ERRORS as error:
        message = (
            f"data file {path!r} cannot be read as the table's columns: {error}. It is damaged, or no file of this "
            "table; restore it, or an older version of the table. `Table.check` names all such "
            "files."
        )
        raise StorageError(message, path=path) from error
