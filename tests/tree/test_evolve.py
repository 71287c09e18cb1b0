"""Revisions: what the first one becomes, and what growth of the data makes of the next ones (format 3, 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from qbeast_core.spec.column_spec import ColumnSpec, parse_column_spec
from qbeast_core.spec.revision import Revision
from qbeast_core.spec.transformation import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
)
from qbeast_core.tree.evolve import Growth, IndexWish, first_revision, next_revision
from qbeast_core.tree.fit import ColumnBounds
from qbeast_core.tree.summary import sampled_numbers, summarise


@dataclass
class Table:
    """The revisions of a table of one column "x", and the rows of the newest."""

    spec: str = "x"
    dialect: Any = "documented"
    revisions: list[Revision] = field(default_factory=list)
    batches: list[pl.Series] = field(default_factory=list)

    def append(self, values: pl.Series, *, cube_size: int | None = None, bounds: ColumnBounds | None = None) -> Revision:
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
                self.batches.clear()
        self.batches.append(values)
        return self.revisions[-1]

    def _growth(self) -> Growth:
        outside = sum(_outside(values, self.space) for values in self.batches)
        return Growth(rows=sum(values.len() for values in self.batches), outside_rows={"x": outside})

    @property
    def space(self) -> Any:
        return self.revisions[-1].transformations[0]

    @property
    def kind(self) -> str:
        return self.revisions[-1].column_transformers[0].kind


def _outside(values: pl.Series, space: Any) -> int:
    if isinstance(space, CDFStringQuantilesTransformation):
        known = values.drop_nulls()
    elif isinstance(space, CDFNumericQuantilesTransformation):
        known = sampled_numbers(values)
    else:
        return 0
    return int(((known < space.quantiles[0]) | (known > space.quantiles[-1])).sum())


RNG = np.random.default_rng(7)
DAY = datetime(2024, 1, 1, tzinfo=UTC)
TYPES: dict[str, Callable[[np.ndarray], pl.Series]] = {
    "long": lambda v: pl.Series(v.astype(np.int64)),
    "double": lambda v: pl.Series(v / 7),
    "float": lambda v: pl.Series(v.astype(np.float32)),
    "decimal": lambda v: pl.Series(v.astype(np.int64)).cast(pl.Decimal(12, 2)),
    "date": lambda v: pl.Series((v % 40_000).astype(np.int32)).cast(pl.Date),
    "timestamp": lambda v: pl.Series([DAY + timedelta(minutes=float(m)) for m in v]),
    "string": lambda v: pl.Series([f"{int(n):08}" for n in v]),
}


def grown(kind: str, low: float, high: float, rows: int = 200) -> pl.Series:
    return TYPES[kind](np.sort(RNG.uniform(low, high, rows)))


@pytest.mark.parametrize("direction", ["up", "down", "both ways", "everywhere"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("spec", ["x", "x:linear", "x:quantiles"])
def test_tenfold_growth_in_a_hundred_appends_takes_few_revisions(spec: str, kind: str, direction: str) -> None:
    if (spec, kind) == ("x:linear", "string"):
        return
    table = Table(spec)
    table.append(grown(kind, 10_000, 11_000, rows=2000))
    for number in range(100):
        step = 90 * number
        match direction:
            case "up":
                values = grown(kind, 11_000 + step, 11_090 + step)
            case "down":
                values = grown(kind, 9_910 - step, 10_000 - step)
            case "both ways":
                sign = 1 if number % 2 else -1
                values = grown(kind, *sorted([10_500 + sign * (500 + step / 2), 10_500 + sign * (600 + step / 2)]))
            case _:
                values = grown(kind, 10_000 - step / 2, 11_000 + step / 2)
        table.append(values)
    assert len(table.revisions) <= 6
