"""Operations in random order, each by a random engine, leave what memory alone makes of them on a twin."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge
from tests.contract.engines import ENGINES
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants
from tests.helpers.stateful_model import KEYS, Batch
from tests.helpers.tables import folder
from tests.spark.executors import Executors
from tests.spark.frames import of_spark
from tests.spark.twins import small_tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.classic,
    pytest.mark.sweep,
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
]
# In Spark's SQL and in Polars.
INDEXED = ["a", "s", "x"]
SAMPLES = (0.05, 0.4, (0.3, 0.8))
CONDITIONS = (
    "a < 15",
    "s IN ('key 3', 'key 7') AND NOT a > 60",
    "s IS NULL OR x >= 60.0",
    "id BETWEEN 40 AND 70",
    "a IS NULL",
)
VALUES: list[dict[str, Any]] = [
    {"x": 0.5},
    {"a": "a + 1"},
    {"a": pl.lit(7, pl.Int32), "s": "'changed'"},
    {"a": "id + 1000000"},  # beyond the space of the index
]
CLAUSES: list[dict[str, str]] = [
    {},
    {"when_matched": "delete"},
    {"when_matched": "ignore", "not_matched_if": "source.x < 30"},
    {"matched_if": "x < source.x", "delete_if": "s = 'key 2'"},
    {"when_not_matched_by_source": "delete", "not_matched_by_source_if": "a > 80"},
]
KINDS = ("append", "overwrite", "delete", "update", "merge", "optimize", "reindex")


def drawn(rng: random.Random, kind: str, rows: pl.DataFrame, first: int) -> Callable[[Any, Path], object]:
    """Return what is to be done to a table that holds these rows; new ones are numbered from the first on."""
    batch = Batch(rng.choice([60, 60, 5, 0]), rng.choice([100, 100, 3, 10**6]), rng.getrandbits(16))
    frame = pl.DataFrame(batch.rows(first), schema=KEYS, orient="row")
    where, values, clauses = rng.choice(CONDITIONS), rng.choice(VALUES), rng.choice(CLAUSES)
    columns, full = rng.choice([["a", "s", "x"], ["x:quantiles", "a"]]), rng.random() < 0.5
    again = rows.sample(fraction=rng.choice([0.0, 0.1, 0.6]), seed=rng.getrandbits(16))
    on = rng.choice(["id", "id", ["a", "s"]])
    source = pl.concat([again.with_columns(pl.lit(33.5).alias("x")), frame])
    source = source.unique(on, keep="first", maintain_order=True)
    return {
        "append": lambda engine, path: engine.write(frame, path, mode="append"),
        "overwrite": lambda engine, path: engine.write(
            frame, path, mode="overwrite", columns=INDEXED, cube_size=20
        ),
        "delete": lambda engine, path: engine.delete(path, where),
        "update": lambda engine, path: engine.update(path, where, values),
        "merge": lambda engine, path: engine.merge(source, path, on, **clauses),
        "optimize": lambda engine, path: engine.optimize(path, full=full),
        "reindex": lambda engine, path: engine.reindex(path, columns, full=full),
    }[kind]


def counted(result: Any) -> dict[str, object]:
    """Return what was done; how many rows were copied, and the version, follow from the files there were."""
    names = ("rows_deleted", "rows_updated", "rows_inserted")
    return {name: getattr(result, name) for name in names if hasattr(result, name)}


def assert_same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Compare as multisets; after a merge by other columns several rows may have the same number."""
    assert_frame_equal(found.sort(pl.all()), wanted.sort(pl.all()), check_exact=True)


@pytest.mark.timeout(3600)
@examples(1, sweep=4)
@example(seed=4)
@given(seed=st.integers(0, 2**32))
def test_operations_in_any_order_agree(spark: SparkSession, seed: int) -> None:
    """Lead two tables through the same life, and compare them after every step."""
    rng = random.Random(seed)  # noqa: S311 -- no secret
    with folder() as path, folder() as twin, small_tasks():
        engines = ENGINES | {"spark": Executors(spark, path.with_name("raw"))}
        rows, story = (
            pl.DataFrame(Batch(120, 100, rng.getrandbits(16)).rows(0), schema=KEYS, orient="row"),
            ["write"],
        )
        for table in (path, twin):
            ENGINES["memory"].write(rows, table, columns=INDEXED, cube_size=20)
        for turn, kind in enumerate([*rng.sample(KINDS, len(KINDS)), *rng.choices(KINDS, k=4)], 1):
            change, engine = drawn(rng, kind, rows, 1000 * turn), rng.choice(["spark", "spark", "spill"])
            story.append(f"{engine}: {kind}")
            done, wanted = change(engines[engine], path), change(ENGINES["memory"], twin)
            assert counted(done) == counted(wanted), story
            rows = qbeast.read_table(twin)
            assert_same(qbeast.read_table(path), rows)
            assert qbeast.open_table(path).check().ok, story
            check_invariants(path, may_stage=True)
        for sample in SAMPLES:
            assert_same(
                of_spark(bridge.read_table(spark, path, sample=sample)),
                qbeast.read_table(path, sample=sample),
            )
