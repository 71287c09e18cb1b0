"""Types of columns of texts: inferred from all values, and converted without a changed value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from qbeast_core.support.sizing import sizing

_INTEGER: Final = "^-?[0-9]+$"
# Leading zeros and a plus are part of a code, such as a postcode or a telephone number: these stay text.
_MANTISSA: Final = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)"
_PLAIN: Final = f"^{_MANTISSA}$"
_NUMBER: Final = f"^(?:{_MANTISSA}(?:[eE][+-]?[0-9]+)?|(?i:-?(?:nan|inf|infinity)))$"
_NOT_FINITE: Final = "^(?i:[+-]?(?:nan|inf|infinity))$"
_FLAG: Final = "^(?i:true|false)$"
_DAY: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_OFFSET: Final = r":[0-9.]+\s?([+-])([01][0-9]):?([0-5][0-9])?$"
_ZONED: Final = r":[0-9.]+\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)$"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
    r"\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)?$"
)

_DIGITS: Final = 38  # of a decimal
_SHORT: Final = 15  # a double holds any number of so many digits

# Kinds of values by the more general kind.
_GENERAL: Final = {
    "longs": "numbers",
    "infinite": "numbers",
    "inexact": "numbers",
    "days": "walls",
    "zoned": "walls",
}


def inferred_types(texts: pl.LazyFrame, names: Iterable[str]) -> dict[str, pl.DataType]:
    """Return the types that all values of columns of texts have; a column without values is text.

    Numbers that neither 64 bits nor a double hold exactly become decimals, other mixtures stay text.
    """
    kinds = {name: _kinds(pl.col(name)) for name in names}
    values = texts.select(_value(name) for name in kinds)
    general = {
        name: {kind: expr for kind, expr in exprs.items() if kind not in _GENERAL}
        for name, exprs in kinds.items()
    }
    sampled = _counted(values.head(sizing().inferred_rows), general)
    # A kind that some value is not cannot be that of all.
    possible = {
        name: {
            kind: expr
            for kind, expr in kinds[name].items()
            if counts[_GENERAL.get(kind, kind)] == counts["values"]
        }
        for name, counts in sampled.items()
    }
    counts = _counted(values, {name: exprs for name, exprs in possible.items() if len(exprs) > 1})
    inexact = [name for name, kinds in counts.items() if kinds.get("inexact")]
    digits = _counted(values, {name: _digits(pl.col(name)) for name in inexact})
    return {name: _type_of({**counts.get(name, {}), **digits.get(name, {})}) for name in kinds}


def misfits(
    texts: pl.LazyFrame, types: Mapping[str, pl.DataType], date_format: str | None = None
) -> tuple[dict[str, str], set[str]]:
    """Return a value of each column that does not fit its type, and the columns that are in the date format.

    A column of dates or times is in the format if all its values are, else in ISO form.
    """
    dated = {
        name for name, dtype in types.items() if date_format and isinstance(dtype, (pl.Date, pl.Datetime))
    }
    first = _first_misfits(texts, {name: types[name] for name in dated}, date_format)
    formatted = dated - first.keys()
    rest = {name: dtype for name, dtype in types.items() if name not in formatted}
    unfit = _first_misfits(texts, rest, None)
    return {name: first.get(name, value) for name, value in unfit.items()}, formatted


def converted(name: str, dtype: pl.DataType, date_format: str | None = None) -> pl.Expr:
    """Return a column of texts as a type: null where a text is empty, or is not exactly a value of the type.

    >>> texts = pl.DataFrame({"a": ["2.50", "2.505", " 7", "", "1e2"]})
    >>> texts.select(converted("a", pl.Decimal(9, 2)))["a"].to_list()
    [Decimal('2.50'), None, Decimal('7.00'), None, Decimal('100.00')]
    """
    text = _value(name)
    if isinstance(dtype, pl.Boolean):
        return pl.when(text.str.contains(_FLAG)).then(text.str.to_lowercase() == "true")
    if isinstance(dtype, pl.Date):
        return _day(text) if date_format is None else text.str.to_date(date_format, strict=False)
    if isinstance(dtype, pl.Datetime):
        return _time(text, dtype, date_format)
    return _number(text, dtype) if dtype.is_numeric() else pl.col(name)


def _number(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Decimal):
        return pl.when(_is_exact(text, dtype.scale)).then(text).cast(dtype, strict=False)
    if dtype.is_float():
        number = text.cast(dtype, strict=False)
        return pl.when(number.is_infinite().not_() | text.str.contains(_NOT_FINITE)).then(number)
    whole = text.str.replace(r"\.0*$", "").cast(dtype, strict=False)
    exact = pl.when(_is_exact(text, 0)).then(text).cast(pl.Decimal(_DIGITS, 0), strict=False)
    return whole.fill_null(exact.cast(dtype, strict=False))


def _value(name: str) -> pl.Expr:
    """Return the texts of a column without blanks around them, and without empty texts."""
    text = pl.col(name).str.strip_chars(" \t")
    return pl.when(text != "").then(text)


def _counted(texts: pl.LazyFrame, columns: Mapping[str, Mapping[str, pl.Expr]]) -> dict[str, dict[str, int]]:
    if not columns:
        return {}
    counts = [
        pl.struct(expr.alias(kind) for kind, expr in kinds.items()).alias(name)
        for name, kinds in columns.items()
    ]
    row: dict[str, dict[str, int | None]] = (
        texts.select(counts).collect(engine="streaming").row(0, named=True)
    )
    return {name: {kind: count or 0 for kind, count in kinds.items()} for name, kinds in row.items()}


def _kinds(text: pl.Expr) -> dict[str, pl.Expr]:
    """Return counts that the type of a column depends on; those in `_GENERAL` count among values of another kind."""
    return {
        "values": text.count(),
        "numbers": text.str.contains(_NUMBER).sum(),
        "longs": text.cast(pl.Int64, strict=False).count(),
        "infinite": text.filter(_double(text).is_infinite()).str.contains(_NOT_FINITE).not_().sum(),
        "inexact": _inexact(text).count(),
        "flags": text.str.contains(_FLAG).sum(),
        "walls": _wall(text).count(),
        "days": _day(text).count(),
        "zoned": text.str.contains(_ZONED).sum(),
    }


def _double(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Float64, strict=False)


def _inexact(text: pl.Expr) -> pl.Expr:
    """Return the numbers without exponent that lose digits as doubles."""
    long = text.filter(text.str.len_bytes() > _SHORT)
    changed = long.filter(_double(long).cast(pl.String) != long)
    lost = _significant(_double(changed).cast(pl.String)) != _significant(changed)
    return changed.filter(lost & changed.str.contains(_PLAIN))


def _digits(text: pl.Expr) -> dict[str, pl.Expr]:
    """Return what decides between doubles, decimals and text, for a column of numbers of which doubles lose digits."""
    return {
        "plain": text.str.contains(_PLAIN).sum(),
        "inexact_whole": _inexact(text).str.contains(_INTEGER).sum(),
        "before": text.str.extract("^-?([0-9]*)").str.len_bytes().max(),
        "after": text.str.extract(r"\.([0-9]*)$").str.len_bytes().max(),
    }


def _significant(text: pl.Expr) -> pl.Expr:
    """Return the digits of numbers as text, without exponents and without zeros at both ends."""
    digits = text.str.replace("[eE].*$", "").str.replace_all(r"[-.]", "")
    return digits.str.strip_chars_start("0").str.strip_chars_end("0")


def _type_of(kinds: Mapping[str, int]) -> pl.DataType:
    values = kinds.get("values", 0)
    if not values:
        return pl.String()
    if kinds.get("numbers") == values:
        return _number_type(kinds)
    if kinds.get("flags") == values:
        return pl.Boolean()
    zoned = kinds.get("zoned", 0)
    if kinds.get("walls") != values or zoned not in (0, values):
        return pl.String()
    return pl.Date() if kinds["days"] == values else pl.Datetime("us", "UTC" if zoned else None)


def _number_type(kinds: Mapping[str, int]) -> pl.DataType:
    if kinds["longs"] == kinds["values"]:
        return pl.Int64()
    if kinds["infinite"]:  # beyond a double
        return pl.String()
    if not kinds["inexact"]:
        return pl.Float64()
    if kinds["plain"] == kinds["values"]:
        fits = kinds["before"] + kinds["after"] <= _DIGITS
        return pl.Decimal(_DIGITS, kinds["after"]) if fits else pl.String()
    # Numbers with exponents are approximate; whole numbers are not.
    return pl.String() if kinds["inexact_whole"] else pl.Float64()


def _day(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.contains(_DAY)).then(text).str.to_date("%Y-%m-%d", strict=False)


def _wall(text: pl.Expr) -> pl.Expr:
    """Return the times that clocks show, of texts in ISO form; a date is its midnight."""
    day = text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    hours, minutes = (text.str.slice(start, 2).cast(pl.Int64, strict=False) for start in (11, 14))
    # `_TIME` allows six digits that count: a double holds them.
    seconds = text.str.slice(17).str.replace(r"\s?[Z+-].*$", "").cast(pl.Float64, strict=False)
    exact = text.str.slice(16, 1) == ":"
    us = (seconds * 1_000_000).round().cast(pl.Int64, strict=False)
    time = pl.duration(minutes=hours * 60 + minutes, microseconds=pl.when(exact).then(us).otherwise(0))
    exists = text.str.contains(_TIME) & (hours < 24) & (minutes < 60)
    return (
        pl.when(exists).then(day.cast(pl.Datetime("us")) + time).otherwise(_day(text).cast(pl.Datetime("us")))
    )


def _time(text: pl.Expr, dtype: pl.Datetime, date_format: str | None) -> pl.Expr:
    """Return texts in ISO form or in a format as times; one without zone is in UTC, if the type is."""
    if date_format is not None:
        zone = dtype.time_zone
        return text.str.to_datetime(date_format, time_unit="us", strict=False, time_zone=zone).cast(dtype)
    zoned = text.str.contains(_ZONED)
    wall = _wall(text)
    if dtype.time_zone is None:
        return pl.when(~zoned).then(wall).cast(dtype)
    offset = text.str.extract_groups(_OFFSET).struct.field
    minutes = offset("2").cast(pl.Int64) * 60 + offset("3").cast(pl.Int64).fill_null(0)
    east = pl.when(offset("1") == "-").then(-minutes).otherwise(minutes).fill_null(0)
    return (wall - pl.duration(minutes=east)).dt.replace_time_zone("UTC").cast(dtype)


def _is_exact(text: pl.Expr, scale: int) -> pl.Expr:
    """Return whether numbers need no more digits after the point."""
    fraction = text.str.extract(r"\.([0-9]*?)0*(?:[eE].*)?$").str.len_bytes().fill_null(0).cast(pl.Int64)
    exponent = text.str.extract("[eE]([+-]?[0-9]+)$").cast(pl.Int64, strict=False).fill_null(0)
    return fraction - exponent <= scale


def _first_misfits(
    texts: pl.LazyFrame, types: Mapping[str, pl.DataType], date_format: str | None
) -> dict[str, str]:
    typed = {name: dtype for name, dtype in types.items() if not isinstance(dtype, pl.String)}
    if not typed:
        return {}
    first = [
        pl.col(name)
        .filter(pl.col(name).is_not_null() & converted(name, dtype, date_format).is_null())
        .first()
        for name, dtype in typed.items()
    ]
    values = texts.select(_value(name) for name in typed)
    row: dict[str, str | None] = values.select(first).collect(engine="streaming").row(0, named=True)
    return {name: value for name, value in row.items() if value is not None}
