"""Compute the design effect of equal index keys."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import I32Array
from qbeast_core.support.sizing import sizing

# Above this design effect, samples are noticeably less precise than their number of rows suggests.
CLUSTERED: Final = 2.0


def design_effect(weights: I32Array, *, share: float = 1.0) -> float:
    """Return the design effect of sampling by weight: ``sum(m_k ** 2) / n`` over index keys.

    Rows with equal keys have equal weights and enter a sample together, so the variance of a sampled count
    is this many times the variance of sampling row by row; 1.0 is the minimum.

    >>> design_effect(np.array([1, 1, 2, 3], dtype=np.int32))
    1.5
    """
    if not len(weights):
        return 1.0
    ordered = pl.Series(weights).sort(multithreaded=False).to_numpy()  # twice as fast as NumPy
    squares, start = 0.0, 0
    # In chunks, because sizes of runs need twice the memory of weights.
    for first in range(1, len(ordered), sizing().chunk_rows):
        last = min(first + sizing().chunk_rows, len(ordered))
        starts = np.flatnonzero(ordered[first:last] != ordered[first - 1 : last - 1]) + first
        sizes = np.diff(starts, prepend=start).astype(np.float64) if len(starts) else np.zeros(0)
        squares += float(np.einsum("i,i->", sizes, sizes))  # threads of `dot` spin while they wait
        start = int(starts[-1]) if len(starts) else start
    sample_effect = (squares + float(len(ordered) - start) ** 2) / len(ordered)
    # Two rows with one key are both sampled with probability share ** 2.
    return 1.0 + (sample_effect - 1.0) / share
