"""Joins of frames by values, and values for people and programs: numbers with errors, far times, HTML, JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import orjson
import polars as pl

from qbeast_core.support.text import HIDDEN

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


def own_column(name: str) -> str:
    r"""Return a name that no column of a user has: it ends in NUL, which the names of users' columns cannot hold.

    No name of a user begins with it either, so a number may follow. Arrow refuses such names: use them in Polars only.

    >>> own_column("row").encode()
    b'__qbeast_row\x00'
    """
    return f"__qbeast_{name}\0"


_SAME: Final = own_column("same")


def join_equal(
    rows: _Frame,
    others: _Frame,
    on: Sequence[str],
    how: Literal["left", "inner", "semi", "anti"],
    *,
    nulls_equal: bool = False,
    maintain_order: Literal["none", "left", "left_right"] = "none",
) -> _Frame:
    """Join rows with equal values: NaN equals NaN, and 0.0 equals -0.0.

    >>> nan = pl.DataFrame({"a": [float("nan")]})
    >>> join_equal(nan, nan, ["a"], "inner").height
    1
    """
    other = cast("Any", others)  # of the same type as `rows`
    if len(on) > 1 or not rows.lazy().collect_schema()[on[0]].is_float():
        return rows.join(other, on=on, how=how, nulls_equal=nulls_equal, maintain_order=maintain_order)
    # Polars 2.1 compares one column of sorted frames, or of one row each, by `==`. A second column avoids it.
    same = pl.lit(value=True).alias(_SAME)
    return (
        rows.with_columns(same)
        .join(
            other.with_columns(same),
            on=[*on, _SAME],
            how=how,
            nulls_equal=nulls_equal,
            maintain_order=maintain_order,
        )
        .drop(_SAME)
    )


# Days of the years -262143 and 262142, the first and the last ones that Polars and deltalake convert to text.
_TEXT_DAYS: Final = (-96_465_292, 95_026_236)
# Days of the years 1 and 9999. A time zone may move a time by a day.
_PYTHON_DAYS: Final = (-719_161, 2_932_895)
_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def with_types(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return a frame with the types of a schema.

    >>> with_types(pl.DataFrame({"a": [1]}), pl.Schema({"a": pl.Int8()})).dtypes
    [Int8]
    """
    dtypes = frame.schema  # once: Polars builds it at each access
    other = {name: schema[name] for name, dtype in dtypes.items() if dtype != schema[name]}
    return frame.cast(other) if other else frame  # type: ignore[arg-type]


def has_text(values: pl.Series) -> bool:
    """Return whether all values can be converted to texts: Polars panics for far dates and times.

    >>> [has_text(pl.Series([day], dtype=pl.Int32).cast(pl.Date)) for day in (2**31 - 1, 2_932_897)]
    [False, True]
    """
    return _within(values, _TEXT_DAYS).all()


def shown_times(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose values Python can hold: columns of dates and times outside of its years as texts.

    Inside of lists and structs they become numbers.

    >>> days = pl.Series([0, 2_932_897, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)
    >>> shown_times(pl.DataFrame({"day": days}))["day"].to_list()
    ['1970-01-01', '+10000-01-01', '2147483647 days since 1970']
    """
    far = [column for column in frame if not _within(column, _PYTHON_DAYS).all()]
    return frame.with_columns(
        column.cast(_as_numbers(column.dtype)) if column.dtype.is_nested() else time_texts(column)
        for column in far
    )


def time_texts(values: pl.Series) -> pl.Series:
    """Return texts of dates or times; numbers since 1970 for those that have no text."""
    near = _within(values, _TEXT_DAYS)
    unit = values.dtype.time_unit if isinstance(values.dtype, pl.Datetime) else "days"
    numbers = values.to_physical().cast(pl.String) + f" {unit} since 1970"
    return values.set(~near, None).cast(pl.String).fill_null(numbers)


def _within(values: pl.Series, days: tuple[int, int]) -> pl.Series:
    """Return whether each value is in a range of days; True for other types, and null for null."""
    if isinstance(values.dtype, pl.List | pl.Array):
        return _within(values.explode(), days)
    if isinstance(values.dtype, pl.Struct):
        return pl.Series([_within(field, days).all() for field in values.struct.unnest()], dtype=pl.Boolean)
    if not isinstance(values.dtype, pl.Date | pl.Datetime):
        return pl.Series([True])
    per_day = _PER_DAY[values.dtype.time_unit] if isinstance(values.dtype, pl.Datetime) else 1
    return (values.to_physical() // per_day).is_between(*days)


def _as_numbers(dtype: PolarsDataType) -> PolarsDataType:
    """Return a type with numbers instead of dates and times."""
    match dtype:
        case pl.List() | pl.Array():
            return pl.List(_as_numbers(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: _as_numbers(field.dtype) for field in dtype.fields})
        case pl.Date() | pl.Datetime():
            return pl.Int64()
        case _:
            return dtype


# Of a text in a frame. The default of 30 is too short for reasons and types.
_MAX_CELL_CHARACTERS: Final = 120
_APART: Final = ".dataframe th, .dataframe td {\n  padding: 0.2em 0.8em;\n}\n"
_TEXT_CELL: Final = re.compile(
    r"<td>&quot;((?:(?!</td>).)*?)(?:&quot;)?</td>", re.DOTALL
)  # long texts end by … alone


def html_of(title: str, facts: Mapping[str, str], *frames: pl.DataFrame) -> str:
    """Return HTML of a title, facts and frames; the colours are those of the page, light or dark.

    >>> html_of("a < b", {}), "<td" in html_of("a < b", {"rows": "3"})
    ('<div><b>a &lt; b</b></div>', True)
    """
    left = ' style="text-align:left;padding-right:1em"'
    lines = [f"<tr><th{left}>{escape(name)}</th><td{left}>{fact}</td></tr>" for name, fact in facts.items()]
    table = f"<table>{''.join(lines)}</table>" if lines else ""
    return f"<div><b>{escape(title)}</b>{table}{''.join(_frame_html(frame) for frame in frames if len(frame))}</div>"


def bar(share: float) -> str:
    """Return HTML of a share in [0, 1] as a bar, with the number beside it.

    >>> bar(0.25).endswith("25.00%")
    True
    """
    outer = "display:inline-block;width:8em;height:.7em;border:1px solid currentColor;margin-right:.5em"
    inner = f"display:block;width:{min(share, 1.0):.2%};height:100%;background:currentColor;opacity:.6"
    return f'<span style="{outer}"><span style="{inner}"></span></span>{share:.2%}'


def _frame_html(frame: pl.DataFrame) -> str:
    draw: Callable[[], str] = getattr(frame, "_repr_html_")  # noqa: B009 -- the method that notebooks call
    with pl.Config(
        fmt_str_lengths=_MAX_CELL_CHARACTERS, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True
    ):
        return _TEXT_CELL.sub(r"<td>\1</td>", draw()).replace("</style>", f"{_APART}</style>")


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


# Times as ISO 8601; microseconds are kept, UTC is +00:00.
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def to_json(data: Mapping[str, Any]) -> str:
    r"""Return a JSON document: NaN and infinities as null, bytes in hexadecimal, decimals as text.

    Control characters are escaped for terminals; parsers of the document get the same values.

    >>> from decimal import Decimal
    >>> to_json({"rows": 3, "price": Decimal("1.50"), "key": b"\x00\xff"}).split()
    ['{', '"rows":', '3,', '"price":', '"1.50",', '"key":', '"00ff"', '}']
    """
    text = orjson.dumps(data, default=_convert, option=_OPTIONS).decode()
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _convert(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case set() | frozenset():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            return str(value)
