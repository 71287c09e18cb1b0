"""Disjoint parts of a table, and other samples of the same size, as ranges of fractions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, cast

from qbeast_core.errors import InvalidInputError, check_whole_number, invalid_argument
from qbeast_core.query.plan.weight_range import Sample, fractions_of

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
    given: list[object] = list(shares.values()) if isinstance(mapping, Mapping) else []
    values = [share for share in given if isinstance(share, int | float) and not isinstance(share, bool)]
    if not values or len(values) < len(given) or min(values) <= 0 or sum(values) > 1 + _ROUNDING:
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
