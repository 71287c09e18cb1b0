"""Spark's ``hash(columns...)``: the weight of every row (format 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbeast_core.space.arrays import I32Array, I64Array, U8Array, U32Array, U64Array
from qbeast_core.space.columns import IndexColumn, NumberColumn, StringColumn
from qbeast_core.space.hashes.murmur import finalize, fold_words, mix

# The scratch arrays of a block fit the second-level cache: twice as fast as a million rows at once.
_BLOCK_ROWS = 1 << 16

_INT_BYTES, _LONG_BYTES = np.uint32(4), np.uint32(8)


def spark_hash(columns: Sequence[IndexColumn], *, rows: int | None = None, seed: int = 42) -> I32Array:
    """Hash every row as Spark's ``hash(columns...)`` does, bit for bit.

    Widening a column from int32 to int64 changes its hashes, so does the scale of a decimal.

    >>> ids = NumberColumn("int32", np.array([1, 2, 0], np.int32), np.array([False, False, True]))
    >>> spark_hash([ids]).tolist()
    [-559580957, 1765031574, 42]
    """
    count = rows if rows is not None else len(columns[0]) if columns else 0
    out = np.empty(count, np.uint32)
    for start in range(0, count, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, count)
        state = np.full(stop - start, seed & 0xFFFFFFFF, np.uint32)
        for column in columns:
            state = _hash_column(column.slice(start, stop), state)
        out[start:stop] = state
    return out.view(np.int32)


def _hash_column(column: IndexColumn, seeds: U32Array) -> U32Array:
    state = seeds.copy()
    if isinstance(column, StringColumn):
        offsets = column.offsets - column.offsets[0]
        data = np.ascontiguousarray(column.data[column.offsets[0] : column.offsets[-1]])
        _hash_bytes(data, offsets[:-1], np.diff(offsets), state)
    elif column.values.ndim == 2:
        _hash_wide_decimal(column.values, state)
    elif column.kind in {"int8", "int16", "int32", "date", "float32"}:
        mix(state, _int_words(column))
        finalize(state, _INT_BYTES)
    else:
        words = _long_words(column).view(np.uint32).reshape(-1, 2)
        mix(state, words[:, 0])
        mix(state, words[:, 1])
        finalize(state, _LONG_BYTES)
    if column.nulls is not None:
        np.copyto(state, seeds, where=column.nulls)
    return state


def _int_words(column: NumberColumn) -> U32Array:
    if column.kind == "float32":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            bits = (column.values + np.float32(0.0)).view(np.uint32)  # Spark hashes -0.0 as 0.0
        bits[np.isnan(column.values)] = 0x7FC00000  # Java's floatToIntBits has one NaN
        return bits
    return column.values.astype(np.int32).view(np.uint32)


def _long_words(column: NumberColumn) -> I64Array:
    if column.kind == "float64":
        with np.errstate(invalid="ignore"):
            bits = (column.values + 0.0).view(np.int64)
        bits[np.isnan(column.values)] = 0x7FF8000000000000
        return bits
    return np.ascontiguousarray(column.values)


def _hash_wide_decimal(words: I64Array, state: U32Array) -> None:
    """Hash decimals of more than 18 digits as Spark does: the bytes of Java's ``BigInteger.toByteArray``."""
    low, high = words[:, 0].view(np.uint64), words[:, 1]
    big_endian = np.empty((len(words), 2), ">u8")
    big_endian[:, 0] = high.view(np.uint64)
    big_endian[:, 1] = low
    lengths = _minimal_lengths(low, high)
    starts = np.arange(16, 16 * len(words) + 1, 16, dtype=np.int64) - lengths
    _hash_bytes(big_endian.view(np.uint8).reshape(-1), starts, lengths, state)


def _minimal_lengths(low: U64Array, high: I64Array) -> I64Array:
    """Count the bytes that two's complement needs: 7 bits and the sign fit one, 15 two, and so on."""
    sign = high >> 63  # all ones for a negative number: XOR turns it into a positive one of the same length
    upper = (high ^ sign).view(np.uint64)
    lower = low ^ sign.view(np.uint64)
    lengths = np.ones(len(low), np.int64)
    overflows = upper != 0
    for bits in range(7, 64, 8):
        lengths += (lower >> np.uint64(bits) != 0) | overflows
    for bits in range(7, 63, 8):
        lengths += upper >> np.uint64(bits) != 0
    return lengths


def _hash_bytes(data: U8Array, starts: I64Array, lengths: I64Array, state: U32Array) -> None:
    """Hash spans of bytes as Spark does: whole words, then each byte of the tail as a word of its own."""
    counts = lengths >> 2
    if len(counts) and int(counts.max()) > 0:
        # A word at every byte: rows need no alignment.
        window: U32Array = np.ndarray((data.size - 3,), "<u4", data, strides=(1,))
        fold_words(state, window, starts, counts, 4)
    tails = lengths & 3
    ends = starts + (lengths - tails)
    for position in range(3):
        rows = np.flatnonzero(tails > position)
        if len(rows) == 0:
            break
        tail = data[ends[rows] + position].view(np.int8).astype(np.int32).view(np.uint32)
        part = state[rows]
        mix(part, tail)
        state[rows] = part
    finalize(state, lengths.astype(np.uint32))
