"""What workers are sent to place rows by: where each goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from qbeast_core.space.arrays import I32Array, U64Array
from qbeast_core.spec.revision import Revision
from qbeast_core.table.data.frames import ArrowStream
from qbeast_core.table.engine.target import FileTarget
from qbeast_core.tree.columns import frame_weights
from qbeast_core.tree.outline import Outline
from qbeast_core.tree.plan import grid_columns

__all__ = ["PlaceTask", "nodes_and_weights", "sort_keys"]

_BIAS: Final = 1 << 31
_WEIGHT_BITS: Final = np.uint64(32)
_WEIGHT_MASK: Final = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceTask:
    """Everything a worker needs; pickles to a few MB at most.

    Attributes
    ----------
    target : FileTarget
        Where the files go.
    revision : Revision
        The rows are indexed with.
    outline : Outline
        Where rows go.
    file_starts : ndarray of uint64, shape (files,)
        Sort key of the first row that each file may hold, increasing, the first one 0.
    file_rows : int
        Rows that a file aims at.
    rows, weight_sum : int
        Rows summarised, and the sum of their weights.
    """

    target: FileTarget
    revision: Revision
    outline: Outline
    file_starts: U64Array
    file_rows: int
    rows: int
    weight_sum: int

    @property
    def file_count(self) -> int:
        """Files that rows are sent to."""
        return len(self.file_starts)

    def fit(self, rows: ArrowStream | pl.DataFrame) -> pl.DataFrame:
        """Return rows as they came as rows of the table; see `RowShape.fit`."""
        return self.target.shape.fit(rows)

    def place(self, frame: pl.DataFrame) -> U64Array:
        """Return the sort key of each row: rows go to files, and lie in them, in the order of their keys.

        Parameters
        ----------
        frame : polars.DataFrame
            Rows as `fit` gives them.

        Returns
        -------
        ndarray of uint64, shape (rows,)
            File ``n`` takes the keys from ``file_starts[n]`` to the next one's start.
        """
        revision = self.revision
        weights = frame_weights(frame, revision.columns)
        return sort_keys(self.outline.place(grid_columns(frame, revision), weights), weights)


def sort_keys(nodes: I32Array, weights: I32Array) -> U64Array:
    """Return numbers that sort rows by node and weight."""
    keys = nodes.astype(np.uint64) << _WEIGHT_BITS
    keys |= (weights.astype(np.int64) + _BIAS).astype(np.uint64)
    return keys


def nodes_and_weights(keys: U64Array) -> tuple[I32Array, I32Array]:
    """Return the node and the weight of each row from its sort key."""
    weights = (keys & _WEIGHT_MASK).astype(np.int64) - _BIAS
    return (keys >> _WEIGHT_BITS).astype(np.int32), weights.astype(np.int32)
