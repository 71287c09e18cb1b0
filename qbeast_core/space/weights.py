"""Weights, the 32-bit numbers that decide which rows a sample holds, as fractions and back (format 6)."""

from __future__ import annotations

from typing import overload

import numpy as np

from qbeast_core.space.arrays import F32Array, F64Array, I32Array

MIN_WEIGHT = -(2**31)
# The threshold of a leaf: it takes every row.
MAX_WEIGHT = 2**31 - 1

_OFFSET, _RANGE = 2.0**31, 2.0**32 - 1

# Values of a sample column are multiples of 1 / 65,536: single and double precision agree on them.
SAMPLE_STEPS = 1 << 16


@overload
def weight_to_fraction(weight: int) -> float: ...
@overload
def weight_to_fraction(weight: I32Array) -> F64Array: ...
def weight_to_fraction(weight: int | I32Array) -> float | F64Array:
    """Return the share of all weights that lie below: 0.0 for `MIN_WEIGHT`, 1.0 for `MAX_WEIGHT`.

    >>> weight_to_fraction(MIN_WEIGHT), weight_to_fraction(MAX_WEIGHT)
    (0.0, 1.0)
    """
    if isinstance(weight, np.ndarray):
        return (weight.astype(np.float64) + _OFFSET) / _RANGE
    return (weight + _OFFSET) / _RANGE


@overload
def fraction_to_weight(fraction: float) -> int: ...
@overload
def fraction_to_weight(fraction: F64Array) -> I32Array: ...
def fraction_to_weight(fraction: float | F64Array) -> int | I32Array:
    """Return the weight below which lies `fraction` of all weights, truncated towards zero.

    >>> fraction_to_weight(0.1), fraction_to_weight(1.0)
    (-1717986918, 2147483647)
    """
    if isinstance(fraction, np.ndarray):
        return (np.clip(fraction, 0.0, 1.0) * _RANGE - _OFFSET).astype(np.int32)
    return int(min(max(fraction, 0.0), 1.0) * _RANGE - _OFFSET)


def sample_values(weights: I32Array) -> F32Array:
    """Return the values of the sample column: the largest multiples of 1/65,536 below 1 whose weight is not above.

    So ``value < f`` selects the rows of the sample `f` if `f` is a multiple, else those of the next multiple.

    >>> sample_values(np.array([MIN_WEIGHT, 0, MAX_WEIGHT], np.int32)).tolist()
    [0.0, 0.5, 0.9999847412109375]
    """
    # `fraction_to_weight` truncates towards zero, so multiples above one half have a weight one below k * 65,536.
    steps = (weights.astype(np.int64) - MIN_WEIGHT + (weights >= 0)) >> 16
    values: F32Array = np.minimum(steps, SAMPLE_STEPS - 1).astype(np.float32) / np.float32(SAMPLE_STEPS)
    return values
