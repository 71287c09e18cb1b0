"""Summaries as bytes, so that those who count rows elsewhere can send them."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Final

import orjson
import polars as pl

from qbeast_core.tree.summary import ColumnSummary, IndexSummary

_HEADER_BYTES: Final = 8


def dump_summary(summary: IndexSummary) -> bytes:
    """Return a summary as bytes: a JSON header, then the sample as an Arrow file.

    >>> from qbeast_core.tree.summary import summarise
    >>> load_summary(dump_summary(summarise(pl.DataFrame({"a": [3, None, 1]}), ["a"]))).columns[0].lowest
    1
    """
    header = orjson.dumps(
        {
            "rows": summary.rows,
            "keyLimit": summary.key_limit,
            "weightSum": summary.weight_sum,
            "columns": [asdict(column) for column in summary.columns],
        }
    )
    sample = io.BytesIO()
    summary.sample.write_ipc(sample, compression="lz4")
    return len(header).to_bytes(_HEADER_BYTES, "little") + header + sample.getvalue()


def load_summary(data: bytes) -> IndexSummary:
    """Return what `dump_summary` was given."""
    size = int.from_bytes(data[:_HEADER_BYTES], "little")
    header = orjson.loads(data[_HEADER_BYTES : _HEADER_BYTES + size])
    return IndexSummary(
        rows=header["rows"],
        columns=tuple(ColumnSummary(**column) for column in header["columns"]),
        sample=pl.read_ipc(io.BytesIO(data[_HEADER_BYTES + size :])),
        key_limit=header["keyLimit"],
        weight_sum=header["weightSum"],
    )
