# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""Random indexed tables: rows, a space, cubes computed from coordinates, files, statistics and pages."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from qbeast_core.plan.blocks import BlockTable
from qbeast_core.plan.decode_tags import build_block_table
from qbeast_core.space.coordinates import coordinates_of_numbers, to_coordinates
from qbeast_core.space.cubes import Cubes, encode_cubes
from qbeast_core.space.values import NumberColumn, number_values
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    CDFNumericQuantilesTransformer,
    CDFStringQuantilesTransformation,
    CDFStringQuantilesTransformer,
    HashTransformation,
    HashTransformer,
    IdentityTransformation,
    LinearTransformation,
    LinearTransformer,
    Revision,
    StringHistogramTransformation,
    StringHistogramTransformer,
)
from qbeast_core.tree.grid import data_type_of, frame_weights, to_index_column
from tests.plan.small import layout as layout_text
from tests.space.cube_reference import points_to_cells

EPOCH = datetime(1970, 1, 1)
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)
_INSTANTS = st.one_of(
    st.sampled_from(
        [
            datetime(1, 1, 1),
            datetime(1582, 10, 14),
            datetime(1583, 1, 1),
            EPOCH - timedelta(microseconds=1),
            _LAST,
        ]
    ),
    st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 5_000)),
    st.datetimes(datetime(1500, 1, 1), datetime(2100, 1, 1)),
)


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = [value for value in (2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1) if low <= value <= high]
    return st.one_of(st.integers(-5, 5), st.sampled_from([low, high, *near]), st.integers(low, high))


def _floats(width: int) -> st.SearchStrategy[float]:
    edges = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 2.0**53, 5e-324 if width == 64 else 1e-45]
    few = [-2.5, 1.5, 0.5, 3.0] if width == 32 else [-2.5, 1.5, 0.1, 3.0]
    return st.one_of(st.sampled_from(few), st.sampled_from(edges), st.floats(width=width))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    unscaled = st.one_of(st.integers(-300, 300), st.integers(-limit, limit), st.sampled_from([-limit, limit]))
    return unscaled.map(lambda value: _decimal(value, scale))


def _decimal(unscaled: int, scale: int) -> Decimal:
    with localcontext(prec=80):
        return Decimal(unscaled).scaleb(-scale)


TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "abc", "b", "null", "é", "\ud7ff", "\ue000", "z\U0010ffff", "\U0010ffff"]
    ),
    st.text("ab\ud7ff\ue000\U0001f600", max_size=4),
    st.text("ab", min_size=30, max_size=40),
)
VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.Int8(): _integers(8),
    pl.Int16(): _integers(16),
    pl.Int32(): _integers(32),
    pl.Int64(): _integers(64),
    pl.Float32(): _floats(32),
    pl.Float64(): _floats(64),
    pl.Decimal(9, 2): _decimals(9, 2),
    pl.Decimal(18, 4): _decimals(18, 4),
    pl.Decimal(38, 10): _decimals(38, 10),
    pl.Date(): _INSTANTS.map(lambda value: value.date()),
    pl.Datetime("us"): _INSTANTS,
    pl.Datetime("us", "UTC"): _INSTANTS.map(lambda value: value.replace(tzinfo=UTC)),
    pl.String(): TEXTS,
}
"""Every type that can be indexed, and values of it."""

FAMILIES: dict[str, list[pl.DataType]] = {
    "numbers": [dtype for dtype in VALUES if dtype.is_numeric()],
    "times": [dtype for dtype in VALUES if dtype.is_temporal()],
    "texts": [pl.String(), pl.String(), pl.Int64()],
    "all": list(VALUES),
}


@dataclass(frozen=True)
class Example:
    """A table, and where each of its rows lies."""

    frame: pl.DataFrame
    """The rows, in the order of files, blocks and weights."""

    table: BlockTable
    file: np.ndarray
    block: np.ndarray
    page: np.ndarray
    """Page of each row in its file; -1 in files without pages."""

    weight: np.ndarray


@st.composite
def examples(draw: st.DrawFn, of: Sequence[pl.DataType]) -> Example:
    dtypes = draw(st.lists(st.sampled_from(of), min_size=1, max_size=3))
    names = [f"c{place}" for place in range(len(dtypes))]
    rows = draw(st.integers(0, 12))
    schema = dict(zip(names, dtypes, strict=True)) | {"flag": pl.Boolean(), "free": pl.Int64()}
    elements = {**VALUES, pl.Boolean(): st.booleans()}
    data = {
        name: draw(st.lists(st.none() | elements[dtype], min_size=rows, max_size=rows))
        for name, dtype in schema.items()
    }
    frame = pl.DataFrame(data, schema=schema)
    revision = draw(revisions(frame.select(names)))
    ours = draw(st.lists(st.booleans(), min_size=1, max_size=3))
    file = np.array(draw(st.lists(st.integers(0, len(ours) - 1), min_size=rows, max_size=rows)), np.int64)
    foreign = ~np.array(ours)[file] if rows else np.zeros(0, np.bool_)
    points = [
        _coordinates(draw, transformation, frame.get_column(name), foreign)
        for name, transformation in zip(names, revision.transformations, strict=True)
    ]
    places = np.stack(points, axis=1)
    cubes = _cubes(draw, places)
    weight = frame_weights(frame, names) if rows else np.zeros(0, np.int32)
    order = np.lexsort((weight, _codes(cubes), file))
    frame, file, weight = frame[order], file[order], weight[order]
    return _assemble(draw, frame, revision, file, [cubes[i] for i in order], weight, ours, places[order])


def _codes(cubes: list[str]) -> np.ndarray:
    return (
        np.unique(np.array(cubes, dtype=object), return_inverse=True)[1] if cubes else np.zeros(0, np.int64)
    )


@st.composite
def revisions(draw: st.DrawFn, frame: pl.DataFrame) -> Revision:
    pairs = [draw(_transformations(column)) for column in frame.get_columns()]
    return Revision(
        revision_id=1,
        timestamp_ms=0,
        table_id="t",
        desired_cube_size=10,
        column_transformers=tuple(transformer for transformer, _ in pairs),
        transformations=tuple(transformation for _, transformation in pairs),
    )


@st.composite
def _transformations(draw: st.DrawFn, column: pl.Series) -> tuple[Any, Any]:
    name, dtype = column.name, column.dtype
    data_type = data_type_of(name, dtype)
    if not dtype.is_temporal() and draw(st.booleans()):
        null = draw(st.integers(-(2**31), 2**31 - 1))
        return HashTransformer(column_name=name, data_type=data_type), HashTransformation(null_value=null)
    if dtype == pl.String:
        knots = draw(st.lists(TEXTS, min_size=2, max_size=5))
        knots = sorted(knots, key=str.encode)
        if draw(st.booleans()):
            return CDFStringQuantilesTransformer(column_name=name), CDFStringQuantilesTransformation(
                quantiles=tuple(knots)
            )
        transformer = StringHistogramTransformer(column_name=name, data_type="StringDataType")
        return transformer, StringHistogramTransformation(histogram=tuple(knots))
    return _number_transformation(draw, column, data_type)


def _number_transformation(draw: st.DrawFn, column: pl.Series, data_type: Any) -> tuple[Any, Any]:
    name = column.name
    more = draw(st.lists(VALUES[column.dtype], min_size=2, max_size=5))
    pool = to_index_column(pl.concat([column.drop_nulls(), pl.Series(name, more, dtype=column.dtype)]))
    assert isinstance(pool, NumberColumn)
    numbers = [value for value in number_values(pool).tolist() if np.isfinite(value)]
    knots = sorted(
        draw(st.lists(st.sampled_from(numbers), min_size=2, max_size=5)) if numbers else [0.0, 1.0]
    )
    linear = LinearTransformer(column_name=name, data_type=data_type)
    kind = draw(st.sampled_from(["linear", "identity", "quantiles"]))
    if kind == "quantiles":
        transformer = CDFNumericQuantilesTransformer(column_name=name, data_type=data_type)
        return transformer, CDFNumericQuantilesTransformation(quantiles=tuple(knots), data_type=data_type)
    if kind == "identity" or knots[0] == knots[-1]:
        return linear, IdentityTransformation(identity_value=knots[0], ordered_data_type=data_type)
    low, high, null = knots[0], knots[-1], draw(st.sampled_from(knots))
    return linear, LinearTransformation(
        min_number=low, max_number=high, null_value=null, ordered_data_type=data_type
    )


def _coordinates(draw: st.DrawFn, transformation: Any, column: pl.Series, foreign: np.ndarray) -> np.ndarray:
    """Coordinates as the writers gave them: others have another clock, calendar, order and text of floats."""
    keys = to_index_column(column)
    points = to_coordinates(transformation, keys)
    moved = foreign & ~column.is_null().to_numpy()
    if isinstance(transformation, IdentityTransformation):
        points[moved] = 0.0
    elif column.dtype.is_temporal():
        points[moved] = _elsewhere(draw, transformation, column)[moved]
    elif column.dtype.is_float() and isinstance(transformation, HashTransformation):
        points[moved] = draw(st.floats(0, 1))
    elif column.dtype == pl.String and not isinstance(transformation, HashTransformation):
        knots = getattr(transformation, "quantiles", None) or transformation.histogram
        points[moved] = np.array([_java_rank(knots, text) for text in column.fill_null("").to_list()])[moved]
    return points


def _elsewhere(draw: st.DrawFn, transformation: Any, column: pl.Series) -> np.ndarray:
    keys = to_index_column(column)
    assert isinstance(keys, NumberColumn)
    hours = draw(st.integers(-36, 36)) if column.dtype == pl.Date else 0
    days = draw(st.integers(-12, 12))
    numbers = number_values(keys)
    julian = np.where(numbers < -12_219_292_800_000, days * 86_400_000, 0)
    return coordinates_of_numbers(transformation, numbers + hours * 3_600_000 + julian)


def _java_rank(knots: Sequence[str], text: str) -> float:
    ordered = sorted(_utf16(knot) for knot in knots)
    return max(bisect_right(ordered, _utf16(text)) - 1, 0) / (len(ordered) - 1)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _cubes(draw: st.DrawFn, points: np.ndarray) -> list[str]:
    depth = np.array(
        draw(st.lists(st.sampled_from([0, 1, 2, 3, 8, 32]), min_size=len(points), max_size=len(points))),
        np.uint8,
    )
    return encode_cubes(Cubes(depth, points_to_cells(points, depth)))


def _assemble(
    draw: st.DrawFn,
    frame: pl.DataFrame,
    revision: Revision,
    file: np.ndarray,
    cubes: list[str],
    weight: np.ndarray,
    ours: list[bool],
    points: np.ndarray,
) -> Example:
    """Write the tags of every file, and keep where each row went."""
    block, page = np.zeros(len(file), np.int64), np.full(len(file), -1)
    tags: list[dict[str, Any]] = []
    stats: list[dict[str, Any]] = []
    blocks = 0
    for number, own_values in enumerate(ours):
        rows = np.flatnonzero(file == number)
        listed = []
        for position, row in enumerate(rows):
            if position == 0 or cubes[row] != cubes[rows[position - 1]]:
                listed.append(
                    {"cube": cubes[row], "minWeight": int(weight[row]), "maxWeight": 0, "elementCount": 0}
                )
            highest = max(int(weight[row]), draw(st.sampled_from([int(weight[row]), 2**31 - 1])))
            listed[-1]["maxWeight"] = max(highest, listed[-1]["maxWeight"] or -(2**31))
            listed[-1]["elementCount"] += 1
            block[row] = blocks + len(listed) - 1
        tagged = bool(listed) and draw(st.integers(0, 9)) > 0
        if not tagged:
            block[rows] = blocks
        blocks += len(listed) if tagged else 1
        paged = tagged and own_values and draw(st.booleans())
        layout = None
        if paged:
            page[rows], layout = _pages(draw, weight[rows], points[rows])
        tags.append(
            {
                "path": f"f{number}",
                "num_records": len(rows),
                "size_bytes": 1 << 20,
                "revision": 1 if tagged else None,
                "blocks": json.dumps(listed) if tagged else None,
                "layout": layout,
                "rules": "1" if own_values else None,
            }
        )
        stats.append(file_statistics(frame[rows], ours=own_values, kept=draw(st.integers(0, 3)) > 0))
    files = _files_frame(tags, stats, frame.schema)
    table = build_block_table(files, {1: revision}, frame.schema)
    assert not table.corrupt
    return Example(frame, table, file, block, page, weight)


def _pages(draw: st.DrawFn, weight: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, str]:
    """Cut a file into bands and pages, with rows in any order within a band."""
    firsts = sorted({int(weight.min()), *draw(st.lists(st.sampled_from(weight.tolist()), max_size=2))})
    band = np.searchsorted(firsts, weight, side="right") - 1
    page, bands, count = np.zeros(len(weight), np.int64), list[tuple[int, int, int]](), 0
    for number, first in enumerate(firsts):
        rows = draw(st.permutations(np.flatnonzero(band == number).tolist()))
        size = draw(st.integers(1, 4))
        page[rows] = count + np.arange(len(rows)) // size
        bands.append((len(rows), size, first))
        count += -(-len(rows) // size)
    cells = np.minimum(points * 2.0**32, 2.0**32 - 1).astype(np.int64)
    low = cells.min(axis=0)
    step = (cells.max(axis=0) - low) // 256 + 1
    groups = draw(st.sampled_from([[1], [1, 5] * 8, [*range(1, 17)]]))  # widths of equal steps, or of groups
    widths = step[:, None] * groups
    ends = low[:, None] + np.cumsum(np.repeat(widths, 256 // len(groups), axis=1), axis=1)
    steps = np.stack([np.searchsorted(*one, side="right") for one in zip(ends, cells.T, strict=True)], axis=1)
    bounds = np.array([[end(steps[page == one], axis=0) for one in range(count)] for end in (np.min, np.max)])
    box, sides = np.column_stack([low, widths]).tolist(), bounds.transpose(2, 1, 0)
    return page, layout_text(bands, sides.tolist(), box=box)


def _files_frame(tags: list[dict[str, Any]], stats: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    texts = dict.fromkeys(("path", "blocks", "layout", "rules", "state"), pl.String)
    numbers = dict.fromkeys(("num_records", "size_bytes", "revision"), pl.Int64)
    files = pl.DataFrame(tags, schema={**texts, **numbers})
    bounds = pl.Struct(dict(schema))
    structs = {"min": bounds, "max": bounds, "null_count": pl.Struct(dict.fromkeys(schema, pl.Int64))}
    return files.hstack(pl.DataFrame(stats, schema=structs).get_columns())


def file_statistics(frame: pl.DataFrame, *, ours: bool, kept: bool) -> dict[str, Any]:
    """Statistics as writers leave them: cut, rounded, without NaN where the writer is another one."""
    if not kept:
        return {"min": None, "max": None, "null_count": None}
    low, high = {}, {}
    for column in frame.get_columns():
        values = column.drop_nulls()
        if column.dtype.is_float() and not ours:
            values = values.filter(~values.is_nan())
        values = values.sort()
        low[column.name] = values[0] if len(values) else None
        high[column.name] = values[-1] if len(values) else None
        if column.dtype.is_float() and not ours:
            low[column.name], high[column.name] = (_finite(side[column.name]) for side in (low, high))
        if len(values) and isinstance(column.dtype, pl.Datetime):
            low[column.name], high[column.name] = (_to_ms(bound) for bound in (values[0], values[-1]))
        if len(values) and column.dtype == pl.String:
            low[column.name] = values[0][:5]
            high[column.name] = values[-1][:5] + ("" if not ours or len(values[-1]) <= 5 else "\U0010ffff")
        if len(values) and isinstance(column.dtype, pl.Decimal) and not ours:
            low[column.name], high[column.name] = (
                _rounded(bound, column.dtype) for bound in (values[0], values[-1])
            )
    return {"min": low, "max": high, "null_count": {c.name: c.null_count() for c in frame.get_columns()}}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _to_ms(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _rounded(value: Decimal, dtype: pl.Decimal) -> Decimal | None:
    with localcontext(prec=80):
        rounded = Decimal(float(value)).quantize(Decimal(1).scaleb(-dtype.scale))
    return rounded if abs(rounded) < Decimal(10) ** (dtype.precision - dtype.scale) else None


def kept_rows(frame: pl.DataFrame, predicate: pl.Expr) -> np.ndarray | None:
    """Rows that Polars itself keeps; None when it refuses the filter."""
    try:
        return frame.with_row_index("row").filter(predicate).get_column("row").to_numpy()
    except pl.exceptions.PolarsError:
        return None
