"""Run scans of whole files to their end: every row comes, or an error names the damaged file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import polars as pl

from qbeast_core.errors import StorageError
from qbeast_core.spec.own_column import own_column

# What a damaged file makes Polars raise; a panic is not an `Exception`.
SCAN_ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)

_CUT: Final = "reading stopped before the last row"
# A condition that is evaluated inside the reader of a file fails under the reader's name.
_IS_OF_A_FILE: Final = re.compile(rf"^parquet:(?! Invalid parameter: conversion from )|^{_CUT}")
_END: Final = own_column("end")


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
        for batch in _to_the_end(lazy):
            rows += batch.height
            yield batch
    except SCAN_ERRORS as error:
        for path in paths:
            _refuse_damaged(path, scan(path))
        if again is None:
            if not _IS_OF_A_FILE.search(str(error)):
                raise  # the condition is at fault, not a file
            message = f"one of {len(paths)} data files cannot be read: {error}. Nothing was changed."
            raise StorageError(message, path=paths[0]) from error
    else:
        return
    for batch in again():
        yield batch.slice(rows)
        rows = max(rows - batch.height, 0)


def _to_the_end(lazy: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield batches up to a row that marks the end: without it Polars hides that a decoder panicked."""
    # Series one by one: `DataFrame.clear` runs a query a column, which is half of what a small scan takes.
    nulls = [pl.Series(name, [None], dtype) for name, dtype in lazy.collect_schema().items()]
    end = pl.DataFrame([*nulls, pl.Series(_END, [True])])
    marked = pl.concat([lazy.with_columns(pl.lit(value=False).alias(_END)), end.lazy()])
    ended = False
    for batch in marked.collect_batches(maintain_order=True):
        ended = bool(batch.get_column(_END)[-1]) if batch.height else ended
        rows = batch.drop(_END)
        if batch.height > ended:
            yield rows.head(batch.height - ended)
    if not ended:
        raise pl.exceptions.ComputeError(_CUT)


def _refuse_damaged(path: str, lazy: pl.LazyFrame) -> None:
    try:
        for _ in _to_the_end(lazy):
            pass
    except SCAN_ERRORS as error:
        message = (
            f"data file {path!r} cannot be read as the table's columns: {error}. It is damaged, or no file of this "
            "table. Nothing was changed; restore it, or an older version of the table. `Table.check` names all such "
            "files."
        )
        raise StorageError(message, path=path) from error
