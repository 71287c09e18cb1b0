"""Members of a global dictionary: a ``.dict`` file, one chunk for each load."""

from __future__ import annotations

from typing import Final

import numpy as np

from qbeast_carbondata.damage import damaged
from qbeast_carbondata.pages.chains import chain
from qbeast_carbondata.pages.texts import Slices
from qbeast_core.io.thrift import ThriftError, read_varint
from qbeast_core.space.values import I64Array, U8Array

# A chunk is a Thrift struct with one list of texts; its members are found all at once, not one by one.
_VALUES, _END = 0x19, 0x00
_LIST_OF_BINARY: Final = 8
_LONG_LIST: Final = 0xF0
_LENGTH_BYTES: Final = 3  # of a varint: enough for a text of 32,000 characters


def read_dictionary(data: bytes) -> Slices:
    r"""Read a ``.dict``: the members in the order of their surrogates, the first of which is 1.

    >>> slices = read_dictionary(b"\x19\x28\1a\2bc\0" b"\x19\x18\0\0")
    >>> slices.starts, slices.lengths
    (array([ 3,  5, 11]), array([1, 2, 0]))
    """
    buffer = np.frombuffer(data, np.uint8)
    starts: list[I64Array] = [np.empty(0, np.int64)]
    lengths: list[I64Array] = [np.empty(0, np.int64)]
    at = 0
    while at < len(data):
        count, at = _list_head(data, at)
        heads = chain(lambda places: _bodies(buffer, places)[1], at, len(data), count)
        begins, ends = _bodies(buffer, heads[:-1])
        starts.append(begins)
        lengths.append(ends - begins)
        at = int(heads[-1])
        if at >= len(data) or data[at] != _END:
            damaged(f"a chunk of the dictionary does not end at byte {at}")
        at += 1
    return Slices(buffer, np.concatenate(starts), np.concatenate(lengths))


def _list_head(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of members of a chunk, and where the first begins."""
    head = data[at + 1] if at + 1 < len(data) else 0
    if data[at] != _VALUES or head & 0x0F != _LIST_OF_BINARY:
        damaged(f"no chunk of a dictionary begins at byte {at}")
    if head < _LONG_LIST:
        return head >> 4, at + 2
    try:
        count, at = read_varint(data, at + 2)
    except ThriftError as error:
        damaged(str(error))
    if count > len(data) - at:
        damaged(f"{count} members cannot follow byte {at} of {len(data)}")
    return count, at


def _bodies(data: U8Array, heads: I64Array) -> tuple[I64Array, I64Array]:
    """Return the begins and ends of strings whose lengths, as varints, are at some positions."""
    starts, lengths = heads + 1, np.zeros(len(heads), np.int64)
    more = np.ones(len(heads), np.bool_)
    for number in range(_LENGTH_BYTES):
        byte = data[np.minimum(heads + number, len(data) - 1)].astype(np.int64)
        lengths += np.where(more, (byte & 0x7F) << 7 * number, 0)
        starts += more & (number > 0)
        more &= byte > 0x7F
    return starts, np.where(more, len(data) + 1, starts + lengths)
