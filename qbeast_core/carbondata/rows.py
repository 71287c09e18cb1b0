"""Rows of a data file in the table's columns: without deleted rows, columns by their ids, defaults of later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.files.data_file import Blocklet, DataFile
from qbeast_core.carbondata.pages.dimensions import default_value
from qbeast_core.space.arrays import BoolArray, I64Array

# By blocklet and page, the deleted rows of the page.
DeletedByPage = Mapping[tuple[int, int], I64Array]


def read_rows(
    file: DataFile,
    blocklet: Blocklet,
    pages: Sequence[int],
    wanted: Sequence[tuple[Column, Column | None]],
    deleted: DeletedByPage,
) -> Any:
    """Return the rows of some pages of a blocklet that are not deleted, in the table's columns."""
    stored = [own for _, own in wanted if own is not None]
    arrays = iter(file.read(blocklet, stored, pages))
    rows = sum(blocklet.page_rows[page] for page in pages)
    with file.file.inside(f"blocklet {blocklet.number}"):
        columns = [
            _constant(column, rows) if own is None else _as_type(next(arrays), column)
            for column, own in wanted
        ]
        mask = _not_deleted(blocklet, pages, deleted)
    names = [column.schema.name for column, _ in wanted]
    # Without columns, the number of rows counts.
    table = pa.table(columns, names=names) if names else pa.table({"": pa.nulls(rows)})
    return table if mask is None else table.filter(pa.array(mask))


def _constant(column: Column, rows: int) -> Any:
    """Return a column of its default value, null if it has none."""
    value = default_value(column)
    return pa.nulls(rows, column.arrow_type) if value is None else pa.repeat(value, rows)


def _as_type(array: Any, column: Column) -> Any:
    """Return values in the table's type, which may be wider than the file's."""
    kind = column.arrow_type
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    # The table's type cannot hold a value, or there is no cast between the types.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        damaged(f"column {column.schema.name!r} of type {array.type} is {kind} in the table: {error}")


def _not_deleted(blocklet: Blocklet, pages: Sequence[int], deleted: DeletedByPage) -> BoolArray | None:
    """Return which rows of the pages are not deleted; None if all are."""
    if not any((blocklet.number, page) in deleted for page in pages):
        return None
    masks: list[BoolArray] = []
    for page in pages:
        count = blocklet.page_rows[page]
        mask = np.ones(count, np.bool_)
        rows = deleted.get((blocklet.number, page), np.empty(0, np.int64))
        if len(rows) and rows[-1] >= count:
            damaged(f"row {int(rows[-1])} of page {page} was deleted, and it has {count}")
        mask[rows] = False
        masks.append(mask)
    return np.concatenate(masks)
