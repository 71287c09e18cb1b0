"""Cubes of the tree: the cell each covers along every dimension, and its box (format 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import BoolArray, F64Array, I64Array, U8Array, U64Array

__all__ = ["MAX_DEPTH", "Cubes", "cube_boxes", "is_ancestor", "points_to_cells"]

MAX_DEPTH = 63
"""Levels below the root that cells can number; two coordinates that part later share a cube."""

_EXACT_DEPTH = 53


@dataclass(frozen=True, slots=True, eq=False)
class Cubes:
    """Many cubes of one space.

    Parameters
    ----------
    depth
        Levels below the root, uint8 of shape (n,), at most `MAX_DEPTH`.
    cells
        uint64 of shape (n, d): the number, in 0 .. 2**depth - 1, of the cell covered along each dimension.

    Raises
    ------
    InvalidInputError
        A dtype or shape does not fit.

    Examples
    --------
    >>> cubes = Cubes(np.array([1, 2], np.uint8), np.array([[0, 1], [3, 0]], np.uint64))
    >>> cubes.dimensions, len(cubes), cubes.at_depth(1).cells.tolist(), Cubes.root(2).cells.tolist()
    (2, 2, [[0, 1], [1, 0]], [[0, 0]])
    """

    depth: U8Array
    cells: U64Array

    def __post_init__(self) -> None:
        fits = self.cells.ndim == 2 and self.depth.shape == (len(self.cells),)
        if not fits or self.depth.dtype != np.uint8 or self.cells.dtype != np.uint64:
            message = "Cubes hold a uint8 depth a cube and uint64 cells of shape (cubes, dimensions)"
            raise InvalidInputError(message, argument="cells")

    def __len__(self) -> int:
        return len(self.depth)

    @property
    def dimensions(self) -> int:
        """Number of indexed columns."""
        return int(self.cells.shape[1])

    @classmethod
    def root(cls, dimensions: int) -> Cubes:
        """Give the one cube that covers the whole space."""
        return cls(np.zeros(1, np.uint8), np.zeros((1, dimensions), np.uint64))

    def take(self, indices: I64Array | BoolArray) -> Cubes:
        """Copy the cubes at `indices`, or where a mask is true."""
        return Cubes(self.depth[indices], self.cells[indices])

    def at_depth(self, depth: int | U8Array) -> Cubes:
        """Give each cube's ancestor, or itself, at `depth`, which must not exceed its own."""
        depths = np.broadcast_to(np.asarray(depth, np.uint8), self.depth.shape).copy()
        levels = (self.depth - depths).astype(np.uint64)
        return Cubes(depths, self.cells >> levels[:, np.newaxis])


def points_to_cells(points: F64Array, depth: int | U8Array) -> U64Array:
    """Find the cell of each coordinate at a depth: exactly the one that halving the range would find.

    Parameters
    ----------
    points
        Coordinates in [0, 1], no NaN, shape (n, d).
    depth
        Levels below the root, at most `MAX_DEPTH`: one for all points, or one each, shape (n,).

    Returns
    -------
    U64Array
        Shape (n, d), in 0 .. 2**depth - 1; 1.0 lies in the last cell.

    Examples
    --------
    >>> points_to_cells(np.array([[0.5, 1.0]]), 2).tolist()
    [[2, 3]]
    """
    levels = np.asarray(depth, np.uint64)
    column = levels[:, np.newaxis] if levels.ndim else levels
    cells = np.uint64(1) << column
    found: U64Array = (points * cells.astype(np.float64)).astype(np.uint64)
    np.minimum(found, cells - np.uint64(1), out=found)
    return found


def cube_boxes(cubes: Cubes) -> tuple[F64Array, F64Array]:
    """Give the box of each cube: from `lower`, included, to `upper`, excluded unless it is 1.0.

    Returns
    -------
    lower, upper
        Shape (n, d). Exact down to depth 53; deeper, rounded outwards to the next float64.

    Examples
    --------
    >>> cube_boxes(Cubes(np.array([2], np.uint8), np.array([[0, 3]], np.uint64)))
    (array([[0.  , 0.75]]), array([[0.25, 1.  ]]))
    """
    size = np.ldexp(1.0, -cubes.depth.astype(np.int32))[:, np.newaxis]
    after = cubes.cells + np.uint64(1)
    lower, upper = cubes.cells.astype(np.float64), after.astype(np.float64)
    if len(cubes) and int(cubes.depth.max()) > _EXACT_DEPTH:
        lower = np.where(lower.astype(np.uint64) > cubes.cells, np.nextafter(lower, 0.0), lower)
        upper = np.where(upper.astype(np.uint64) < after, np.nextafter(upper, np.inf), upper)
    return lower * size, upper * size


def is_ancestor(ancestors: Cubes, cubes: Cubes) -> BoolArray:
    """Tell, pair by pair, whether the first cube contains the second one and is not it."""
    above = ancestors.depth < cubes.depth
    depth = np.minimum(ancestors.depth, cubes.depth)
    same = cubes.at_depth(depth).cells == ancestors.at_depth(depth).cells
    both: BoolArray = above & same.all(axis=1)
    return both
