"""Serialise summaries, so other processes can send them."""

from __future__ import annotations

import io
from dataclasses import asdict
from itertools import pairwise
from typing import Final

import orjson
import polars as pl

from qbeast_core.tree.space.summary import ColumnSummary, IndexSummary

_SIZE_BYTES: Final = 8
_PARTS: Final = 4


def dump_summary(summary: IndexSummary) -> bytes:
    """Serialise a summary: sizes, a JSON header, sample and partitions as Arrow files, and the summary of rows outside.

    >>> from qbeast_core.tree.space.summary import summarise
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
    frames = [io.BytesIO(), io.BytesIO()]
    for sink, frame in zip(frames, (summary.sample, summary.partitions), strict=True):
        frame.write_ipc(sink, compression="lz4")
    outside = b"" if summary.outside is None else dump_summary(summary.outside)
    parts = (header, *(sink.getvalue() for sink in frames), outside)
    return b"".join([*(len(part).to_bytes(_SIZE_BYTES, "little") for part in parts), *parts])


def load_summary(data: bytes) -> IndexSummary:
    """Return the summary from the bytes of `dump_summary`."""
    sizes = [int.from_bytes(data[i * _SIZE_BYTES : (i + 1) * _SIZE_BYTES], "little") for i in range(_PARTS)]
    ends = [_PARTS * _SIZE_BYTES + sum(sizes[:i]) for i in range(_PARTS + 1)]
    head, sample, partitions, outside = (data[first:end] for first, end in pairwise(ends))
    header = orjson.loads(head)
    return IndexSummary(
        rows=header["rows"],
        columns=tuple(ColumnSummary(**column) for column in header["columns"]),
        sample=pl.read_ipc(io.BytesIO(sample)),
        key_limit=header["keyLimit"],
        weight_sum=header["weightSum"],
        partitions=pl.read_ipc(io.BytesIO(partitions)),
        outside=load_summary(outside) if outside else None,
    )
