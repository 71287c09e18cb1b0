"""The 32-bit steps of Murmur3 on whole arrays, shared by the two hashes of the format."""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt

from qbeast_core.space.arrays import I64Array, U32Array

_C1, _C2, _ADD = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _R13, _R15, _R16, _R17, _R19 = (np.uint32(n) for n in (5, 13, 15, 16, 17, 19))

# Past this many words, or where fewer rows than these are left, a call per row beats a pass per word.
_LONG_ROW = 256
_FEW_ROWS = 64
# The finaliser is a bijection: these undo its two multiplications.
_INVERSE_F1, _INVERSE_F2, _MASK = 0xA5CB9243, 0x7ED1B41D, 0xFFFFFFFF


def mix(state: U32Array, words: U32Array) -> None:
    """Mix one word into each running hash."""
    # In place, with two scratch arrays; uint32 wraps as Java's int does. Rotate left by 15: x << 15 | x >> 17.
    mixed = words * _C1
    spare = mixed >> _R17
    mixed <<= _R15
    mixed |= spare
    mixed *= _C2
    state ^= mixed
    np.right_shift(state, _R19, out=spare)
    state <<= _R13
    state |= spare
    state *= _FIVE
    state += _ADD


def finalize(state: U32Array, lengths: U32Array | np.uint32) -> None:
    """Finish running hashes in place with the lengths, in bytes, of what was hashed."""
    state ^= lengths
    spare = state >> _R16
    state ^= spare
    state *= _F1
    np.right_shift(state, _R13, out=spare)
    state ^= spare
    state *= _F2
    np.right_shift(state, _R16, out=spare)
    state ^= spare


def fold_words(state: U32Array, window: U32Array, starts: I64Array, counts: I64Array, step: int) -> None:
    """Mix a run of words of any length into each running hash.

    Row i mixes ``window[starts[i] + step * w]`` for w in 0 .. counts[i] - 1, in that order.
    """
    if len(state) == 0:
        return
    fewest, most = int(counts.min()), int(counts.max())
    if fewest == most <= _LONG_ROW:
        for word in range(most):
            mix(state, window[starts + step * word])
        return
    # Rows of different lengths: sorted longest first, word w belongs to a prefix of the rows, so a pass needs no
    # mask. An int16 key takes NumPy's radix sort.
    capped = np.minimum(counts, _LONG_ROW).astype(np.int16)
    order = np.argsort(-capped, kind="stable")
    sorted_starts, sorted_state = starts[order], state[order]
    left = len(counts) - np.cumsum(np.bincount(capped))
    passes = int(np.count_nonzero(left >= _FEW_ROWS))
    for word in range(passes):
        rows = int(left[word])
        mix(sorted_state[:rows], window[sorted_starts[:rows] + step * word])
    state[order] = sorted_state
    for row in np.flatnonzero(counts > passes).tolist():
        first = int(starts[row]) + step * passes
        rest = window[first : first + step * (int(counts[row]) - passes) : step]
        state[row] = _fold_row(int(state[row]), rest)


def _fold_row(state: int, words: npt.NDArray[np.uint32]) -> int:
    """Mix one long row with the C library, and undo the finaliser that it applies."""
    # Backwards through `finalize`: x ^= x >> 16 is its own inverse, x ^= x >> 13 needs the second shift (26 < 32),
    # and an odd factor has an inverse modulo 2**32.
    data = words.tobytes()
    hashed = mmh3.hash(data, state, signed=False)
    hashed ^= hashed >> 16
    hashed = hashed * _INVERSE_F2 & _MASK
    hashed ^= hashed >> 13 ^ hashed >> 26
    hashed = hashed * _INVERSE_F1 & _MASK
    hashed ^= hashed >> 16
    return hashed ^ (len(data) & _MASK)
