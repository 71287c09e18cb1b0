"""Which child of its parent a cube is, as one number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import I64Array

__all__ = ["child_codes"]


def child_codes(cells: npt.NDArray[np.unsignedinteger[Any]]) -> I64Array:
    """Return each cell's child number: its last bits, dimension 0 the most significant.

    Numbers sort as the format orders sibling cubes (format 5).

    Parameters
    ----------
    cells : ndarray of unsigned integers, shape (n, d)
        Cell numbers along each dimension at one depth.

    Returns
    -------
    ndarray of int64, shape (n,)
        Values in ``[0, 2**d)``.

    Examples
    --------
    >>> child_codes(np.array([[0, 1], [3, 2]], dtype=np.uint64))
    array([1, 2])
    """
    codes = np.zeros(len(cells), np.int64)
    for j in range(cells.shape[1]):
        codes <<= 1
        codes |= (cells[:, j] & cells.dtype.type(1)).astype(np.int64)
    return codes
