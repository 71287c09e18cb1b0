"""Arrange the rows of a file in bands, so that samples of any size read few rows besides their own.

A band holds the rows of one level of the tree between two fractions of the weights. Each cube has a run of whole pages
in each band of its level, so a page has rows of one cube, and a sample reads half a page too much per cube on average.
The number of rows per page grows with the fraction, so this stays the same share of the sample. What is left of each
cube follows at the end of the last band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from qbeast_core.space.arrays import F64Array, I32Array, I64Array, U64Array
from qbeast_core.spec.layout import MAX_BLOCK_PAGES
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.key_tag import HeavyKeys
from qbeast_core.tree.layout.shape import Bands, FileShape

# Fractions between bands: users request such samples, and engines that skip whole row groups read little more.
_EDGES: Final = tuple(digit * 10.0**power for power in range(-6, 0) for digit in (1, 2, 5))
# Maximum number of rows per page, as a share of the rows of a sample in the region of a cube.
_PAGE_SHARE: Final = 0.27
# The cubes of an upper level start at nearly the same weight. So their pages end together, and the rows that a sample
# reads too much do not average out.
_PAGE_SHARE_OF_FEW_CUBES: Final = 0.15
_FEW_CUBES: Final = 16
# Blocks of fewer pages are thin.
_FEW_PAGES: Final = 8
_PAGE_STEP: Final = 128  # integers are packed in blocks of 128
_MAX_PAGE_ROWS: Final = 2048
_MIN_BANDS: Final = 4  # of the minimum number of rows
_WEIGHTS: Final = 1 << 32
_SIGN: Final = np.uint32(1 << 31)  # with this bit flipped, signed numbers sort as unsigned ones


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """The shape of a file, and the order of its rows and blocks."""

    shape: FileShape
    # Rows and blocks in the order of the file, as positions in the order by depth, cube and weight.
    rows: I64Array
    blocks: I64Array


def arrange(weights: I32Array, starts: I64Array, depths: I64Array, *, page_rows: int) -> Arrangement:
    """Arrange the rows of a file, which are in the order by depth, cube and weight.

    `starts` has the first row of each block, `depths` the depth of its cube. The rows of a heavy key stay together.
    A file that is too small for bands keeps its order and has `page_rows` rows per page.
    """
    file = _File(weights, starts)
    if not has_bands(len(weights)):
        shape = FileShape.plain(page_rows, file.sizes)
        return Arrangement(shape, np.arange(len(weights)), np.arange(len(starts)))
    sections = list(map(file.cut, _sections(np.diff(starts, append=len(weights)), depths)))
    bands = Bands(
        page_rows=np.concatenate([section.page_rows for section in sections]),
        first_block=np.concatenate([np.full(len(s.page_rows), s.blocks.start) for s in sections]),
        blocks=np.concatenate([np.full(len(s.page_rows), len(s.blocks)) for s in sections]),
        whole_pages=np.concatenate([section.whole_pages[:, section.order].ravel() for section in sections]),
    )
    blocks = np.concatenate([section.blocks.start + section.order for section in sections])
    shape = FileShape.of(bands, file.sizes[blocks])
    runs = shape.runs
    first_rows = starts[blocks][runs.block] + runs.rows_before()
    rows = np.repeat(first_rows - runs.starts()[:-1], runs.rows) + np.arange(len(weights))
    return Arrangement(shape, rows, blocks)


def has_bands(file_rows: int) -> bool:
    """Return whether a file is large enough for bands."""
    return file_rows >= _MIN_BANDS * sizing().min_band_rows


@dataclass(frozen=True, slots=True, eq=False)
class _Section:
    """Successive blocks that share bands."""

    blocks: range
    page_rows: I64Array
    # Shape (bands, blocks).
    whole_pages: I64Array

    @property
    def order(self) -> I64Array:
        """The order of the blocks in the file: by their first rows."""
        has_pages = self.whole_pages > 0
        first_band = np.where(has_pages.any(axis=0), has_pages.argmax(axis=0), len(self.page_rows))
        return np.argsort(first_band, kind="stable")


def _sections(sizes: I64Array, depths: I64Array) -> Iterator[tuple[range, bool]]:
    """Yield the blocks of each level, or of successive levels of few rows, and whether it is one level."""
    cuts = [0, *(np.flatnonzero(np.diff(depths)) + 1).tolist(), len(sizes)]
    small, small_rows = cuts[0], 0
    for first, last in pairwise(cuts):
        rows = int(sizes[first:last].sum())
        is_large = rows >= sizing().min_band_rows
        if is_large and small < first:
            yield range(small, first), False
            small, small_rows = first, 0
        small_rows += rows
        if small_rows >= sizing().min_band_rows:
            yield range(small, last), is_large
            small, small_rows = last, 0
    if small < len(sizes):
        yield range(small, len(sizes)), False


class _File:
    """The rows of a file, by cube and weight."""

    def __init__(self, weights: I32Array, starts: I64Array) -> None:
        self.sizes = np.diff(starts, append=len(weights))
        self._weights, self._starts, self._ends = weights, starts, starts + self.sizes
        # Unsigned keys that rise over the whole file: one search finds a weight in all blocks.
        self._keys: U64Array = np.repeat(np.arange(len(starts), dtype=np.uint64) << np.uint64(32), self.sizes)
        self._keys |= (weights.view(np.uint32) ^ _SIGN).astype(np.uint64)
        heavy = HeavyKeys.of(weights, starts)
        order = np.argsort(heavy.firsts)
        self._heavy_starts = heavy.firsts[order]
        self._heavy_ends = (heavy.firsts + heavy.rows)[order]

    def cut(self, section: tuple[range, bool]) -> _Section:
        """Return the bands of successive blocks."""
        blocks, is_level = section
        if not is_level:  # of few rows
            return _Section(blocks, np.array([sizing().min_page_rows]), np.zeros((1, len(blocks)), np.int64))
        numbers = np.arange(blocks.start, blocks.stop)
        edges = self._edges(numbers)
        pages_at = self._page_rows(numbers, edges)
        ends, limits = [*edges[1:], 1.0], [np.full(len(numbers), MAX_BLOCK_PAGES)] * len(edges)
        if self._is_in_step(numbers, pages_at[0]):
            # Pages of thin blocks would all end at the same weights, and a sample just above reads a page too much of
            # each block. So half of the blocks begin with half a page, the others with two.
            pages_at, ends = [pages_at[0] // 2, *pages_at], [1.0, *ends]
            limits = [1 + numbers % 2, *limits]
        at, whole_pages = self._starts[numbers], list[I64Array]()
        for page_rows, edge, limit in zip(pages_at, ends, limits, strict=True):
            pages = self._pages(at, numbers, page_rows, edge, limit)
            at = at + pages * page_rows
            whole_pages.append(pages)
        rest = (at < self._ends[numbers]).any()
        filled = [bool(pages.any()) for pages in whole_pages[:-1]] + [bool(rest or whole_pages[-1].any())]
        return _Section(blocks, np.array(pages_at)[filled], np.array(whole_pages)[filled])

    def _edges(self, numbers: I64Array) -> list[float]:
        """Return the smallest fraction of each band of some blocks."""
        edges, rows = [0.0], int(self.sizes[numbers].sum())
        before = 0
        for edge in _EDGES:
            below = int((self._below(numbers, edge) - self._starts[numbers]).sum())
            if min(below - before, rows - below) >= sizing().min_band_rows:
                edges.append(edge)
                before = below
        return edges

    def _page_rows(self, numbers: I64Array, edges: list[float]) -> list[int]:
        """Return the rows per page of each band."""
        sizes = self.sizes[numbers].astype(np.float64)
        first, last = (
            float(np.median(_fractions(self._weights[at])))
            for at in (self._starts[numbers], self._ends[numbers] - 1)
        )
        # Rows of a cube, as the mean over all rows: cubes of few rows have no whole pages.
        rows = (sizes**2).sum() / sizes.sum()
        rows_per_fraction = rows / max(last - first, 1 / _WEIGHTS)
        share = _PAGE_SHARE_OF_FEW_CUBES if len(sizes) <= _FEW_CUBES else _PAGE_SHARE
        targets = [share * max(edge, first) * rows_per_fraction for edge in edges]
        low = sizing().min_page_rows
        return [min(max(int(target) // _PAGE_STEP * _PAGE_STEP, low), _MAX_PAGE_ROWS) for target in targets]

    def _is_in_step(self, numbers: I64Array, page_rows: int) -> bool:
        """Return whether many blocks have few pages."""
        is_thin = float(np.median(self.sizes[numbers])) < _FEW_PAGES * page_rows
        return is_thin and page_rows > 1 and len(numbers) * page_rows // 2 >= sizing().min_band_rows

    def _pages(
        self, at: I64Array, numbers: I64Array, page_rows: int, edge: float, limit: I64Array
    ) -> I64Array:
        """Return how many whole pages of each block, from the rows `at` on, have the weights below a fraction."""
        needed = -(-(self._below(numbers, edge) - at) // page_rows)
        whole = np.minimum(needed, (self._ends[numbers] - at) // page_rows)
        pages: I64Array = np.clip(whole, 0, limit)
        ends = at + pages * page_rows
        if len(self._heavy_starts):
            key = np.searchsorted(self._heavy_starts, ends) - 1
            begins = self._heavy_starts[key]
            divides = (key >= 0) & (begins >= at) & (ends < self._heavy_ends[key])
            pages = np.where(divides, (begins - at) // page_rows, pages)
        return pages

    def _below(self, numbers: I64Array, fraction: float) -> I64Array:
        """Return the first row of each block with a weight above a fraction of all weights."""
        if fraction >= 1:
            return self._ends[numbers]
        bounds = (numbers.astype(np.uint64) << np.uint64(32)) | np.uint64(fraction * _WEIGHTS)
        first: I64Array = np.searchsorted(self._keys, bounds)
        return first


def _fractions(weights: I32Array) -> F64Array:
    return (weights.view(np.uint32) ^ _SIGN) / _WEIGHTS
