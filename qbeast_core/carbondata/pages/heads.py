"""Where lengths stand in a page of strings, each behind the string before: found for all of them at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_core.carbondata.damage import damaged
from qbeast_core.carbondata.pages.chains import chain
from qbeast_core.space.arrays import I64Array, U8Array

_MOST_PASSES: Final = 8


def length_heads(data: U8Array, width: int) -> I64Array:
    r"""Find where the lengths stand.

    >>> length_heads(np.frombuffer(b"\0\2ab\0\0\0\1\0", np.uint8), 2)
    array([0, 4, 6])
    """
    heads = _equal_heads(data, width)
    if heads is None:
        heads = _short_heads(data, width)
    return _walked_heads(data, width) if heads is None else heads


def _equal_heads(data: U8Array, width: int) -> I64Array | None:
    """Return where the lengths stand if all are equal, else None."""
    if len(data) == 0:
        return np.empty(0, np.int64)
    if len(data) < width:
        damaged("a page ends inside a length")
    step = int.from_bytes(data[:width].tobytes(), "big") + width
    if len(data) % step:
        return None
    rows = data.reshape(-1, step)
    return np.arange(0, len(data), step) if np.all(rows[:, :width] == rows[0, :width]) else None


def _short_heads(data: U8Array, width: int) -> I64Array | None:
    """Return where the lengths stand if all are below 256, else None.

    All but the last byte of each length are zero then. Where else such bytes stand, within strings, no string ends, but
    by chance: what nothing leads to, and what leads nowhere, is left out until the rest follows one another.
    """
    zero = data == 0
    possible = zero[: len(data) - width + 1]
    for byte in range(1, width - 1):
        possible = possible & zero[byte : len(possible) + byte]
    heads = np.flatnonzero(possible)
    if len(heads) == 0 or heads[0] != 0:
        return None
    ends = heads + width + data[heads + (width - 1)]
    if ends[-1] == len(data) and np.array_equal(ends[:-1], heads[1:]):
        return heads
    return _linked(heads, ends, len(data))


def _linked(heads: I64Array, ends: I64Array, size: int) -> I64Array | None:
    """Return those of some places that lead from the first to the end, each to the next; None if they do not."""
    is_place = np.zeros(max(int(ends.max()), size) + 1, np.bool_)
    is_place[heads] = True
    is_place[size] = True
    for _ in range(_MOST_PASSES):
        is_led_to = np.zeros(len(is_place), np.bool_)
        is_led_to[ends] = True
        is_led_to[0] = True
        kept = is_place[ends] & is_led_to[heads]
        if kept.all():
            break
        is_place[heads[~kept]] = False
        heads, ends = heads[kept], ends[kept]
    is_chain = len(heads) > 0 and heads[0] == 0 and ends[-1] == size and np.array_equal(ends[:-1], heads[1:])
    return heads if is_chain else None


def _walked_heads(data: U8Array, width: int) -> I64Array:
    """Return where the lengths stand, each of which is known by the one before alone."""
    padded = np.append(data, np.zeros(width, np.uint8))

    def ends(at: I64Array) -> I64Array:
        first, count = int(at[0]), len(at)
        lengths = np.zeros(count, np.int64)
        for byte in range(width):
            lengths <<= 8
            lengths |= padded[first + byte : first + byte + count]
        return at + width + lengths

    return chain(ends, 0, len(data))[:-1]
