"""Simulate the files and pages of a table on a sample of its rows, and compute what filters open of them.

Pages of few rows of the sample are simulated together, and then divided in space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from qbeast_core.plan.bounds import Statistics, coordinate_intervals, evaluate
from qbeast_core.plan.nodes import Atom, Node, column_of
from qbeast_core.space.coordinates import fitted_steps, step_edges, widen
from qbeast_core.space.values import BoolArray, F64Array, I32Array, I64Array, U32Array
from qbeast_core.spec.revision import Transformation
from qbeast_core.tree.keys import HEAVY_SHARE
from qbeast_core.tree.pages import Arrangement, Grain, arrange

# Rows of a simulated page: the box of fewer says little of that of all rows of a page. Each page takes time.
_LEAST_ROWS: Final = 32

_CELLS: Final = float(1 << 32)
# Share of the rows of a file from which on all its pages are opened.
_WHOLE: Final = 1 - 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What filters open, arrays of shape (filters,)."""

    # Share of the rows of the table in files that are read whole, and in pages of other files.
    in_files: F64Array
    in_pages: F64Array
    # Number of files that are read by pages.
    paged_files: F64Array

    def within(self, shares: F64Array | None) -> Opened:
        """Return what the filters open if each opens only a share of all partitions."""
        if shares is None:
            return self
        return Opened(*(getattr(self, name) * shares for name in Opened.__slots__))

    @property
    def shares(self) -> F64Array:
        """Share of the rows of the table."""
        return self.in_files + self.in_pages


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRows:
    """A sample of the rows of a table with an index."""

    # Share of the rows of the table.
    scale: float
    # Space, importance and cells of each indexed column.
    spaces: dict[str, Transformation]
    importance: list[float]
    cells: list[U32Array]
    weights: I32Array
    is_scattered: bool

    def of(self, rows: I64Array | slice) -> IndexedRows:
        """Return some of the rows."""
        return replace(self, cells=[column[rows] for column in self.cells], weights=self.weights[rows])

    def arranged(self, grain: Grain) -> Arrangement:
        """Arrange the rows as a file."""
        # The heaviest key of a sample is too heavy by chance.
        most = int(np.unique(self.weights, return_counts=True)[1].max(initial=0))
        surely = most - 2 * math.sqrt(most * (1 - self.scale))
        is_scattered = self.is_scattered or surely * HEAVY_SHARE < len(self.weights)
        return arrange(self.weights, self.cells, grain, importance=self.importance, is_scattered=is_scattered)

    def boxes(self, placed: Arrangement, *, joined: int) -> F64Array:
        """Return the boxes that the layout tag of a file stores, in coordinates, shape (2, dimensions, pages).

        Each page in which the rows are `placed` stands for `joined` ones of the table.
        """
        starts = placed.shape.page_starts()
        rows = np.diff(starts, append=len(placed.order))
        # Of evenly spread values, n rows extend over (n - 1) / (n + 1) of the space between their neighbours.
        of_all = (rows - self.scale) / (rows + self.scale)
        wider = np.where(rows > 1, of_all * (rows + 1) / np.maximum(rows - 1, 1) - 1, 0.0) / 2
        boxes = np.empty((2, len(self.cells), len(starts)))
        values = [np.sort(column) for column in self.cells]
        for at, (column, ordered) in enumerate(zip(self.cells, values, strict=True)):
            lower, upper = (end.reduceat(column[placed.order], starts) for end in (np.minimum, np.maximum))
            first, last = np.searchsorted(ordered, lower), np.searchsorted(ordered, lower, side="right") - 1
            top = np.searchsorted(ordered, upper)
            missing = (top - first) * wider
            # The ranks of one value are a range, which a box leaves only if the value has few rows.
            boxes[:, at] = np.minimum(first, last - missing), top + missing
        for _ in range(joined.bit_length() - 1):
            boxes = _halved(boxes, self.importance)
        places = [np.interp(boxes[:, at], np.arange(len(some)), some) for at, some in enumerate(values)]
        return _stored(np.stack(places, axis=1))


def _halved(boxes: F64Array, importance: Sequence[float]) -> F64Array:
    """Return boxes of ranks that are divided where they are widest, the halves of each one after the other."""
    pages = np.arange(boxes.shape[2])
    widest = np.argmax((boxes[1] - boxes[0]) * np.array(importance)[:, None], axis=0)
    halves = np.repeat(boxes, 2, axis=2)
    middle = boxes[:, widest, pages].mean(axis=0)
    halves[1, widest, 2 * pages] = halves[0, widest, 2 * pages + 1] = middle
    return halves


def _stored(boxes: F64Array) -> F64Array:
    """Return boxes of cells as the layout tag of a file stores them, in coordinates."""
    cells = boxes.astype(np.int64)
    sides = [widen(step_edges(fitted_steps(*some)), *some) for some in cells.swapaxes(0, 1)]
    lower, upper = np.array(sides).swapaxes(0, 1) / _CELLS
    return np.array([lower, np.where(upper >= 1.0, np.inf, upper)])


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTable:
    """The files and pages of a sample, and what filters open of them."""

    sample: IndexedRows
    # The rows in the order of the files, and the rows of their bands.
    order: I64Array
    bands: list[I64Array]
    # First place in `order` and file of each page of these files.
    starts: I64Array
    file: I64Array
    # Share of each page that each filter opens, shape (filters, pages).
    matched: F64Array

    @staticmethod
    def of(
        sample: IndexedRows,
        files: Sequence[I64Array],
        grain: Grain,
        statistics: Statistics,
        nodes: Sequence[Node],
    ) -> SimulatedTable:
        """Simulate a table whose files and pages of some `grain` have these rows; `statistics` are in its log."""
        grain = grain.scaled(sample.scale)
        joined = 1 << max(math.ceil(math.log2(_LEAST_ROWS / grain.page_rows)), 0)
        grain = replace(grain, page_rows=grain.page_rows * joined, min_page_rows=grain.min_page_rows * joined)
        samples = [sample.of(file) for file in files]
        placed = [some.arranged(grain) for some in samples]
        boxes = [some.boxes(of, joined=joined) for some, of in zip(samples, placed, strict=True)]
        firsts = np.cumsum([0, *map(len, files[:-1])]).tolist()
        starts = [of.shape.page_starts() + first for of, first in zip(placed, firsts, strict=True)]
        file = np.repeat(np.arange(len(files)), list(map(len, starts)))
        # Each page stands for as many of the table.
        may_match = partial(
            _may_match, np.concatenate(boxes, axis=2), np.repeat(file, joined), statistics, sample.spaces
        )
        opened = np.array([evaluate(node, len(file) * joined, may_match) for node in nodes])
        return SimulatedTable(
            sample,
            order=np.concatenate([file[of.order] for file, of in zip(files, placed, strict=True)]),
            bands=[of.shape.band_rows for of in placed],
            starts=np.concatenate(starts),
            file=file,
            matched=opened.reshape(len(nodes), -1, joined).mean(axis=2),
        )

    def opened(self, row_sizes: F64Array) -> Opened:
        """Return what the filters open, if rows count by their sizes."""
        sizes = np.add.reduceat(row_sizes[self.order], self.starts) / row_sizes.sum()
        files = np.flatnonzero(np.diff(self.file, prepend=-1))
        sizes, in_files = (np.add.reduceat(some, files, axis=-1) for some in (sizes, self.matched * sizes))
        is_whole = in_files >= sizes * _WHOLE
        return Opened(
            np.where(is_whole, in_files, 0.0).sum(axis=1),
            np.where(is_whole, 0.0, in_files).sum(axis=1),
            (~is_whole & (in_files > 0)).sum(axis=1).astype(np.float64),
        )

    @property
    def row_groups(self) -> float:
        """Mean number of row groups of a file."""
        return float(np.mean(list(map(len, self.bands))))


def _may_match(
    boxes: F64Array, file: I64Array, statistics: Statistics, spaces: dict[str, Transformation], atom: Atom
) -> BoolArray:
    """Return the pages that may hold a matching row, by the statistics of their files and by their boxes.

    `boxes` are of pages of the table: some for each page of the files, shape (2, dimensions, pages of the table).
    """
    of_files, space = statistics.may_match(atom)[file], spaces.get(column_of(atom))
    intervals = None if space is None else coordinate_intervals(atom, space, foreign=False)
    if intervals is None:
        return of_files
    lower, upper = boxes[:, list(spaces).index(column_of(atom))]
    return of_files & intervals.meet(lower, upper)


def log_density(bands: Sequence[I64Array]) -> float:
    """Return the mean logarithm of the rows of a band, if each filled the space of the table as densely as its file's.

    `bands` are the rows of the bands of each file. The denser a band is, the smaller are its pages in space.
    """
    rows = np.concatenate(bands)
    of_file = np.repeat([float(some.sum()) for some in bands], list(map(len, bands)))
    return float(np.average(np.log(rows.sum() * rows / of_file), weights=rows))
