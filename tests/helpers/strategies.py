# ruff: noqa: DTZ001 -- timestamps without a zone are a type to test
"""Random tables: columns of every Delta type with nulls, NaN, extremes and heavy duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Literal

import numpy as np
import polars as pl
from hypothesis import strategies as st

ROW = "row"
"""A column of row numbers, by which frames are compared."""

Dialect = Literal["documented", "qbeast-spark"]

_EPOCH = datetime(1970, 1, 1)
_INSTANTS = st.one_of(
    st.sampled_from(
        [
            datetime(1, 1, 1),
            datetime(1582, 10, 15),
            _EPOCH - timedelta(microseconds=1),
            _EPOCH,
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
        ]
    ),
    st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 5_000)),
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
)


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = [
        value for value in (low, low + 1, -1, 0, 2**53, 2**53 + 1, high - 1, high) if low <= value <= high
    ]
    return st.one_of(st.integers(-9, 9), st.sampled_from(edges), st.integers(low, high))


def _floats(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    smallest = 1e-45 if width == 32 else 5e-324
    largest = 3.4028234663852886e38 if width == 32 else 1.7976931348623157e308
    edges = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), smallest, largest, -largest]
    return st.one_of(st.integers(-5, 5).map(float), st.sampled_from(edges), st.floats(width=width))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    unscaled = st.one_of(
        st.integers(-300, 300), st.sampled_from([-limit, 0, limit]), st.integers(-limit, limit)
    )
    return unscaled.map(lambda value: decimal(value, scale))


def decimal(unscaled: int, scale: int) -> Decimal:
    with localcontext(prec=80):
        return Decimal(unscaled).scaleb(-scale)


TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "b", "null", "a\0", "\0", "é", "\ud7ff", "\ue000", "z\U0010ffff", "日本"]
    ),
    st.text("ab\0\ud7ff\U0001f600", max_size=5),
    st.builds(
        lambda text, times: text * times, st.sampled_from(["long ", "é", "\U0001f600"]), st.integers(8, 90)
    ),
)
_STRUCT = pl.Struct({"n": pl.Int32(), "s": pl.String(), "t": pl.Struct({"d": pl.Date()})})
_MAP = pl.Map(pl.String(), pl.Int64())
VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.Int64(): _integers(64),
    pl.String(): TEXTS,
    pl.Float64(): _floats(64),
    pl.Int32(): _integers(32),
    pl.Date(): _INSTANTS.map(datetime.date),
    pl.Datetime("us", "UTC"): _INSTANTS.map(lambda value: value.replace(tzinfo=UTC)),
    pl.Datetime("us"): _INSTANTS,
    pl.Decimal(5, 2): _decimals(5, 2),
    pl.Decimal(18, 4): _decimals(18, 4),
    pl.Decimal(25, 3): _decimals(25, 3),
    pl.Float32(): _floats(32),
    pl.Int16(): _integers(16),
    pl.Int8(): _integers(8),
    pl.Boolean(): st.booleans(),
    pl.Binary(): st.one_of(st.sampled_from([b"", b"\0", b"\xff\xfe"]), st.binary(max_size=40)),
    _MAP: st.dictionaries(TEXTS, st.none() | _integers(64), max_size=3),
    pl.List(pl.Int64()): st.lists(st.none() | _integers(64), max_size=4),
    _STRUCT: st.fixed_dictionaries(
        {
            "n": st.none() | _integers(32),
            "s": st.none() | TEXTS,
            "t": st.none() | st.fixed_dictionaries({"d": st.none() | _INSTANTS.map(datetime.date)}),
        }
    ),
}
"""Every type of a Delta table, and values of it."""

NOT_INDEXABLE = (pl.Boolean(), pl.Binary(), pl.List(pl.Int64()), _STRUCT, _MAP)
INDEXABLE = tuple(dtype for dtype in VALUES if dtype not in NOT_INDEXABLE)
UNKNOWN_TO_JVM = (pl.Int8(), pl.Int16(), pl.Datetime("us"))
_NAMES = ("a", "B-1", "é", "x.y", "n:m", "p%20q")


def kinds_of(dtype: pl.DataType) -> tuple[str, ...]:
    """Return the kinds of index for a type; the empty text is the default."""
    if dtype == pl.String():
        return "", ":quantiles", ":hash"
    return ("", ":linear", ":quantiles") if dtype.is_temporal() else ("", ":linear", ":quantiles", ":hash")


@dataclass(frozen=True)
class Case:
    """A table to write: a frame to create it and frames to append, with one schema and numbered rows."""

    frames: tuple[pl.DataFrame, ...]
    columns: tuple[str, ...]
    """Indexed columns with their kinds, as `write_table` takes them."""

    cube_sizes: tuple[int | None, ...]
    dialect: Dialect

    @property
    def rows(self) -> pl.DataFrame:
        """All rows."""
        return pl.concat(self.frames)

    @property
    def indexed(self) -> list[str]:
        """Names of the indexed columns."""
        return [
            text.rpartition(":")[0] if text.rpartition(":")[2] in _KINDS else text for text in self.columns
        ]


_KINDS = ("linear", "quantiles", "hash")


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    most_frames: int = 4,
    most_rows: int = 60,
    most_columns: int = 4,
    types: Sequence[pl.DataType] = tuple(VALUES),
) -> Case:
    """Draw a sequence of writes."""
    dialect: Dialect = draw(st.sampled_from(["documented", "documented", "qbeast-spark"]))
    banned = UNKNOWN_TO_JVM if dialect == "qbeast-spark" else ()
    keys = draw(
        st.lists(
            st.sampled_from([t for t in INDEXABLE if t in types and t not in banned]), min_size=1, max_size=3
        )
    )
    others = draw(st.lists(st.sampled_from(list(types)), max_size=max(0, most_columns - len(keys))))
    schema = dict(zip(_NAMES, [*keys, *others], strict=False))
    columns = tuple(name + draw(st.sampled_from(kinds_of(schema[name]))) for name in _NAMES[: len(keys)])
    sizes = st.sampled_from([1, 2, 3, 7, 20, 1000])
    cube_sizes: list[int | None] = [draw(sizes)]
    frames = [draw(frames_of(schema, most_rows=most_rows))]
    for _ in range(draw(st.integers(0, most_frames - 1))):
        frames.append(draw(frames_of(schema, most_rows=most_rows)))
        cube_sizes.append(draw(st.sampled_from([None, None, None, 2, 5, 30])))
    return Case(_numbered(frames), columns, tuple(cube_sizes), dialect)


def with_key_in_rows(case: Case) -> Case:
    """Index the column of row numbers too, so that weights differ from row to row."""
    return replace(case, columns=(ROW, *case.columns))


def _numbered(frames: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, ...]:
    starts = np.cumsum([0, *(frame.height for frame in frames)]).tolist()
    return tuple(
        frame.with_row_index(ROW, start).cast({ROW: pl.Int64})
        for frame, start in zip(frames, starts, strict=False)
    )


@st.composite
def frames_of(draw: st.DrawFn, schema: dict[str, pl.DataType], *, most_rows: int = 60) -> pl.DataFrame:
    """Draw rows of a schema: each column has few values, a range of values, one value, or nulls."""
    rows = draw(st.sampled_from([most_rows, most_rows, most_rows, most_rows // 2, 3, 2, 1, 0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    columns = [draw(columns_of(name, dtype, rows, rng)) for name, dtype in schema.items()]
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=rows)


@st.composite
def columns_of(
    draw: st.DrawFn, name: str, dtype: pl.DataType, rows: int, rng: np.random.Generator
) -> pl.Series:
    """Draw a column: few values are drawn, so that cases shrink well; `rng` assigns them to rows."""
    shape = draw(st.sampled_from(["spread", "spread", "spread", "pool", "pool", "one value", "nulls"]))
    if shape == "nulls":
        return pl.Series(name, [None] * rows, dtype=dtype)
    if shape == "spread" and dtype in _SPREADS:
        values = _SPREADS[dtype](rng, rows, 10.0 ** draw(st.integers(0, 4)))
    else:
        pool = draw(st.lists(VALUES[dtype], min_size=1, max_size=1 if shape == "one value" else 5))
        # Squared: the first values are heavy.
        values = [pool[int(len(pool) * share**2)] for share in rng.random(rows)]
    nulls = rng.random(rows) < draw(st.sampled_from([0.0, 0.0, 0.2]))
    return pl.Series(name, [None if n else v for v, n in zip(values, nulls, strict=True)], dtype=dtype)


_Spread = Callable[[np.random.Generator, int, float], list[Any]]


def _whole(most: int) -> _Spread:
    return lambda rng, rows, width: rng.integers(-3, min(int(7 * width), most), rows).tolist()


def _real(rng: np.random.Generator, rows: int, width: float) -> list[Any]:
    return np.float32(np.round(rng.lognormal(0, 2, rows) * width, 3)).tolist()


def _instants(rng: np.random.Generator, rows: int, width: float) -> list[datetime]:
    seconds = rng.integers(0, int(90 * width), rows)
    return [datetime(2024, 2, 27) + timedelta(seconds=int(s), microseconds=int(s) % 7) for s in seconds]


def _days(rng: np.random.Generator, rows: int, width: float) -> list[date]:
    return [date(2024, 2, 27) + timedelta(days=int(day)) for day in rng.integers(0, int(9 * width), rows)]


def _words(rng: np.random.Generator, rows: int, width: float) -> list[str]:
    return [f"key {number:04}" for number in rng.integers(0, int(9 * width), rows)]


def _of_scale(scale: int, most: int) -> _Spread:
    return lambda rng, rows, width: [
        decimal(int(v), scale) for v in rng.integers(0, min(int(99 * width), most), rows)
    ]


_SPREADS: dict[pl.DataType, _Spread] = {
    pl.Int64(): _whole(2**62),
    pl.Int32(): _whole(2**31),
    pl.Int16(): _whole(2**15),
    pl.Int8(): _whole(2**7),
    pl.Float64(): _real,
    pl.Float32(): _real,
    pl.String(): _words,
    pl.Date(): _days,
    pl.Datetime("us"): _instants,
    pl.Datetime("us", "UTC"): lambda *of: [v.replace(tzinfo=UTC) for v in _instants(*of)],
    pl.Decimal(5, 2): _of_scale(2, 10**5),
    pl.Decimal(18, 4): _of_scale(4, 10**18),
    pl.Decimal(25, 3): _of_scale(3, 10**18),
}
