"""Numbers as people read them: a unit letter, the digits that an error supports, and the error beside them."""

from __future__ import annotations

import math
from typing import Final

# Numbers from here on have a letter.
_MIN_LETTER: Final = 10_000.0
_LETTERS: Final = ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, ""))

# Digits of a number without error.
_DIGITS: Final = 6
# An error of which the first digits are below this has two of them, others have one.
_TWO_DIGITS: Final = 3.55
# Maximum digits of a number with an error.
_MAX_DIGITS: Final = 7
# Whole numbers of more digits are written with an exponent.
_MAX_PLACES: Final = 15
_MIN_PERCENT: Final = 0.001


def exact_text(value: float) -> str:
    """Return a number without error: whole numbers in full, others with six digits.

    >>> exact_text(8_012_345.0), exact_text(1 / 3), exact_text(-1234567.891), exact_text(2e-9)
    ('8,012,345', '0.333333', '-1,234,568', '2e-09')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if value == round(value) and abs(value) < 10.0**_MAX_PLACES:
        return f"{value:,.0f}"
    place = _place(value)
    if not -_DIGITS < place < _MAX_PLACES:
        return f"{value:.{_DIGITS}g}"
    text = f"{value:,.{max(_DIGITS - 1 - place, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def estimate_text(value: float, low: float | None, high: float | None, *, no_width: str = "") -> str:
    """Return an estimate with the half width of its interval: in per cent, or as a number if zero is in the interval.

    The value has the digits that the half width supports. If the sides of the interval differ, the longer one counts.
    `no_width` follows the value if both sides are zero.

    >>> estimate_text(8_012_345, 7_932_221, 8_092_469), estimate_text(12.628, 12.22, 13.03)
    ('8.01 M ± 1.0 %', '12.6 ± 3.2 %')
    >>> estimate_text(0.3127, -3.9, 4.52), estimate_text(1950, 1950, 1950), estimate_text(1950, None, None)
    ('0.3 ± 4.2', '1,950', '1,950, no bound')
    >>> estimate_text(1 / 3, 1 / 3, 1 / 3, no_width=" ± ?")
    '0.333333 ± ?'
    """
    if not math.isfinite(value):
        return exact_text(value)
    ends = (math.nan if end is None else end for end in (low, high))
    half = max(abs(end - value) for end in ends)
    if low is None or high is None or not math.isfinite(half):
        return f"{_scaled(value, _place(value) - 2 if value else 0)}, no bound"
    if half == 0:
        return exact_text(value) + no_width
    place = _place(half)
    if low <= 0 <= high:
        both = max(abs(value), half)
        return f"{_scaled(value, place - 1, like=both)} ± {_scaled(half, place - 1, like=both)}"
    place -= half < _TWO_DIGITS * 10.0**place
    return f"{_scaled(value, place)} ± {percent_text(half / abs(value))}"


def percent_text(share: float) -> str:
    """Return a share as per cent, with two digits, or the whole number if it has more.

    >>> percent_text(0.01), percent_text(0.126), percent_text(0.00321), percent_text(0.000001), percent_text(0.0)
    ('1.0 %', '13 %', '0.32 %', '<0.001 %', '0 %')
    """
    percent = 100 * share
    if 0 < percent < _MIN_PERCENT:
        return f"<{_MIN_PERCENT} %"
    rounded = float(f"{percent:.2g}")
    return f"{percent:,.{max(1 - _place(rounded), 0) if rounded else 0}f} %"


def short_text(value: float) -> str:
    """Return a number for the axis of a picture.

    >>> short_text(8_000_000), short_text(0.25), short_text(12_500), short_text(0)
    ('8 M', '0.25', '12.5 k', '0')
    """
    unit, letter = _unit_of(value)
    return f"{value / unit:g}{letter}"


def _scaled(value: float, place: int, *, like: float | None = None) -> str:
    """Return a number with a letter, rounded to a power of ten; the letter is that of another number.

    >>> _scaled(8_012_345, 4), _scaled(1947, 1), _scaled(999_996, 2), _scaled(3e-7, -8)
    ('8.01 M', '1,950', '1.0000 M', '3.0e-07')
    """
    place = max(place, _place(value if like is None else like) - _MAX_DIGITS + 1)
    rounded = round(value, -place) + 0.0
    most = abs(rounded if like is None else round(like, -place))
    if most and (most < 10.0 ** (1 - _DIGITS) or most >= 10.0 ** (3 + _MAX_PLACES)):
        return f"{rounded:.{max(_place(most) - place, 0)}e}"
    unit, letter = _unit_of(most)
    places = max(round(math.log10(unit)) - place, 0)
    return f"{rounded / unit:,.{places}f}{letter}"


def _unit_of(value: float) -> tuple[float, str]:
    if abs(value) < _MIN_LETTER:
        return 1.0, ""
    return next((unit, letter) for unit, letter in _LETTERS if abs(value) >= unit)


def _place(value: float) -> int:
    """Return the power of ten of the first digit."""
    return math.floor(math.log10(abs(value))) if value else 0
