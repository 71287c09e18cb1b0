"""A snapshot as a Polars LazyFrame: projection, filter, limit and sample go down to pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from qbeast_core.io.page_plan import PageRequest
from qbeast_core.table.reader import Job, Reader, Sample
from qbeast_core.table.whole_files import scan_files, scan_without_rows
from qbeast_core.tree.columns import frame_weights

__all__ = ["pushed_down", "read_rows", "scan"]

_BATCH_BYTES: Final = 64 << 20


def scan(reader: Reader, sample: Sample | None = None) -> pl.LazyFrame:
    """Return the snapshot as a LazyFrame.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    sample : float or tuple of float, optional
        Rows to take by weight.

    Raises
    ------
    InvalidInputError
        If the sample is no fraction or pair of fractions in [0, 1].
    """
    if sample is not None:
        reader.plan(None, sample)  # a wrong sample fails here, not when the frame is collected

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(reader.snapshot.schema) if with_columns is None else with_columns
        return read_rows(reader, wanted, predicate=predicate, sample=sample, limit=n_rows)

    return register_io_source(source, schema=reader.snapshot.schema, is_pure=True)


def pushed_down(
    schema: pl.Schema, predicate: pl.Expr | None, columns: Sequence[str] | None
) -> tuple[pl.Expr | None, list[str]]:
    """Return what of a filter and a choice of columns reaches `read_rows` through Polars' optimizer.

    Polars keeps to itself what can fail (a strict cast), and reads the columns for it.

    Parameters
    ----------
    schema : polars.Schema
        The table's columns.
    predicate : polars.Expr, optional
        Rows to keep.
    columns : sequence of str, optional
        Columns to return; all by default.

    Examples
    --------
    >>> schema = pl.Schema({"x": pl.Int64, "y": pl.String, "z": pl.String})
    >>> given, columns = pushed_down(schema, (pl.col("x") > 1) & (pl.col("y").cast(pl.Int8) > 2), ["x"])
    >>> str(given), columns
    ('[(col("x")) > (1)]', ['x', 'y'])
    """
    asked: list[tuple[pl.Expr | None, list[str]]] = []

    def source(
        with_columns: list[str] | None, given: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if with_columns is None else with_columns
        asked.append((given, wanted))
        yield pl.DataFrame(schema={name: schema[name] for name in wanted})

    lazy = register_io_source(source, schema=schema, is_pure=True)
    kept = lazy if predicate is None else lazy.filter(predicate)
    (kept if columns is None else kept.select(columns)).collect()
    return asked[0] if asked else (pl.lit(value=False), list(columns or schema))


def read_rows(
    reader: Reader,
    columns: list[str],
    *,
    predicate: pl.Expr | None = None,
    sample: Sample | None = None,
    limit: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield exactly the rows that filter and sample keep, in frames of bounded size.

    Parameters
    ----------
    reader : Reader
        Of the snapshot.
    columns : list of str
        Columns to return, in order, at least one.
    predicate : polars.Expr, optional
        Rows to keep.
    sample : float or tuple of float, optional
        Rows to keep by weight.
    limit : int, optional
        Stop after so many rows.

    Yields
    ------
    polars.DataFrame
        At least one, perhaps without rows.
    """
    job = reader.plan(predicate, sample)
    left = limit
    yielded = False
    for frame in _frames(reader, job, columns, limit):
        cut = frame if left is None else frame.head(left)
        if cut.height or not yielded:
            yielded = True
            yield cut
        if left is not None:
            left -= cut.height
            if left <= 0:
                return
    if not yielded:
        yield pl.DataFrame(schema={name: reader.snapshot.schema[name] for name in columns})


def _frames(reader: Reader, job: Job, columns: list[str], limit: int | None) -> Iterator[pl.DataFrame]:
    plain: list[int] = []
    hiding: list[int] = []
    requests: list[PageRequest] = []
    for number in np.flatnonzero(job.selection.opened).tolist():
        request = reader.request(job.selection, number)
        if request is not None:
            requests.append(request)
        elif reader.hidden_rows(job.selection, number) is None:
            plain.append(number)
        else:
            hiding.append(number)
    finish = partial(_finish, reader, job, columns)
    if requests:
        yield from map(finish, _by_pages(reader, job, columns, requests))
    if plain:
        lazy = _whole(reader, job, columns, [reader.paths[n] for n in plain])
        yield from _collected(lazy, job, finish, limit)
    for number in hiding:
        yield from _collected(_without_hidden(reader, job, columns, number), job, finish, limit)


def _by_pages(
    reader: Reader, job: Job, columns: list[str], requests: list[PageRequest]
) -> Iterator[pl.DataFrame]:
    needed = job.columns_for(columns, reader.indexed)

    def whole(request: PageRequest) -> pl.DataFrame:
        return _whole(reader, job, columns, [request.path]).collect()

    return reader.pages.read_batches(
        requests, needed, reader.snapshot.schema, max_bytes=_BATCH_BYTES, fallback=whole
    )


def _whole(reader: Reader, job: Job, columns: list[str], paths: list[str]) -> pl.LazyFrame:
    needed = job.columns_for(columns, reader.indexed)
    options = dict(reader.snapshot.storage_options)
    return scan_files(reader.store, paths, needed, reader.snapshot.schema, storage_options=options)


def _without_hidden(reader: Reader, job: Job, columns: list[str], number: int) -> pl.LazyFrame:
    hidden = reader.hidden_rows(job.selection, number)
    return scan_without_rows(
        reader.store,
        reader.paths[number],
        np.empty(0, np.int64) if hidden is None else hidden,
        job.columns_for(columns, reader.indexed),
        reader.snapshot.schema,
        storage_options=dict(reader.snapshot.storage_options),
    )


def _collected(
    lazy: pl.LazyFrame, job: Job, finish: Callable[[pl.DataFrame], pl.DataFrame], limit: int | None
) -> Iterator[pl.DataFrame]:
    """Run a scan of whole files; Polars filters, and cuts where no sample comes after."""
    filtered = lazy if job.predicate is None else lazy.filter(job.predicate)
    if limit is not None and job.weights.is_full:
        filtered = filtered.head(limit)
    yield from map(finish, filtered.collect_batches(maintain_order=True))


def _finish(reader: Reader, job: Job, columns: list[str], frame: pl.DataFrame) -> pl.DataFrame:
    """Keep exactly the rows that sample and filter want, and the columns asked for."""
    wanted: list[pl.Expr] = [] if job.predicate is None else [job.predicate]
    if not job.weights.is_full:
        weights = frame_weights(frame, reader.indexed)
        inside = (weights >= job.weights.from_) & (weights <= job.weights.last)
        wanted.append(pl.lit(pl.Series(inside)))
    if not wanted:
        return frame if frame.columns == columns else frame.select(columns)
    return frame.lazy().filter(*wanted).select(columns).collect()
