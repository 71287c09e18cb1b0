"""The hashes of the format: Murmur3, the hash of Spark (format 6), and numbers as Java prints them (format 4)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.values import (
    I32Array,
    I64Array,
    IndexColumn,
    NumberColumn,
    StringColumn,
    U8Array,
    U32Array,
    U64Array,
)
from qbeast_core.support.sizing import sizing

_C1, _C2, _ADD = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _R13, _R15, _R16, _R17, _R19 = (np.uint32(n) for n in (5, 13, 15, 16, 17, 19))

# Past this many words, or where fewer rows than these are left, a call per row beats a pass per word.
_LONG_ROW = 256
_FEW_ROWS = 64
# The finaliser is a bijection: these undo its two multiplications.
_INVERSE_F1, _INVERSE_F2, _MASK = 0xA5CB9243, 0x7ED1B41D, 0xFFFFFFFF


def _mix(state: U32Array, words: U32Array) -> None:
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
            _mix(state, window[starts + step * word])
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
        _mix(sorted_state[:rows], window[sorted_starts[:rows] + step * word])
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
    # The scratch arrays of a block fit the second-level cache: twice as fast as a million rows at once.
    step = sizing().chunk_rows
    for start in range(0, count, step):
        stop = min(start + step, count)
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
        _mix(state, _int_words(column))
        finalize(state, _INT_BYTES)
    else:
        words = _long_words(column).view(np.uint32).reshape(-1, 2)
        _mix(state, words[:, 0])
        _mix(state, words[:, 1])
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
        _mix(part, tail)
        state[rows] = part
    finalize(state, lengths.astype(np.uint32))


# Java writes smaller and larger floats with an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7

_EVERY_DIGIT = Context(prec=40)

# Nineteen digits and a sign.
_INTEGER_WIDTH = 20


def number_text(column: NumberColumn) -> tuple[U8Array, I64Array, I64Array]:
    """Return every number as the text of Java's ``toString``.

    >>> data, starts, lengths = number_text(NumberColumn("float64", np.array([1.0, 1.234e-5])))
    >>> [data[start:][:length].tobytes() for start, length in zip(starts, lengths)]
    [b'1.0', b'1.234E-5']
    """
    if column.kind in {"date", "timestamp"}:
        message = f"A {column.kind} column cannot be hashed: index it as linear or by quantiles"
        raise InvalidInputError(message, argument="column")
    if column.kind == "decimal":
        return _spans(_decimal_text(column))
    if column.kind in {"float32", "float64"}:
        return _spans(_float_text(column.values))
    return _integer_text(column.values.astype(np.int64))


def _spans(texts: npt.NDArray[np.bytes_]) -> tuple[U8Array, I64Array, I64Array]:
    width = texts.dtype.itemsize
    starts = np.arange(0, width * len(texts), width, dtype=np.int64)
    return texts.view(np.uint8), starts, np.strings.str_len(texts)


def _integer_text(values: I64Array) -> tuple[U8Array, I64Array, I64Array]:
    """Write digits from the last one on, all rows at once."""
    data = np.empty((len(values), _INTEGER_WIDTH), np.uint8)
    left = np.abs(values).view(np.uint64)  # of the least number, too
    lengths = np.ones(len(values), np.int64)
    for place in range(_INTEGER_WIDTH - 1, 0, -1):
        rest = left // np.uint64(10)
        data[:, place] = left - rest * np.uint64(10) + np.uint64(ord("0"))
        left = rest
        more = left != 0
        if not more.any():
            break
        lengths += more
    signed = np.flatnonzero(values < 0)
    data[signed, _INTEGER_WIDTH - 1 - lengths[signed]] = ord("-")
    lengths[signed] += 1
    ends = np.arange(1, len(values) + 1, dtype=np.int64) * _INTEGER_WIDTH
    return data.reshape(-1), ends - lengths, lengths


def _float_text(values: npt.NDArray[Any]) -> npt.NDArray[np.bytes_]:
    values = values + values.dtype.type(0.0)  # -0.0 + 0.0 is 0.0
    texts = values.astype("S32")
    size = np.abs(values)
    plain = (size >= _PLAIN_FROM) & (size < _PLAIN_TO) | (size == 0)
    plain &= np.strings.find(texts, b"e") < 0
    others, places = np.unique(values[~plain], return_inverse=True)
    formatted = [_java_float(value) for value in others]
    texts[~plain] = np.array(formatted, "S32")[places] if formatted else b""
    return texts


def _java_float(value: np.floating[Any]) -> str:
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return np.format_float_positional(value, trim="0")
    text = np.format_float_scientific(value, trim="0")
    if ".0e" in text:  # of two digits Java takes the nearest: 4.9E-324, not 5.0E-324
        text = f"{float(value):.1e}"
    mantissa, exponent = text.split("e")
    return f"{mantissa}E{int(exponent)}"


def _decimal_text(column: NumberColumn) -> npt.NDArray[np.bytes_]:
    """Format each distinct value once: decimals to hash are keys, and few."""
    words, places = np.unique(column.values, axis=0, return_inverse=True)
    if words.ndim == 1:
        unscaled = words.tolist()
    else:
        unscaled = [(high << 64) + (low & 2**64 - 1) for low, high in words.tolist()]
    texts = [f"{Decimal(value).scaleb(-column.scale, _EVERY_DIGIT):f}" for value in unscaled]
    return np.array(texts, "S42")[places]
