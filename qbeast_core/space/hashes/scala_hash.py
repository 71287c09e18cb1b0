"""Scala's ``MurmurHash3.bytesHash``: the coordinate of hashed columns (format 4)."""

from __future__ import annotations

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U8Array
from qbeast_core.space.hashes.murmur import finalize, fold_words

_SEED = 0x3C074A61


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
    state = np.full(len(starts), _SEED, np.uint32)
    if len(starts):
        words = data[starts[0] : starts[-1] + lengths[-1]].view(np.int8).astype(np.int32).view(np.uint32)
        fold_words(state, words, starts - starts[0], lengths, 1)
        finalize(state, lengths.astype(np.uint32))
    return state.view(np.int32)
