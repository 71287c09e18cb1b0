"""Samples as ranges of weights (format 6 and 10), and fractions of rows as numbers, pairs or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import Final, TypeAlias, cast

from qbeast_core.errors import invalid_argument
from qbeast_core.space.values import (
    MAX_WEIGHT,
    MIN_WEIGHT,
    BoolArray,
    I32Array,
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
