"""How much equal index keys cluster a sample."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import I32Array
from qbeast_core.tree.layout.parallel import CHUNK_ROWS

# Above this design effect a sample says noticeably less than its rows suggest.
CLUSTERED: Final = 2.0


def design_effect(weights: I32Array, *, share: float = 1.0) -> float:
    """Return the design effect of sampling by weight: ``sum(m_k ** 2) / n`` over index keys.

    Rows with equal keys have equal weights and enter a sample together, so the variance of a sampled count
    is this many times that of sampling row by row; 1.0 is the best there is.

    >>> design_effect(np.array([1, 1, 2, 3], dtype=np.int32))
    1.5
    """
    if not len(weights):
        return 1.0
    ordered = pl.Series(weights).sort(multithreaded=False).to_numpy()  # in half of NumPy's time
    squares, start = 0.0, 0
    for first in range(1, len(ordered), CHUNK_ROWS):  # chunk by chunk: the runs' sizes take twice the weights
        last = min(first + CHUNK_ROWS, len(ordered))
        starts = np.flatnonzero(ordered[first:last] != ordered[first - 1 : last - 1]) + first
        sizes = np.diff(starts, prepend=start).astype(np.float64) if len(starts) else np.zeros(0)
        squares += float(np.einsum("i,i->", sizes, sizes))  # `dot` has threads that wait in a loop
        start = int(starts[-1]) if len(starts) else start
    of_sample = (squares + float(len(ordered) - start) ** 2) / len(ordered)
    # Of two rows with one key both are sampled with probability share ** 2.
    return 1.0 + (of_sample - 1.0) / share
