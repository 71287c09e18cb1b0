"""The `qbeast.layout` tags of our files against their blocks: page counts, and the first weight of each page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.space.arrays import I64Array
from qbeast_core.spec.layout import PageLayout, parse_layout
from qbeast_core.table.check_faults import Fault, fault_frame

__all__ = ["layout_faults", "read_layout"]

_LOW_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Blocks of one file, in order: first row of each, and the end; high halves of their weight bounds."""

    starts: I64Array
    low: I64Array
    high: I64Array


def read_layout(text: str | None) -> PageLayout | None:
    """Return a layout as far as it can be read; None where it cannot, or is of a version unknown here."""
    try:
        return None if text is None else parse_layout(text)
    except InvalidMetadataError:
        return None


def layout_faults(files: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Find layouts that cannot be read, or that say other than the blocks do.

    Parameters
    ----------
    files : polars.DataFrame
        `file`, `path`, `revision`, `num_records`, `size_bytes`, `layout`, `ours`.
    blocks : polars.DataFrame
        As `qbeast_core.query.live_blocks` gives them.

    Returns
    -------
    polars.DataFrame
        Of `FAULT_SCHEMA`.
    """
    tagged = files.filter(pl.col("ours") & pl.col("layout").is_not_null())
    columns = ["file", "rows", "min_weight", "max_weight"]
    held = blocks.filter("ours").select(columns).partition_by("file", as_dict=True, include_key=False)
    faults: list[Fault] = []
    for file in tagged.iter_rows(named=True):
        mine = held.get((file["file"],))
        whole = mine is not None and mine["rows"].sum() == file["num_records"]
        if mine is None or not whole:
            continue  # told as a fault of the blocks; the layout counts for nothing there
        try:
            layout = parse_layout(file["layout"])
        except InvalidMetadataError as error:
            message = f"its layout tag cannot be read, so it is read by row groups: {error}"
            faults.append(
                Fault(code="layout-unreadable", message=message, path=file["path"], revision=file["revision"])
            )
            continue
        if layout is None:
            continue  # of a version to come
        wrong = _disagreement(layout, file["num_records"], file["size_bytes"], _starts(mine))
        if wrong is not None:
            message, row = wrong
            faults.append(
                Fault(
                    code="layout",
                    message=message,
                    path=file["path"],
                    revision=file["revision"],
                    row_group=0,
                    row=row,
                )
            )
    return fault_frame(faults)


def _starts(blocks: pl.DataFrame) -> _Blocks:
    rows = blocks["rows"].to_numpy()
    return _Blocks(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)]),
        blocks["min_weight"].to_numpy() >> _LOW_BITS,
        blocks["max_weight"].to_numpy() >> _LOW_BITS,
    )


def _disagreement(layout: PageLayout, rows: int, size: int, blocks: _Blocks) -> tuple[str, int | None] | None:
    """Tell what of a layout cannot be, and for which row of the file."""
    needed = -(-rows // layout.page_rows)
    if len(layout.weights) != needed:
        message = f"its layout tells of {len(layout.weights)} pages; {rows} rows make {needed} of {layout.page_rows}"
        return message, None
    if layout.tail_bytes >= size:
        return f"its layout tells of a tail of {layout.tail_bytes} bytes in a file of {size}", None
    first = np.arange(needed, dtype=np.int64) * layout.page_rows
    weights = np.asarray(layout.weights, np.int64)
    block = np.searchsorted(blocks.starts, first, side="right") - 1
    low, high = blocks.low[block], blocks.high[block]
    wrong = (weights < low) | (weights > high) | ((blocks.starts[block] == first) & (weights != low))
    same = block[1:] == block[:-1]
    wrong[1:] |= same & (weights[1:] < weights[:-1])
    if not wrong.any():
        return None
    page = int(np.argmax(wrong))
    message = (
        f"page {page} cannot begin with a weight of high half {int(weights[page])}: its block holds "
        f"{int(low[page])} to {int(high[page])}, in rising order"
    )
    return message, int(first[page])
