"""The life of a table: whatever is done to it, in whatever order, every row is there once and samples hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import qbeast
from qbeast_core.spec.block import BlocksDialect
from qbeast_core.table.snapshot import load_snapshot
from tests.integration.invariants import check_invariants
from tests.integration.tables import assert_same_rows, folder, sampled, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

INDEXED = ["row", "a", "b"]


def rows_from(start: int, count: int = 30) -> pl.DataFrame:
    numbers = pl.int_range(start, start + count, eager=True).alias("row")
    spread = (numbers * 7919) % 101
    kept = pl.when(spread % 9 > 0).then(spread).cast(pl.Float64)
    return pl.select(numbers, a=kept, b=pl.format("key {}", spread % 13))


@dataclass
class Life:
    """A table and, by version, the rows it should hold."""

    path: Path
    history: dict[int, pl.DataFrame] = field(default_factory=dict)
    steps: int = 0

    @property
    def version(self) -> int:
        return load_snapshot(self.path).version

    @property
    def rows(self) -> pl.DataFrame:
        return self.history[max(self.history)]

    def fresh(self) -> pl.DataFrame:
        return rows_from(1000 * self.steps)

    def take(self, step: str) -> None:
        self.steps += 1
        rows = getattr(self, step)()
        now = self.version
        for version in range(max(self.history) + 1, now):
            self.history[version] = pl.DataFrame()  # of an operation of many commits: not looked at again
        self.history[now] = rows

    def append(self) -> pl.DataFrame:
        more = self.fresh()
        qbeast.write_table(more, self.path, mode="append")
        return pl.concat([self.rows, more])

    def append_far(self) -> pl.DataFrame:
        more = rows_from(10 ** (6 + self.steps))
        qbeast.write_table(more, self.path, mode="append")
        return pl.concat([self.rows, more])

    def overwrite(self) -> pl.DataFrame:
        more = self.fresh()
        qbeast.write_table(more, self.path, mode="overwrite")
        return more

    def append_of_others(self) -> pl.DataFrame:
        more = self.fresh()
        write_deltalake(self.path, more, mode="append")
        return pl.concat([self.rows, more])

    def delete_of_others(self) -> pl.DataFrame:
        DeltaTable(self.path).delete(f"a > {90 - self.steps}")
        return self.rows.filter((pl.col("a") > 90 - self.steps).fill_null(value=False).not_())

    def compact_of_others(self) -> pl.DataFrame:
        DeltaTable(self.path).optimize.compact()
        return self.rows

    def optimize(self) -> pl.DataFrame:
        qbeast.open_table(self.path).optimize()
        return self.rows

    def switch(self) -> pl.DataFrame:
        dialect = load_snapshot(self.path).config.dialect
        other: BlocksDialect = "documented" if dialect == "qbeast-spark" else "qbeast-spark"
        assert qbeast.open_table(self.path).switch_dialect(other, jvm="0.8").switched
        return self.rows

    def describe(self) -> pl.DataFrame:
        assert not qbeast.upgrade_table(self.path).upgraded
        qbeast.open_table(self.path).set_properties(
            {"step": str(self.steps), "delta.checkpointInterval": "3"}
        )
        return self.rows

    def restore(self) -> pl.DataFrame:
        opened = qbeast.open_table(self.path)
        known = [version for version, rows in self.history.items() if rows.width]
        version = known[self.steps * 7 % len(known)]
        opened.restore(version)
        return self.history[version]

    def vacuum(self) -> pl.DataFrame:
        opened = qbeast.open_table(self.path)
        opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
        rows = self.rows
        self.history = {self.version: rows}  # older versions lost their files
        return rows

    def check(self) -> None:
        for sample in (None, 0.3, (0.25, 0.8)):
            wanted = sampled(self.rows, INDEXED, sample)
            assert_same_rows(qbeast.read_table(self.path, sample=sample), wanted)
            below = pl.col("a") < 30
            assert_same_rows(qbeast.read_table(self.path, sample=sample, filter=below), wanted.filter(below))
        assert_same_rows(pl.scan_delta(str(self.path)).collect(), self.rows)
        assert qbeast.open_table(self.path).check().faults.filter(pl.col("severity") == "error").is_empty()


STEPS = (
    "append",
    "append_far",
    "append_of_others",
    "compact_of_others",
    "delete_of_others",
    "describe",
    "optimize",
    "overwrite",
    "restore",
    "switch",
    "vacuum",
)


def live(begin: str, steps: list[str]) -> None:
    with folder() as path, small_files():
        life = Life(path)
        if begin == "written":
            qbeast.write_table(rows_from(0), path, columns=INDEXED, cube_size=7)
        elif begin == "converted":
            rows_from(0).write_delta(path)
            qbeast.convert_table(path, INDEXED, cube_size=7)
        else:
            path.mkdir()
            rows_from(0).write_parquet(path / "a.parquet")
            qbeast.convert_table(path, INDEXED, cube_size=7)
        life.history[life.version] = rows_from(0)
        for step in steps:
            life.take(step)
            life.check()
        if load_snapshot(path).config.last_revision_id and not list(path.glob("_delta_log/*.checkpoint.*")):
            check_invariants(path, may_stage=True)


BEGINNINGS = st.sampled_from(["written", "converted", "Parquet"])


@settings(max_examples=8)
@given(begin=BEGINNINGS, steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))
def test_every_row_is_there_once_after_every_step(begin: str, steps: list[str]) -> None:
    live(begin, steps)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@settings(max_examples=300)
@given(begin=BEGINNINGS, steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=9))
def test_every_row_is_there_once_in_many_lives(begin: str, steps: list[str]) -> None:
    live(begin, steps)
