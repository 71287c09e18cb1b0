"""The shape of a file: its bands and pages, to and from the layout tag (format 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbeast_core.space.coordinates import fitted_steps, step_edges, steps_of
from qbeast_core.space.values import MIN_WEIGHT, I32Array, I64Array, U32Array
from qbeast_core.spec.blocks import Layout


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

    def layout(self, cells: Sequence[U32Array], *, tail_bytes: int, hidden_weights: bool) -> Layout:
        """Return the layout tag of a file whose rows have these cells, one array per dimension."""
        starts, box, sides = self.page_starts(), list[tuple[int, ...]](), list[bytes]()
        for column in cells:
            bounds = [end.reduceat(column, starts).astype(np.int64) for end in (np.minimum, np.maximum)]
            box.append(fitted_steps(*bounds))
            sides += [steps_of(step_edges(box[-1]), bound).tobytes() for bound in bounds]
        columns = (self.band_rows.tolist(), self.page_rows.tolist(), self.first_weights.tolist())
        return Layout(
            tail_bytes=tail_bytes,
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
