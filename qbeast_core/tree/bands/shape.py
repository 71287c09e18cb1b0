"""The shape of one file: its bands and the runs of its blocks, to and from the layout tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array
from qbeast_core.spec.layout import BandLayout, Layout, PageLayout
from qbeast_core.tree.bands.runs import Bands, Runs, find_runs


@dataclass(frozen=True, slots=True, eq=False)
class FileShape:
    """The bands of one file, whose blocks have the numbers from 0 on."""

    bands: Bands
    runs: Runs

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
