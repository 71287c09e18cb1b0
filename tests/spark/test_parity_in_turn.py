"""Operations in random order, each by a random engine, leave what memory alone makes of them on a twin."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.stateful_model import KEYS, Batch
from tests.helpers.tables import folder, sampled
from tests.spark.frames import of_spark, to_spark
from tests.spark.twins import COUNTS, small_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
Engine = Literal["memory", "spill", "spark"]
ENGINES: tuple[Engine, ...] = ("spark", "spill", "memory")
INDEXED = ["a", "s", "x"]
SAMPLES = (0.05, 0.4, (0.3, 0.8))
# In Spark's SQL and in Polars.
CONDITIONS: list[tuple[str, pl.Expr]] = [
    ("a < 15", pl.col("a") < 15),
    ("s IN ('key 3', 'key 7') AND NOT a > 60", pl.col("s").is_in(["key 3", "key 7"]) & ~(pl.col("a") > 60)),
    ("s IS NULL OR x >= 60.0", pl.col("s").is_null() | (pl.col("x") >= 60)),
    ("id BETWEEN 40 AND 70", pl.col("id").is_between(40, 70)),
    ("a IS NULL", pl.col("a").is_null()),
]
VALUES: list[dict[str, Any]] = [
    {"x": 0.5},
    {"a": pl.col("a") + 1},
    {"a": pl.lit(7, pl.Int32), "s": "'changed'"},
    {"a": pl.col("id") + 1_000_000},  # beyond the space of the index
]
SOURCE_X = pl.col("source").struct.field("x")
CLAUSES: list[dict[str, Any]] = [
    {},
    {"when_matched": "delete"},
    {"when_matched": "ignore", "not_matched_if": SOURCE_X < 30},
    {"matched_if": pl.col("x") < SOURCE_X, "update": {"x": SOURCE_X}, "delete_if": pl.col("s") == "key 2"},
    {"when_not_matched_by_source": "delete", "not_matched_by_source_if": pl.col("a") > 80},
]
OPTIMIZES: list[dict[str, Any]] = [{}, {"full": True}, {"into": "newest"}, {"into": "new"}]
KINDS = ("append", "overwrite", "delete", "update", "merge", "optimize")


@dataclass(frozen=True)
class Hand:
    """An engine that does what it is told to one table."""

    spark: SparkSession
    path: Path
    engine: Engine

    @property
    def resources(self) -> qbeast.Resources:
        return qbeast.Resources(engine="spill" if self.engine == "spill" else "memory")

    def write(self, frame: pl.DataFrame, **options: Any) -> object:
        if self.engine == "spark":
            return bridge.write_table(self._of_spark(frame), self.path, **options).rows
        return qbeast.write_table(frame, self.path, **options, resources=self.resources).rows

    def delete(self, where: tuple[str, pl.Expr], *, as_text: bool) -> object:
        condition = where[0] if as_text else where[1]
        if self.engine == "spark":
            return counted(bridge.delete(self.spark, self.path, condition))
        return counted(qbeast.open_table(self.path).delete(condition, resources=self.resources))

    def update(self, where: tuple[str, pl.Expr], values: dict[str, Any], *, as_text: bool) -> object:
        condition = where[0] if as_text else where[1]
        if self.engine == "spark":
            return counted(bridge.update(self.spark, self.path, condition, values))
        return counted(qbeast.open_table(self.path).update(condition, values, resources=self.resources))

    def merge(self, source: pl.DataFrame, **clauses: Any) -> object:
        if self.engine == "spark":
            return counted(bridge.merge(self._of_spark(source), self.path, **clauses))
        return counted(qbeast.open_table(self.path).merge(source, **clauses, resources=self.resources))

    def optimize(self, **options: Any) -> object:
        if self.engine == "spark":
            bridge.optimize(self.spark, self.path, **options)
        else:
            qbeast.open_table(self.path).optimize(**options, resources=self.resources)
        return None

    def _of_spark(self, frame: pl.DataFrame) -> Any:
        return to_spark(self.spark, frame, self.path.with_name(f"raw-{random.getrandbits(64)}"))


def counted(result: qbeast.ChangeResult) -> dict[str, object]:
    """Return what was done; how many rows were copied, and the version, follow from the files there were."""
    return {name: getattr(result, name) for name in COUNTS if name not in ("version", "rows_copied")}


def assert_same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Compare as multisets; after a merge by other columns several rows may have the same number."""
    assert_frame_equal(found.sort(pl.all()), wanted.sort(pl.all()), check_exact=True)


def drawn(rng: random.Random, kind: str, rows: pl.DataFrame, first: int) -> tuple[str, dict[str, Any]]:
    """Say what is to be done to a table that holds these rows; new ones are numbered from the first on."""
    batch = Batch(rng.choice([60, 60, 5, 0]), rng.choice([100, 100, 3, 10**6]), rng.getrandbits(16))
    frame = pl.DataFrame(batch.rows(first), schema=KEYS, orient="row")
    where = {"where": rng.choice(CONDITIONS), "as_text": rng.random() < 0.5}
    if kind == "append":
        return "write", {"frame": frame, "mode": "append"}
    if kind == "overwrite":
        return "write", {"frame": frame, "mode": "overwrite", "columns": INDEXED, "cube_size": 20}
    if kind == "delete":
        return "delete", where
    if kind == "update":
        return "update", where | {"values": rng.choice(VALUES)}
    if kind == "optimize":
        return "optimize", rng.choice(OPTIMIZES)
    again = rows.sample(fraction=rng.choice([0.0, 0.1, 0.6]), seed=rng.getrandbits(16))
    source = pl.concat([again.with_columns(pl.lit(33.5).alias("x")), frame])
    on = rng.choice(["id", "id", ["a", "s"]])
    return "merge", {"source": source.unique(on, keep="first", maintain_order=True), "on": on} | rng.choice(
        CLAUSES
    )


def live(spark: SparkSession, rng: random.Random, kinds: list[str]) -> None:
    """Lead two tables through the same life, and compare them after every step."""
    with folder() as path, folder() as twin, small_tasks():
        first = pl.DataFrame(Batch(120, 100, rng.getrandbits(16)).rows(0), schema=KEYS, orient="row")
        steps = [("write", {"frame": first, "columns": INDEXED, "cube_size": 20})]
        rows, report = first, list[str]()
        for turn, kind in enumerate(["write", *kinds]):
            name, request = steps[0] if kind == "write" else drawn(rng, kind, rows, 1000 * turn)
            engine = rng.choice(ENGINES)
            report.append(f"{engine}: {kind} {request}")
            done = getattr(Hand(spark, path, engine), name)(**request)
            target = getattr(Hand(spark, twin, "memory"), name)(**request)
            story = "\n".join(report)
            assert done == target, story
            rows = qbeast.read_table(twin)
            assert_same(qbeast.read_table(path), rows)
            assert qbeast.open_table(path).check().ok, story
            check_invariants(path, may_stage=True)
        for sample in SAMPLES:
            expected = sampled(rows, INDEXED, sample)
            assert_same(qbeast.read_table(path, sample=sample), expected)
            assert_same(of_spark(bridge.read_table(spark, path, sample=sample)), expected)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@examples(1, sweep=8)
@example(seed=4)
@given(seed=st.integers(0, 2**32))
def test_operations_in_any_order_agree(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 -- no secret
    live(spark, rng, [*rng.sample(KINDS, len(KINDS)), *rng.choices(KINDS, k=4)])
