"""Index columns as float64 in the units that transformations are stored in (format 4)."""

from __future__ import annotations

import numpy as np

from qbeast_core.space.arrays import BoolArray, F64Array, I64Array
from qbeast_core.space.columns import NumberColumn

_MS_PER_DAY = 86_400_000.0
_US_PER_MS = 1000
_EXACT_INTEGER = 2**53
# Up to here a power of ten is a float64.
_EXACT_SCALE = 22

_SPLITTER = float(2**27 + 1)
_TOO_CLOSE = 2.0**-95


def number_values(column: NumberColumn) -> F64Array:
    """Return the numbers that a transformation scales, the same at write and at query time.

    >>> number_values(NumberColumn("timestamp", np.array([-1, 1999]))).tolist()
    [-1.0, 1.0]
    >>> number_values(NumberColumn("decimal", np.array([150]), scale=2)).tolist()
    [1.5]
    """
    if column.kind == "decimal":
        return _decimal_values(column)
    if column.kind == "timestamp":
        return (column.values // _US_PER_MS).astype(np.float64)
    if column.kind == "date":
        return column.values * _MS_PER_DAY
    return column.values.astype(np.float64)


def _decimal_values(column: NumberColumn) -> F64Array:
    wide = column.values.ndim == 2
    low = column.values[:, 0] if wide else column.values
    high: I64Array = column.values[:, 1] if wide else low >> 63
    narrow = high == low >> 63
    nearest = low.astype(np.float64)
    power = 10**column.scale
    # Compared as integers: as a float64, 2**53 + 1 is the bound itself.
    exact = narrow & (low >= -_EXACT_INTEGER) & (low <= _EXACT_INTEGER)
    if column.scale <= _EXACT_SCALE and exact.all():
        return nearest / float(power)  # one rounding of exact operands
    values, unsure = _divide_wide(low, high, power)
    for row in np.flatnonzero(unsure).tolist():  # ties and the like: Python divides integers exactly
        values[row] = ((int(high[row]) << 64) + (int(low[row]) & 2**64 - 1)) / power
    return values


def _divide_wide(low: I64Array, high: I64Array, power: int) -> tuple[F64Array, BoolArray]:
    """Divide 128-bit integers by a power of ten with pairs of float64, about 106 bits.

    The second array marks quotients so near the middle between two float64 that their rounding is unsure.
    """
    head, tail = _pair(low, high)
    power_head = float(power)
    power_tail = float(power - int(power_head))
    # The first quotient is right to 53 bits. Its remainder, exact because the product is a pair too, gives the rest.
    first = head / power_head
    product, error = _exact_product(first, power_head)
    second = (((head - product) - error) + (tail - first * power_tail)) / power_head
    values = first + second
    off = np.abs((first - values) + second)
    spacing = np.spacing(np.abs(values))
    near = _TOO_CLOSE * np.abs(values)
    # Just below a power of two the neighbour is half as far.
    unsure = (np.abs(off - spacing / 2) <= near) | (np.abs(off - spacing / 4) <= near)
    return values, unsure & (off != 0)


def _pair(low: I64Array, high: I64Array) -> tuple[F64Array, F64Array]:
    """Split 128-bit integers into the nearest float64 and the rest, to about 106 bits."""
    carry = (low < 0).astype(np.int64)  # read `low` as signed: the rest is in `high`
    parts = [_two_parts(low), _two_parts(high + carry)]
    (low_head, low_tail), (high_head, high_tail) = parts
    high_head, high_tail = high_head * 2.0**64, high_tail * 2.0**64
    total, lost = _exact_sum(high_head, low_head)
    rest, lost_rest = _exact_sum(lost, high_tail)
    head, tail = _exact_sum(total, rest)
    return _exact_sum(head, tail + (lost_rest + low_tail))


def _two_parts(values: I64Array) -> tuple[F64Array, F64Array]:
    coarse = values >> 32 << 32  # 32 bits: a float64
    return _exact_sum(coarse.astype(np.float64), (values - coarse).astype(np.float64))


def _exact_sum(left: F64Array, right: F64Array) -> tuple[F64Array, F64Array]:
    """Return the rounded sum and the exact rounding error (Knuth's two-sum, for operands in any order)."""
    total = left + right
    seen = total - left
    return total, (left - (total - seen)) + (right - seen)


def _exact_product(left: F64Array, right: float) -> tuple[F64Array, F64Array]:
    """Return the rounded product and the exact rounding error (Dekker)."""
    # Each factor is split into halves of 26 bits, whose products are exact; NumPy has no fused multiply-add.
    product = left * right
    left_high = _SPLITTER * left
    left_high -= left_high - left
    right_high = _SPLITTER * right
    right_high -= right_high - right
    left_low, right_low = left - left_high, right - right_high
    lost = left_low * right_low - (
        ((product - left_high * right_high) - left_low * right_high) - left_high * right_low
    )
    return product, lost
