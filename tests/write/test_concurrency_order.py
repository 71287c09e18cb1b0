"""Writers planned on the same version: whoever lands later keeps the order of weights (format 8.3), losing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.table.write.by_tasks import begin_append, publish_parts
from tests.helpers.examples import examples
from tests.helpers.races import before_commits
from tests.helpers.scattering import scatter
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

COLUMNS = ["a:linear", "b:linear"]
BOUNDS = {"a_min": 0.0, "a_max": 1.0, "b_min": 0.0, "b_max": 1.0}
Write = Callable[[Path, pl.DataFrame], Any]


def by_tasks(path: Path, rows: pl.DataFrame) -> None:
    context = begin_append(str(path), rows.clear())
    publish_parts(context, [context.write(part) for part in halves(rows)])


def halves(rows: pl.DataFrame) -> list[pl.DataFrame]:
    return list(rows.iter_slices(max(rows.height // 2, 1)))


APPENDS: dict[str, Write] = {
    "append": lambda path, rows: qbeast.write_table(rows, path, mode="append"),
    "tasks": by_tasks,
    "scatter": lambda path, rows: scatter(path, halves(rows), mode="append"),
}
OTHERS = ("optimize", "overwrite")


@dataclass(frozen=True)
class Area:
    """Rows of a write: a square around a point, its side a share of the space."""

    rows: int
    a: float
    b: float
    side: float
    seed: int

    def frame(self, first: int) -> pl.DataFrame:
        rng = np.random.default_rng(self.seed)
        numbers = pl.int_range(first, first + self.rows, eager=True).alias("row")
        a, b = (middle + (rng.random(self.rows) - 0.5) * self.side for middle in (self.a, self.b))
        return pl.select(numbers, a=pl.lit(np.clip(a, 0, 1)), b=pl.lit(np.clip(b, 0, 1)))


SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
AREAS = st.builds(
    Area, st.integers(1, 120), SHARES, SHARES, st.sampled_from([0.01, 0.1, 0.3, 1.0]), st.integers(0, 2**16)
)


@dataclass
class Race:
    """A table, the rows it should hold, and writers that still have to land, the last one first."""

    path: Path
    rows: pl.DataFrame
    waiting: list[tuple[str, Area]]

    def take(self, how: str, area: Area) -> None:
        """Write; if others wait, they land between this plan and its commit."""
        more = area.frame(1000 * (len(self.waiting) + 10))
        if how == "optimize":
            self.optimize()
        elif how == "overwrite":
            qbeast.write_table(more, self.path, mode="overwrite", column_stats=BOUNDS)
            self.rows = more
        else:
            APPENDS[how](self.path, more)
            self.rows = pl.concat([self.rows, more])

    def optimize(self) -> None:
        files = qbeast.open_table(self.path).rows().files()["path"].sort()
        try:
            qbeast.open_table(self.path).optimize(files=files.gather_every(2).to_list())
        except qbeast.CommitConflictError:
            assert "overwrite" in self.landed or self.landed.count("optimize") > 0

    def run(self) -> None:
        self.landed: list[str] = []
        with before_commits(self.land_waiting):
            self.go()

    def go(self) -> None:
        how, area = self.waiting.pop()
        self.take(how, area)
        self.landed.append(how)

    def land_waiting(self) -> None:
        if self.waiting:
            self.go()


def begin(path: Path, areas: Sequence[Area], cube_size: int, thinned: str) -> pl.DataFrame:
    """Write a table of several appends; thinned, its inner cubes have lost blocks."""
    frames = [area.frame(100_000 * number) for number, area in enumerate(areas, 1)]
    for rows in frames:
        qbeast.write_table(
            rows, path, columns=COLUMNS, mode="append", cube_size=cube_size, column_stats=BOUNDS
        )
    rows = pl.concat(frames)
    if thinned == "delete":
        DeltaTable(path).delete("row % 3 = 0")
        return rows.filter(pl.col("row") % 3 != 0)
    if thinned == "optimize":
        files = qbeast.open_table(path).rows().files()["path"].sort()
        qbeast.open_table(path).optimize(files=files[:2].to_list())
    return rows


@contextmanager
def small(file_rows: int, page_rows: int) -> Iterator[Path]:
    with folder() as path, small_files(file_rows=file_rows, page_rows=page_rows):
        yield path


def faults_of(path: Path) -> pl.DataFrame:
    return qbeast.open_table(path).check(data=True).faults.select("path", "cube", "code", "message")


def check(path: Path, rows: pl.DataFrame, known: pl.DataFrame | None = None) -> None:
    """See that the table is sound, but for what is known, and that it and its samples hold the rows."""
    faults = faults_of(path)
    if known is not None:
        faults = faults.join(known, on=["path", "cube", "code"], how="anti")
    assert faults.is_empty(), faults["message"].to_list()
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), rows)
    seen: set[int] = set()
    for share in (0.1, 0.4, 0.8):
        actual = table.read(sample=share)
        assert_same_rows(actual, sampled(rows, ["a", "b"], share))
        assert seen <= set(actual["row"])
        seen = set(actual["row"])


def race(data: st.DataObject, writers: st.SearchStrategy[str]) -> None:
    areas = data.draw(st.lists(AREAS, min_size=1, max_size=3), label="before")
    thinned = data.draw(st.sampled_from(["", "", "delete", "optimize"]), label="thinned")
    size = data.draw(st.sampled_from([1, 2, 4, 8, 20]), label="cube size")
    racing = data.draw(st.lists(st.tuples(writers, AREAS), min_size=2, max_size=3), label="racing")
    with small(data.draw(st.sampled_from([5, 25, 100])), data.draw(st.sampled_from([1, 2, 4]))) as path:
        run = Race(path, begin(path, areas, size, thinned), racing)
        # Another engine's delete may take the block that alone told a cube's lowest threshold.
        existing = faults_of(path) if thinned == "delete" else None
        run.run()
        check(path, run.rows, existing)
        qbeast.open_table(path).optimize()
        check(path, run.rows)


@pytest.mark.parametrize("how", ["append", pytest.param("scatter", marks=pytest.mark.sweep)])
def test_append_below_changed_cubes_is_partly_staged(how: str) -> None:
    """Without a second look, thresholds of the first would cover rows of the second."""
    before, first, second = (Area(rows, 0.0, 0.0, 0.01, rows) for rows in (1, 30, 14))
    with small(5, 1) as path:
        run = Race(path, begin(path, [before], 2, ""), [("append", first), (how, second)])
        run.run()
        check(path, run.rows)
        staged = qbeast.open_table(path).rows().files()["revision_id"].is_null().sum()
        assert 0 < staged < 6


@pytest.mark.sweep
def test_optimize_fixes_block_order_after_foreign_delete() -> None:
    item, many = Area(1, 0.0, 0.0, 0.01, 0), Area(90, 0.9, 0.3, 0.01, 0)
    with small(5, 1) as path:
        run = Race(path, begin(path, [item, item, many], 1, "delete"), [("append", item), ("append", item)])
        existing = faults_of(path)
        assert set(existing["code"]) == {"threshold-order", "weight-order"}
        run.run()
        check(path, run.rows, existing)
        qbeast.open_table(path).optimize()
        check(path, run.rows)


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@examples(1, sweep=22)
@given(data=st.data(), writers=st.sampled_from([tuple(APPENDS), (*APPENDS, *OTHERS)]))
def test_racing_writers_keep_the_order_of_weights(data: st.DataObject, writers: tuple[str, ...]) -> None:
    race(data, st.sampled_from(writers))
