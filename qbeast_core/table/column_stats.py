"""What callers say about columns in advance: ``<column>_min``, ``<column>_max``, ``<column>_quantiles``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.columns import NumberColumn
from qbeast_core.space.coordinates import number_values
from qbeast_core.tree.columns import to_index_column
from qbeast_core.tree.fit import ColumnBounds

__all__ = ["ColumnStats", "parse_column_stats"]

ColumnStats: TypeAlias = Mapping[str, Any] | str
"""A mapping, or the same as JSON text."""

_SUFFIXES = ("_min", "_max", "_quantiles")


def parse_column_stats(
    stats: ColumnStats | None, schema: pl.Schema, indexed: Sequence[str]
) -> dict[str, ColumnBounds]:
    """Return the bounds per indexed column, in the format's units.

    Parameters
    ----------
    stats : mapping, str or None
        Keys are an indexed column's name with one of the three suffixes; values are finite and of the
        column's type (dates and timestamps may be ISO 8601 text; a time without zone is UTC).
    schema : polars.Schema
        Types of the columns.
    indexed : sequence of str
        Names of the indexed columns.

    Raises
    ------
    InvalidInputError
        If the text is no JSON object, a key names no indexed column, a value does not fit the column,
        quantiles are fewer than two, or a minimum lies above its maximum.

    Examples
    --------
    >>> parse_column_stats('{"a_min": 0, "a_max": 9}', pl.Schema({"a": pl.Int64()}), ["a"])
    {'a': ColumnBounds(lowest=0, highest=9, quantiles=None)}
    """
    given = _as_mapping(stats)
    known = {f"{name}{suffix}" for name in indexed for suffix in _SUFFIXES}
    unknown = sorted(set(given) - known)
    if unknown:
        msg = (
            f"column_stats names {unknown}, which belong to no indexed column; nothing was written. "
            f"Keys are one of {list(indexed)} followed by _min, _max or _quantiles."
        )
        raise InvalidInputError(msg, argument="column_stats")
    found = {name: _bounds(name, schema[name], given) for name in indexed}
    return {name: bounds for name, bounds in found.items() if bounds != ColumnBounds()}


def _as_mapping(stats: ColumnStats | None) -> Mapping[str, Any]:
    if not isinstance(stats, str):
        return stats or {}
    try:
        parsed = json.loads(stats)
    except json.JSONDecodeError as error:
        msg = f"column_stats is no JSON: {error}; nothing was written"
        raise InvalidInputError(msg, argument="column_stats") from error
    if not isinstance(parsed, dict):
        msg = "column_stats must be a JSON object; nothing was written"
        raise InvalidInputError(msg, argument="column_stats")
    return parsed


def _bounds(name: str, dtype: pl.DataType, given: Mapping[str, Any]) -> ColumnBounds:
    lowest = _one(name, dtype, given.get(f"{name}_min"))
    highest = _one(name, dtype, given.get(f"{name}_max"))
    if lowest is not None and highest is not None and lowest > highest:  # type: ignore[operator] # one column, one type
        msg = f"column_stats: {name}_min {lowest!r} lies above {name}_max {highest!r}; nothing was written"
        raise InvalidInputError(msg, argument="column_stats")
    quantiles = given.get(f"{name}_quantiles")
    if quantiles is None:
        return ColumnBounds(lowest, highest)
    listed = [] if isinstance(quantiles, str) or not isinstance(quantiles, Iterable) else list(quantiles)
    values = _in_format_unit(name, dtype, listed) if listed else []
    if len(set(values)) < 2:
        msg = (
            f"column_stats: {name}_quantiles needs a list of at least two different values, got {quantiles!r}"
        )
        raise InvalidInputError(msg, argument="column_stats")
    return ColumnBounds(lowest, highest, tuple(values))  # type: ignore[arg-type] # one column, one type


def _one(name: str, dtype: pl.DataType, value: object) -> float | str | None:
    return None if value is None else _in_format_unit(name, dtype, [value])[0]


def _in_format_unit(name: str, dtype: pl.DataType, values: list[Any]) -> list[float | str]:
    try:
        cast = pl.concat([_as_column_value(value, dtype) for value in values])
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        msg = f"column_stats: {values!r} does not fit column {name!r} of type {dtype}; nothing was written"
        raise InvalidInputError(msg, argument="column_stats") from error
    if dtype == pl.String:
        return [str(v) for v in cast]
    if dtype.is_integer():
        return [int(v) for v in cast]
    column = to_index_column(cast)
    if not isinstance(column, NumberColumn):
        return []
    numbers = number_values(column).tolist()
    return [int(v) for v in numbers] if dtype.is_temporal() else list(numbers)


def _as_column_value(value: Any, dtype: pl.DataType) -> pl.Series:
    """Return one value as a column of one row; raise where it is of another kind, or not finite."""
    if dtype.is_temporal():
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        fits = isinstance(moment, date)
    elif dtype == pl.String:
        moment, fits = value, isinstance(value, str)
    else:
        moment, fits = value, _is_number(value) and (not dtype.is_integer() or value == int(value))
    if not fits:
        msg = f"{value!r} is of another kind"
        raise TypeError(msg)
    series = pl.Series([moment])
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None and series.dtype == pl.Datetime("us"):
        return series.dt.replace_time_zone("UTC").cast(dtype)
    return series.cast(dtype, strict=True)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, Real | Decimal) and math.isfinite(value)
