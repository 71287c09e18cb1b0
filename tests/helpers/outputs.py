"""Compare what a page shows as output with what its code prints today.

A block ```text output follows the block that prints it. Whitespace and the lines of frames do not matter, so long
lines may be wrapped. `...` matches anything. Paths begin at the folder in which the page runs. ```text output 5% is for
figures that change with a release of Polars or of the layout: numbers may differ by 5 %, or by one in the last decimal.
Dates, and digits inside of names, are always equal.
"""

from __future__ import annotations

import re

_SPACE = re.compile(r"\s+")
_LINE = re.compile(r"([-─═╌┄=])\1+")  # as wide as its widest number
_DATE = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d+)?)?"
_NUMBER = r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)"
_PART = re.compile(rf"(\.\.\.)|({_DATE})|({_NUMBER})")


def same_output(shown: str, printed: str, tolerance: float = 0.0) -> bool:
    """Whether a page shows what its code prints; `tolerance` is relative."""
    numbers: list[str] = []
    actual = re.fullmatch(_pattern(_plain(shown), numbers), _plain(printed), re.DOTALL)
    return actual is not None and all(
        _close(text, other, tolerance) for text, other in zip(numbers, actual.groups(), strict=True)
    )


def _plain(text: str) -> str:
    return _LINE.sub(r"\1", _SPACE.sub(" ", text)).strip()


def _pattern(shown: str, numbers: list[str]) -> str:
    """Return a pattern with a group for each number that is not part of a date; list these numbers."""
    pattern, end = "", 0
    for at in _PART.finditer(shown):
        pattern += re.escape(shown[end : at.start()])
        if at[1]:
            pattern += ".*?"
        elif at[2]:
            pattern += re.escape(at[2])
        else:
            pattern += f"({_NUMBER})"
            numbers.append(at[3])
        end = at.end()
    return pattern + re.escape(shown[end:])


def _close(shown: str, printed: str, tolerance: float) -> bool:
    if shown == printed or not tolerance:
        return shown == printed
    expected, actual = (float(text.replace(",", "")) for text in (shown, printed))
    decimals = len(shown.partition(".")[2]) if "e" not in shown.lower() else 0
    last = 1.001 * 10.0**-decimals if decimals else 0.0
    return abs(expected - actual) <= max(tolerance * abs(expected), last)
