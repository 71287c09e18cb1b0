"""Arrays of the kernels: columns of index keys, weights, and distinct values (format 4 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
U8Array = npt.NDArray[np.uint8]
U32Array = npt.NDArray[np.uint32]
U64Array = npt.NDArray[np.uint64]

_NumberT = TypeVar("_NumberT", bound=np.integer)


def distinct(values: npt.NDArray[_NumberT]) -> npt.NDArray[_NumberT]:
    """Return the different values of an array, ascending, by sorting.

    `numpy.unique` has a hash table from NumPy 2.3 on, which takes a hundred times longer if most values differ.

    >>> distinct(np.array([3, 1, 3])).tolist(), distinct(np.zeros(0, np.int64)).tolist()
    ([1, 3], [])
    """
    ordered = np.sort(values)
    is_first = np.append(np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1])
    different: npt.NDArray[_NumberT] = ordered[is_first]
    return different


MIN_WEIGHT = -(2**31)
# The threshold of a leaf: it takes every row.
MAX_WEIGHT = 2**31 - 1

_OFFSET, _RANGE = 2.0**31, 2.0**32 - 1

# Values of a sample column are multiples of 1 / 65,536: single and double precision agree on them.
SAMPLE_STEPS = 1 << 16


@overload
def weight_to_fraction(weight: int) -> float: ...
@overload
def weight_to_fraction(weight: I32Array) -> F64Array: ...
def weight_to_fraction(weight: int | I32Array) -> float | F64Array:
    """Return the share of all weights that lie below: 0.0 for `MIN_WEIGHT`, 1.0 for `MAX_WEIGHT`.

    >>> weight_to_fraction(MIN_WEIGHT), weight_to_fraction(MAX_WEIGHT)
    (0.0, 1.0)
    """
    if isinstance(weight, np.ndarray):
        return (weight.astype(np.float64) + _OFFSET) / _RANGE
    return (weight + _OFFSET) / _RANGE


@overload
def fraction_to_weight(fraction: float) -> int: ...
@overload
def fraction_to_weight(fraction: F64Array) -> I32Array: ...
def fraction_to_weight(fraction: float | F64Array) -> int | I32Array:
    """Return the weight below which lies `fraction` of all weights, truncated towards zero.

    >>> fraction_to_weight(0.1), fraction_to_weight(1.0)
    (-1717986918, 2147483647)
    """
    if isinstance(fraction, np.ndarray):
        return (np.clip(fraction, 0.0, 1.0) * _RANGE - _OFFSET).astype(np.int32)
    return int(min(max(fraction, 0.0), 1.0) * _RANGE - _OFFSET)


def sample_values(weights: I32Array) -> F32Array:
    """Return the values of the sample column: the largest multiples of 1/65,536 below 1 whose weight is not above.

    So ``value < f`` selects the rows of the sample `f` if `f` is a multiple, else those of the next multiple.

    >>> sample_values(np.array([MIN_WEIGHT, 0, MAX_WEIGHT], np.int32)).tolist()
    [0.0, 0.5, 0.9999847412109375]
    """
    # `fraction_to_weight` truncates towards zero, so multiples above one half have a weight one below k * 65,536.
    steps = (weights.astype(np.int64) - MIN_WEIGHT + (weights >= 0)) >> 16
    values: F32Array = np.minimum(steps, SAMPLE_STEPS - 1).astype(np.float32) / np.float32(SAMPLE_STEPS)
    return values


NumberKind = Literal["int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "decimal"]


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """One column of numbers, dates, timestamps or decimals.

    >>> import numpy as np
    >>> prices = NumberColumn("float64", np.array([1.5, 2.5, 0.0]), np.array([False, False, True]))
    >>> len(prices), prices.slice(1, 3).values.tolist()
    (3, [2.5, 0.0])
    """

    kind: NumberKind
    # Dates are int32 days, timestamps int64 us, decimals int64; decimals of more than 18 digits are pairs of int64,
    # of shape (rows, 2), the low half first.
    values: npt.NDArray[Any]
    nulls: BoolArray | None = None
    # Of decimals.
    scale: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> NumberColumn:
        """Return rows `start` to `stop` (excluded) as a view."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return NumberColumn(self.kind, self.values[start:stop], nulls, self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """One column of UTF-8 strings, laid out as Arrow lays out a large string array.

    >>> import numpy as np
    >>> text = StringColumn(np.frombuffer(b"abcde", np.uint8), np.array([0, 2, 2, 5]))
    >>> len(text), text.slice(1, 3).offsets.tolist()
    (3, [2, 2, 5])
    """

    data: U8Array
    # One more than there are rows.
    offsets: I64Array
    nulls: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, stop: int) -> StringColumn:
        """Return rows `start` to `stop` (excluded) as a view over the same bytes."""
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return StringColumn(self.data, self.offsets[start : stop + 1], nulls)


# Columns that a table may be indexed by.
IndexColumn = NumberColumn | StringColumn


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
