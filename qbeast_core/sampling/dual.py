"""Dual numbers: values with their derivatives by each total."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.space.values import F64Array


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """A function of totals at one point, and its derivatives there, for many groups at once.

    >>> total, rows = Dual.inputs(np.array([[12.0, 4.0]]))
    >>> mean = total / rows
    >>> mean.value, mean.slopes
    (array([3.]), array([[ 0.25, -0.75]]))
    """

    value: F64Array
    # Derivatives by each total, shape (groups, totals).
    slopes: F64Array

    @staticmethod
    def inputs(totals: F64Array) -> list[Dual]:
        """Return the totals as dual numbers, one per column."""
        units = np.eye(totals.shape[1])
        return [
            Dual(totals[:, index], np.broadcast_to(units[index], totals.shape)) for index in range(len(units))
        ]

    def constant(self, value: float) -> Dual:
        """Return a constant in the shape of this number."""
        return Dual(np.full_like(self.value, value), np.zeros_like(self.slopes))

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, self.slopes + other.slopes)

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.value - other.value, self.slopes - other.slopes)

    def __mul__(self, other: Dual) -> Dual:
        slopes = self.slopes * other.value[:, None] + other.slopes * self.value[:, None]
        return Dual(self.value * other.value, slopes)

    def __truediv__(self, other: Dual) -> Dual:
        """Divide; division by zero returns NaN or an infinity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.value / other.value
            slopes = (self.slopes - other.slopes * value[:, None]) / other.value[:, None]
        return Dual(value, slopes)

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slopes)

    def sqrt(self) -> Dual:
        """Return the square root; NaN below 0, where the slopes are NaN too."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.sqrt(self.value)
            return Dual(value, self.slopes / (2 * value)[:, None])
