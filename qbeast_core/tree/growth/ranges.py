"""The part of a table's rows that lies in a range of values or in a cube, from the ranges of its files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.arrays import F64Array, I64Array
from qbeast_core.space.cubes import Cubes


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One dimension: how the rows of the table are distributed along it.

    `coordinates` ascend. At most the share `shares` of the rows is below each of them.
    """

    coordinates: F64Array
    shares: F64Array
    # Range of each file, as shares of the rows.
    lowest: F64Array
    highest: F64Array

    @classmethod
    def unknown(cls, files: int) -> Axis:
        """Return a dimension along which all files have all values.

        >>> Axis.unknown(2).highest.tolist()
        [1.0, 1.0]
        """
        ends = np.array([0.0, 1.0])
        return cls(ends, ends, np.zeros(files), np.ones(files))

    @classmethod
    def of(cls, low: F64Array, high: F64Array, rows: I64Array, coordinates: F64Array) -> Axis:
        """Return a dimension from the bounds of files. The rows of a file are assumed to spread evenly.

        `coordinates` has those of `low`, then those of `high`. Values outside the space of a revision have the
        coordinates of its ends, so a range of coordinates near an end may have many rows.

        >>> low, high = np.array([0.0, 10.0]), np.array([10.0, 40.0])
        >>> axis = Axis.of(low, high, np.array([50, 50]), np.array([0.0, 1.0, 1.0, 1.0]))
        >>> axis.lowest.tolist(), axis.highest.tolist()
        ([0.0, 0.5], [0.5, 1.0])
        """
        values, at = np.unique(np.concatenate([low, high]), return_inverse=True)
        first, last = at[: len(low)], at[len(low) :]
        widths = values[last] - values[first]
        density = np.divide(rows, widths, out=np.zeros(len(rows)), where=widths > 0)
        slopes = np.bincount(first, density, len(values)) - np.bincount(last, density, len(values))
        single = np.bincount(first, np.where(widths > 0, 0, rows), len(values))
        steps = np.append(0.0, np.cumsum(slopes)[:-1] * np.diff(values))
        shares = (np.cumsum(steps) + np.cumsum(single)) / max(float(rows.sum()), 1.0)
        shares = np.minimum(np.maximum.accumulate(shares), 1.0)
        places = np.zeros(len(values))
        places[at] = coordinates
        below = shares - single / max(float(rows.sum()), 1.0)
        return cls(np.maximum.accumulate(places), shares, below[first], shares[last])

    def shares_of(self, coordinates: F64Array) -> F64Array:
        """Return the share of the rows below each coordinate."""
        inside = np.interp(coordinates, self.coordinates, self.shares)
        return np.where(coordinates <= 0.0, 0.0, np.where(coordinates >= 1.0, 1.0, inside))


def box_shares(cubes: Cubes, axes: list[Axis]) -> tuple[F64Array, F64Array, F64Array]:
    """Return the lower, middle and upper ends of cubes as shares of the rows, each of shape (cubes, dimensions)."""
    scale = 0.5 ** cubes.depth.astype(np.float64)
    cells = cubes.cells.astype(np.float64)
    lower, middle, upper = (
        np.column_stack([axis.shares_of((cells[:, at] + part) * scale) for at, axis in enumerate(axes)])
        for part in (0.0, 0.5, 1.0)
    )
    return lower, middle, upper
