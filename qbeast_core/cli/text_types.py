"""Types of columns of texts: inferred from all values, and converted without a changed value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

_INTEGER: Final = "^-?[0-9]+$"
# Leading zeros and a plus are part of a code, such as a postcode or a telephone number: these stay text.
_MANTISSA: Final = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)"
_PLAIN: Final = f"^{_MANTISSA}$"
_NUMBER: Final = f"^(?:{_MANTISSA}(?:[eE][+-]?[0-9]+)?|(?i:-?(?:nan|inf|infinity)))$"
_NOT_FINITE: Final = "^(?i:[+-]?(?:nan|inf|infinity))$"
_FLAG: Final = "^(?i:true|false)$"
_DAY: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LIKE_A_DAY: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_OFFSET: Final = r":[0-9.]+\s?([+-])([01][0-9]):?([0-5][0-9])?$"
_ZONED: Final = r":[0-9.]+\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)$"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
    r"\s?(?:Z|[+-][01][0-9](?::?[0-5][0-9])?)?$"
)

_SAMPLED_ROWS: Final = 1_000
_DIGITS: Final = 38  # of a decimal
_SHORT: Final = 15  # a double holds any number of so many digits


def inferred_types(texts: pl.LazyFrame, names: Iterable[str]) -> dict[str, pl.DataType]:
    """Return the types that all values of columns of texts have; a column without values is text.

    Numbers that neither 64 bits nor a double hold exactly become decimals, other mixtures stay text.
    """
    names = list(names)
    sampled = _counted(texts.head(_SAMPLED_ROWS), {name: _kinds(_value(name)) for name in names})
    # A kind that some value is not cannot be that of all.
    possible = {
        name: {kind: expr for kind, expr in _kinds(_value(name)).items() if kinds[kind] == kinds["values"]}
        for name, kinds in sampled.items()
    }
    counts = _counted(texts, {name: kinds for name, kinds in possible.items() if len(kinds) > 1})
    further = {name: _further(_value(name), kinds) for name, kinds in counts.items()}
    more = _counted(texts, {name: kinds for name, kinds in further.items() if kinds})
    wide = [name for name, kinds in more.items() if kinds.get("long")]
    digits = _counted(texts, {name: _digits(_value(name)) for name in wide})
    return {
        name: _type_of({**counts.get(name, {}), **more.get(name, {}), **digits.get(name, {})})
        for name in names
    }


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
    numbers = text.str.contains(_NUMBER)
    return {
        "values": text.count(),
        "numbers": numbers.sum(),
        "longs": (numbers & text.cast(pl.Int64, strict=False).is_not_null()).sum(),
        "flags": text.str.contains(_FLAG).sum(),
        "dated": text.str.contains(_LIKE_A_DAY).sum(),
    }


def _further(text: pl.Expr, kinds: Mapping[str, int]) -> dict[str, pl.Expr]:
    """Return what else the type of a column depends on."""
    values = kinds["values"]
    if values in (0, kinds.get("longs")):
        return {}
    if values == kinds.get("numbers"):
        infinite = pl.when(text.cast(pl.Float64, strict=False).is_infinite()).then(text)
        return {
            "long": (text.str.len_bytes() > _SHORT).sum(),
            "endless": infinite.str.contains(_NOT_FINITE).not_().sum(),
        }
    if values == kinds.get("dated"):
        zoned = _wall(text).is_not_null() & text.str.contains(_ZONED)
        return {"days": _day(text).count(), "walls": _wall(text).count(), "zoned": zoned.sum()}
    return {}


def _digits(text: pl.Expr) -> dict[str, pl.Expr]:
    """Return what decides between doubles, decimals and text, for a column of numbers."""
    plain = text.str.contains(_PLAIN)
    long = pl.when(plain & (text.str.len_bytes() > _SHORT)).then(text)
    lost = _significant(long.cast(pl.Float64, strict=False).cast(pl.String)) != _significant(long)
    return {
        "plain": plain.sum(),
        "lost": lost.sum(),
        "lost_whole": (lost & text.str.contains(_INTEGER)).sum(),
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
    if "endless" in kinds:
        return _number_type(kinds)
    types: dict[str, pl.DataType] = {
        "longs": pl.Int64(),
        "flags": pl.Boolean(),
        "days": pl.Date(),
        "zoned": pl.Datetime("us", "UTC"),
    }
    if not kinds.get("zoned"):
        types["walls"] = pl.Datetime("us")
    return next((dtype for kind, dtype in types.items() if kinds.get(kind) == values), pl.String())


def _number_type(kinds: Mapping[str, int]) -> pl.DataType:
    if kinds["endless"]:
        return pl.String()
    if not kinds.get("lost"):
        return pl.Float64()
    if kinds["plain"] == kinds["values"]:
        fits = kinds["before"] + kinds["after"] <= _DIGITS
        return pl.Decimal(_DIGITS, kinds["after"]) if fits else pl.String()
    # Numbers with exponents are approximate; whole numbers are not.
    return pl.String() if kinds["lost_whole"] else pl.Float64()


def _day(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.contains(_DAY)).then(text).str.to_date("%Y-%m-%d", strict=False)


def _wall(text: pl.Expr) -> pl.Expr:
    """Return the times that clocks show, of texts in ISO form; a date is its midnight."""
    iso = pl.when(text.str.contains(_TIME)).then(text)
    clock = iso.str.slice(11).str.strip_suffix("Z").str.replace("[+-].*$", "").str.strip_chars_end(" ")
    plain = iso.str.slice(0, 10) + " " + clock
    wall = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    minutes = plain.str.to_datetime("%Y-%m-%d %H:%M", time_unit="us", strict=False)
    return pl.coalesce(wall, minutes, _day(text).cast(pl.Datetime("us")))


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
    first = [
        _value(name)
        .filter(converted(name, dtype, date_format).is_null() & _value(name).is_not_null())
        .first()
        for name, dtype in types.items()
        if not isinstance(dtype, pl.String)
    ]
    if not first:
        return {}
    row: dict[str, str | None] = texts.select(first).collect(engine="streaming").row(0, named=True)
    return {name: value for name, value in row.items() if value is not None}
