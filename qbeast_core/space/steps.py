"""The steps of cells in which a file stores the bounds of its pages, 256 along each dimension (format 7).

Steps are equal where values are spread evenly. Elsewhere there are 16 groups of 16 equal steps, and each group has
about as many bounds as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from qbeast_core.space.arrays import I64Array, U8Array, distinct
from qbeast_core.spec.blocks import BOX_STEPS, STEP_GROUPS

_OF_GROUP: Final = BOX_STEPS // STEP_GROUPS
_GROUP_BITS: Final = _OF_GROUP.bit_length() - 1
# Groups take about 100 bytes of a tag. They must open less than equal steps by this factor.
_GAIN: Final = 1.1


def fitted_steps(lower: I64Array, upper: I64Array) -> tuple[int, ...]:
    """Return the first cell and the widths of steps for pages with these first and last cells.

    >>> fitted_steps(np.array([5, 261]), np.array([260, 516]))
    (5, 2)
    """
    bounds = distinct(np.concatenate([lower, upper + 1]))
    first = int(bounds[0])
    equal = (first, -(-(int(bounds[-1]) - first) // BOX_STEPS))
    ends = bounds[np.linspace(0, len(bounds) - 1, STEP_GROUPS + 1).round().astype(np.int64)]
    widths = np.diff(-(-(ends - first) // _OF_GROUP))
    grouped = (first, *np.maximum(widths, 1).tolist())
    by_equal, by_grouped = (_extents(lower, upper, step_edges(some)) for some in (equal, grouped))
    return grouped if by_equal > _GAIN * by_grouped else equal


def step_edges(numbers: Sequence[int]) -> I64Array:
    """Return the first cell of each step and the end of the last one, given the first cell and the widths of steps.

    >>> step_edges([5, 2])[[0, 1, 256]].tolist()
    [5, 7, 517]
    """
    widths = np.repeat(numbers[1:], BOX_STEPS // (len(numbers) - 1))
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)]) + numbers[0]


def steps_of(edges: I64Array, cells: I64Array) -> U8Array:
    """Return the step of each cell."""
    return (np.searchsorted(edges, cells, side="right") - 1).astype(np.uint8)


def widen(edges: I64Array, lower: I64Array, upper: I64Array) -> tuple[I64Array, I64Array]:
    """Return the first cell and the end of pages whose bounds are stored in steps."""
    return edges[steps_of(edges, lower)], edges[1:][steps_of(edges, upper)]


def _extents(lower: I64Array, upper: I64Array, edges: I64Array) -> float:
    """Return the sum of the rows that pages extend over as stored, if rows are spread evenly in each page."""
    bounds, density = np.concatenate([lower, upper + 1]), 1.0 / (upper + 1 - lower)
    order = np.argsort(bounds)
    bounds, density = bounds[order], np.cumsum(np.concatenate([density, -density])[order])
    rows = np.concatenate([np.zeros(1), np.cumsum(density[:-1] * np.diff(bounds))])
    first, end = (np.interp(cells, bounds, rows) for cells in widen(edges, lower, upper))
    return float((end - first).sum())


def cells_of_steps(
    numbers: I64Array, files: I64Array, first_steps: U8Array, last_steps: U8Array
) -> tuple[I64Array, I64Array]:
    """Return the first cell and the end of pages of many files, given their steps.

    `numbers` has the first cell and the width of each group of steps, shape (files, 17). Each page has a number of a
    file.
    """
    widths = numbers[:, 1:]
    starts = (numbers[:, :1] + (np.cumsum(widths, axis=1) - widths) * _OF_GROUP).ravel()
    widths, group = widths.ravel(), files * STEP_GROUPS
    first, last = group + (first_steps >> _GROUP_BITS), group + (last_steps >> _GROUP_BITS)
    lower = starts[first] + (first_steps & (_OF_GROUP - 1)) * widths[first]
    return lower, starts[last] + ((last_steps & (_OF_GROUP - 1)) + 1) * widths[last]
