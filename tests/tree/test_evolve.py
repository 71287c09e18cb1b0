"""Revisions: what the first one becomes, and what growth of the data makes of the next ones (format 3, 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from qbeast_core.space.coordinates import to_coordinates
from qbeast_core.space.values import number_values
from qbeast_core.spec.revision import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
    IdentityTransformation,
    LinearTransformation,
    Revision,
    parse_column_spec,
)
from qbeast_core.support.sizing import sizing
from qbeast_core.tree.fit import ColumnBounds, Growth, IndexWish, first_revision, next_revision
from qbeast_core.tree.grid import to_index_column
from qbeast_core.tree.summary import summarise


@dataclass
class Table:
    """The revisions of a table of one column "x", and its rows."""

    spec: str = "x"
    dialect: Any = "documented"
    revisions: list[Revision] = field(default_factory=list)
    batches: list[pl.Series] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)

    def append(
        self, values: pl.Series, *, cube_size: int | None = None, bounds: ColumnBounds | None = None
    ) -> Revision:
        wish = IndexWish(
            specs=(parse_column_spec(self.spec),),
            cube_size=cube_size,
            dialect=self.dialect,
            bounds={"x": bounds} if bounds else {},
        )
        summary = summarise(values.alias("x").to_frame(), ["x"])
        if not self.revisions:
            self.revisions.append(first_revision(wish, summary, table_id="t", timestamp_ms=1))
        else:
            now = self.revisions[-1]
            revision = next_revision(now, wish, summary, growth=self._growth(), timestamp_ms=2)
            if revision is not now:
                self.revisions.append(revision)
        self.batches.append(values)
        self.columns.append(summary.columns[0])
        return self.revisions[-1]

    def _growth(self) -> Growth:
        rows = pl.concat(self.batches)
        ends = [column for column in self.columns if column.lowest is not None]
        return Growth(
            rows=len(rows),
            outside_rows={"x": _outside(rows, self.space)},
            ranges={"x": (min(c.lowest for c in ends), max(c.highest for c in ends))} if ends else {},
        )

    @property
    def space(self) -> Any:
        return self.revisions[-1].transformations[0]

    @property
    def kind(self) -> str:
        return self.revisions[-1].column_transformers[0].kind


def _outside(values: pl.Series, space: Any) -> int:
    if isinstance(space, CDFStringQuantilesTransformation):
        existing = values.drop_nulls()
    elif isinstance(space, CDFNumericQuantilesTransformation):
        existing = pl.Series(number_values(to_index_column(values.drop_nulls())))
        existing = existing.filter(existing.is_finite())
    else:
        return 0
    return int(((existing < space.quantiles[0]) | (existing > space.quantiles[-1])).sum())


RNG = np.random.default_rng(7)
DAY = datetime(2024, 1, 1, tzinfo=UTC)
TYPES: dict[str, Callable[[np.ndarray], pl.Series]] = {
    "long": lambda v: pl.Series(v.astype(np.int64)),
    "double": lambda v: pl.Series(v / 7),
    "float": lambda v: pl.Series(v.astype(np.float32)),
    "decimal": lambda v: pl.Series(v.astype(np.int64)).cast(pl.Decimal(12, 2)),
    "date": lambda v: pl.Series(v.astype(np.int32)).cast(pl.Date),
    "timestamp": lambda v: pl.Series([DAY + timedelta(minutes=float(m)) for m in v]),
    "string": lambda v: pl.Series([f"{int(n):08}" for n in v]),
}
GROWTHS: dict[str, Callable[[int], tuple[float, float]]] = {
    "up": lambda step: (11_000 + step, 11_090 + step),
    "down": lambda step: (9_910 - step, 10_000 - step),
    "both ways": lambda step: (11_000 + step, 11_180 + step) if step % 180 else (9_820 - step, 10_000 - step),
    "everywhere": lambda step: (10_000 - step / 2, 11_000 + step / 2),
    "nowhere": lambda _: (10_000, 11_000),
}


def spread(kind: str, low: float, high: float, rows: int) -> pl.Series:
    return TYPES[kind](RNG.uniform(low, high, rows))


CASES = [
    ("x:linear" if linear else "x:quantiles", kind, growth)
    for linear in (True, False)
    for kind in TYPES
    for growth in GROWTHS
    if not (linear and kind == "string") and (kind in {"long", "string"} or growth == "up")
]


@pytest.mark.parametrize(("spec", "kind", "growth"), CASES)
def test_tenfold_growth_in_hundred_appends_takes_few_revisions(spec: str, kind: str, growth: str) -> None:
    table = Table(spec)
    table.append(spread(kind, 10_000, 11_000, 400))
    for number in range(100):
        table.append(spread(kind, *GROWTHS[growth](90 * number), 40))
    assert len(table.revisions) <= (1 if growth == "nowhere" and spec == "x:quantiles" else 6)
    assert [revision.revision_id for revision in table.revisions] == list(range(1, len(table.revisions) + 1))


def test_redrawn_quantiles_cover_table_and_crowd() -> None:
    table = Table("x:quantiles")
    table.append(spread("long", 0, 1000, 1000))
    for low in (5000, -6000, 9000, -9000):
        table.append(spread("long", low, low + 100, 400))
    first, *_, last = (revision.transformations[0] for revision in table.revisions)
    assert len(table.revisions) >= 2
    assert last.quantiles[0] < -5900
    assert last.quantiles[-1] > 5000
    assert set(first.quantiles) & set(last.quantiles)


@pytest.mark.parametrize("prefix", ["", "p" * 63, "p" * 64, "https://example.org/" * 5])
def test_texts_with_long_prefix_take_few_revisions(prefix: str) -> None:
    table = Table("x:quantiles")
    for number in range(40):
        texts = [f"{prefix}{i:06}" for i in RNG.integers(0, 1000, 50)]
        table.append(pl.Series([*texts, f"a{number}"]))
    assert len(table.revisions) == 1


# fmt: off
AUTO: dict[str, tuple[pl.Series, str]] = {
    "uniform": (pl.Series(RNG.uniform(-5, 5, 5000)), "linear"),
    "even integers": (pl.Series(range(0, 10_000, 2)), "linear"),
    "few even values": (pl.Series([*range(20)] * 50), "linear"),
    "a bell": (pl.Series(RNG.normal(0, 1, 5000)), "quantiles"),
    "incomes": (pl.Series(RNG.lognormal(10, 1, 5000)), "quantiles"),
    "prices": (pl.Series((RNG.lognormal(3, 1, 5000)).round(2)).cast(pl.Decimal(9, 2)), "quantiles"),
    "one far value": (pl.Series([*range(1000), 10**15]), "quantiles"),
    "latest days": (pl.Series((19_000 - RNG.exponential(30, 5000)).astype(np.int32)).cast(pl.Date), "quantiles"),
    "even times": (pl.Series([DAY + timedelta(minutes=i) for i in range(5000)]), "linear"),
    "texts": (pl.Series([f"{i:05}" for i in range(5000)]), "quantiles"),
    "one text": (pl.Series(["a"] * 5), "quantiles"),
    "null texts": (pl.Series([None] * 5, dtype=pl.String), "quantiles"),
    "one value": (pl.Series([3.5] * 5), "linear"),
    "two values": (pl.Series([3, 4]), "linear"),
    "nulls": (pl.Series([None] * 5, dtype=pl.Int32), "linear"),
    "NaN": (pl.Series([float("nan")] * 5), "linear"),
    "infinities": (pl.Series([float("inf"), -float("inf")]), "linear"),
    "nothing": (pl.Series([], dtype=pl.Int64), "linear"),
    "uniform with nulls": (pl.Series([None, *range(3000)]), "linear"),
    "uniform with NaN": (pl.Series([float("nan"), float("inf"), *map(float, range(3000))]), "linear"),
}
# fmt: on


@pytest.mark.parametrize("name", AUTO)
def test_auto_chooses_linear_or_quantiles_by_data(name: str) -> None:
    values, kind = AUTO[name]
    table = Table()
    table.append(values)
    assert table.kind == kind
    for_the_jvm = Table(dialect="qbeast-spark")
    for_the_jvm.append(values)
    assert for_the_jvm.kind == ("hashing" if values.dtype == pl.String else "linear")
    assert not isinstance(for_the_jvm.space, IdentityTransformation | CDFNumericQuantilesTransformation)


@pytest.mark.parametrize("name", AUTO)
@pytest.mark.parametrize("dialect", ["documented", "qbeast-spark"])
def test_repeated_values_need_no_new_revision(name: str, dialect: Any) -> None:
    values, _ = AUTO[name]
    kinds = ["x", "x:quantiles", "x:hash" if not values.dtype.is_temporal() else "x"]
    for spec in [*kinds, "x" if values.dtype == pl.String else "x:linear"]:
        table = Table(spec, dialect)
        first = table.append(values)
        assert table.append(values) is first
        assert table.append(values.head(3)) is first
        assert table.append(values.clear()) is first
        is_first = values.is_empty() and isinstance(table.space, LinearTransformation)  # of the JVM's dialect
        assert (table.append(pl.Series([None] * 3, dtype=values.dtype)) is first) != is_first


def test_jvm_dialect_writes_quantiles_on_request() -> None:
    table = Table("x:quantiles", "qbeast-spark")
    table.append(pl.Series(RNG.lognormal(0, 1, 100)))
    assert isinstance(table.space, CDFNumericQuantilesTransformation)


EMPTY = {
    "numbers": pl.Series([None, None], dtype=pl.Int64),
    "one": pl.Series([7]),
    "NaN": pl.Series([float("nan")]),
}


@pytest.mark.parametrize("dialect", ["documented", "qbeast-spark"])
@pytest.mark.parametrize("spec", ["x", "x:linear", "x:quantiles"])
@pytest.mark.parametrize("start", EMPTY)
def test_column_without_range_gets_one_later(start: str, spec: str, dialect: Any) -> None:
    table = Table(spec, dialect)
    table.append(EMPTY[start])
    values = pl.Series(range(100, 200)).cast(EMPTY[start].dtype)
    table.append(values)
    assert len(table.revisions) == 2
    assert table.kind == ("quantiles" if spec == "x:quantiles" else "linear")
    assert table.append(values) is table.revisions[1]
    ends = (
        (table.space.quantiles[0], table.space.quantiles[-1])
        if spec == "x:quantiles"
        else (table.space.min_number, table.space.max_number)
    )
    assert ends[0] <= 100
    assert ends[1] >= 199
    if start == "one":
        assert ends[0] <= 7


@pytest.mark.parametrize("start", [pl.Series([None] * 2, dtype=pl.String), pl.Series(["m"]), pl.Series([""])])
def test_constant_text_column_gets_quantiles_later(start: pl.Series) -> None:
    table = Table()
    table.append(start)
    assert table.space.quantiles == ((start[0] or ""), (start[0] or "") + "\0")
    table.append(pl.Series(["a", "z", "k"]))
    assert {"a", "k", "z"} <= set(table.space.quantiles)
    assert len(table.revisions) == 2


LEAST, MOST = -(2**63), 2**63 - 1
EXTREMES = {
    "all of int64": ([LEAST, MOST], [0]),
    "the least": ([LEAST], [LEAST + 1, MOST]),
    "the most": ([MOST], [MOST - 1, LEAST]),
    "beside the most": ([MOST - 1, MOST], [MOST]),
    "beyond 2**53": ([2**53, 2**53 + 1], [2**53 + 2]),
    "towards the most": ([0, 2**62], [2**62 + 2**61, MOST]),
    "towards the least": ([-(2**62), 0], [LEAST]),
}


@pytest.mark.parametrize("dialect", ["documented", "qbeast-spark"])
@pytest.mark.parametrize("spec", ["x", "x:linear", "x:quantiles"])
@pytest.mark.parametrize("name", EXTREMES)
def test_int64_limits_fit_their_space(name: str, spec: str, dialect: Any) -> None:
    table = Table(spec, dialect)
    for values in EXTREMES[name]:
        rows = pl.Series(values, dtype=pl.Int64)
        revision = table.append(rows)
        assert Revision.from_json(revision.to_json()) == revision
        points = to_coordinates(table.space, to_index_column(rows))
        assert ((points >= 0) & (points <= 1)).all()
        order = np.argsort(rows.to_numpy(), kind="stable")
        assert (np.diff(points[order]) >= 0).all()
    if spec == "x:linear" and not isinstance(table.space, IdentityTransformation):
        everything = [value for values in EXTREMES[name] for value in values]
        assert LEAST <= table.space.min_number <= min(everything)
        assert max(everything) <= table.space.max_number <= MOST


FLOATS = [1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -0.0, 0.0, float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("spec", ["x", "x:linear", "x:quantiles", "x:hash"])
def test_extreme_floats_fit_in_any_order(spec: str, dtype: Any) -> None:
    for _ in range(20):
        table = Table(spec)
        for size in (1, 2, 3):
            values = pl.Series(RNG.choice(FLOATS, size)).clip(*LIMITS[dtype]).cast(dtype)
            table.append(values)
            points = to_coordinates(table.space, to_index_column(values))
            assert ((points >= 0) & (points <= 1)).all()
            assert Revision.from_json(table.revisions[-1].to_json()) == table.revisions[-1]


LIMITS = {pl.Float64: (None, None), pl.Float32: (-3.4e38, 3.4e38)}


def test_hashed_column_is_never_superseded_by_data() -> None:
    table = Table("x:hash")
    first = table.append(pl.Series([1, 2]))
    assert table.append(pl.Series([10**15, None])) is first


def test_new_cube_size_or_kind_begins_revision() -> None:
    table = Table()
    rows = pl.Series(range(1000))
    first = table.append(rows, cube_size=100)
    second = table.append(rows, cube_size=50)
    assert (second.revision_id, second.desired_cube_size) == (2, 50)
    assert second.transformations == first.transformations
    assert table.append(rows) is second
    table.spec = "x:quantiles"
    assert (table.append(rows).revision_id, table.kind) == (3, "quantiles")
    table.spec = "x"
    assert table.append(rows) is table.revisions[2]
    table.spec = "x:linear"
    assert (table.append(rows).revision_id, table.kind) == (4, "linear")


def test_too_many_cubes_increase_the_cube_size() -> None:
    table = Table()
    rows = pl.Series(range(1000))
    now = table.append(rows, cube_size=100)
    wish = IndexWish(specs=(parse_column_spec("x"),), cube_size=None, dialect="documented")
    summary = summarise(rows.alias("x").to_frame(), ["x"])
    most = sizing().max_cubes
    few, many = (Growth(rows=1000, cubes=cubes) for cubes in (most, most + 1))
    assert next_revision(now, wish, summary, growth=few, timestamp_ms=1) is now
    assert next_revision(now, wish, summary, growth=many, timestamp_ms=1).desired_cube_size == 400


def test_bounds_widen_and_quantiles_replace_data() -> None:
    table = Table("x:linear")
    table.append(pl.Series([5, 6]), bounds=ColumnBounds(lowest=0, highest=100))
    assert (table.space.min_number, table.space.max_number) == (0, 100)
    assert table.append(pl.Series([99]), bounds=ColumnBounds(lowest=50, highest=60)) is table.revisions[0]
    table.append(pl.Series([5]), bounds=ColumnBounds(highest=101))
    assert table.space.max_number >= 101
    table = Table("x")
    table.append(pl.Series([5, 6]), bounds=ColumnBounds(quantiles=(1, 5, 9)))
    assert (table.kind, table.space.quantiles) == ("quantiles", (1.0, 5.0, 9.0))
    table.append(pl.Series([7]), bounds=ColumnBounds(quantiles=(2, 3)))
    assert table.space.quantiles == (2.0, 3.0)
    assert table.append(pl.Series([7]), bounds=ColumnBounds(quantiles=(2, 3))) is table.revisions[1]
