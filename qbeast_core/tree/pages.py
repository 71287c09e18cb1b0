"""Bands and pages of a file: rows arranged so that pages are boxes in space, and what filters open (format 7, 12).

A band is a row group. Its weights reach from one of the fractions `_EDGES` to the next one, so a sample reads little
besides its own rows, also where an engine skips whole row groups by a stored column. Such columns hold 16 bits of a
weight, so bands begin where these change. Within a band, pages of equal rows are boxes in space (`kd_order`), so a
filter reads few pages.

A filter takes 1/30 of the values of a column. It opens the pages that it meets. The pages of a write divide the box of
its rows, so they are narrow along a column if the box is, or if the write has many rows. Rows that are written together
have more pages, but in a larger box. The mean over columns is geometric: a factor lost on one column counts as much as
the same factor won on another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qbeast_core.space.coordinates import fitted_steps, step_edges, steps_of
from qbeast_core.space.values import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    SAMPLE_STEPS,
    BoolArray,
    F64Array,
    I32Array,
    I64Array,
    U32Array,
    fraction_to_weight,
    weight_to_fraction,
)
from qbeast_core.spec.blocks import Layout
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.keys import HeavyKeys

# Ranks along one dimension: as many distinct ones as fit.
Ranks: TypeAlias = npt.NDArray[np.uint16]

_BITS: Final = 16
_ROW_BITS: Final = 32
_ROW: Final = (1 << _ROW_BITS) - 1
# Nodes of up to this number of rows are split together, some at a time: a key has 15 bits for the number of a page.
_SMALL_ROWS: Final = 1 << 10
_MAX_NODES: Final = 31
# Cells of up to this number of rows are sorted: that is faster than to count them.
_FEW_ROWS: Final = 1 << 12
# If cells that differ share a rank, and it has at least this share of the rows, the ranks are exact instead.
_CROWDED: Final = 1 / 64


def ranks(cells: U32Array) -> Ranks:
    """Return the share of rows before each cell, in steps of 1 / 65536. Equal cells have equal ranks.

    Extents in ranks compare dimensions by the rows that a filter keeps, whatever the distribution of values.

    >>> ranks(np.array([7, 1 << 31, 7, 1 << 30], np.uint32)).tolist()
    [0, 49152, 0, 32768]
    """
    buckets, counts = _buckets(cells)
    before = ((np.cumsum(counts) - counts) << _BITS) // max(len(cells), 1)
    shares: Ranks = before.astype(np.uint16).take(buckets)
    return shares


def _buckets(cells: U32Array) -> tuple[npt.NDArray[Any], I64Array]:
    """Return an ascending number for each cell, and the number of rows of each number."""
    if len(cells) > _FEW_ROWS:
        offsets = cells - cells.min()
        shift = max(int(offsets.max()).bit_length() - _BITS, 0)
        buckets = (offsets >> np.uint32(shift)).astype(np.uint16)
        counts = np.bincount(buckets, minlength=1)
        crowded = np.flatnonzero(counts >= _CROWDED * len(cells)) if shift else ()
        if not any(np.ptp(cells[buckets == bucket]) for bucket in crowded):
            return buckets, counts
    return np.unique(cells, return_inverse=True, return_counts=True)[1:]


def kd_order(columns: Sequence[Ranks], page_rows: int, importance: Sequence[float]) -> I64Array:
    """Return an order of rows in which every `page_rows` rows, from the first on, are one page.

    Each node of the tree splits its rows along the dimension where they extend furthest. An extent counts as often as
    the `importance` of its dimension.

    >>> kd_order([np.array([9, 1, 8, 0], np.uint16), np.zeros(4, np.uint16)], 2, [1, 1]).tolist()
    [1, 3, 0, 2]
    """
    order = np.arange(len(columns[0]))
    nodes, small = [(0, len(order))] if len(order) else [], list[int]()
    while nodes:
        first, last = nodes.pop()
        pages = -(-(last - first) // page_rows)
        middle = pages // 2 * page_rows
        is_large = last - first > _SMALL_ROWS and pages > 1
        if is_large and _split(order[first:last], middle, columns, importance):
            nodes += [(first + middle, last), (first, first + middle)]
        else:
            small.append(first)
    for chunk in range(0, len(small), _MAX_NODES):
        first, end = small[chunk], (*small, len(order))[min(chunk + _MAX_NODES, len(small))]
        _split_small(
            order[first:end],
            np.array(small[chunk : chunk + _MAX_NODES]) - first,
            page_rows,
            columns,
            importance,
        )
    # The order within a page is free: that of the input often compresses best.
    whole = len(order) // page_rows * page_rows
    order[:whole].reshape(-1, page_rows).sort(axis=1)
    order[whole:].sort()
    return order


def _split(rows: I64Array, middle: int, columns: Sequence[Ranks], importance: Sequence[float]) -> bool:
    """Move the first rows along the widest dimension to the front. Return False if all rows are at one place."""
    parts = [column.take(rows) for column in columns]
    extents = [
        (int(part.max()) - int(part.min())) * weight for part, weight in zip(parts, importance, strict=True)
    ]
    widest = int(np.argmax(extents))
    if not extents[widest]:
        return False
    # Rank and row in one number: this is partitioned faster than an array of positions.
    keys = parts[widest].astype(np.int64)
    keys <<= _ROW_BITS
    keys |= rows
    keys.partition(middle - 1)
    np.bitwise_and(keys, _ROW, out=rows)
    return True


def _split_small(
    rows: I64Array, starts: I64Array, page_rows: int, columns: Sequence[Ranks], importance: Sequence[float]
) -> None:
    """Move the rows of nodes to their pages, one level of all nodes at a time.

    For each of many small nodes, calls take longer than the work.
    """
    while True:
        sizes = np.diff(starts, append=len(rows))
        pages = -(-sizes // page_rows)
        if pages.max() <= 1:
            return
        parts = [column.take(rows) for column in columns]
        extents = np.array(
            [
                (np.maximum.reduceat(part, starts) - np.minimum.reduceat(part, starts)) * float(weight)
                for part, weight in zip(parts, importance, strict=True)
            ]
        )
        is_split = (pages > 1) & (extents.max(axis=0) > 0)
        if not is_split.any():
            return
        widest = np.repeat(np.argmax(extents, axis=0), sizes)
        keys = np.repeat(np.arange(len(starts)), sizes) << _BITS
        keys |= np.choose(widest, parts)
        keys <<= _ROW_BITS
        keys |= rows
        keys.sort()
        np.bitwise_and(keys, _ROW, out=rows)
        starts = np.sort(np.concatenate([starts, (starts + pages // 2 * page_rows)[is_split]]))


@dataclass(frozen=True, slots=True, eq=False)
class FileShape:
    """The bands of one file, arrays of shape (bands,)."""

    band_rows: I64Array
    # Rows per page; the last page of a band has the rest.
    page_rows: I64Array
    # Smallest weight of each band.
    first_weights: I32Array

    @staticmethod
    def plain(page_rows: int, rows: int) -> FileShape:
        """Return the shape of a file of one band."""
        return FileShape(np.array([rows]), np.array([page_rows]), np.array([MIN_WEIGHT], np.int32))

    @staticmethod
    def of(layout: Layout) -> FileShape:
        """Return the shape that a layout describes."""
        rows, page_rows, weights = np.array(layout.bands, np.int64).T
        return FileShape(rows, page_rows, weights.astype(np.int32))

    @property
    def pages(self) -> int:
        """Number of pages."""
        return int((-(-self.band_rows // self.page_rows)).sum())

    def with_page_rows(self, page_rows: int) -> FileShape:
        """Return the shape with at most this number of rows per page."""
        return replace(self, page_rows=np.minimum(self.page_rows, page_rows))

    def page_starts(self) -> I64Array:
        """Return the first row of each page, shape (pages,)."""
        firsts = np.cumsum(self.band_rows) - self.band_rows
        bands = zip(firsts.tolist(), self.band_rows.tolist(), self.page_rows.tolist(), strict=True)
        return np.concatenate([np.arange(first, first + rows, each) for first, rows, each in bands])

    def row_weights(self) -> I32Array:
        """Return the smallest weight of the band of each row, shape (rows,)."""
        return np.repeat(self.first_weights, self.band_rows)

    def layout(
        self, cells: Sequence[U32Array], *, tail_bytes: int, hidden_weights: bool, directory_bytes: int = 0
    ) -> Layout:
        """Return the layout tag of a file whose rows have these cells, one array per dimension."""
        starts, box, sides = self.page_starts(), list[tuple[int, ...]](), list[bytes]()
        for column in cells:
            bounds = [end.reduceat(column, starts).astype(np.int64) for end in (np.minimum, np.maximum)]
            box.append(fitted_steps(*bounds))
            sides += [steps_of(step_edges(box[-1]), bound).tobytes() for bound in bounds]
        columns = (self.band_rows.tolist(), self.page_rows.tolist(), self.first_weights.tolist())
        return Layout(
            tail_bytes=tail_bytes,
            directory_bytes=directory_bytes,
            bands=tuple(zip(*columns, strict=True)),
            box=tuple(box),
            boxes=b"".join(sides),
            has_hidden_weights=hidden_weights,
        )


def page_cells(layout: Layout) -> list[tuple[I64Array, I64Array]]:
    """Return the first and the last cell of each page along each dimension, for a layout with boxes."""
    steps = np.frombuffer(layout.boxes, np.uint8).reshape(2 * len(layout.box), -1)
    edges = map(step_edges, layout.box)
    return [
        (cells[lower], cells[1:][upper] - 1)
        for cells, lower, upper in zip(edges, steps[::2], steps[1::2], strict=True)
    ]


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
    return rows.take(kd_order([column.take(rows) for column in columns], page_rows, equal))


def _by_key(rows: I64Array, weights: I32Array) -> I64Array:
    """Return rows by weight, and those of a weight in an order that is independent of their values."""
    ordered = rows[np.argsort(weights[rows], kind="stable")]
    order = HeavyKeys.of(weights[ordered], together=True).shuffled(len(rows))
    return ordered if order is None else ordered[order]


# Share of the values of a column that a filter takes.
FILTER_SHARE: Final = 1 / 30
_SAMPLE_SHARE: Final = 0.01
# Pages of one band, as a share of the pages of a file. Bands have pages of their own, which divide the same box.
_BAND_SHARE: Final = 0.12
# Minimum share of what filters and samples open, in the geometric mean, which a rewrite saves.
WORTH: Final = 0.12
# Maximum factor by which a rewrite widens what filters on one column open.
_MAX_WIDER: Final = 1.6
# Rows that are written together, over those of the largest write among them: a row is rewritten once per doubling.
_TIMES: Final = 2
# Runs of up to this many boxes are tried with all lengths, longer ones with some.
_ALL_LENGTHS: Final = 64
# Rows that a filter opens count as at least this many: their logarithm exists.
_NO_EXTENT: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One dimension: the range of each file, as shares of the rows of the table."""

    lowest: F64Array
    highest: F64Array

    def at(self, files: I64Array) -> Axis:
        """Return the dimension for some of the files."""
        return Axis(self.lowest[files], self.highest[files])

    @classmethod
    def of(cls, low: F64Array, high: F64Array, rows: I64Array) -> Axis:
        """Return a dimension from the bounds of files; NaN: a file may have all values.

        The rows of a file are assumed to spread evenly.

        >>> axis = Axis.of(np.array([0.0, 10.0, np.nan]), np.array([10.0, 40.0, np.nan]), np.array([50, 50, 7]))
        >>> axis.lowest.tolist(), axis.highest.tolist()
        ([0.0, 0.5, 0.0], [0.5, 1.0, 1.0])
        """
        lowest, highest = np.zeros(len(rows)), np.ones(len(rows))
        known = ~np.isnan(low)
        if known.any():
            lowest[known], highest[known] = _shares(low[known], high[known], rows[known])
        return cls(lowest, highest)


def _shares(low: F64Array, high: F64Array, rows: I64Array) -> tuple[F64Array, F64Array]:
    """Return the bounds of files as shares of the rows."""
    values, at = np.unique(np.concatenate([low, high]), return_inverse=True)
    first, last = at[: len(low)], at[len(low) :]
    widths = values[last] - values[first]
    is_wide = widths > rows * _NO_WIDTH
    density = np.divide(rows, widths, out=np.zeros(len(rows)), where=is_wide)
    slopes = np.bincount(first, density, len(values)) - np.bincount(last, density, len(values))
    single = np.bincount(first, np.where(is_wide, 0, rows), len(values))
    steps = np.append(0.0, np.cumsum(slopes)[:-1] * np.diff(values))
    total = max(float(rows.sum()), 1.0)
    shares = (np.cumsum(steps) + np.cumsum(single)) / total
    shares = np.minimum(np.maximum.accumulate(shares), 1.0)
    below = shares - single / total
    return below[first], shares[last]


# The rows of a narrower range count as rows of one value: the number of rows over such a width has no number.
_NO_WIDTH: Final = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Rows that were written together, with the smallest box around them, in shares of the rows of the table."""

    # Shape (boxes, dimensions).
    lowest: F64Array
    highest: F64Array
    # Shape (boxes,).
    rows: F64Array
    files: F64Array

    @staticmethod
    def of_groups(axes: Sequence[Axis], rows: I64Array, group: I64Array, count: int) -> Boxes:
        """Return the boxes of groups of files; `group` has the number of each file, below `count`."""
        lowest, highest = np.ones((count, len(axes))), np.zeros((count, len(axes)))
        for at, axis in enumerate(axes):
            np.minimum.at(lowest[:, at], group, axis.lowest)
            np.maximum.at(highest[:, at], group, axis.highest)
        sums = (np.bincount(group, weights, count) for weights in (rows, np.ones(len(rows))))
        return Boxes(lowest, highest, *(np.asarray(total, np.float64) for total in sums))

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, index: I64Array) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.lowest[index], self.highest[index], self.rows[index], self.files[index])


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """What filters and samples open of rows that are written together.

    >>> gain = Gain(table_rows=1_000_000, importance=(1.0, 1.0), file_rows=400_000)
    >>> def day(first: float, last: float, rows: float) -> Boxes:
    ...     return Boxes(np.array([[first, 0.0]]), np.array([[last, 1.0]]), np.array([rows]), np.ones(1))
    >>> [gain.shares(box)[:, 0].round(2).tolist() for box in (day(0, 0.1, 10_000), day(0, 1, 100_000))]
    [[0.08, 0.49, 0.08], [0.17, 0.17, 0.02]]
    """

    table_rows: int
    # How much narrower than others the pages of each column are.
    importance: Sequence[float]
    # Rows of a large file.
    file_rows: float

    def shares(self, boxes: Boxes) -> F64Array:
        """Return the share of the rows that a filter on each column opens, then the share of a sample.

        The shape is (dimensions + 1, boxes). What a file costs counts as rows, so a share may exceed 1.
        """
        rows = np.maximum(boxes.rows, 1.0)
        costs = sizing().opened_file_rows, sizing().listed_file_rows
        of_files, listed = (each * boxes.files / rows for each in costs)
        files = np.minimum(_sides(boxes, boxes.files, self.importance) + FILTER_SHARE, 1.0)
        filters = np.minimum(self.sides(boxes) + FILTER_SHARE, 1.0).T + files.T * of_files + listed
        sample = (
            np.minimum(_SAMPLE_SHARE + sizing().min_band_rows * boxes.files / rows, 1.0) + of_files + listed
        )
        shares: F64Array = np.vstack([filters, sample])
        return shares

    def sides(self, boxes: Boxes) -> F64Array:
        """Return the sides of the pages of boxes, shape (boxes, dimensions)."""
        return _sides(boxes, _BAND_SHARE * boxes.rows / Grain.of(self.table_rows).page_rows, self.importance)

    def opened(self, boxes: Boxes) -> F64Array:
        """Return the rows that a filter on each column opens, and those of a sample; see `shares`."""
        return self.shares(boxes) * boxes.rows

    def weights(self) -> F64Array:
        """Return the weight of each column and of samples in the geometric mean."""
        weights = np.append(np.asarray(self.importance, np.float64), 1.0)
        return np.asarray(weights / weights.sum(), np.float64)

    def joined(self, boxes: Boxes, is_free: BoolArray) -> list[I64Array]:
        """Return the boxes whose rows to write together, as sets of at least two.

        The rows of the boxes `is_free` are rewritten in any case. Neighbours along the narrowest column are joined, or
        boxes of similar size, depending on what saves more.
        """
        if len(boxes) < 2:
            return []
        extents = (boxes.highest - boxes.lowest) * boxes.rows[:, None]
        narrowest = int(extents.sum(axis=0).argmin())
        middles = boxes.lowest[:, narrowest] + boxes.highest[:, narrowest]
        found = list[tuple[float, list[I64Array]]]()
        for key in (middles, boxes.rows):
            order = np.argsort(key, kind="stable").astype(np.int64)
            starts, ends, saved = self._runs(boxes.at(order), is_free[order])
            total, chosen = _disjoint(starts, ends, saved, len(boxes))
            found.append((total, [order[starts[at] : ends[at]] for at in chosen]))
        return max(found, key=itemgetter(0))[1]

    def _runs(self, boxes: Boxes, is_free: BoolArray) -> tuple[I64Array, I64Array, F64Array]:
        """Return the runs of neighbours that are worth to be written together: starts, ends, and what they save."""
        opened = self.opened(boxes)
        starts, ends, saved = list[I64Array](), list[I64Array](), list[F64Array]()
        values = np.vstack([opened, boxes.rows, np.where(is_free, 0.0, boxes.rows)])
        up_to = np.hstack([np.zeros((len(values), 1)), np.cumsum(values, axis=1)])
        for length, lowest, highest, largest in _unions(boxes, is_free):
            *before, rows, moved = up_to[:, length:] - up_to[:, :-length]
            files = np.ceil(np.maximum(rows / self.file_rows, 1.0))
            after = self.opened(Boxes(lowest, highest, rows, files))
            ratios = np.log(np.maximum(after, _NO_EXTENT) / np.maximum(before, _NO_EXTENT))
            value = -(self.weights() @ ratios) * rows
            fits = (value > 0) & (value >= -math.log(1 - WORTH) * moved)
            fits &= (ratios.max(axis=0) <= math.log(_MAX_WIDER)) & (_TIMES * largest <= rows)
            first = np.flatnonzero(fits)
            starts.append(first)
            ends.append(first + length)
            saved.append(value[first])
        return np.concatenate(starts), np.concatenate(ends), np.concatenate(saved)


def _unions(boxes: Boxes, is_free: BoolArray) -> Iterator[tuple[int, F64Array, F64Array, F64Array]]:
    """Yield the lengths of runs, and of each run the box around it and the rows of the largest box that is not free.

    Of lengths above `_ALL_LENGTHS` only some are tried.
    """
    count, power = len(boxes), 1
    lowest, highest = boxes.lowest, boxes.highest
    largest = np.where(is_free, 0.0, boxes.rows)
    for length in _lengths(count):
        while 2 * power <= length:
            lowest, highest, largest = (
                np.minimum(lowest[:-power], lowest[power:]),
                np.maximum(highest[:-power], highest[power:]),
                np.maximum(largest[:-power], largest[power:]),
            )
            power *= 2
        # A run is covered by two runs of this power of two.
        first, other = slice(count - length + 1), slice(length - power, None)
        yield (
            length,
            np.minimum(lowest[first], lowest[other]),
            np.maximum(highest[first], highest[other]),
            np.maximum(largest[first], largest[other]),
        )


def _lengths(count: int) -> list[int]:
    """Return the lengths of runs to try.

    >>> _lengths(5), _lengths(200)[-4:]
    ([2, 3, 4, 5], [64, 96, 144, 200])
    """
    lengths = list(range(2, min(count, _ALL_LENGTHS) + 1))
    while lengths[-1] < count:
        lengths.append(min(lengths[-1] * 3 // 2, count))
    return lengths


def _disjoint(starts: I64Array, ends: I64Array, saved: F64Array, count: int) -> tuple[float, list[int]]:
    """Return the runs that save most together and do not overlap, and what they save."""
    best, last = [0.0] * (count + 1), [-1] * (count + 1)
    order = np.argsort(ends, kind="stable")
    bounds = np.searchsorted(ends[order], np.arange(count + 2))
    for end in range(1, count + 1):
        best[end] = best[end - 1]
        for at in order[bounds[end] : bounds[end + 1]].tolist():
            total = best[starts[at]] + float(saved[at])
            if total > best[end]:
                best[end], last[end] = float(total), at
    chosen, end = list[int](), count
    while end > 0:
        if last[end] < 0:
            end -= 1
        else:
            chosen.append(last[end])
            end = int(starts[last[end]])
    return best[count], chosen[::-1]


def _sides(boxes: Boxes, parts: F64Array, importance: Sequence[float]) -> F64Array:
    """Return the sides of boxes after their division into parts of equal rows, which narrows all columns alike.

    >>> boxes = Boxes(np.zeros((2, 2)), np.array([[1.0, 1.0], [0.1, 1.0]]), np.ones(2), np.ones(2))
    >>> _sides(boxes, np.array([16.0, 4.0]), (1.0, 1.0)).round(3).tolist()
    [[0.25, 0.25], [0.05, 0.5]]
    >>> _sides(boxes, np.array([2.0, 4.0]), (4.0, 1.0)).round(3).tolist()
    [[0.5, 1.0], [0.025, 1.0]]
    """
    scale = np.sort(np.log(np.asarray(importance, np.float64)))[::-1]
    counts = np.arange(1, len(scale) + 1)
    # Logarithm of the side, times the importance, if the k most important columns are divided. It is right if the next
    # column is not wider.
    sides = (np.cumsum(scale) - np.log(np.maximum(parts, 1.0))[:, None]) / counts
    following = np.append(scale[1:], -np.inf)
    first = (following <= sides).argmax(axis=1)
    side = np.exp(np.take_along_axis(sides, first[:, None], axis=1))
    divided: F64Array = (boxes.highest - boxes.lowest) * np.minimum(
        side / np.asarray(importance, np.float64), 1.0
    )
    return divided
