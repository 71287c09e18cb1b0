"""The rank of a number among stored quantiles, with interpolation (format 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from qbeast_core.space.arrays import F64Array, I64Array

_BUCKETS = 1 << 13


def number_ranks(quantiles: Sequence[float], values: F64Array, *, first: bool = False) -> F64Array:
    """Return the rank of each value among the quantiles, as a share.

    >>> number_ranks([0.0, 10.0, 20.0], np.array([-1.0, 0.0, 5.0, 20.0, np.nan])).tolist()
    [0.0, 0.0, 0.25, 1.0, 1.0]
    """
    knots = np.array(quantiles, np.float64)
    scale = 1.0 if knots[-1] / 2 - knots[0] / 2 < np.finfo(np.float64).max / 2 else 0.5  # no gap overflows
    gaps = np.diff(knots * scale)
    # Entry i serves values from knot i - 1 on; those below all knots are held at the first one.
    origin = np.concatenate([knots[:1], knots]) * scale
    width = np.concatenate([[1.0], gaps, [1.0]])
    width[width == 0] = 1.0  # between equal knots lies no value
    rank = np.concatenate([[0.0], np.arange(len(knots), dtype=np.float64)])
    find = partial(np.searchsorted, knots) if first else _Finder(knots)
    entry = find(values)
    if first:  # a value equal to the knot starts there
        entry += knots[np.minimum(entry, len(knots) - 1)] == values
    out: F64Array = values * scale
    np.fmin(out, origin[-1], out=out)  # takes NaN to the last knot
    np.maximum(out, origin[0], out=out)
    out -= origin[entry]
    out /= width[entry]
    out += rank[entry]
    out /= len(knots) - 1
    return out


class _Finder:
    """`searchsorted` for many values: a guess by equal buckets, checked, and searched where it is wrong.

    A search takes ten steps that mispredict; the guess takes none and is right unless several knots share
    a bucket.
    """

    def __init__(self, knots: F64Array) -> None:
        self.knots = knots
        self.padded = np.concatenate([[-np.inf], knots, [np.inf]])
        span = float(knots[-1] / 2 - knots[0] / 2) * 2
        self.per_unit = _BUCKETS / span if 0 < span < np.inf else 0.0
        edges = knots[0] + np.arange(_BUCKETS + 1) / (self.per_unit or 1.0)
        self.first = np.searchsorted(knots, edges, "right")

    def __call__(self, values: F64Array) -> I64Array:
        if not 0 < self.per_unit < np.inf or len(values) < _BUCKETS:
            return np.searchsorted(self.knots, values, "right")
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities end in some bucket
            place = (values - self.knots[0]) * self.per_unit
            np.fmax(np.fmin(place, _BUCKETS, out=place), 0.0, out=place)
        guess = self.first[place.astype(np.int64)]
        guess += self.padded[guess + 1] <= values
        np.minimum(guess, len(self.knots), out=guess)
        right = (self.padded[guess] <= values) & (values < self.padded[guess + 1])
        wrong = np.flatnonzero(~right)
        guess[wrong] = np.searchsorted(self.knots, values[wrong], "right")
        entries: I64Array = guess
        return entries
