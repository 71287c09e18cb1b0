"""Statistics of a data file as Delta stores them: row count, bounds and null counts per leaf column.

A bound is written only where every reader may rely on it: none beyond NaN or an infinity (JSON has neither,
and engines disagree on NaN), no cut string below the real maximum, no timestamp below the last microsecond.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

import orjson
import polars as pl

from qbeast_core.spec.blocks import MAX_ROWS

# Names from a column down to a field that is not a struct.
Leaf: TypeAlias = tuple[str, ...]

_DEFAULT_LEAVES: Final = 32
_MAX_CHARACTERS: Final = 32
_LAST_CHARACTER: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = (date.min - _EPOCH.date()).days
_LAST_DAY: Final = (date.max - _EPOCH.date()).days
_DAY_US: Final = 86_400_000_000
_NAME_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.,]+?))\s*([.,]|$)")

# What is before a value of an object of JSON.
_MEMBER: Final = re.compile(r'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')

# The table property that names the columns with statistics; other columns have none.
STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


def stats_columns(schema: pl.Schema, configuration: Mapping[str, str]) -> list[Leaf]:
    """Return the leaf columns that a table wants statistics of, in schema order.

    >>> schema = pl.Schema({"a": pl.Int64, "s": pl.Struct({"x": pl.Int8, "y": pl.String})})
    >>> stats_columns(schema, {"delta.dataSkippingStatsColumns": "s.y,a"})
    [('a',), ('s', 'y')]
    """
    leaves = [leaf for leaf, _ in leaves_of(schema)]
    named = configuration.get(STATS_COLUMNS)
    if named is not None:
        wanted = set(parse_names(named))
        return [leaf for leaf in leaves if any(leaf[:end] in wanted for end in range(1, len(leaf) + 1))]
    text = configuration.get("delta.dataSkippingNumIndexedCols", "")
    count = int(text) if re.fullmatch(r"-?\d{1,9}", text) else _DEFAULT_LEAVES
    return leaves if count < 0 else leaves[:count]


def parse_names(text: str) -> Iterator[Leaf]:
    """Split ``a,b.c,`d.e` `` into names: backticks quote, a dot goes into a struct."""
    parts: list[str] = []
    for match in _NAME_PART.finditer(text):
        quoted, plain, end = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        if end != ".":
            yield tuple(parts)
            parts = []


def names_text(leaves: Iterable[Leaf]) -> str:
    """Return names as `parse_names` splits them.

    >>> names_text([("a",), ("b", "c d"), ("e.f",)])
    'a,b.`c d`,`e.f`'
    """
    return ",".join(".".join(map(_quoted, leaf)) for leaf in leaves)


def row_count(text: str | None) -> int | None:
    """Return the number of rows that statistics give. None: they give none, or one that no file can have.

    >>> [row_count(text) for text in ('{"numRecords":7}', '{"numRecords":-7}', '{"numRecords":"7"}', "[7]", None)]
    [7, None, None, None, None]
    """
    try:
        stats: Any = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    is_possible = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_ROWS
    return count if is_possible else None


def with_wide_bounds(text: str) -> str:
    """Return statistics whose bounds may be wider than the values.

    All other texts stay: numbers may have more digits than floats have.

    >>> with_wide_bounds('{"minValues":{"x":1.10}, "tightBounds":true}')
    '{"minValues":{"x":1.10},"tightBounds":false}'
    """
    decode, members, place = json.JSONDecoder().raw_decode, list[str](), text.index("{") + 1
    while (member := _MEMBER.match(text, place)) is not None:
        _, place = decode(text, member.end())
        if member[1] != "tightBounds":
            members.append(f'"{member[1]}":{text[member.end() : place]}')
    return "{" + ",".join([*members, '"tightBounds":false']) + "}"


def leaves_of(schema: Mapping[str, Any], above: Leaf = ()) -> Iterator[tuple[Leaf, pl.DataType]]:
    """Yield the leaf columns of a schema with their types; lists and maps are leaves."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Struct):
            yield from leaves_of(dtype.to_schema(), (*above, name))
        else:
            yield (*above, name), dtype


def leaf_column(leaf: Leaf) -> pl.Expr:
    """Return the values of a leaf column."""
    column = pl.col(leaf[0])
    for name in leaf[1:]:
        column = column.struct.field(name)
    return column


def file_stats(
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    columns: Sequence[Leaf] | None = None,
    few: Mapping[str, pl.Series] | None = None,
    named: Callable[[Leaf], Leaf] = tuple,
) -> str:
    """Return the ``stats`` text of an add action for a file of these rows.

    Numbers, dates, timestamps and strings get bounds; other types a null count only. Strings are cut after 32
    characters, the maximum upwards. Timestamps are in milliseconds, the maximum rounded up. A bound is
    missing if it is unknown: the maximum of a float column with NaN, an infinite bound, a year beyond 9999.
    `named` returns the names of a column in the text.

    >>> file_stats(pl.DataFrame({"x": [1.5, None, float("nan")], "s": ["b", "a", "b"]}))
    '{"numRecords":3,"minValues":{"x":1.5,"s":"a"},"maxValues":{"s":"b"},"nullCount":{"x":1,"s":0}}'
    """
    distinct = {} if few is None else few
    schema = pl.Schema({**frame.collect_schema(), **{name: item.dtype for name, item in distinct.items()}})
    leaves = stats_columns(schema, {}) if columns is None else list(columns)
    dtypes = [_type_at(schema, leaf) for leaf in leaves]
    queries, queries_of_few = [pl.len().alias("rows")], [pl.lit(0)]
    for i, (leaf, dtype) in enumerate(zip(leaves, dtypes, strict=True)):
        queries.append(leaf_column(leaf).null_count().alias(f"{i}.nulls"))
        if leaf[0] in distinct:
            queries_of_few += _bounds(str(i), pl.lit(distinct[leaf[0]]), dtype)
        else:
            queries += _bounds(str(i), leaf_column(leaf), dtype)
    summary = frame.select(queries)
    summary = summary.collect(engine="streaming") if isinstance(summary, pl.LazyFrame) else summary
    answers = summary.row(0, named=True)
    if distinct:
        answers |= pl.select(queries_of_few).row(0, named=True)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for i, (leaf, dtype) in enumerate(zip(map(named, leaves), dtypes, strict=True)):
        _put(nulls, leaf, answers[f"{i}.nulls"])
        minimum, maximum = answers.get(f"{i}.min"), answers.get(f"{i}.max")
        _put(low, leaf, None if minimum is None else _bound(minimum, dtype, upper=False))
        unbounded = maximum is None or answers.get(f"{i}.nan", False)
        _put(high, leaf, None if unbounded else _bound(maximum, dtype, upper=True))
    stats = {"numRecords": answers["rows"], "minValues": low, "maxValues": high, "nullCount": nulls}
    return orjson.dumps(stats).decode()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _type_at(schema: Mapping[str, Any], leaf: Leaf) -> pl.DataType:
    """Return the type of a leaf, which is a struct if it is a variant."""
    dtype = schema[leaf[0]]
    return dtype if len(leaf) == 1 else _type_at(dtype.to_schema(), leaf[1:])


def _bounds(key: str, column: pl.Expr, dtype: pl.DataType) -> Iterator[pl.Expr]:
    if dtype.is_temporal():
        # As integers: Python's own types end at the year 9999.
        column = column.dt.cast_time_unit("us") if isinstance(dtype, pl.Datetime) else column
        column = column.to_physical()
    elif not (dtype.is_numeric() or dtype == pl.String):
        return
    yield column.min().alias(f"{key}.min")
    yield column.max().alias(f"{key}.max")
    if dtype.is_float():
        yield column.is_nan().any().alias(f"{key}.nan")


def _put(stats: dict[str, Any], leaf: Leaf, value: Any) -> None:
    if value is None:
        return
    for name in leaf[:-1]:
        stats = stats.setdefault(name, {})
    stats[leaf[-1]] = value


def _bound(value: Any, dtype: pl.DataType, *, upper: bool) -> Any:
    """Return a bound as JSON that encloses the values, or None."""
    if isinstance(dtype, pl.Datetime):
        return _timestamp(-(-value // 1000) if upper else value // 1000, dtype)
    if isinstance(value, str):
        return _cut_above(value) if upper else value[:_MAX_CHARACTERS]
    if dtype.is_float():
        if value == 0:  # engines that order -0.0 before 0.0 would take one zero for less than the other
            return 0.0 if upper else -0.0
        return value if math.isfinite(value) else None
    if dtype == pl.Date:
        inside = _FIRST_DAY <= value <= _LAST_DAY
        return (_EPOCH.date() + timedelta(days=value)).isoformat() if inside else None
    # A JSON number with every digit: a float would round decimals beyond the 15th.
    return orjson.Fragment(format(value, "f").encode()) if dtype.is_decimal() else value


def _timestamp(milliseconds: int, dtype: pl.Datetime) -> str | None:
    if not _FIRST_DAY <= milliseconds * 1000 // _DAY_US <= _LAST_DAY:
        return None
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    separator, zone = (" ", "") if dtype.time_zone is None else ("T", "Z")
    return moment.replace(tzinfo=None).isoformat(separator, "milliseconds") + zone


def _cut_above(text: str) -> str | None:
    """Return a text of about 32 characters that is not below `text`; None if every such text is long."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    for end in range(_MAX_CHARACTERS, min(len(text), 2 * _MAX_CHARACTERS)):
        if text[end] != _LAST_CHARACTER:  # a cut before the last character of all could not go up
            return text[:end] + ("\x7f" if text[end] < "\x7f" else _LAST_CHARACTER)
    return text if len(text) <= 2 * _MAX_CHARACTERS else None
