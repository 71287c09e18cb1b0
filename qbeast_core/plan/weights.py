"""Samples as ranges of weights: fractions, disjoint parts, and rows of heavy keys, drawn one by one (format 6).

Spark workers import this module without the modules that choose files.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import Final, TypeAlias, cast

import numpy as np

from qbeast_core.errors import InvalidInputError, check_whole_number, invalid_argument
from qbeast_core.space.values import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    BoolArray,
    I32Array,
    I64Array,
    fraction_to_weight,
    weight_to_fraction,
)


@dataclass(frozen=True, slots=True)
class WeightRange:
    """The rows with ``from_ <= weight < to``."""

    # Smallest weight, in -2147483648 .. 2147483647.
    from_: int
    # Exclusive end, in -2147483648 .. 2147483648; the maximum includes weight 2147483647.
    to: int

    @property
    def last(self) -> int:
        """Largest weight in the range; below `from_` if the range is empty."""
        return self.to - 1

    @property
    def is_full(self) -> bool:
        """Whether the range holds all rows."""
        return self.from_ == MIN_WEIGHT and self.to == MAX_WEIGHT + 1

    @property
    def probability(self) -> float:
        """Probability that a key is in the range: the fraction of all weights."""
        return max(self.to - self.from_, 0) / 2**32

    @property
    def is_empty(self) -> bool:
        """Whether the range holds no row."""
        return self.from_ >= self.to


@dataclass(frozen=True, slots=True, eq=False)
class KeyChoice:
    """The rows of some keys only, or of all keys but these."""

    # Weights of the keys, ascending.
    weights: I32Array
    only: bool

    def mask(self, weights: I32Array) -> BoolArray:
        """Return which rows are chosen, given their weights.

        >>> import numpy as np
        >>> keys = KeyChoice(np.array([3, 5], dtype=np.int32), only=False)
        >>> keys.mask(np.array([5, 4], dtype=np.int32))
        array([False,  True])
        """
        import polars as pl  # noqa: PLC0415 - Spark's lookup of data sources imports this module, and has to be light

        chosen: BoolArray = pl.Series(weights).is_in(pl.Series(self.weights).implode()).to_numpy()
        return chosen if self.only else ~chosen


# The range of a read without a sample.
ALL_WEIGHTS = WeightRange(MIN_WEIGHT, MAX_WEIGHT + 1)


# A fraction, or a text: `"5%"`, `"0.05"`.
Share: TypeAlias = float | str

# A fraction in [0, 1], a pair `(from, to)`, or a text: `"1%"`, `"0.01"`, `"10%:20%"`.
Sample: TypeAlias = float | str | tuple[float, float]

_HALF_A_WEIGHT: Final = 2.0**-33
_MAX_PERCENT: Final = 100


def share_of(value: object, name: str, *, zero: bool = False, one: bool = True) -> float:
    """Parse a fraction from a number or a text.

    >>> share_of(0.05, "error"), share_of("0.7%", "error")
    (0.05, 0.007)
    """
    share = _number(value)
    if share is None or not (0.0 < share < 1.0 or (zero and share == 0.0) or (one and share == 1.0)):
        ends = "" if zero else ", above 0" if one else ", without both"
        problem = f"must be a fraction between 0 and 1{ends}, or a text such as '5%'"
        invalid_argument(name, problem, value=value, cure=_percent(name, [value]))
    return share


def fractions_of(sample: object) -> tuple[float, float]:
    """Parse a sample into its lower and upper fraction.

    >>> fractions_of(0.1), fractions_of("1%"), fractions_of("10%:0.2")
    ((0.0, 0.1), (0.0, 0.01), (0.1, 0.2))
    """
    parts = tuple(sample.replace(",", ":").split(":")) if isinstance(sample, str) else sample
    values = [*cast("tuple[object, ...]", parts)] if isinstance(parts, tuple) else [parts]
    whole = [0.0] if len(values) == 1 and not isinstance(sample, tuple) else []
    bounds = whole + [number for number in map(_number, values) if number is not None]
    if len(bounds) != 2 or not all(0.0 <= bound <= 1.0 for bound in bounds):
        problem = "must be a fraction between 0 and 1, a pair (from, to), or a text such as '1%' or '10%:20%'"
        invalid_argument("sample", problem, value=sample, cure=_percent("sample", values))
    start, end = bounds
    if start > end:
        invalid_argument("sample", f"must rise: its start {start} is above its end {end}", value=sample)
    return start, end


def sample_to_weights(sample: Sample) -> WeightRange:
    """Return the range of weights of a sample.

    >>> sample_to_weights(0.1)
    WeightRange(from_=-2147483648, to=-1717986918)
    >>> sample_to_weights((0.5, 1.0)).last == MAX_WEIGHT
    True
    """
    start, end = fractions_of(sample)
    return WeightRange(_edge(start), _edge(end))


def fraction_below(weight: int) -> float:
    """Return a fraction whose sample holds the rows below a weight; all rows for the largest weight.

    >>> sample_to_weights(fraction_below(-7)), sample_to_weights(fraction_below(7)).to
    (WeightRange(from_=-2147483648, to=-7), 7)
    """
    nearest = weight_to_fraction(weight)
    # Weights of fractions are truncated towards 0: half a weight further they stay the same.
    return min(nearest + (weight > 0) * _HALF_A_WEIGHT - (weight < 0) * _HALF_A_WEIGHT, 1.0)


def _number(value: object) -> float | None:
    """Parse a number or a text such as ``0.02`` or ``2%`` into the nearest float; None if invalid."""
    if isinstance(value, str):
        percent = value.strip().endswith("%")
        try:
            return float(Decimal(value.strip().removesuffix("%")) / (_MAX_PERCENT if percent else 1))
        except InvalidOperation:
            return None
    return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)


def _percent(name: str, values: Sequence[object]) -> str:
    """Return a suggestion if numbers without a sign look like percent, else an empty text."""
    numbers = [None if isinstance(number, str) and "%" in number else _number(number) for number in values]
    shares = [number for number in numbers if number is not None and 0.0 <= number < _MAX_PERCENT]
    if not shares or len(shares) < len(values) or max(shares) <= 1.0:
        return ""
    shown = [f"{number:.15g}" for number in shares]
    texts = [f"{number}%" for number in shown]
    cure = f"{_number(texts[0]):g}" if len(texts) == 1 else f'"{":".join(texts)}"'
    return f"For {' % to '.join(shown)} % write {name}={cure}."


def _edge(fraction: float) -> int:
    return MAX_WEIGHT + 1 if fraction == 1.0 else fraction_to_weight(fraction)


_WEIGHTS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of one heavy key in a file."""

    # First row in the file, and number of rows, at least one.
    first: int
    rows: int
    # In [0, 2**32): offset of the first weight, as a part of the distance of two weights.
    offset: int

    @staticmethod
    def of(first: int, rows: int, *, path: str) -> Stretch:
        """Return a stretch of a file, with an offset derived from its path and first row."""
        return Stretch(first, rows, zlib.crc32(f"{first}:{path}".encode(errors="surrogatepass")))

    def weights_of(self, rows: I64Array) -> I32Array:
        """Return the weights of some of its rows, by their indexes in the file; they ascend with these."""
        places = ((rows - self.first).astype(np.uint64) << np.uint64(32)) + np.uint64(self.offset)
        return ((places // np.uint64(self.rows)).astype(np.int64) + MIN_WEIGHT).astype(np.int32)

    def within(self, weights: WeightRange) -> tuple[int, int]:
        """Return the half-open range of rows of the file whose weights lie in a range."""
        start, end = (self._below(bound - MIN_WEIGHT) for bound in (weights.from_, weights.to))
        return self.first + start, self.first + max(start, end)

    def _below(self, place: int) -> int:
        """Return the number of rows with a weight below `place`, counted from the smallest weight."""
        return min(max(-(-(place * self.rows - self.offset) // _WEIGHTS), 0), self.rows)


@dataclass(frozen=True, slots=True)
class FileDraw:
    """How the rows of one file are drawn."""

    # Rows with their own weights.
    one_by_one: tuple[Stretch, ...] = ()
    # Rows that a sample skips because they are read separately.
    apart: tuple[Stretch, ...] = ()
    # Read only the rows of `apart`.
    only: bool = False

    def of(self, rows: I64Array) -> tuple[BoolArray, BoolArray, I32Array]:
        """Return masks of the rows that are read and that have their own weights, and these weights (0 for others)."""
        read = np.full(len(rows), not self.only)
        for stretch in self.apart:
            read[_places(rows, stretch)] = self.only
        is_drawn, weights = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int32)
        for stretch in self.one_by_one:
            here = _places(rows, stretch)
            is_drawn[here] = True
            weights[here] = stretch.weights_of(rows[here])
        return read, is_drawn, weights


def _places(rows: I64Array, stretch: Stretch) -> slice:
    return slice(*np.searchsorted(rows, [stretch.first, stretch.first + stretch.rows]))


_ROUNDING: Final = 1e-9
# A seed turns the circle of fractions by this: the golden ratio, so that no seeds are close to each other.
_TURN: Final = (math.sqrt(5) - 1) / 2

# Fractions from and to.
Range = tuple[float, float]


def parts_of(shares: Mapping[str, float], seed: int) -> dict[str, list[Range]]:
    """Return the ranges of fractions of each part: disjoint, and all rows if the shares add up to 1.

    >>> parts_of({"train": 0.8, "test": 0.2}, 0)
    {'train': [(0.0, 0.8)], 'test': [(0.8, 1.0)]}
    >>> parts_of({"a": 0.5, "b": 0.5}, 1)
    {'a': [(0.6180339887498949, 1.0), (0.0, 0.1180339887498949)], 'b': [(0.1180339887498949, 0.6180339887498949)]}
    """
    check_whole_number("seed", seed, 0)
    mapping = cast("object", shares)  # callers without a type checker may pass anything
    listed: list[object] = list(shares.values()) if isinstance(mapping, Mapping) else []
    values = [share for share in listed if isinstance(share, int | float) and not isinstance(share, bool)]
    if not values or len(values) < len(listed) or min(values) <= 0 or sum(values) > 1 + _ROUNDING:
        problem = (
            'must map names to shares above 0 that add up to 1 or less, such as {"train": 0.8, "test": 0.2}'
        )
        invalid_argument("shares", problem, value=shares)
    ends = [sum(values[: number + 1]) for number in range(len(values))]
    ends[-1] = 1.0 if ends[-1] > 1 - _ROUNDING else ends[-1]
    starts = [0.0, *ends[:-1]]
    turn = seed * _TURN % 1
    return {name: _turned(first, end, turn) for name, first, end in zip(shares, starts, ends, strict=True)}


def another_sample(sample: Sample | None, seed: int) -> Sample:
    """Return the sample of a seed: each has other rows, until all rows were in one.

    >>> another_sample(0.25, 0), another_sample("25%", 2), another_sample(0.25, 5)
    ((0.0, 0.25), (0.5, 0.75), (0.25, 0.5))
    """
    check_whole_number("seed", seed, 0)
    if sample is None:
        msg = "`seed` chooses another sample: give `sample` or `rows` too"
        raise InvalidInputError(msg, argument="seed", value=seed)
    first, fraction = fractions_of(sample)
    if first > 0 or fraction > 1 / 2:
        msg = (
            f"`seed` needs a sample of half the rows or less that begins at 0, not {sample!r}. Give the range of other "
            "rows instead, such as sample=(0.5, 1)"
        )
        raise InvalidInputError(msg, argument="seed", value=seed)
    if fraction == 0:
        return sample
    number = seed % int(1 / fraction + _ROUNDING)
    return number * fraction, min((number + 1) * fraction, 1.0)


def _turned(first: float, end: float, turn: float) -> list[Range]:
    """Return a range of a circle that is turned, as one or two ranges from 0 to 1."""
    if first == 0 and end == 1:
        return [(0.0, 1.0)]
    first, end = first + turn, end + turn
    if first >= 1:
        return [(first - 1, end - 1)]
    if end > 1:
        return [(first, 1.0), (0.0, end - 1)]
    return [(first, end)]
