"""Take rows in any order out of a frame that came in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from qbeast_core.space.arrays import I64Array
from qbeast_core.tree.pack import RowNumbers

__all__ = ["RowSource"]

_PLAIN: Final = frozenset(
    {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64, pl.Date, pl.Datetime}
)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows wanted of one chunk: where it lies in the frame, its rows, and where they go."""

    start: int
    length: int
    rows: I64Array
    to: slice


class RowSource:
    """A frame to take rows from, many times and by several threads.

    Random access to a large frame waits for memory at every value, and the longer where the frame came in
    chunks, as frames read from files do. So rows are taken in ascending order, chunk by chunk, and put into
    the wanted order when they are few enough for the caches; column by column, so that what lies between
    the two orders is one column and not all of them.

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
        cuts = np.searchsorted(rows, self._bounds).tolist()
        parts = [
            _Part(start, stop - start, rows[first:last].astype(np.int64) - start, slice(first, last))
            for (start, stop), (first, last) in zip(
                pairwise(self._bounds.tolist()), pairwise(cuts), strict=True
            )
            if first < last
        ]
        if not parts:
            return self._frame.clear()
        places = order.astype(np.int64)
        return pl.DataFrame([_take(column, parts, places) for column in self._frame.get_columns()])


def _take(column: pl.Series, parts: list[_Part], places: I64Array) -> pl.Series:
    # NumPy takes numbers out of chunks with a tenth of the overhead; the rest is for Polars.
    if not column.null_count() and type(column.dtype) in _PLAIN:
        views = [column.slice(part.start, part.length).to_physical().to_numpy() for part in parts]
        numbers = pl.Series(column.name, _picked(views, parts, places))
        return numbers.cast(column.dtype)
    if not column.null_count() and isinstance(column.dtype, pl.Decimal):
        return _take_decimals(column, parts, places)
    taken = [column.slice(part.start, part.length).gather(pl.Series(part.rows)) for part in parts]
    return pl.concat(taken, rechunk=True).gather(pl.Series(places))


def _picked(views: list[npt.NDArray[Any]], parts: list[_Part], places: I64Array) -> npt.NDArray[Any]:
    ascending = np.empty(parts[-1].to.stop, views[0].dtype)
    for view, part in zip(views, parts, strict=True):
        np.take(view, part.rows, out=ascending[part.to], mode="clip")  # "raise" would go through a copy
    return np.take(ascending, places, mode="clip")


def _take_decimals(column: pl.Series, parts: list[_Part], places: I64Array) -> pl.Series:
    """Move decimals as what they are to NumPy: 16 bytes, which a complex number has too."""
    arrays: list[Any] = [column.slice(part.start, part.length).to_arrow() for part in parts]
    views = [
        np.frombuffer(array.buffers()[1], np.complex128)[array.offset : array.offset + len(array)]
        for array in arrays
    ]
    picked = _picked(views, parts, places)
    decimals = pa.Array.from_buffers(arrays[0].type, len(picked), [None, pa.py_buffer(picked)])
    return pl.Series(column.name, decimals)
