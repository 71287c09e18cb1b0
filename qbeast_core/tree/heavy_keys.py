"""Keys that hold much of a file: how many rows they have, and where these lie in an order that says nothing of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U32Array
from qbeast_core.tree.key_sketch import mixed

__all__ = ["HEAVY_SHARE", "HeavyKeys", "shuffled"]

HEAVY_SHARE: Final = 256
"""A key is heavy that has at least this part of the rows, and two of them."""

_MOST_RUNS: Final = 16
"""Stretches of about equal length that a heavy key is found in: it has one, unless other keys have its weight."""


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """The heavy keys of a file.

    Attributes
    ----------
    weights : ndarray of int32, shape (keys,)
        Their weights, ascending.
    rows : ndarray of int64, shape (keys,)
        Rows of each.
    firsts : ndarray of int64, shape (keys,)
        The first of them in the file, where they lie end to end and in an order that is independent of their values;
        else -1.
    """

    weights: I32Array
    rows: I64Array
    firsts: I64Array

    def __len__(self) -> int:
        return len(self.weights)

    @staticmethod
    def none() -> HeavyKeys:
        """Return no keys."""
        return HeavyKeys(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @staticmethod
    def of(weights: I32Array, starts: I64Array | None) -> HeavyKeys:
        """Find them.

        Parameters
        ----------
        weights : ndarray of int32, shape (rows,)
            The weight of each row, in the order of the file, equal keys side by side.
        starts : ndarray of int64, shape (blocks,), or None
            Where blocks start, in rows that are `shuffled`; None: they are not.

        Examples
        --------
        >>> found = HeavyKeys.of(np.array([1, 1, 5, 7, 7, 7], dtype=np.int32), np.array([0, 4]))
        >>> found.weights.tolist(), found.rows.tolist(), found.firsts.tolist()
        ([1, 7], [2, 3], [0, -1])
        """
        begins, counts = _runs(weights, np.zeros(0, np.int64) if starts is None else starts)
        least = _least(len(weights))
        found = np.unique(weights[begins[counts >= max(least // _MOST_RUNS, 1)]])
        if not len(found):
            return HeavyKeys.none()
        runs = np.flatnonzero(np.isin(weights[begins], found))
        keys, first, run = np.unique(weights[begins[runs]], return_index=True, return_inverse=True)
        rows = np.bincount(run, counts[runs]).astype(np.int64)
        firsts = np.where((counts[runs[first]] == rows) & (starts is not None), begins[runs[first]], -1)
        heavy = rows >= least
        return HeavyKeys(keys[heavy], rows[heavy], firsts[heavy])


def shuffled(weights: I32Array, starts: I64Array) -> I64Array | None:
    """Return an order of the rows of a file in which those of a heavy key follow a hash of their places.

    Whatever the values of these rows are, a stretch of them is then a simple random sample. None: no key is heavy.

    Parameters
    ----------
    weights : ndarray of int32, shape (rows,)
        The weight of each row, in the order of the file, equal keys side by side.
    starts : ndarray of int64, shape (blocks,)
        Where blocks start, which rows do not leave.
    """
    begins, counts = _runs(weights, starts)
    heavy = np.flatnonzero(counts >= _least(len(weights)))
    if not len(heavy):
        return None
    order = np.arange(len(weights), dtype=np.int64)
    for begin, count in zip(begins[heavy].tolist(), counts[heavy].tolist(), strict=True):
        places: U32Array = np.arange(count, dtype=np.uint32)
        places += np.uint32((int(weights[begin]) * 31 + len(weights)) & 0xFFFFFFFF)
        order[begin : begin + count] = begin + np.argsort(mixed(places), kind="stable")
    return order


def _least(rows: int) -> int:
    return max(-(-rows // HEAVY_SHARE), 2)


def _runs(weights: I32Array, starts: I64Array) -> tuple[I64Array, I64Array]:
    """Return where stretches of one weight and block begin, and how many rows they have."""
    fresh = np.ones(len(weights), np.bool_)
    np.not_equal(weights[1:], weights[:-1], out=fresh[1:])
    fresh[starts] = True
    begins = np.flatnonzero(fresh)
    return begins, np.diff(begins, append=len(weights))
