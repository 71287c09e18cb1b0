"""Changes that hide rows by deletion vectors: rows, files and sizes, as plain Polars and other readers see them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import qbeast
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.changes import spread
from tests.helpers.handmade_log import replay
from tests.helpers.invariants import check_invariants
from tests.helpers.row_ids import commits
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files
from tests.helpers.vectors import few, hidden_rows, rows_by_sql, vector_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
COUNT = 130
ROWS = spread(COUNT)
INDEXED = [ROW, "a"]
NUMBER = pl.col(ROW)
SOME = NUMBER % 13 == 5
SOURCE = pl.concat([ROWS.filter(SOME).with_columns(f=pl.lit(0.25), s=pl.lit("new")), spread(6, 9000)])


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of several files, whose changes hide rows."""
    path = tmp_path_factory.mktemp("vectors") / "t"
    with small_files(file_rows=50, page_rows=8):
        qbeast.write_table(ROWS, path, columns=INDEXED, cube_size=40, deletion_vectors=True)
    return path


@pytest.fixture
def path(master: Path, tmp_path: Path) -> Path:
    return shutil.copytree(master, tmp_path / "t")


@dataclass(frozen=True)
class Step:
    """A change, its rows by plain Polars, and the rows that it hides or moves."""

    change: Callable[[qbeast.Table], qbeast.ChangeResult]
    after: pl.DataFrame
    hidden: pl.DataFrame
    counts: tuple[int, int, int] = field(default=(0, 0, 0))


def when(condition: pl.Expr, **values: pl.Expr) -> pl.DataFrame:
    return ROWS.with_columns(
        pl.when(condition).then(value).otherwise(name).alias(name) for name, value in values.items()
    )


MATCHED = ROWS.filter(SOME)
ONE = NUMBER % 26 == 5
STEPS: Mapping[str, Step] = {
    "delete": Step(lambda table: table.delete(SOME), ROWS.filter(~SOME), MATCHED, (10, 0, 0)),
    "delete of SQL": Step(
        lambda table: table.delete("a IS NULL"),
        ROWS.filter(pl.col("a").is_not_null()),
        ROWS.filter(pl.col("a").is_null()),
        (ROWS["a"].null_count(), 0, 0),
    ),
    "update": Step(
        lambda table: table.update(SOME, {"f": "f + 1", "s": "'x'"}),
        when(SOME, f=pl.col("f") + 1, s=pl.lit("x")),
        MATCHED,
        (0, 10, 0),
    ),
    "update of keys": Step(
        lambda table: table.update(SOME, {"a": f"{ROW} + 5000"}),
        when(SOME, a=NUMBER + 5000),
        MATCHED,
        (0, 10, 0),
    ),
    "merge": Step(
        lambda table: table.merge(SOURCE, ROW),
        pl.concat([ROWS.filter(~SOME), SOURCE]),
        MATCHED,
        (0, 10, 6),
    ),
    "merge that deletes": Step(
        lambda table: table.merge(SOURCE, ROW, delete_if=f"{ROW} % 2 = 1"),
        pl.concat([ROWS.filter(~SOME), SOURCE.filter((NUMBER % 2 == 0) | (NUMBER >= 9000))]),
        MATCHED,
        (5, 5, 6),
    ),
    "merge that only deletes": Step(
        lambda table: table.merge(SOURCE, ROW, when_matched="delete", when_not_matched="ignore"),
        ROWS.filter(~SOME),
        MATCHED,
        (10, 0, 0),
    ),
    "merge without its source": Step(
        lambda table: table.merge(
            SOURCE,
            ROW,
            matched_if=f"{ROW} % 26 = 5",
            when_not_matched_by_source="delete",
            not_matched_by_source_if=f"{ROW} % 19 = 1",
        ),
        pl.concat([ROWS.filter(~ONE & (SOME | (NUMBER % 19 != 1))), SOURCE.filter(ONE | (NUMBER >= 9000))]),
        ROWS.filter(ONE | (~SOME & (NUMBER % 19 == 1))),
        (6, 5, 6),
    ),
}


def check(path: Path, after: pl.DataFrame, hidden: pl.DataFrame) -> None:
    """Assert that all readers return the rows, and that the vectors list the hidden rows."""
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), after)
    assert_same_rows(pl.scan_delta(str(path)).collect(), after)
    assert_same_rows(rows_by_sql(path).select(after.columns), after)
    assert_same_rows(table.read(sample=0.4), sampled(after, INDEXED, 0.4))
    low = (pl.col("a") < 150) & (NUMBER > 40)
    assert_same_rows(table.read(where=low), after.filter(low))
    assert (table.count(), table.count(where=low)) == (after.height, after.filter(low).height)
    listed = hidden_rows(path)
    snapshot = load_snapshot(path)
    numbers = range(snapshot.files.height)
    ours = {
        snapshot.data_paths[file]: rows.tolist() for file, rows in snapshot.hidden_rows.of(numbers).items()
    }
    assert ours == listed
    files = [pl.read_parquet(path / name, columns=ROWS.columns)[rows] for name, rows in listed.items()]
    assert_same_rows(pl.concat([ROWS.clear(), *files]), hidden)
    assert table.check().ok
    check_invariants(path)


@pytest.mark.parametrize("name", few(STEPS, "delete of SQL", "merge that deletes"))
def test_readers_see_rows_of_plain_polars(path: Path, name: str) -> None:
    step, before = STEPS[name], replay(path)
    result = step.change(qbeast.open_table(path))
    counts = result.rows_deleted, result.rows_updated, result.rows_inserted
    assert (counts, result.rows_copied) == (step.counts, 0)
    assert set(result.plan["action"]) == {"hide"}
    assert result.plan["matched"].sum() == step.hidden.height
    assert before.keys() <= replay(path).keys()
    check(path, step.after, step.hidden)


def test_estimates_use_shown_rows_only(path: Path) -> None:
    table = qbeast.open_table(path)
    table.delete(SOME)
    left = ROWS.filter(~SOME)
    answers = (
        table.refresh().rows().estimate([pl.len().alias("rows"), pl.col("a").sum().alias("sum")], error=0.001)
    )
    assert answers.frame.select("rows", "sum").row(0) == (left.height, left["a"].sum())


def test_commit_repeats_files_with_vectors(path: Path) -> None:
    before = replay(path)
    qbeast.open_table(path).update(SOME, {"f": "0.5"})
    actions = commits(path)[-1]
    removes = {action["remove"]["path"]: action["remove"] for action in actions if "remove" in action}
    adds = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    assert removes.keys() == before.keys()
    for name, remove in removes.items():
        assert "deletionVector" not in remove
        vector, old = adds[name].pop("deletionVector"), before[name]
        assert (vector["storageType"], vector["cardinality"]) == ("u", len(hidden_rows(path)[name]))
        stats = json.loads(adds[name].pop("stats"))
        assert stats.pop("tightBounds") is False
        assert stats == json.loads(old["stats"])
        assert adds[name] == {key: value for key, value in old.items() if key != "stats"}
        assert (remove["dataChange"], adds[name]["dataChange"]) == (True, True)
    metrics = next(action["commitInfo"] for action in actions if "commitInfo" in action)["operationMetrics"]
    assert (int(metrics["numDeletionVectorsAdded"]), int(metrics["numRemovedFiles"])) == (len(removes), 0)
    assert int(metrics["numAddedFiles"]) == len(adds) - len(removes)
    assert len(vector_files(path)) == 1


@pytest.mark.sweep
def test_later_changes_extend_vectors(path: Path) -> None:
    table, rows, hidden, heights = qbeast.open_table(path), ROWS, ROWS.clear(), [COUNT]
    for rest in (3, 17, 29):
        condition = (NUMBER % 37).eq(rest)
        result = table.delete(condition)
        assert set(result.plan["action"]) == {"hide"}
        hidden = pl.concat([hidden, rows.filter(condition)])
        rows = rows.filter(~condition)
        heights.append(rows.height)
    check(path, rows, hidden)
    info = next(action["commitInfo"] for action in commits(path)[-1] if "commitInfo" in action)
    updated = int(info["operationMetrics"]["numDeletionVectorsUpdated"])
    assert 0 < updated <= result.plan.height <= len(hidden_rows(path))
    assert [qbeast.read_table(path, version=version).height for version in range(4)] == heights


@pytest.mark.sweep
def test_hidden_rows_are_inserted_again(path: Path) -> None:
    table = qbeast.open_table(path)
    table.delete(SOME)
    assert table.merge(MATCHED, ROW).rows_inserted == MATCHED.height
    check(path, ROWS, MATCHED)


def test_moved_rows_can_move_again(path: Path) -> None:
    table = qbeast.open_table(path)
    for _ in range(3):
        result = table.update(SOME, {"f": "f + 1"})
        assert (result.rows_updated, result.rows_copied) == (MATCHED.height, 0)
    assert_same_rows(table.read(), when(SOME, f=pl.col("f") + 3))
    check_invariants(path)


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one file of a hundred rows."""
    path = tmp_path_factory.mktemp("hundred") / "t"
    qbeast.write_table(ROWS[:100], path, columns=[ROW], deletion_vectors=True)
    return path


@pytest.mark.parametrize(
    ("counts", "actions"),
    [
        ([30], ["hide"]),
        ([31], ["rewrite"]),
        ([12, 18], ["hide", "hide"]),
        ([12, 19], ["hide", "rewrite"]),
        ([30, 1], ["hide", "rewrite"]),
        ([30, 70], ["hide", "drop"]),
        ([100], ["drop"]),
    ],
)
def test_files_keep_at_most_thirty_percent_hidden(
    hundred: Path, tmp_path: Path, counts: list[int], actions: list[str]
) -> None:
    table = qbeast.open_table(shutil.copytree(hundred, tmp_path / "t"))
    first = 0
    for count, action in zip(counts, actions, strict=True):
        result = table.delete(NUMBER.is_between(first, first + count - 1))
        assert (result.plan["action"].to_list(), result.rows_deleted) == ([action], count)
        first += count
    assert_same_rows(table.read(), ROWS[first:100])
    assert bool(hidden_rows(Path(table.uri))) == (actions[-1] == "hide")


def test_file_without_shown_rows_is_dropped(hundred: Path, tmp_path: Path) -> None:
    path = shutil.copytree(hundred, tmp_path / "t")
    table = qbeast.open_table(path)
    table.delete(NUMBER < 20)
    result = table.delete(where=True)
    assert (result.plan["action"].to_list(), result.rows_deleted, len(vector_files(path))) == (
        ["drop"],
        80,
        1,
    )
    assert (result.plan["matched"].to_list(), result.files, table.count()) == ([80], 0, 0)
    (remove,) = [action["remove"] for action in commits(path)[-1] if "remove" in action]
    assert remove["deletionVector"]["cardinality"] == 20


@pytest.mark.parametrize("name", ["delete", "update", "merge"])
def test_dry_run_writes_nothing(path: Path, name: str) -> None:
    calls: dict[str, Callable[[qbeast.Table], qbeast.ChangeResult]] = {
        "delete": lambda table: table.delete(SOME, dry_run=True),
        "update": lambda table: table.update(SOME, {"f": 1}, dry_run=True),
        "merge": lambda table: table.merge(SOURCE, ROW, dry_run=True),
    }
    before = sorted(path.rglob("*"))
    result = calls[name](qbeast.open_table(path))
    assert (set(result.plan["action"]), result.rows_copied, result.committed) == ({"hide"}, 0, False)
    assert result.plan["matched"].sum() == MATCHED.height
    assert sorted(path.rglob("*")) == before


def test_change_with_transaction_happens_once(path: Path) -> None:
    table = qbeast.open_table(path)
    assert table.update(SOME, {"f": "f + 1"}, txn=("job", 3)).committed
    files = sorted(path.rglob("*"))
    assert not table.update(SOME, {"f": "f + 1"}, txn=("job", 3)).committed
    assert sorted(path.rglob("*")) == files
    assert_same_rows(table.read(), when(SOME, f=pl.col("f") + 1))


def test_checkpoint_and_time_travel_keep_vectors(path: Path) -> None:
    table = qbeast.open_table(path)
    table.set_properties({"delta.checkpointInterval": "1"})
    table.delete(SOME)
    assert [*(path / "_delta_log").glob("*.checkpoint*.parquet")]
    for commit in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), ROWS.filter(~SOME))
    again = NUMBER % 41 == 2
    assert set(table.delete(again).plan["action"]) == {"hide"}
    assert_same_rows(table.read(), ROWS.filter(~SOME & ~again))
    assert_same_rows(pl.scan_delta(str(path)).collect(), ROWS.filter(~SOME & ~again))
    assert_same_rows(rows_by_sql(path).select(ROWS.columns), ROWS.filter(~SOME & ~again))
    assert_same_rows(qbeast.read_table(path, version=2), ROWS.filter(~SOME))


@pytest.mark.sweep
def test_restore_brings_hidden_rows_back(path: Path) -> None:
    table = qbeast.open_table(path)
    table.delete(SOME)
    table.update(NUMBER == 1, {"f": 7.0})
    table.restore(1)
    assert_same_rows(table.read(), ROWS.filter(~SOME))
    table.restore(0)
    check(path, ROWS, ROWS.clear())


def large(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    keys = rng.permutation(rows)
    return pl.DataFrame(
        {ROW: keys, "a": rng.random(rows), "b": rng.random(rows), "c": rng.integers(0, 99, rows)}
    )


CHEAP: dict[str, Callable[[qbeast.Table, Any], qbeast.ChangeResult]] = {
    "delete": lambda table, _: table.delete(f"{ROW} % 100 = 7"),
    "update": lambda table, _: table.update(f"{ROW} % 100 = 7", {"c": "c + 1"}),
    "merge": lambda table, source: table.merge(source, ROW),
}


@pytest.mark.parametrize("name", CHEAP)
def test_small_changes_write_few_bytes(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / "t", large(40_000)
    table = qbeast.write_table(rows, path, columns=[ROW, "a"], deletion_vectors=True) and qbeast.open_table(
        path
    )
    size = sum(file.stat().st_size for file in path.glob("*.parquet"))
    before = {file.name for file in path.iterdir()}
    result = CHEAP[name](table, rows.filter(NUMBER % 1000 == 7).with_columns(c=pl.lit(0, pl.Int64)))
    new = [file for file in path.iterdir() if file.name not in before]
    assert sum(file.stat().st_size for file in new) <= 0.03 * size
    log = (path / "_delta_log" / f"{1:020}.json").stat().st_size
    assert log <= 10_000 * (result.plan.height + result.files)
    assert table.read().height == rows.height - result.rows_deleted
