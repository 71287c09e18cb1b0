"""The shape of files: their bands, and the runs of rows of their blocks, to and from the layout tag (format 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbeast_core.space.arrays import BoolArray, I32Array, I64Array
from qbeast_core.spec.layout import BandLayout, Layout, PageLayout


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """The bands of files, in the order of files and of their rows."""

    # Rows per page, first block and number of blocks of each band, shape (bands,).
    page_rows: I64Array
    first_block: I64Array
    blocks: I64Array
    # Whole pages of each block of each band, shape (sum of `blocks`,).
    whole_pages: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class BlockRuns:
    """The runs of files, in the order of their rows: rows of one block that follow each other in a band."""

    # Band, block and rows of each run, shape (runs,); a run has at least one row.
    band: I64Array
    block: I64Array
    rows: I64Array
    # Blocks whose rows are not all in bands, or whose whole pages have more rows than the block; shape (blocks,).
    broken: BoolArray

    def starts(self) -> I64Array:
        """Return the number of rows before each run, and of all rows, shape (runs + 1,)."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.rows)])

    def by_block(self) -> I64Array:
        """Return the rows in the order of blocks, shape (rows,)."""
        order = np.argsort(self.block, kind="stable")
        firsts, rows = self.starts()[:-1][order], self.rows[order]
        return np.repeat(firsts - np.cumsum(rows) + rows, rows) + np.arange(rows.sum())

    def rows_before(self) -> I64Array:
        """Return the number of rows of its block before each run, shape (runs,)."""
        order = np.argsort(self.block, kind="stable")
        blocks, rows = self.block[order], self.rows[order]
        before = np.cumsum(rows) - rows
        is_first = np.diff(blocks, prepend=-1) != 0
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
        result = np.empty_like(before)
        result[order] = before - before[first]
        return result


def find_runs(bands: Bands, block_rows: I64Array) -> BlockRuns:
    """Return the runs of all blocks.

    >>> import numpy as np
    >>> two = Bands(np.array([2, 4]), np.array([0, 0]), np.array([2, 2]), np.array([1, 1, 1, 0]))
    >>> runs = find_runs(two, np.array([7, 3]))
    >>> list(zip(runs.band.tolist(), runs.block.tolist(), runs.rows.tolist()))
    [(0, 0, 2), (0, 1, 2), (1, 0, 4), (1, 0, 1), (1, 1, 1)]
    """
    band = np.repeat(np.arange(len(bands.blocks)), bands.blocks)
    before = np.cumsum(bands.blocks) - bands.blocks
    block = np.arange(len(band)) - before[band] + bands.first_block[band]
    rows = bands.page_rows[band] * bands.whole_pages
    rest = block_rows - np.bincount(block, rows, len(block_rows)).astype(np.int64)
    last_band = np.full(len(block_rows), -1, np.int64)
    last_band[block] = band  # the last assignment counts
    broken = (rest < 0) | ((last_band < 0) & (block_rows > 0))
    whole, rests = np.flatnonzero(rows), np.flatnonzero((rest > 0) & ~broken)
    order = np.argsort(np.concatenate([2 * band[whole], 2 * last_band[rests] + 1]), kind="stable")
    return BlockRuns(
        band=np.concatenate([band[whole], last_band[rests]])[order],
        block=np.concatenate([block[whole], rests])[order],
        rows=np.concatenate([rows[whole], rest[rests]])[order],
        broken=broken,
    )


@dataclass(frozen=True, slots=True, eq=False)
class FileShape:
    """The bands of one file, whose blocks have the numbers from 0 on."""

    bands: Bands
    runs: BlockRuns

    @staticmethod
    def of(bands: Bands, block_rows: I64Array) -> FileShape:
        """Return the shape of a file with some rows per block, in the order of the file."""
        return FileShape(bands, find_runs(bands, block_rows))

    @staticmethod
    def plain(page_rows: int, block_rows: I64Array) -> FileShape:
        """Return the shape of a file of one band, whose blocks follow each other."""
        size = np.array([len(block_rows)], np.int64)
        bands = Bands(np.array([page_rows], np.int64), size - size, size, np.zeros(len(block_rows), np.int64))
        return FileShape.of(bands, block_rows)

    @staticmethod
    def parse(layout: Layout, block_rows: I64Array) -> FileShape | None:
        """Return the shape that a layout describes; None if it does not fit the blocks."""
        if isinstance(layout, PageLayout):
            return FileShape.plain(layout.page_rows, block_rows)
        page_rows, first, blocks = np.array(layout.bands, np.int64).reshape(-1, 3).T
        bands = Bands(page_rows, first, blocks, np.array(layout.whole_pages, np.int64))
        fits = (first + blocks <= len(block_rows)).all() and int(blocks.sum()) == len(bands.whole_pages)
        shape = FileShape.of(bands, block_rows) if fits else None
        return None if shape is None or shape.runs.broken.any() else shape

    @property
    def band_rows(self) -> I64Array:
        """Rows of each band, shape (bands,)."""
        return np.bincount(self.runs.band, self.runs.rows, len(self.bands.page_rows)).astype(np.int64)

    @property
    def pages(self) -> int:
        """Number of pages."""
        return int((-(-self.band_rows // self.bands.page_rows)).sum())

    def with_page_rows(self, page_rows: Sequence[int]) -> FileShape:
        """Return the shape with at most these numbers of rows per page in each band."""
        limits = zip(self.bands.page_rows.tolist(), page_rows, strict=True)
        # Pages of a divisor keep the runs as they are.
        smaller = np.array(
            [next(n for n in range(most, 0, -1) if rows % n == 0) for rows, most in limits], np.int64
        )
        factors = np.repeat(self.bands.page_rows // smaller, self.bands.blocks)
        bands = replace(self.bands, page_rows=smaller, whole_pages=self.bands.whole_pages * factors)
        return replace(self, bands=bands)

    def page_starts(self) -> I64Array:
        """Return the first row of each page, shape (pages,)."""
        rows, each = self.band_rows, self.bands.page_rows
        firsts = np.cumsum(rows) - rows
        return np.concatenate([np.arange(f, f + n, p) for f, n, p in zip(firsts, rows, each, strict=True)])

    def layout(self, weights: I32Array, *, tail_bytes: int, hidden_weights: bool) -> Layout:
        """Return the layout tag of a file whose rows have these weights."""
        bands, high = self.bands, tuple((weights[self.page_starts()] >> 16).tolist())
        if len(bands.page_rows) == 1 and not bands.whole_pages.any():
            return PageLayout(
                page_rows=int(bands.page_rows[0]),
                tail_bytes=tail_bytes,
                weights=high,
                has_hidden_weights=hidden_weights,
            )
        columns = (bands.page_rows.tolist(), bands.first_block.tolist(), bands.blocks.tolist())
        return BandLayout(
            bands=tuple(zip(*columns, strict=True)),
            whole_pages=tuple(bands.whole_pages.tolist()),
            tail_bytes=tail_bytes,
            weights=high,
            has_hidden_weights=hidden_weights,
        )
