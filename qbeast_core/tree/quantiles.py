"""Quantiles of a column and whether it needs any."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import F64Array

__all__ = [
    "KNOTS",
    "KNOT_CHARACTERS",
    "is_near_uniform",
    "merge_numeric_quantiles",
    "merge_text_quantiles",
    "numeric_quantiles",
    "text_quantiles",
]

KNOTS: Final = 1024
"""Quantiles kept per column: a coordinate is then within 0.1 % of the rank it stands for."""

KNOT_CHARACTERS: Final = 64
"""Characters kept of a text quantile: a prefix divides the order just as well."""

_UNIFORM_DISTANCE: Final = 0.1
_KS_95: Final = 1.36


def numeric_quantiles(values: F64Array, *, lowest: float, highest: float) -> list[float]:
    """Return strictly increasing quantiles of a sample, with the column's true ends.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Sorted, finite sample; may be empty.
    lowest, highest : float
        The column's smallest and greatest finite value.

    Returns
    -------
    list of float
        At most `KNOTS` values; a heavy value stands once, so the others share the space it leaves.

    Examples
    --------
    >>> numeric_quantiles(np.array([1.0, 1.0, 2.0]), lowest=0.0, highest=4.0)
    [0.0, 1.0, 2.0, 4.0]
    """
    picked = values[_positions(len(values))]
    return [float(v) for v in np.unique(np.concatenate([[lowest, highest], picked]) + 0.0)]


def text_quantiles(values: pl.Series, *, lowest: str, highest: str) -> list[str]:
    """Return strictly increasing quantiles of sampled text, in UTF-8 byte order.

    Long values are cut to 64 characters: a prefix divides the order just as well.

    Examples
    --------
    >>> text_quantiles(pl.Series(["b", "b", "c"]), lowest="a", highest="d")
    ['a', 'b', 'c', 'd']
    """
    ordered = values.drop_nulls().sort()
    picked = ordered.gather(_positions(ordered.len())).to_list()
    return sorted({v[:KNOT_CHARACTERS] for v in [lowest, highest, *picked]})


def merge_numeric_quantiles(old: F64Array, old_rows: float, new: F64Array, new_rows: float) -> list[float]:
    """Return quantiles of old and new rows together.

    Parameters
    ----------
    old : ndarray of float64, shape (k,)
        The quantiles in force, each standing for an equal share of `old_rows`.
    old_rows, new_rows : float
        Rows behind either side, at least 0.
    new : ndarray of float64, shape (n,)
        Sorted, finite sample of the new rows, with their true ends.

    Returns
    -------
    list of float
        Strictly increasing.
    """
    values = np.concatenate([old, new])
    mass = np.concatenate(
        [np.full(len(old), old_rows / max(len(old), 1)), np.full(len(new), new_rows / max(len(new), 1))]
    )
    order = np.argsort(values, kind="stable")
    picked = values[order][_weighted_positions(mass[order])]
    return [float(v) for v in np.unique(picked)]


def merge_text_quantiles(old: list[str], old_rows: float, new: pl.Series, new_rows: float) -> list[str]:
    """Return text quantiles of old and new rows together; see `merge_numeric_quantiles`.

    Examples
    --------
    >>> merge_text_quantiles(["a", "b"], 2, pl.Series(["c", "d"]), 2)
    ['a', 'b', 'c', 'd']
    """
    both = pl.DataFrame(
        {
            "v": pl.concat([pl.Series("v", old, dtype=pl.String), new.cast(pl.String).alias("v")]),
            "m": [old_rows / max(len(old), 1)] * len(old) + [new_rows / max(new.len(), 1)] * new.len(),
        }
    ).sort("v")
    picked = both["v"].gather(_weighted_positions(both["m"].to_numpy())).to_list()
    return sorted({v[:KNOT_CHARACTERS] for v in picked})


def is_near_uniform(values: F64Array, *, lowest: float, highest: float) -> bool:
    """Tell whether a column is spread evenly enough for linear scaling.

    Compares the sample with the uniform distribution over the column's range by the greatest distance
    of their distribution functions; what is near enough needs no quantiles, because the tree splits
    crowded regions deeper by itself.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Sorted, finite sample.
    lowest, highest : float
        The column's range.

    Returns
    -------
    bool
        True for an empty sample or an empty range.

    Examples
    --------
    >>> is_near_uniform(np.linspace(0, 9, 1000), lowest=0.0, highest=9.0)
    True
    >>> is_near_uniform(np.exp(np.linspace(0, 9, 1000)), lowest=1.0, highest=8104.0)
    False
    """
    count = len(values)
    span = highest / 2 - lowest / 2  # halved: the range of extreme doubles does not overflow
    if not count or not span > 0:
        return True
    expected = np.clip((values / 2 - lowest / 2) / span, 0.0, 1.0)
    above = np.arange(1, count + 1) / count - expected
    below = expected - np.arange(count) / count
    distance = max(float(above.max()), float(below.max()))
    return distance <= _UNIFORM_DISTANCE + _KS_95 / math.sqrt(count)


def _positions(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if count <= KNOTS:
        return np.arange(count)
    return np.linspace(0, count - 1, KNOTS).round().astype(np.int64)


def _weighted_positions(mass: F64Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """First and last position, and between them those at equal steps of the summed mass."""
    if len(mass) <= KNOTS:
        return np.arange(len(mass))
    total = np.cumsum(mass)
    steps = np.linspace(0.0, total[-1], KNOTS)
    inner = np.searchsorted(total, steps[1:-1])
    return np.unique(np.concatenate([[0], np.minimum(inner, len(mass) - 1), [len(mass) - 1]]))
