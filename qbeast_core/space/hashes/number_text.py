"""Numbers as text, as Java writes them: the bytes that are hashed (format 4)."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.arrays import I64Array, U8Array
from qbeast_core.space.columns import NumberColumn

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
