"""Order cubes in data files: by tree, by depth, then along a Hilbert curve (format 7).

On the curve, neighbours in space are neighbours in files, so the cubes of a box form fewer runs of pages than in bit
order. The curve follows J. Skilling, "Programming the Hilbert curve" (2004).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import I64Array, U64Array
from qbeast_core.space.cubes import Cubes

_WORD_BITS: Final = 64


def file_order(cubes: Cubes) -> I64Array:
    """Return the positions of cubes in file order.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> file_order(decode_cubes(["w", "g", "Q", "A", ""], dimensions=2)).tolist()
    [4, 3, 2, 0, 1]
    """
    deepest = int(cubes.depth.max()) if len(cubes) else 0
    # The first corner of each cube on the grid of the deepest cubes: the curve enters and leaves a cube once.
    corners = cubes.cells << (deepest - cubes.depth.astype(np.uint64))[:, None]
    words = _words(_along_curve(corners.T.copy(), deepest), deepest)
    by_tree = [] if cubes.trees is None else [cubes.trees.astype(np.uint64)]
    return np.lexsort([*reversed(words), cubes.depth.astype(np.uint64), *by_tree])


def _along_curve(axes: U64Array, bits: int) -> U64Array:
    """Return positions on the curve, as one bit per dimension and level, highest level first; overwrites `axes`."""
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        below = (one << np.uint64(bit)) - one
        for number in range(len(axes)):
            upper = (axes[number] >> np.uint64(bit)) & one != 0
            swapped = np.where(upper, np.uint64(0), (axes[0] ^ axes[number]) & below)
            axes[0] ^= np.where(upper, below, swapped)
            axes[number] ^= swapped
    np.bitwise_xor.accumulate(axes, axis=0, out=axes)
    rotation = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        upper = (axes[-1] >> np.uint64(bit)) & one
        rotation ^= upper * ((one << np.uint64(bit)) - one)
    axes ^= rotation
    return axes


def _words(axes: U64Array, bits: int) -> list[U64Array]:
    """Return positions on the curve as 64-bit words, most significant first."""
    words: list[U64Array] = []
    free_bits = 0
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            if not free_bits:
                words.append(np.zeros_like(axis))
                free_bits = _WORD_BITS
            words[-1] <<= np.uint64(1)
            words[-1] |= (axis >> np.uint64(bit)) & np.uint64(1)
            free_bits -= 1
    return words
