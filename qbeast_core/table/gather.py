"""Take rows in any order out of a frame that came in chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from qbeast_core.tree.pack import RowNumbers

__all__ = ["RowSource"]


class RowSource:
    """A frame to take rows from, many times and by several threads.

    Random access to a large frame waits for memory at every value, and the longer where the frame came in
    chunks, as frames read from files do. So rows are taken in ascending order, chunk by chunk, and put into
    the wanted order when they are few enough for the caches.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows.

    Examples
    --------
    >>> joined = pl.concat([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3]})], rechunk=False)
    >>> RowSource(joined).take(np.array([0, 2], np.uint32), np.array([1, 0], np.uint32))["a"].to_list()
    [3, 1]
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        lengths = {tuple(column.chunk_lengths()) for column in frame.get_columns()}
        self._frame = frame.rechunk() if len(lengths) > 1 else frame
        whole = next(iter(lengths)) if len(lengths) == 1 else (frame.height,)
        self._bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole, dtype=np.int64)])

    def take(self, rows: RowNumbers, order: RowNumbers) -> pl.DataFrame:
        """Return some rows in some order.

        Parameters
        ----------
        rows : ndarray of integers, shape (n,)
            Row numbers of the frame, ascending.
        order : ndarray of integers, shape (m,)
            Places in `rows`.
        """
        cuts = np.searchsorted(rows, self._bounds)
        parts = [
            (start, stop - start, pl.Series(rows[first:last] - rows.dtype.type(start)))
            for (start, stop), (first, last) in zip(
                pairwise(self._bounds.tolist()), pairwise(cuts.tolist()), strict=True
            )
            if first < last
        ]
        if not parts:
            return self._frame.clear()
        places = pl.Series(order)
        # Column by column: what lies between the two orders is one column of the rows, not all of them.
        return pl.DataFrame([_take(column, parts, places) for column in self._frame.get_columns()])


def _take(column: pl.Series, parts: list[tuple[int, int, pl.Series]], places: pl.Series) -> pl.Series:
    taken = [column.slice(start, length).gather(rows) for start, length, rows in parts]
    return pl.concat(taken, rechunk=True).gather(places)
