"""The runs of files: where the rows of each block lie (format 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import BoolArray, I64Array


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
class Runs:
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


def find_runs(bands: Bands, block_rows: I64Array) -> Runs:
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
    return Runs(
        band=np.concatenate([band[whole], last_band[rests]])[order],
        block=np.concatenate([block[whole], rests])[order],
        rows=np.concatenate([rows[whole], rest[rests]])[order],
        broken=broken,
    )
