"""Estimate how many rows filters open, from the shape of the tree alone.

The filters that are expected are ranges of a tenth of the values of one to three indexed columns.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import F64Array, I64Array
from qbeast_core.support.sizing import sizing

_RANGE: Final = 0.1
_MAX_COLUMNS: Final = 3


def shares_opened(extents: F64Array) -> F64Array:
    """Return the probability that a filter meets boxes of these extents, by the number of columns of the filter.

    `extents` has the shape (boxes, dimensions) and values in [0, 1]; the result has the shape (columns, boxes).

    >>> shares_opened(np.array([[1.0, 1.0], [0.5, 0.0]])).round(3).tolist()
    [[1.0, 0.325], [1.0, 0.055]]
    """
    # Sums over all sets of one, two and three columns of the products of their probabilities.
    columns = min(extents.shape[1], _MAX_COLUMNS)
    sums: F64Array = np.zeros((columns + 1, len(extents)))
    counts = np.zeros(columns + 1)
    sums[0] = counts[0] = 1.0
    for extent in extents.T:
        sums[1:] += sums[:-1] * np.minimum(_RANGE + (1 - _RANGE) * extent, 1.0)
        counts[1:] += counts[:-1]
    return sums[1:] / counts[1:, None]


def opened_rows(
    depths: npt.NDArray[np.integer[Any]], rows: I64Array | F64Array, *, dimensions: int
) -> F64Array:
    """Return the rows that filters are expected to open in blocks, with half a page per block, shape (columns,).

    >>> opened_rows(np.array([0, 1]), np.array([1000, 4000]), dimensions=1).round().tolist()
    [3398.0]
    """
    extents = np.repeat(0.5 ** depths.astype(np.float64)[:, None], dimensions, axis=1)
    opened: F64Array = shares_opened(extents) @ (rows + sizing().min_page_rows / 2)
    return opened
