"""Count the rows that a filter keeps: from the log for cubes inside of the filter, from data for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qbeast_core.query.index.index_table import IndexTable
from qbeast_core.query.plan.select import MatchingBlocks, Selection
from qbeast_core.query.plan.weights import ALL_WEIGHTS
from qbeast_core.space.arrays import BoolArray, I64Array


@dataclass(frozen=True, slots=True, eq=False)
class RowCount:
    """The rows that a filter keeps, in two parts."""

    # Rows that it keeps, outside of the pages and files to read.
    known: int
    # Pages and files whose rows must be read and filtered.
    undecided: Selection
    # Rows in these, without deleted ones.
    rows_read: int


def count_rows(
    table: IndexTable,
    keeps: BoolArray,
    leaves: BoolArray,
    *,
    files: BoolArray,
    deleted: Mapping[int, I64Array],
) -> RowCount | None:
    """Return the number of rows a filter keeps, and what must be read for the rest; None if the log cannot decide."""
    here = files[table.file]
    inside = keeps & ~leaves & here
    whole = _read_whole(table, keeps & here, inside, deleted)
    if table.replicated.any() or (table.num_records[whole] < 0).any():
        return None
    chosen = (keeps & leaves & here) | whole[table.file]
    selection = MatchingBlocks(table, files, chosen).within(ALL_WEIGHTS)
    gone = sum(len(rows) for number, rows in deleted.items() if selection.opened[number])
    closed = {number: rows for number, rows in deleted.items() if not selection.opened[number]}
    return RowCount(
        known=_rows_elsewhere(table, inside, selection) - _deleted_inside(table, inside, closed),
        undecided=selection,
        rows_read=int(selection.rows_opened.sum()) - gone,
    )


def _read_whole(
    table: IndexTable, keeps: BoolArray, inside: BoolArray, deleted: Mapping[int, I64Array]
) -> BoolArray:
    """Return the files to read as a whole or not at all: pages and blocks do not locate their rows."""
    hides = np.zeros(table.files.height, np.bool_)
    hides[list(deleted)] = True
    counted = np.bincount(table.file, table.rows, table.files.height) == table.num_records
    has_pages = np.diff(table.pages.first_page) > 0
    undecided, some, others = (table.any_in_file(blocks) for blocks in (keeps & ~inside, keeps, ~inside))
    unknown = some & ~counted
    unordered = hides & ~has_pages & table.any_in_file(inside) & others
    whole: BoolArray = (undecided & (hides | ~has_pages)) | unknown | unordered
    return whole


def _rows_elsewhere(table: IndexTable, inside: BoolArray, selection: Selection) -> int:
    """Return the number of rows in blocks inside of the filter, without pages and files that are read."""
    pages = table.pages
    has_pages = np.diff(pages.first_page) > 0
    plain = inside & ~selection.opened[table.file] & ~has_pages[table.file]
    stretch = np.flatnonzero(inside[pages.stretch_block] & ~selection.page_mask[pages.stretch_page])
    return int(table.rows[plain].sum() + pages.stretch_rows[stretch].sum())


def _deleted_inside(table: IndexTable, inside: BoolArray, deleted: Mapping[int, I64Array]) -> int:
    """Return the number of deleted rows in blocks inside of the filter, in files that are not read."""
    count = 0
    for number, rows in deleted.items():
        blocks = slice(table.first_block[number], table.first_block[number + 1])
        if inside[blocks].all():
            count += len(rows)
        elif inside[blocks].any():
            count += int(inside[table.pages.blocks_of(number, rows)].sum())
    return count
