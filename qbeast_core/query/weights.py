"""Samples as ranges of weights (format 6 and 10)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import cast

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.weights import MAX_WEIGHT, MIN_WEIGHT, fraction_to_weight

__all__ = ["ALL_WEIGHTS", "WeightRange", "sample_to_weights"]


@dataclass(frozen=True, slots=True)
class WeightRange:
    """The rows with ``from_ <= weight < to``.

    Attributes
    ----------
    from_ : int
        Smallest weight, in -2147483648 .. 2147483647.
    to : int
        End, excluded, in -2147483648 .. 2147483648: the last one takes weight 2147483647 in.
    """

    from_: int
    to: int

    @property
    def last(self) -> int:
        """Largest weight taken; below `from_` when the range is empty."""
        return self.to - 1

    @property
    def is_full(self) -> bool:
        """Whether it takes every row."""
        return self.from_ == MIN_WEIGHT and self.to == MAX_WEIGHT + 1

    @property
    def probability(self) -> float:
        """How likely a key is to be in it: the share of all weights."""
        return max(self.to - self.from_, 0) / 2**32

    @property
    def is_empty(self) -> bool:
        """Whether it takes no row at all."""
        return self.from_ >= self.to


ALL_WEIGHTS = WeightRange(MIN_WEIGHT, MAX_WEIGHT + 1)
"""What a read without a sample takes."""


def sample_to_weights(sample: float | tuple[float, float]) -> WeightRange:
    """Turn a sample fraction into the weights it takes.

    Parameters
    ----------
    sample : float or tuple of float
        A fraction f in [0, 1], short for ``(0.0, f)``, or ``(from, to)`` with ``0 <= from <= to <= 1``:
        the rows whose place in the order of weights is from `from` to `to` (excluded, but 1.0 takes all).

    Returns
    -------
    WeightRange
        Ranges that touch, as ``(0, 0.1)`` and ``(0.1, 0.3)``, share no weight and leave none out.

    Raises
    ------
    InvalidInputError
        A bound is no number, NaN or outside [0, 1], or `from` is above `to`.

    Examples
    --------
    >>> sample_to_weights(0.1)
    WeightRange(from_=-2147483648, to=-1717986918)
    >>> sample_to_weights((0.5, 1.0)).last == MAX_WEIGHT
    True
    """
    start, end = _bounds(sample)
    if start > end:
        message = f"sample must rise: its start {start} is above its end {end}"
        raise InvalidInputError(message, argument="sample")
    return WeightRange(_edge(start), _edge(end))


def _edge(fraction: float) -> int:
    return MAX_WEIGHT + 1 if fraction == 1.0 else fraction_to_weight(fraction)


def _bounds(sample: object) -> tuple[float, float]:
    given = cast("tuple[object, ...]", sample) if isinstance(sample, tuple) else (0.0, sample)
    bounds = [float(bound) for bound in given if not isinstance(bound, bool) and isinstance(bound, Real)]
    if len(given) != 2 or len(bounds) != 2 or not all(0.0 <= bound <= 1.0 for bound in bounds):
        message = f"sample must be a fraction between 0 and 1, or a pair (from, to) of such, not {sample!r}"
        raise InvalidInputError(message, argument="sample")
    return bounds[0], bounds[1]
