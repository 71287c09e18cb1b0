"""Data file -> batches in the table's columns: rows that are left, columns by their ids, defaults of later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.data_file import Blocklet, DataFile
from qbeast_core.carbondata.pages.dimensions import default_value
from qbeast_core.space.arrays import BoolArray, I64Array

# By blocklet and page, the rows of the page that are gone.
DeletedByPage = Mapping[tuple[int, int], I64Array]


def match_columns(
    of_file: Sequence[Column], wanted: Sequence[Column], *, by_name: bool
) -> list[Column | None]:
    """Return the file's column for each of the table's, None where the file was written before it was added."""
    known = {_key(column, by_name=by_name): column for column in of_file}
    return [known.get(_key(column, by_name=by_name)) for column in wanted]


def _key(column: Column, *, by_name: bool) -> str:
    return column.schema.name.lower() if by_name else column.schema.column_id


def read_rows(
    file: DataFile,
    blocklet: Blocklet,
    pages: Sequence[int],
    wanted: Sequence[tuple[Column, Column | None]],
    deleted: DeletedByPage,
) -> Any:
    """Return the rows of some pages of a blocklet that are left, in the table's columns."""
    stored = [own for _, own in wanted if own is not None]
    arrays = iter(file.read(blocklet, stored, pages))
    rows = sum(blocklet.page_rows[page] for page in pages)
    found: list[Any] = []
    with file.file.inside(f"blocklet {blocklet.number}"):
        for column, own in wanted:
            array = _constant(column, rows) if own is None else _as_type(next(arrays), column)
            found.append(array)
        kept = _kept(blocklet, pages, deleted)
    names = [column.schema.name for column, _ in wanted]
    # Columns may be none: then the rows count alone.
    table = pa.table(found, names=names) if names else pa.table({"": pa.nulls(rows)})
    return table if kept is None else table.filter(pa.array(kept))


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
    # A value that the table's type cannot hold is the one, a pair of types that no cast joins the other.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        damaged(f"column {column.schema.name!r} of type {array.type} is {kind} in the table: {error}")


def _kept(blocklet: Blocklet, pages: Sequence[int], deleted: DeletedByPage) -> BoolArray | None:
    """Return which rows of the pages are left; None if all are."""
    masks: list[BoolArray] = []
    any_gone = False
    for page in pages:
        count = blocklet.page_rows[page]
        mask = np.ones(count, np.bool_)
        gone = deleted.get((blocklet.number, page))
        if gone is not None:
            if len(gone) and gone[-1] >= count:
                damaged(f"row {int(gone[-1])} of page {page} was deleted, and it has {count}")
            mask[gone] = False
            any_gone = True
        masks.append(mask)
    return np.concatenate(masks) if any_gone else None
