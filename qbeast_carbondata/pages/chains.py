"""Values that follow each other without a table of positions: each stores only its own length.

All starts are found without a loop over values: for every byte of a window the end of a value that began there is
computed at once, and the chain from the first is then followed with steps that double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from qbeast_carbondata.damage import damaged
from qbeast_core.space.values import I64Array

_WINDOW: Final = 1 << 16  # bytes: their arrays fit the caches


def chain(ends_of: Callable[[I64Array], I64Array], start: int, size: int, count: int = -1) -> I64Array:
    r"""Return the starts of values that follow each other, and the end of the last one.

    >>> data = np.frombuffer(b"\2ab\0\1c", np.uint8)
    >>> chain(lambda at: at + 1 + data[at], 0, len(data))
    array([0, 3, 4, 6])
    """
    starts: list[I64Array] = []
    at, left = start, size if count < 0 else count
    while left > 0 and (at < size or count >= 0):
        if at >= size:
            damaged(f"{left} of {count} values are missing at byte {at} of {size}")
        window = np.arange(at, min(at + _WINDOW, size))
        ends = ends_of(window)
        own = _followed(np.minimum(ends - at, len(window)), left)
        starts.append(window[own])
        left -= len(own)
        at = int(ends[own[-1]])
    if at > size:
        damaged(f"a value ends at byte {at} of {size}")
    return np.append(np.concatenate(starts), at) if starts else np.array([at], np.int64)


def _followed(jumps: I64Array, limit: int) -> I64Array:
    """Return the first positions that are reached from 0 in turn, each by the jump of the one before it."""
    outside = len(jumps)
    # Half as wide as positions of a file: they stay in the caches.
    steps = np.append(jumps, outside).astype(np.int32)
    reached = np.zeros(1, np.int32)
    while reached[-1] < outside and len(reached) < limit:
        # `steps` advances by as many values as `reached` has positions.
        reached = np.concatenate([reached, steps[reached]])
        steps = steps[steps]
    return reached[: min(limit, int(np.searchsorted(reached, outside)))].astype(np.int64)
