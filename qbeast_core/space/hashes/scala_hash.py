"""Scala's ``MurmurHash3.bytesHash``: the coordinate of hashed columns (format 4)."""

from __future__ import annotations

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U8Array
from qbeast_core.space.hashes.murmur import finalize, fold_words

_SEED = 0x3C074A61
_BLOCK_ROWS = 1 << 16


def bytes_hash(data: U8Array, offsets: I64Array) -> I32Array:
    """Hash spans of bytes as the JVM's hash transformation does.

    Every byte, sign-extended, is mixed as one 32-bit word. This is not murmur3_x86_32.

    >>> bytes_hash(np.frombuffer(b"aabcd", np.uint8), np.array([0, 0, 1, 5])).tolist()
    [-1579025880, -185275570, -1200447635]
    """
    return span_hash(data, offsets[:-1], np.diff(offsets))


def span_hash(data: U8Array, starts: I64Array, lengths: I64Array) -> I32Array:
    """Hash as `bytes_hash` does, row i being ``data[starts[i]:starts[i] + lengths[i]]``.

    The starts must not descend.
    """
    out = np.full(len(starts), _SEED, np.uint32)
    for begin in range(0, len(starts), _BLOCK_ROWS):
        state = out[begin : begin + _BLOCK_ROWS]
        first, counts = starts[begin : begin + len(state)], lengths[begin : begin + len(state)]
        words = data[first[0] : first[-1] + counts[-1]].view(np.int8).astype(np.int32).view(np.uint32)
        fold_words(state, words, first - first[0], counts, 1)
        finalize(state, counts.astype(np.uint32))
    return out.view(np.int32)
