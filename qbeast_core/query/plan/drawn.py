"""Draw samples in which each row of a heavy key has its own weight, by its position in the file.

Rows of one key share one weight, so a sample has all of them or none. If the rows of a heavy key are contiguous, in an
order that is independent of their values, the i-th of m rows gets the weight at i / m of all weights instead. A range
of weights then holds the same fraction of them as of all keys, in the first pages of the stretch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qbeast_core.query.plan.draws import FileDraw
from qbeast_core.query.plan.select import Selection
from qbeast_core.query.plan.weights import WeightRange
from qbeast_core.space.arrays import BoolArray


def draw(
    by_key: Selection, matching: Selection, files: Mapping[int, FileDraw], weights: WeightRange
) -> Selection:
    """Choose what to read for a sample in which each row of some keys is drawn separately."""
    table = by_key.table.pages
    chosen = by_key.page_mask
    pages = np.zeros_like(chosen)
    for file, file_draw in files.items():
        for stretch in (*file_draw.one_by_one, *file_draw.apart):
            touched = table.pages_with(file, stretch.first, stretch.first + stretch.rows)
            first = table.first_row[touched]
            has_others = (first < stretch.first) | (
                first + table.rows[touched] > stretch.first + stretch.rows
            )
            chosen[touched] &= has_others
        for stretch in file_draw.one_by_one:
            pages[table.pages_with(file, *stretch.within(weights))] = True
    return _reading(by_key, chosen | (pages & matching.page_mask), files)


def apart(matching: Selection, files: Mapping[int, FileDraw]) -> Selection:
    """Choose what to read for the rows that samples skip."""
    table = matching.table.pages
    pages = np.zeros(len(table.rows), np.bool_)
    for file, file_draw in files.items():
        for stretch in file_draw.apart:
            pages[table.pages_with(file, stretch.first, stretch.first + stretch.rows)] = True
    only = {
        file: replace(file_draw, one_by_one=(), only=True)
        for file, file_draw in files.items()
        if file_draw.apart
    }
    selection = _reading(matching, pages & matching.page_mask, only)
    return replace(selection, opened=selection.opened & (selection.pages_opened > 0))


def _reading(selection: Selection, pages: BoolArray, files: Mapping[int, FileDraw]) -> Selection:
    """Return a selection with other pages."""
    chosen = replace(selection, page_numbers=np.flatnonzero(pages), drawn=files)
    return replace(chosen, opened=np.where(chosen.pages_total > 0, chosen.pages_opened > 0, chosen.opened))
