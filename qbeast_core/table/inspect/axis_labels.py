"""Labels of an axis: convert coordinates of one dimension of a space to values."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from qbeast_core.spec.transformation import Transformation

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_CHARACTERS: Final = 14
_MANY: Final = 1e5
_MS_PER_DAY: Final = 86_400_000


def axis_ticks(transformation: Transformation, data_type: str, *, count: int = 5) -> list[tuple[float, str]]:
    """Return the places and texts of the ticks of an axis.

    >>> from qbeast_core.spec.transformation import linear_transformation
    >>> linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    >>> axis_ticks(linear, "LongDataType", count=3)
    [(0.0, '0'), (0.5, '4'), (1.0, '8')]
    """
    places = [step / (count - 1) for step in range(count)]
    knots = transformation.knots
    if not knots:
        return [(place, f"{place:g}") for place in places]
    if transformation.holds_texts:  # texts cannot be interpolated: use the nearest ones
        last = len(knots) - 1
        indexes = sorted({round(place * last) for place in places})
        return [(index / last, _short(str(knots[index]))) for index in indexes]
    ends = np.linspace(0, 1, len(knots))
    # Halves, because the difference of two knots may be infinite.
    numbers = (2 * np.interp(places, ends, [float(knot) / 2 for knot in knots])).tolist()
    if data_type in {"DateDataType", "TimestampDataType"}:
        dated = data_type == "DateDataType" or abs(numbers[-1] - numbers[0]) > count * _MS_PER_DAY
        labels = [_moment(number, dated=dated) for number in numbers]
    else:
        labels = [
            _number(number, whole=data_type in {"IntegerDataType", "LongDataType"}) for number in numbers
        ]
    return list(zip(places, labels, strict=True))


def _short(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return shown if len(shown) <= _MAX_CHARACTERS else f"{shown[: _MAX_CHARACTERS - 1]}…"


def _number(number: float, *, whole: bool) -> str:
    if whole and abs(number) < _MANY:
        return f"{number:.0f}"
    return f"{number:.3g}" if abs(number) < 1 or abs(number) >= _MANY else f"{number:,.4g}"


def _moment(milliseconds: float, *, dated: bool) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=math.floor(milliseconds))
    except OverflowError:
        return f"{milliseconds:.3g} ms"
    return moment.strftime("%Y-%m-%d") if dated else moment.strftime("%m-%d %H:%M:%S")
