"""Fit the space to data: the transformation of a column, and a new revision for rows outside of it (format 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import polars as pl

from qbeast_core.errors import InvalidInputError
from qbeast_core.space.values import BoolArray, F64Array, NumberColumn, distinct, number_values
from qbeast_core.spec.blocks import BlocksDialect
from qbeast_core.spec.revision import (
    DECIMAL_TYPE,
    INTEGER_DATA_TYPES,
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    ColumnKind,
    ColumnSpec,
    DataType,
    HashTransformation,
    LinearTransformation,
    NullToZeroTransformation,
    OneValueTransformation,
    OrderedDataType,
    QuantilesTransformation,
    Revision,
    Transformation,
    Transformer,
    identity_transformation,
    linear_transformation,
    transformer_for,
    typed_number,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.grid import to_index_column
from qbeast_core.tree.summary import ColumnSummary, IndexSummary

Fitted = tuple[Transformer, Transformation]

# Lowest and highest value, in the format's unit.
ValueRange: TypeAlias = tuple[float | str, float | str]

_NULL_HASH: Final = -1

_LIMITS: Final[dict[OrderedDataType, tuple[float, float]]] = {
    "IntegerDataType": (-(2**31), 2**31 - 1),
    "LongDataType": (-(2**63), 2**63 - 1),
    # Values are float64, which does not include the last millisecond, 9_223_372_036_854_775.
    "TimestampDataType": (-9_223_372_036_854_776, 9_223_372_036_854_776),
    "DateDataType": (-(2**31) * 86_400_000, (2**31 - 1) * 86_400_000),
    "FloatDataType": (-3.4028234663852886e38, 3.4028234663852886e38),
}

_DOUBLE_LIMITS: Final = (-1.7976931348623157e308, 1.7976931348623157e308)

# Maximum number of quantiles: the error of a coordinate is then at most 0.1 % of all ranks.
_MAX_KNOTS: Final = 1024

_MIN_KNOTS: Final = 96

_KNOTS_PER_CUBE: Final = 16

# Maximum characters of a text quantile: a prefix is precise enough.
KNOT_CHARACTERS: Final = 64

_OUTSIDE_SHARE: Final = 0.4

_UNIFORM_DISTANCE: Final = 0.1

_KS_95: Final = 1.36


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of a column from the caller, in the format's unit, or its quantiles.

    Bounds extend the range of the data and never narrow it; quantiles replace the quantiles of the data.
    """

    lowest: float | str | None = None
    highest: float | str | None = None
    quantiles: tuple[float, ...] | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """Sizes of the table that decide about a new revision.

    Rows of all revisions count: a new revision starts with few rows, of which the next batch of a growing column
    would always be a large fraction.
    """

    rows: int = 0
    # Rows outside of the newest quantiles, by column.
    outside_rows: Mapping[str, float] = field(default_factory=dict[str, float])
    # Range of values in the table, by the same columns.
    ranges: Mapping[str, ValueRange] = field(default_factory=dict[str, ValueRange])
    cubes: int = 0


def _quantile_count(rows: int, *, cube_size: int) -> int:
    """Return the number of quantiles for a column: as many as its cubes can use, with room to grow.

    With a single column, a cube has sixteen quantiles; with several columns, cubes are wider. The number is limited,
    because the log stores the quantiles in each revision.

    >>> _quantile_count(2_000, cube_size=4096), _quantile_count(240_000, cube_size=15_000)
    (96, 256)
    >>> _quantile_count(6_000_000, cube_size=16_384)
    1024
    """
    return min(max(_KNOTS_PER_CUBE * (rows // cube_size), _MIN_KNOTS), _MAX_KNOTS)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnData:
    """The rows of a write as one column sees them, and the options of the write."""

    # Of the whole write, with nulls.
    rows: int
    column: ColumnSummary
    sample: pl.Series
    bounds: ColumnBounds
    dialect: BlocksDialect
    # Maximum number of quantiles.
    knots: int


def _fit_column(kind: ColumnKind, data: ColumnData) -> Fitted:
    """Choose the transformer and transformation of a column from its data."""
    column = _extended(data.column, data.bounds)
    chosen = kind
    if chosen == "auto":
        chosen = _choose(column, data) if data.bounds.quantiles is None else "quantiles"
    transformer = transformer_for(column.name, kind=chosen, data_type=column.data_type)
    if transformer.kind == "hashing":
        return transformer, HashTransformation(null_value=_NULL_HASH)
    if transformer.kind == "quantiles" or column.data_type == "StringDataType":
        return transformer, _quantiles(column, data)
    numeric: OrderedDataType = column.data_type
    if column.lowest is None or column.highest is None or column.lowest == column.highest:
        only_nulls = 0 < data.rows == column.nulls
        return transformer, identity_or_unit(numeric, column.lowest, data.dialect, only_nulls=only_nulls)
    return transformer, linear_space(numeric, _number(column.lowest), _number(column.highest))


def _refit_column(current_fit: Fitted, data: ColumnData, growth: Growth) -> Transformation:
    """Return the transformation of a column after more rows: the current one, or a new one.

    If data leaves a linear range, the range grows by its length on that side, so steady growth needs a new revision
    per doubling. Quantiles clamp values; they are recomputed if two fifths of all rows lie outside.
    """
    current = current_fit[1]
    if isinstance(current, LinearTransformation):
        column = _extended(data.column, data.bounds)
        is_first = not growth.rows and data.dialect == "qbeast-spark"
        if is_first and column.lowest is None and 0 < data.rows == column.nulls:
            # The JVM fails to append nulls to a linear column without values.
            return NullToZeroTransformation()
        return _refit_linear(current, column)
    if isinstance(current, OneValueTransformation):
        return _refit_single_value(current_fit, data)
    if not isinstance(current, QuantilesTransformation):
        return current  # hash and histogram are never superseded by data
    if data.bounds.quantiles is None:
        return _refit_quantiles(current, data, growth)
    return _fit_column("quantiles", data)[1]


def _extended(column: ColumnSummary, bounds: ColumnBounds) -> ColumnSummary:
    """Return the column with its range extended by the caller's bounds.

    >>> _extended(ColumnSummary("a", "LongDataType", 0, 3, 5), ColumnBounds(lowest=4, highest=9))
    ColumnSummary(name='a', data_type='LongDataType', nulls=0, lowest=3, highest=9)
    """
    lows = _ordered([v for v in (column.lowest, bounds.lowest) if v is not None], column.data_type)
    highs = _ordered([v for v in (column.highest, bounds.highest) if v is not None], column.data_type)
    return replace(column, lowest=lows[0] if lows else None, highest=highs[-1] if highs else None)


def identity_or_unit(
    data_type: OrderedDataType, value: float | str | None, dialect: BlocksDialect, *, only_nulls: bool = False
) -> Transformation:
    """Return the space of a column with one value or none.

    Released JVMs fail on the identity transformation: in their dialect the column becomes linear over
    ``[v, v + 1]``, or ``[0, 1]`` without values. If v + 1 is not a value of the column's type, the range ends at the
    next float, or, at the end of the type, begins below v. If all rows are null, the JVM requires a special
    transformation; with any other, its appends of such rows fail.

    >>> identity_or_unit("LongDataType", 7, "qbeast-spark").max_number
    8
    """
    number = None if value is None else _number(value)
    if dialect != "qbeast-spark":
        return identity_transformation(data_type, value=number)
    if number is None and only_nulls:
        return NullToZeroTransformation()
    return linear_space(data_type, *_unit_range(0 if number is None else number, data_type))


def linear_space(data_type: OrderedDataType, low: float, high: float) -> LinearTransformation:
    """Return a linear space from `low` to `high`, extended if both are the same float64.

    The JVM reads bounds as float64 and cannot load a table with equal bounds. So from 2**53 on, the upper bound
    becomes the next float64, or, at the end of the column's type, the lower bound becomes the previous one.

    >>> linear_space("LongDataType", 2**53, 2**53 + 1).max_number - 2**53
    2
    """
    if float(low) == float(high):
        min_value, max_value = value_limits(data_type)
        number = int if data_type in INTEGER_DATA_TYPES else float
        above, below = math.nextafter(low, math.inf), math.nextafter(low, -math.inf)
        high = number(above) if above <= max_value else high
        low = low if above <= max_value else max(number(below), min_value)
    return linear_transformation(data_type, min_number=low, max_number=high, null_value=low)


def value_limits(data_type: OrderedDataType) -> tuple[float, float]:
    """Return the minimum and maximum number of a column type, in the format's unit.

    >>> value_limits("IntegerDataType")
    (-2147483648, 2147483647)
    """
    return _LIMITS.get(data_type, _DOUBLE_LIMITS)


def _refit_linear(current: LinearTransformation, column: ColumnSummary) -> Transformation:
    first, last = current.limits
    low = first if column.lowest is None else min(_number(column.lowest), first)
    high = last if column.highest is None else max(_number(column.highest), last)
    if low == first and high == last:
        return current
    min_value, max_value = value_limits(current.ordered_data_type)
    whole = current.ordered_data_type in INTEGER_DATA_TYPES
    span = int(high) - int(low) if whole else float(high) - float(low)
    span = span if math.isfinite(span) else 0.0
    low = max(low - span, min_value) if low < first else low
    high = min(high + span, max_value) if high > last else high
    return linear_space(current.ordered_data_type, low, high)


def _refit_single_value(current_fit: Fitted, data: ColumnData) -> Transformation:
    transformer, current = current_fit
    value = current.limits[0] if current.limits else None
    column = _extended(data.column, ColumnBounds(value, value))
    ends = _extended(column, data.bounds)
    is_same = value is not None and ends.lowest == ends.highest and data.bounds.quantiles is None
    if ends.lowest is None or is_same:
        return current
    kind: ColumnKind = "quantiles" if transformer.kind == "quantiles" else "linear"
    return _fit_column(kind, replace(data, column=column))[1]


def _refit_quantiles(current: QuantilesTransformation, data: ColumnData, growth: Growth) -> Transformation:
    column, sample, rows = data.column, data.sample, data.rows - data.column.nulls
    if column.lowest is None or column.highest is None:
        return current
    texts = isinstance(current, CDFStringQuantilesTransformation)
    values = sample.drop_nulls() if texts else _sampled_numbers(sample)
    first, last = current.quantiles[0], current.quantiles[-1]
    is_single_text = len(current.quantiles) == 2 and isinstance(first, str) and last == first + "\0"
    shortened = values.str.head(KNOT_CHARACTERS) if texts else values  # quantiles are shortened, too
    share = ((shortened < first) | (shortened > last)).mean()
    outside = share if isinstance(share, float) else 0.0
    if is_single_text and outside == 0.0 and column.lowest == first:
        return current
    all_outside = growth.outside_rows.get(column.name, 0.0) + outside * rows
    is_outgrown = outside * rows > 0 and all_outside > _OUTSIDE_SHARE * (growth.rows + rows)
    if not is_single_text and not is_outgrown:
        return current
    ends = pl.Series([column.lowest, column.highest, *growth.ranges.get(column.name, ())], dtype=values.dtype)
    old = current.quantiles if not is_single_text else current.quantiles[:1] if growth.rows else ()
    beyond = min(growth.outside_rows.get(column.name, 0.0), float(growth.rows))
    # The new rows also represent the rows of the table outside of the quantiles.
    knots = _merged_quantiles(
        old, growth.rows - beyond, values.append(ends), beyond + rows, max_knots=data.knots
    )
    if len(knots) < 2:
        return current
    return current.model_copy(update={"quantiles": tuple(knots)})


def _unit_range(value: float, data_type: OrderedDataType) -> tuple[float, float]:
    """Return a range from `value` up with distinct ends in the column's type."""
    max_value = value_limits(data_type)[1]
    if value >= max_value:
        below = value - 1 if data_type in INTEGER_DATA_TYPES else _next(value, -max_value, data_type)
        return below, value
    above = typed_number(value + 1, data_type)
    return value, above if value < above else _next(value, max_value, data_type)


def _next(value: float, towards: float, data_type: OrderedDataType) -> float:
    """Return the neighbour of a float among the values of its type."""
    if data_type == "FloatDataType":
        return float(np.nextafter(np.float32(value), np.float32(towards)))
    return float(np.nextafter(value, towards))


def _number(value: float | str) -> float:
    """Return a number unchanged; reject texts in the range of a numeric column."""
    if isinstance(value, str):
        msg = f"a numeric column needs numeric bounds, got the text {value!r}"
        raise InvalidInputError(msg, argument="column_stats")
    return value


def _ordered(values: list[float | str], data_type: DataType) -> list[float] | list[str]:
    texts = [v for v in values if isinstance(v, str)]
    numbers = [typed_number(v, data_type) for v in values if not isinstance(v, str)]
    if texts and numbers:
        msg = f"column bounds and data disagree in type: {values}; give bounds of the column's own type"
        raise InvalidInputError(msg, argument="column_stats")
    return sorted(texts) or sorted(numbers)


def _choose(column: ColumnSummary, data: ColumnData) -> Literal["linear", "hashing", "quantiles"]:
    lowest, highest, is_jvm = column.lowest, column.highest, data.dialect == "qbeast-spark"
    if column.data_type == "StringDataType":
        return "hashing" if is_jvm else "quantiles"
    if is_jvm or isinstance(lowest, str | None) or isinstance(highest, str | None) or lowest == highest:
        return "linear"
    values = _sampled_numbers(data.sample).to_numpy()
    near = _is_near_uniform(values, lowest=float(lowest), highest=float(highest))
    return "linear" if near else "quantiles"


def _sampled_numbers(values: pl.Series) -> pl.Series:
    """Return the finite, non-null values of a numeric column as sorted float64 in the format's unit.

    >>> _sampled_numbers(pl.Series([2.0, None, float("nan"), 1.0])).to_list()
    [1.0, 2.0]
    """
    column = to_index_column(values.drop_nulls() if values.null_count() else values)
    if not isinstance(column, NumberColumn):
        msg = f"{values.name!r} is not a numeric column"
        raise TypeError(msg)
    numbers = number_values(column)
    return pl.Series(values.name, numbers[np.isfinite(numbers)], dtype=pl.Float64).sort()


def _quantiles(column: ColumnSummary, data: ColumnData) -> Transformation:
    """Return a quantile transformation of a sample; fewer than two quantiles return a single value."""
    lowest, highest, requested = column.lowest, column.highest, data.bounds.quantiles
    knots: list[Any] = []
    if column.data_type == "StringDataType":
        if requested is not None:
            knots = sorted({str(q) for q in requested})
        elif isinstance(lowest, str) and isinstance(highest, str) and lowest != highest:
            knots = _sample_quantiles(data.sample.drop_nulls().sort(), lowest, highest, max_knots=data.knots)
        if len(knots) < 2:
            only = str(knots[0]) if knots else lowest if isinstance(lowest, str) else ""
            knots = [only[:KNOT_CHARACTERS], only[:KNOT_CHARACTERS] + "\0"]
        return CDFStringQuantilesTransformation(quantiles=tuple(knots))
    if requested is not None:
        knots = sorted({float(_number(q)) for q in requested})
    elif lowest is not None and highest is not None and lowest != highest:
        low, high = float(_number(lowest)), float(_number(highest))
        knots = _sample_quantiles(_sampled_numbers(data.sample), low, high, max_knots=data.knots)
    if len(knots) < 2:
        return identity_transformation(column.data_type, value=None if lowest is None else _number(lowest))
    return CDFNumericQuantilesTransformation(quantiles=tuple(knots), data_type=column.data_type)


def _sample_quantiles(
    values: pl.Series, lowest: float | str, highest: float | str, *, max_knots: int
) -> list[Any]:
    """Return strictly increasing quantiles of a sample, with the minimum and maximum of the column.

    Values are finite float64 or texts, sorted, without nulls; there may be none. A frequent value appears once, so
    other values get more space. Texts are ordered by UTF-8 bytes and shortened to 64 characters, which is precise
    enough.

    >>> _sample_quantiles(pl.Series([1.0, 1.0, 2.0]), 0.0, 4.0, max_knots=1024)
    [0.0, 1.0, 2.0, 4.0]
    """
    places = np.linspace(0, len(values) - 1, min(len(values), max_knots)).round().astype(np.int64)
    quantiles = values.gather(places)
    return _knots(quantiles.append(pl.Series([lowest, highest], dtype=values.dtype)))


def _merged_quantiles(
    old: Sequence[float] | Sequence[str], old_rows: float, new: pl.Series, new_rows: float, *, max_knots: int
) -> list[Any]:
    """Return quantiles of old and new rows together.

    Each old quantile represents an equal part of `old_rows`; the new values, finite float64 or texts, are a sample of
    `new_rows`, with their exact ends.

    >>> _merged_quantiles(["a", "b"], 2, pl.Series(["c", "d"]), 2, max_knots=1024)
    ['a', 'b', 'c', 'd']
    """
    mass = np.repeat([old_rows / max(len(old), 1), new_rows / max(len(new), 1)], [len(old), len(new)])
    values = pl.concat([pl.Series(new.name, old, dtype=new.dtype), new])
    order = values.arg_sort().to_numpy()
    return _knots(values.gather(order[_weighted_positions(mass[order], max_knots)]))


def _knots(values: pl.Series) -> list[Any]:
    """Return distinct values as stored, ascending; zero without a sign."""
    texts = values.dtype == pl.String
    knots: list[Any] = (values.str.head(KNOT_CHARACTERS) if texts else values + 0.0).unique().sort().to_list()
    return knots


def _is_near_uniform(values: F64Array, *, lowest: float, highest: float) -> bool:
    """Return whether the values of a column are even enough for linear scaling; True without values or range.

    Compares the sample with the uniform distribution over the column's range, by the maximum distance of the
    distribution functions. Small distances need no quantiles, because the tree splits dense regions deeper.

    >>> _is_near_uniform(np.linspace(0, 9, 1000), lowest=0.0, highest=9.0)
    True
    >>> _is_near_uniform(np.exp(np.linspace(0, 9, 1000)), lowest=1.0, highest=8104.0)
    False
    """
    count = len(values)
    span = highest / 2 - lowest / 2  # halved, so the range of extreme doubles does not overflow
    if not count or not span > 0:
        return True
    expected = np.clip((values / 2 - lowest / 2) / span, 0.0, 1.0)
    above = np.arange(1, count + 1) / count - expected
    below = expected - np.arange(count) / count
    distance = max(float(above.max()), float(below.max()))
    return distance <= _UNIFORM_DISTANCE + _KS_95 / math.sqrt(count)


def _weighted_positions(mass: F64Array, max_count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the first and last position, and positions at equal steps of the cumulative mass between them."""
    if len(mass) <= max_count:
        return np.arange(len(mass))
    total = np.cumsum(mass)
    steps = np.linspace(0.0, total[-1], max_count)
    inner = np.searchsorted(total, steps[1:-1])
    return distinct(np.concatenate([[0], np.minimum(inner, len(mass) - 1), [len(mass) - 1]]))


_MIN_CUBE_SIZE: Final = 4096

_DEFAULT_CUBE_SIZE: Final = 16_384

_CUBES_OF_SMALL_TABLE: Final = 16

# With so few cubes, a sample of a million rows has 128 rows of each.
_CUBES_OF_LARGE_TABLE: Final = 8_192


@dataclass(frozen=True, slots=True)
class IndexWish:
    """Options of a write for the index: columns, cube size (None: keep or choose), bounds, dialect.

    `decimals` are types of decimal columns that revisions note.
    """

    specs: tuple[ColumnSpec, ...]
    cube_size: int | None
    dialect: BlocksDialect
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict[str, ColumnBounds])
    decimals: Mapping[str, str] = field(default_factory=dict[str, str])
    # Sampling key; empty: the indexed columns.
    sample_by: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [spec.name for spec in self.specs]

    def data_of(self, summary: IndexSummary, knots: int) -> list[ColumnData]:
        """Return the data of each column, in order."""
        return [
            ColumnData(
                rows=summary.rows,
                column=column,
                sample=summary.values(column.name),
                bounds=self.bounds.get(spec.name, ColumnBounds()),
                dialect=self.dialect,
                knots=knots,
            )
            for spec, column in zip(self.specs, summary.columns, strict=True)
        ]


def default_cube_size(rows: int) -> int:
    """Return the cube size for a table with `rows` rows in its first write.

    Small cubes make filters precise; cubes are larger in large tables, to limit their number: a sample draws the tree.

    >>> default_cube_size(28_000), default_cube_size(6_000_000), default_cube_size(10**9)
    (4096, 16384, 122070)
    """
    small = min(max(rows // _CUBES_OF_SMALL_TABLE, _MIN_CUBE_SIZE), _DEFAULT_CUBE_SIZE)
    return max(small, rows // _CUBES_OF_LARGE_TABLE)


def first_revision(wish: IndexWish, summary: IndexSummary, *, table_id: str, timestamp_ms: int) -> Revision:
    """Return revision 1 of a table whose first rows are summarised."""
    size = wish.cube_size or default_cube_size(summary.rows)
    knots = _quantile_count(summary.rows, cube_size=size)
    columns = zip(wish.specs, wish.data_of(summary, knots), strict=True)
    fitted = [_fit_column(spec.kind, data) for spec, data in columns]
    return _revision(1, wish, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def next_revision(
    current: Revision, wish: IndexWish, summary: IndexSummary, *, growth: Growth, timestamp_ms: int
) -> Revision:
    """Return the revision for an append: `current`, or a new revision that supersedes it."""
    size = wish.cube_size or current.desired_cube_size * (4 if growth.cubes > sizing().max_cubes else 1)
    knots = _quantile_count(growth.rows + summary.rows, cube_size=size)
    pairs = list(zip(current.column_transformers, current.transformations, strict=False))
    fitted: list[Fitted] = []
    for i, (spec, data) in enumerate(zip(wish.specs, wish.data_of(summary, knots), strict=True)):
        pair = pairs[i] if i < len(pairs) else None
        if pair is None or not keeps_kind(spec.kind, pair[0].kind):
            fitted.append(_fit_column(spec.kind, data))
        else:
            fitted.append((pair[0], _refit_column(pair, data, growth)))
    if size == current.desired_cube_size and fitted == pairs:
        return current
    number, table_id = current.revision_id + 1, current.table_id
    return _revision(number, wish, fitted, cube_size=size, table_id=table_id, timestamp_ms=timestamp_ms)


def keeps_kind(requested: ColumnKind, stored: str) -> bool:
    """Return whether a column keeps its kind; a requested histogram is stored as quantiles."""
    return requested in {"auto", stored} or (requested, stored) == ("histogram", "quantiles")


def _revision(
    number: int,
    wish: IndexWish,
    fitted: Sequence[Fitted],
    *,
    cube_size: int,
    table_id: str,
    timestamp_ms: int,
) -> Revision:
    return Revision(
        revision_id=number,
        timestamp_ms=timestamp_ms,
        table_id=table_id,
        desired_cube_size=cube_size,
        column_transformers=tuple(
            transformer.model_copy(update={DECIMAL_TYPE: wish.decimals[transformer.column_name]})
            if transformer.column_name in wish.decimals
            else transformer
            for transformer, _ in fitted
        ),
        transformations=tuple(transformation for _, transformation in fitted),
    ).with_sample_by(wish.sample_by)


# Widens ranges of values of a column type by the inaccuracies of their writer.
Slack: TypeAlias = Callable[[F64Array, F64Array, pl.DataType], tuple[F64Array, F64Array]]


def rows_outside(frame: pl.DataFrame, revision: Revision, *, slack: Slack | None = None) -> BoolArray:
    """Return the rows that need a new revision: outside of a linear range, or different from the single value.

    Such rows can still be indexed, at the ends of the space, where filters cannot separate them. Nulls, NaN and
    infinities never need a revision; quantiles and hashes take any value.

    >>> from qbeast_core.tree.fit import IndexWish, first_revision
    >>> from qbeast_core.tree.summary import summarise
    >>> from qbeast_core.spec.revision import ColumnSpec
    >>> rows = pl.DataFrame({"a": [1, 9]})
    >>> wish = IndexWish((ColumnSpec("a", "linear"),), None, "documented")
    >>> revision = first_revision(wish, summarise(rows, ["a"]), table_id="t", timestamp_ms=0)
    >>> rows_outside(pl.DataFrame({"a": [0, 1, None, 9, 10]}), revision).tolist()
    [True, False, False, False, True]
    """
    outside = np.zeros(frame.height, np.bool_)
    for name, space in zip(revision.columns, revision.transformations, strict=True):
        outside |= _outside(frame.get_column(name), space, slack)
    return outside


def _outside(column: pl.Series, space: Transformation, slack: Slack | None) -> BoolArray:
    limits = space.limits
    if limits is None:
        return np.zeros(len(column), np.bool_)
    if space.holds_texts and limits:
        differs: BoolArray = (column.cast(pl.String) != limits[0]).fill_null(value=False).to_numpy()
        return _finite(column) & differs
    if not limits:
        return _finite(column)
    low, high = (float(limit) for limit in limits)
    values = to_index_column(column)
    if not isinstance(values, NumberColumn):
        return _finite(column)  # the space is for another type
    numbers = number_values(values)
    lower, upper = (numbers, numbers) if slack is None else slack(numbers, numbers, column.dtype)
    outside: BoolArray = (upper < low) | (lower > high)
    return outside & _finite(column)


def _finite(column: pl.Series) -> BoolArray:
    """Return which rows are not null, NaN or infinite."""
    finite = column.is_not_null()
    if column.dtype.is_float():
        finite = finite & column.is_finite().fill_null(value=False)
    mask: BoolArray = finite.to_numpy()
    return mask
