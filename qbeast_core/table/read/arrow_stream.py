"""Rows as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl
import pyarrow as pa

from qbeast_core.table.data.query_batches import query_batches

_BATCH_ROWS: Final = 65_536


def arrow_stream(lazy: pl.LazyFrame) -> pa.RecordBatchReader:
    """Return the rows of a query as Arrow batches. A few batches are in memory at a time.

    Strings are ``large_string``, which all Arrow libraries support.

    >>> arrow_stream(pl.LazyFrame({"a": [1, 2]})).read_all().to_pylist()
    [{'a': 1}, {'a': 2}]
    """
    schema = _arrow(pl.DataFrame(schema=lazy.collect_schema())).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in query_batches(lazy, batch_rows=_BATCH_ROWS):
            yield from _arrow(frame).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
