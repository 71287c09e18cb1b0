"""Names for the NumPy arrays of the kernels, and their different values."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
U8Array = npt.NDArray[np.uint8]
U32Array = npt.NDArray[np.uint32]
U64Array = npt.NDArray[np.uint64]

_NumberT = TypeVar("_NumberT", bound=np.integer)


def distinct(values: npt.NDArray[_NumberT]) -> npt.NDArray[_NumberT]:
    """Return the different values of an array, ascending, by sorting.

    `numpy.unique` has a hash table from NumPy 2.3 on, which takes a hundred times longer if most values differ.

    >>> distinct(np.array([3, 1, 3])).tolist(), distinct(np.zeros(0, np.int64)).tolist()
    ([1, 3], [])
    """
    ordered = np.sort(values)
    is_first = np.append(np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1])
    different: npt.NDArray[_NumberT] = ordered[is_first]
    return different
