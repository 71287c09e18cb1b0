"""A table of a million rows answers what people type as DuckDB does: the ways of large tables start by themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.conditions import Conditions, rows_of_many_kinds

ROWS = 1_000_000
SAMPLE = 0.3
CONDITIONS = 150
# Conditions that match more rows read few columns: else a test reads the whole table.
MANY = 15_000
# The first conditions are those that failed once, or are likely to be typed.
TYPED = [
    "x = 5 OR x = 6",
    "x IN (5, 6) AND x > 3",
    "y = 7 AND id BETWEEN 5 AND 800000",
    "y = 5 AND y < 10",
    "text LIKE 'user 771%' AND text LIKE '%9'",
]


def real_rows() -> pl.DataFrame:
    """Return the rows of the table: of those that were written, some are deleted."""
    rows = rows_of_many_kinds(ROWS)
    return rows.filter(~deleted())


def deleted() -> pl.Expr:
    return pl.col("id").is_between(200_000, 420_000) & (pl.col("x") < 300)


def write(path: Path) -> None:
    rows = rows_of_many_kinds(ROWS)
    first = rows.filter(pl.col("id") < 900_000)
    qbeast.write_table(first, path, columns=["id", "x", "moment"], deletion_vectors=True)
    qbeast.write_table(rows.filter(pl.col("id") >= 900_000), path, mode="append")
    qbeast.open_table(path).delete("id BETWEEN 200000 AND 420000 AND x < 300")


@dataclass(frozen=True)
class Real:
    """The table, its rows, and DuckDB with the same rows."""

    table: qbeast.Table
    rows: pl.DataFrame
    oracle: duckdb.DuckDBPyConnection

    def expected(self, where: str, source: str = "rows") -> tuple[int, int | None]:
        query = f"SELECT count(*), sum(id)::BIGINT FROM {source} WHERE {where}"  # noqa: S608 - our own texts
        return self.oracle.sql(query).fetchall()[0]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Write the table once for all processes of a run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "real-size"
    path, done = folder / "t", folder / "done"
    try:
        folder.mkdir()
    except FileExistsError:
        for _ in range(600):
            if done.exists():
                break
            time.sleep(0.1)
    else:
        write(path)
        done.touch()
    table, rows = qbeast.open_table(path), real_rows()
    with duckdb.connect() as oracle:
        oracle.execute("SET threads = 1")
        sampled = table.read(sample=SAMPLE)
        for name, frame in {"rows": rows, "sampled": sampled}.items():
            oracle.register("frame", frame.to_arrow())
            oracle.execute(f"CREATE TABLE {name} AS FROM frame")
        yield Real(table, rows, oracle)


Door = Callable[[qbeast.Table, str], tuple[int, int | None]]


def total(frame: pl.DataFrame) -> tuple[int, int | None]:
    """Return the number of rows and the sum of their ids; null without rows."""
    return frame.height, frame["id"].sum() if frame.height else None


def by_sql(table: qbeast.Table, where: str) -> tuple[int, int | None]:
    rows = table.sql(f"SELECT count(*) AS n, sum(id) AS total FROM self WHERE {where}").collect()  # noqa: S608
    return rows["n"].item(), rows["total"].item()


def by_batches(table: qbeast.Table, where: str) -> tuple[int, int | None]:
    batches = list(table.rows(where, columns=["id", "text"]).batches(batch_rows=50_000))
    return total(pl.concat(batches)) if batches else (0, None)


DOORS: dict[str, Door] = {
    "read": lambda table, where: total(table.read(where)),
    "read of columns": lambda table, where: total(table.read(where, columns=["kind", "id"])),
    "scan": lambda table, where: total(
        table.rows(where).lazy().select("id", "price", "text", "user").collect()
    ),
    "sql": by_sql,
    "batches": by_batches,
    "arrow": lambda table, where: total(pl.DataFrame(table.rows(where, columns=["id", "y", "flag"]).arrow())),
}


def check(real: Real, where: str, random: np.random.Generator) -> None:
    """Compare a condition through one door, by its count, or in a sample."""
    table, expected = real.table, real.expected(where)
    doors = [*DOORS] if expected[0] <= MANY else ["sql"]
    match door := random.choice([*doors, "count", "delete", "sample"]):
        case "count":
            assert table.count(where) == expected[0], where
        case "delete":
            assert table.delete(where, dry_run=True).rows_deleted == expected[0], where
        case "sample":
            actual = total(table.read(where, sample=SAMPLE, columns=["id", "text"]))
            assert actual == real.expected(where, "sampled"), where
        case _:
            assert DOORS[door](table, where) == expected, (door, where)


@pytest.mark.parametrize("number", range(CONDITIONS))
def test_random_condition_matches_duckdb(number: int, real: Real) -> None:
    """Half of the conditions match many rows and take most of the time: two more are drawn for each of them."""
    random = np.random.default_rng([7, number])
    conditions = Conditions(real.rows, random)
    drawn = [conditions.draw() for _ in range(3)]
    check(real, next((where for where in drawn if real.expected(where)[0] <= MANY), drawn[0]), random)


@pytest.mark.parametrize("where", TYPED)
def test_typed_conditions_match_duckdb(where: str, real: Real) -> None:
    for door in ("read", "sql", "batches"):
        assert DOORS[door](real.table, where) == real.expected(where), door


def test_table_has_sizes_of_real_tables(real: Real) -> None:
    plan = real.table.rows().explain()
    assert plan.files["pages_total"].sum() > 1_000
    assert plan.files.height > 3
    assert sum(real.table.snapshot.files["has_deletion_vector"]) > 0


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(100))
def test_more_conditions_match_duckdb(part: int, real: Real, sweep_seed: int) -> None:
    random = np.random.default_rng([sweep_seed, part])
    conditions = Conditions(real.rows, random)
    for _ in range(50):
        check(real, conditions.draw(), random)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_estimates_are_as_near_as_promised(real: Real, sweep_seed: int) -> None:
    conditions, near = Conditions(real.rows, np.random.default_rng([sweep_seed, 1])), list[bool]()
    while len(near) < 60:
        where = conditions.draw()
        query = f"SELECT count(*), sum(price) FROM rows WHERE {where}"  # noqa: S608 - our own texts
        count, total_price = real.oracle.sql(query).fetchall()[0]
        if count < 20_000:
            continue
        sums = {"n": pl.len(), "total": pl.col("price").sum()}
        estimate = real.table.rows(where).estimate(sums, error=0.05)
        row = estimate.frame.row(0, named=True)
        assert estimate.met
        near += [abs(row["n"] / count - 1) <= 0.05, abs(row["total"] / total_price - 1) <= 0.05]
    assert np.mean(near) >= 0.93  # 95 % are promised


@pytest.mark.sweep
def test_changes_are_the_deleted_rows(real: Real) -> None:
    last = real.table.version
    changed = real.table.changes(since=last - 1).collect()
    assert changed["_change_type"].unique().to_list() == ["delete"]
    gone = rows_of_many_kinds(ROWS).filter(deleted())
    assert_frame_equal(changed.select(gone.columns).sort("id"), gone.sort("id"))


@pytest.mark.sweep
@pytest.mark.parametrize("buffer_bytes", [4 << 20, 256 << 20])
def test_shuffled_epoch_has_each_row_once(buffer_bytes: int, real: Real, sweep_seed: int) -> None:
    batches = real.table.rows(columns=["id"]).shuffled(sweep_seed, buffer_bytes=buffer_bytes)
    ids = pl.concat(batches)["id"]
    assert not ids.is_sorted()
    assert ids.sort().equals(real.rows["id"].sort())


@pytest.mark.sweep
def test_samples_of_all_rows_are_nested(real: Real) -> None:
    before = real.rows["id"].clear()
    for fraction in (0.001, 0.01, 0.1, 0.5, 1.0):
        ids = real.table.read(columns=["id"], sample=fraction)["id"]
        assert before.is_in(ids.implode()).all()
        assert abs(ids.len() - fraction * real.rows.height) < 5 * (real.rows.height * fraction) ** 0.5 + 1
        before = ids
