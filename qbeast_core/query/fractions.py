"""Fractions of the rows: numbers, pairs of them, and texts such as ``"1%"``, by one parser for all who ask."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import Final, TypeAlias

from qbeast_core.errors import InvalidInputError
from qbeast_core.query.weights import WeightRange
from qbeast_core.space.weights import MAX_WEIGHT, fraction_to_weight, weight_to_fraction

__all__ = ["Sample", "fraction_below", "fractions_of", "sample_to_weights", "share_of_text"]

Sample: TypeAlias = float | str | tuple[float, float]
"""A fraction in [0, 1], ``(from, to)`` of such, or a text: ``"1%"``, ``"0.01"``, ``"10%:20%"``."""

_HALF_A_WEIGHT: Final = 2.0**-33


def fractions_of(sample: object) -> tuple[float, float]:
    """Read a sample as the fractions between which its rows lie.

    Parameters
    ----------
    sample : float, str or tuple of float
        A fraction f in [0, 1], short for ``(0.0, f)``, or ``(from, to)`` with ``0 <= from <= to <= 1``. Texts are
        fractions or percentages, one, or two with a colon or a comma between.

    Raises
    ------
    InvalidInputError
        It is none of these.

    Examples
    --------
    >>> fractions_of(0.1), fractions_of("1%"), fractions_of("10%:0.2")
    ((0.0, 0.1), (0.0, 0.01), (0.1, 0.2))
    """
    bounds = _of_text(sample) if isinstance(sample, str) else _of_numbers(sample)
    if len(bounds) != 2 or not all(0.0 <= bound <= 1.0 for bound in bounds):
        message = (
            "sample must be a fraction between 0 and 1, a pair (from, to) of such, or a text such as '1%' or "
            f"'10%:20%', not {sample!r}"
        )
        raise InvalidInputError(message, argument="sample")
    start, end = bounds
    if start > end:
        message = f"sample must rise: its start {start} is above its end {end}"
        raise InvalidInputError(message, argument="sample")
    return start, end


def sample_to_weights(sample: Sample) -> WeightRange:
    """Turn a sample fraction into the weights it takes.

    Parameters
    ----------
    sample : float, str or tuple of float
        As for `fractions_of`: the rows whose place in the order of weights is from `from` to `to` (excluded, but 1.0
        takes all).

    Returns
    -------
    WeightRange
        Ranges that touch, as ``(0, 0.1)`` and ``(0.1, 0.3)``, share no weight and leave none out.

    Raises
    ------
    InvalidInputError
        It is none of these, or a bound is NaN or outside [0, 1], or `from` is above `to`.

    Examples
    --------
    >>> sample_to_weights(0.1)
    WeightRange(from_=-2147483648, to=-1717986918)
    >>> sample_to_weights((0.5, 1.0)).last == MAX_WEIGHT
    True
    """
    start, end = fractions_of(sample)
    return WeightRange(_edge(start), _edge(end))


def fraction_below(weight: int) -> float:
    """Return a fraction whose sample holds the rows below a weight; all rows for the largest weight.

    Parameters
    ----------
    weight : int
        Above the smallest one.

    Examples
    --------
    >>> sample_to_weights(fraction_below(-7)), sample_to_weights(fraction_below(7)).to
    (WeightRange(from_=-2147483648, to=-7), 7)
    """
    nearest = weight_to_fraction(weight)
    # Weights of fractions are truncated towards 0: half a weight further they stay the same.
    return min(nearest + (weight > 0) * _HALF_A_WEIGHT - (weight < 0) * _HALF_A_WEIGHT, 1.0)


def share_of_text(text: str) -> float:
    """Read ``0.02`` or ``2%``, the nearest float to what is written.

    Raises
    ------
    ValueError
        It is neither.

    Examples
    --------
    >>> share_of_text("0.7%")
    0.007
    """
    try:
        percent = text.strip().endswith("%")
        return float(Decimal(text.strip().removesuffix("%")) / (100 if percent else 1))
    except InvalidOperation:
        msg = f"{text!r} is no share"
        raise ValueError(msg) from None


def _of_text(text: str) -> list[float]:
    try:
        parts = [share_of_text(part) for part in text.replace(",", ":").split(":")]
    except ValueError:
        return []
    return [0.0, *parts] if len(parts) == 1 else parts


def _of_numbers(sample: object) -> list[float]:
    given: tuple[object, ...] = sample if isinstance(sample, tuple) else (0.0, sample)
    bounds = [float(bound) for bound in given if not isinstance(bound, bool) and isinstance(bound, Real)]
    return bounds if len(bounds) == len(given) else []


def _edge(fraction: float) -> int:
    return MAX_WEIGHT + 1 if fraction == 1.0 else fraction_to_weight(fraction)
