"""Estimate what filters and samples open, and choose writes whose rows to write together (format 12).

A filter takes 1/30 of the values of a column. It opens the pages that it meets. The pages of a write divide the box of
its rows, so they are narrow along a column if the box is, or if the write has many rows. Rows that are written together
have more pages, but in a larger box. The mean over columns is geometric: a factor lost on one column counts as much as
the same factor won on another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np

from qbeast_core.space.values import BoolArray, F64Array, I64Array
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.layout.arrange import Grain

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
        sums = _Sums.of(np.vstack([opened, boxes.rows, np.where(is_free, 0.0, boxes.rows)]))
        for length, lowest, highest, largest in _unions(boxes, is_free):
            *before, rows, moved = sums.of_length(length)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums of neighbours."""

    up_to: F64Array

    @staticmethod
    def of(values: F64Array) -> _Sums:
        return _Sums(np.hstack([np.zeros((len(values), 1)), np.cumsum(values, axis=1)]))

    def of_length(self, length: int) -> F64Array:
        """Return the sums of each run of a length, shape (rows of the values, runs)."""
        sums: F64Array = self.up_to[:, length:] - self.up_to[:, :-length]
        return sums


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
