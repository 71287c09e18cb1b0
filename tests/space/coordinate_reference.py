"""Coordinates as the format tells them: one value at a time in Python floats."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def linear(value: float, low: float, high: float) -> float:
    """For ranges whose width and its inverse are finite."""
    if math.isnan(value):
        return 1.0
    return min(max((value - low) * (1 / (high - low)), 0.0), 1.0)


def number_rank(value: float, quantiles: Sequence[float], *, first: bool = False) -> float:
    last = len(quantiles) - 1
    if math.isnan(value) or value > quantiles[-1]:
        return 1.0
    if value < quantiles[0]:
        return 0.0
    if value in quantiles:
        return (bisect_left(quantiles, value) if first else bisect_right(quantiles, value) - 1) / last
    i = bisect_right(quantiles, value) - 1
    return (i + (value - quantiles[i]) / (quantiles[i + 1] - quantiles[i])) / last


def string_rank(value: bytes, quantiles: Sequence[bytes], *, first: bool = False) -> float:
    last = len(quantiles) - 1
    insertion = bisect_right(quantiles, value)
    if value in quantiles:
        return (bisect_left(quantiles, value) if first else insertion - 1) / last
    return max(insertion - 1, 0) / last
