"""Arrange the rows of a file: bands of one range of weights, with pages of one place.

A band is a row group. Its weights reach from one of the fractions `_EDGES` to the next one, so a sample reads little
besides its own rows, also where an engine skips whole row groups by a stored column. Such columns hold 16 bits of a
weight, so bands begin where these change. Within a band, pages of equal rows are boxes in space (`kd_order`), so a
filter reads few pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.values import (
    MAX_WEIGHT,
    SAMPLE_STEPS,
    I32Array,
    I64Array,
    U32Array,
    fraction_to_weight,
    weight_to_fraction,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.key_tag import HeavyKeys
from qbeast_core.tree.layout.kd import Ranks, kd_order, ranks
from qbeast_core.tree.layout.shape import FileShape

# Fractions of all weights between bands, among them those that users request. Each is at most 1.37 times the fraction
# before it.
_EDGES: Final = tuple(
    digits * 10.0**power for power in range(-8, 0) for digits in (1, 1.3, 1.65, 2, 2.7, 3.7, 5, 6.4, 8)
)
# The same for files of few rows. Bands of few rows have few and wide pages, of which filters open a large share.
_FEW_EDGES: Final = tuple(digits * 10.0**power for power in range(-8, 0) for digits in (1, 1.65, 2.7, 5))
# A file of up to this number of smallest bands has few rows.
_FEW_BANDS: Final = 195
# Rows per page, over the square root of the rows of the table: pages of small tables are small, so that filters skip
# some, and there are fewer pages per row in large ones.
_ROWS_OF_ROOT: Final = 0.21
# Maximum share of a file in a page.
_PAGE_SHARE: Final = 1 / 8
_PAGES_PER_BAND: Final = 2  # at least
_PAGE_STEP: Final = 32  # integers are packed in groups of 32
_MAX_PAGE_ROWS: Final = 2048
# Weights that have one value in `_qbeast_weight`, and in the sample column.
_STEP: Final = (1 << 32) // SAMPLE_STEPS


@dataclass(frozen=True, slots=True)
class Grain:
    """Sizes of bands and pages, in rows."""

    page_rows: float
    min_page_rows: float
    min_band_rows: float
    # Files of up to this number of rows have fewer bands.
    few_rows: float

    @staticmethod
    def of(table_rows: int) -> Grain:
        """Return the sizes for a table with a number of rows.

        >>> Grain.of(600_000).page_rows, Grain.of(6_000_000).page_rows, Grain.of(10**9).page_rows
        (160, 512, 2048)
        """
        rows = round(_ROWS_OF_ROOT * math.sqrt(table_rows) / _PAGE_STEP) * _PAGE_STEP
        low = sizing().min_page_rows
        page_rows = min(max(rows, low), _MAX_PAGE_ROWS)
        band_rows = sizing().min_band_rows
        return Grain(page_rows, low, max(band_rows, _PAGES_PER_BAND * page_rows), _FEW_BANDS * band_rows)

    def scaled(self, share: float) -> Grain:
        """Return the sizes for a share of the rows."""
        return Grain(*(getattr(self, name) * share for name in Grain.__slots__))

    def limited(self, page_rows: int) -> Grain:
        """Return the sizes where values are so large that a page has at most this number of rows.

        Files have few rows then. Pages of a quarter, and bands of two of them, let samples and filters skip some.
        """
        if page_rows >= self.page_rows:
            return self
        page = max(page_rows / 4, 1.0)
        band_rows = min(self.min_band_rows, _PAGES_PER_BAND * page)
        return Grain(page, min(self.min_page_rows, page), band_rows, self.few_rows)

    def page_rows_of(self, file_rows: int) -> int:
        """Return the rows per page of a file.

        >>> Grain.of(6_000_000).page_rows_of(100_000), Grain.of(6_000_000).page_rows_of(2_000)
        (512, 250)
        """
        return max(round(max(min(file_rows * _PAGE_SHARE, self.page_rows), self.min_page_rows)), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """The shape of a file, and the order of its rows."""

    shape: FileShape
    order: I64Array


def arrange(
    weights: I32Array,
    cells: Sequence[U32Array],
    grain: Grain,
    *,
    importance: Sequence[float] = (),
    is_scattered: bool = False,
) -> Arrangement:
    """Arrange the rows of a file. `cells` has one array per dimension; without any, only weights count.

    The rows of a heavy key follow each other at the end of their band, in an order that is independent of their values:
    a stretch of them is a simple random sample. `is_scattered`: rows of a key differ in place, so they stay apart.
    """
    ordered = np.sort(weights)
    firsts = _first_weights(ordered, grain)
    heavy = HeavyKeys.none() if is_scattered else HeavyKeys.of(ordered, together=True)
    is_heavy = np.isin(weights, heavy.weights) if len(heavy) else np.zeros(len(weights), np.bool_)
    columns = [ranks(column) for column in cells]
    band = np.zeros(len(weights), np.uint16)
    for first in firsts[1:]:  # a few: faster than a search
        band += weights >= first
    by_band, sizes = np.argsort(band, kind="stable"), np.bincount(band, minlength=len(firsts))
    orders, page_rows = list[I64Array](), grain.page_rows_of(len(weights))
    for rows in np.split(by_band, np.cumsum(sizes)[:-1]):
        light = rows[~is_heavy[rows]] if len(heavy) else rows
        orders.append(_by_place(light, columns, page_rows, importance))
        if len(light) < len(rows):
            orders.append(_by_key(rows[is_heavy[rows]], weights))
    shape = FileShape(sizes, np.full_like(sizes, page_rows), firsts)
    return Arrangement(shape, np.concatenate(orders))


def _first_weights(ordered: I32Array, grain: Grain) -> I32Array:
    """Return the smallest weight of each band, given the weights in order.

    The lowest band has all rows below the first edge that leaves enough rows on both sides. The edges are the first
    steps of weights at or above each fraction: from a band that began within a step, engines would read rows of none
    of its samples. Only where the rest of the step has enough rows for a band, a band begins at the fraction too.
    """
    # A file with small weights only has some of the rows of a larger one.
    share = min(2 * weight_to_fraction(int(ordered[len(ordered) // 2])), 1.0)
    fractions = _FEW_EDGES if len(ordered) <= grain.few_rows * share else _EDGES
    weights = fraction_to_weight(np.array(fractions)).astype(np.int64)
    edges = np.union1d(weights, _next_step(weights))
    ends = np.where(edges % _STEP == 0, MAX_WEIGHT + 1, _next_step(edges))
    starts = [0]
    for start, end in np.searchsorted(ordered, np.stack([edges, ends], axis=1)).tolist():
        if min(start - starts[-1], end - start) >= grain.min_band_rows:
            starts.append(start)
    return ordered[starts]


def _next_step(weights: I64Array) -> I64Array:
    """Return the first weights at or above some that begin a step."""
    return -(-weights // _STEP) * _STEP


def _by_place(
    rows: I64Array, columns: Sequence[Ranks], page_rows: int, importance: Sequence[float]
) -> I64Array:
    if not columns:
        return rows
    equal = importance or (1.0,) * len(columns)
    return rows[kd_order([column[rows] for column in columns], page_rows, equal)]


def _by_key(rows: I64Array, weights: I32Array) -> I64Array:
    """Return rows by weight, and those of a weight in an order that is independent of their values."""
    ordered = rows[np.argsort(weights[rows], kind="stable")]
    order = HeavyKeys.of(weights[ordered], together=True).shuffled(len(rows))
    return ordered if order is None else ordered[order]
