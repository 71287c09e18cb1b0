"""The order of cubes in data files: by depth, those of one depth along a Hilbert curve (format 7).

Along the curve neighbours in space stay neighbours in files: the cubes that a box meets lie in fewer runs of pages than
in the order of their bits. The curve is that of J. Skilling, "Programming the Hilbert curve" (2004).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.space.arrays import I64Array, U64Array
from qbeast_core.space.cubes import Cubes

_WORD_BITS: Final = 64


def file_order(cubes: Cubes) -> I64Array:
    """Return the places of cubes in the order that data files hold them in.

    >>> from qbeast_core.space.cubes import decode_cubes
    >>> file_order(decode_cubes(["w", "g", "Q", "A", ""], dimensions=2)).tolist()
    [4, 3, 2, 0, 1]
    """
    deepest = int(cubes.depth.max()) if len(cubes) else 0
    # Each cube by its first corner on the grid of the deepest ones: the curve enters and leaves a cube once.
    corners = cubes.cells << (deepest - cubes.depth.astype(np.uint64))[:, None]
    words = _words(_along_curve(corners.T.copy(), deepest), deepest)
    return np.lexsort([*reversed(words), cubes.depth.astype(np.uint64)])


def _along_curve(axes: U64Array, bits: int) -> U64Array:
    """Return the places of points on the curve, one bit of each dimension a level, highest level first."""
    one = np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        below = (one << np.uint64(bit)) - one
        for number in range(len(axes)):
            upper = (axes[number] >> np.uint64(bit)) & one != 0
            swapped = np.where(upper, np.uint64(0), (axes[0] ^ axes[number]) & below)
            axes[0] ^= np.where(upper, below, swapped)
            axes[number] ^= swapped
    np.bitwise_xor.accumulate(axes, axis=0, out=axes)
    turned = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        upper = (axes[-1] >> np.uint64(bit)) & one
        turned ^= upper * ((one << np.uint64(bit)) - one)
    axes ^= turned
    return axes


def _words(axes: U64Array, bits: int) -> list[U64Array]:
    """Return places on the curve as numbers, the most significant first."""
    words: list[U64Array] = []
    left = 0
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            if not left:
                words.append(np.zeros_like(axis))
                left = _WORD_BITS
            words[-1] <<= np.uint64(1)
            words[-1] |= (axis >> np.uint64(bit)) & np.uint64(1)
            left -= 1
    return words
