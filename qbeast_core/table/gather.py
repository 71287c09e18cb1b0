"""Take rows in any order out of a frame that came in chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from qbeast_core.tree.pack import RowNumbers

__all__ = ["RowSource"]


class RowSource:
    """A frame to take rows from, many times and by several threads.

    A frame read from files is made of chunks, and a random row of it costs a search for its chunk. Joining
    the chunks would copy the frame; instead rows are taken chunk by chunk, in ascending order, and put into
    the wanted order afterwards, while they fit the caches.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows.

    Examples
    --------
    >>> joined = pl.concat([pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [3]})], rechunk=False)
    >>> RowSource(joined).take(np.array([2, 0], np.uint32))["a"].to_list()
    [3, 1]
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        lengths = {tuple(column.chunk_lengths()) for column in frame.get_columns()}
        self._frame = frame.rechunk() if len(lengths) > 1 else frame
        whole = next(iter(lengths)) if len(lengths) == 1 else (frame.height,)
        self._bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole, dtype=np.int64)])

    def take(self, rows: RowNumbers) -> pl.DataFrame:
        """Return these rows, in this order.

        Parameters
        ----------
        rows : ndarray of integers, shape (n,)
            Row numbers of the frame; they may repeat.
        """
        if len(self._bounds) <= 2:
            return self._frame[pl.Series(rows)]
        order = np.argsort(rows)
        ascending = rows[order]
        place = np.empty(len(rows), np.uint32)
        place[order] = np.arange(len(rows), dtype=np.uint32)
        cuts = np.searchsorted(ascending, self._bounds)
        parts = [
            self._frame.slice(start, stop - start)[pl.Series(ascending[first:last] - start)]
            for (start, stop), (first, last) in zip(
                pairwise(self._bounds.tolist()), pairwise(cuts.tolist()), strict=True
            )
            if first < last
        ]
        return pl.concat(parts, rechunk=True)[pl.Series(place)] if parts else self._frame.clear()
