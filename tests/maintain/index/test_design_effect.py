"""The design effect that tables tell, against group counts by Polars, after any sequence of changes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.tables import folder, small_files

KEYS = ["user", "kind"]
CLUSTERED = "ignore::qbeast.DesignEffectWarning"


def exact(rows: pl.DataFrame, keys: list[str]) -> float:
    counts = rows.group_by(keys).len()["len"].cast(pl.Float64)
    return float((counts**2).sum() / counts.sum()) if rows.height else 1.0


def batch(count: int, users: int, seed: int, first: int) -> pl.DataFrame:
    """Rows of so many users, a tenth of them of nobody if there are few."""
    numbers = pl.int_range(pl.len(), dtype=pl.Int64)
    user = (numbers.hash(seed) % users).cast(pl.Int64)
    return (
        pl.DataFrame({"row": range(first, first + count)})
        .with_columns(user=user if users > 100 else pl.when(numbers % 10 != 0).then(user))
        .with_columns(
            kind=pl.when(pl.col("user") % 2 == 0).then(pl.lit("x")).otherwise(pl.lit("y")), value=0.0
        )
    )


batches = st.tuples(st.integers(1, 3000), st.sampled_from([1, 40, 900, 10**9]), st.integers(0, 3))
Batch = tuple[int, int, int]
STEPS = ["append", "overwrite", "merge", "delete", "update", "optimize", "full"]


def changed(path: Path, rows: pl.DataFrame, step: str, new: pl.DataFrame) -> pl.DataFrame:
    """Do something to the table, and to the rows that it should hold."""
    table = qbeast.open_table(path)
    if step in {"append", "overwrite"}:
        result = qbeast.write_table(
            new, path, columns=KEYS, mode="append" if step == "append" else "overwrite", cube_size=300
        )
        rows = pl.concat([rows, new]) if step == "append" else new
        assert result.design_effect == pytest.approx(exact(rows, KEYS), rel=0.2)
    elif step == "merge":
        both = pl.concat(
            [rows.sample(min(rows.height, 50), seed=1).with_columns(user=pl.lit(7, pl.Int64)), new]
        )
        table.merge(both, on="row")
        rows = pl.concat([rows.join(both, on="row", how="anti"), both])
    elif step == "delete":
        gone = pl.col("row") % 3 == new.height % 3
        table.delete(gone)
        rows = rows.filter(~gone)
    elif step == "update":
        some = pl.col("row") % 5 == new.height % 5
        table.update(some, {"user": pl.lit(new.height % 4, pl.Int64)})
        user = pl.when(some).then(pl.lit(new.height % 4, pl.Int64)).otherwise(pl.col("user"))
        rows = rows.with_columns(user=user)
    else:
        table.optimize(full=step == "full")
    return rows


def check_changes(begin: Batch, todo: list[tuple[str, Batch]], file_rows: int) -> None:
    with folder() as path, small_files(file_rows=file_rows, page_rows=64):
        count, users, seed = begin
        rows = batch(count, users, seed, 0)
        written = qbeast.write_table(rows, path, columns=KEYS, cube_size=300)
        assert written.design_effect == pytest.approx(exact(rows, KEYS), rel=1e-5)
        for number, (step, (count, users, seed)) in enumerate(todo):
            rows = changed(path, rows, step, batch(count, users, seed, 10_000 * (number + 1)))
            table = qbeast.open_table(path)
            truth = exact(rows, KEYS)
            assert table.design_effect == pytest.approx(truth, rel=0.2)
            plan = table.rows(sample=0.01).explain()
            assert (plan.design_effect, plan.design_effect_scope) == (table.design_effect, "rows")
            assert table.metrics().design_effect == table.design_effect


@pytest.mark.filterwarnings(CLUSTERED, "ignore::qbeast.EmptySampleWarning")
@pytest.mark.parametrize("step", STEPS)
def test_design_effect_is_right_after_a_change(step: str) -> None:
    # After the update, two bands of the only file share a key: its 56 rows are 26 and 30 in a row.
    check_changes((386, 40, 3), [(step, (438, 1, 0))], file_rows=400)


@pytest.mark.sweep
@pytest.mark.filterwarnings(CLUSTERED, "ignore::qbeast.EmptySampleWarning")
@examples(2, sweep=70)
@example(begin=(386, 40, 3), todo=[("update", (438, 1, 0))], file_rows=400)
@given(
    begin=batches,
    todo=st.lists(st.tuples(st.sampled_from([*STEPS, "append"]), batches), min_size=1, max_size=6),
    file_rows=st.sampled_from([400, 1 << 20]),
)
def test_design_effect_is_right_after_any_changes(
    begin: Batch, todo: list[tuple[str, Batch]], file_rows: int
) -> None:
    check_changes(begin, todo, file_rows)


def test_only_write_that_crosses_two_warns(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": range(500), "value": 1.5})
    effects: list[float | None] = []
    warned: list[str] = []
    for _ in range(5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            written = qbeast.write_table(rows, tmp_path / "t", columns=["user:hash"], mode="append")
        effects.append(written.design_effect)
        warned += [f"{len(effects)}: {warning.message}" for warning in caught]
        assert all(warning.filename == __file__ for warning in caught)
    assert effects == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(warned) == 1
    assert warned[0].startswith(
        "3: rows with equal values of ['user'] enter a sample together (cluster sampling)"
    )
    assert (
        "design effect 3.00: a sampled count varies 1.7 times as much as with independent rows" in warned[0]
    )


@pytest.mark.parametrize("how", ["merge", "update"])
def test_change_that_crosses_two_warns(tmp_path: Path, how: str) -> None:
    rows = pl.DataFrame({"row": range(500), "user": range(500)})
    qbeast.write_table(rows, tmp_path / "t", columns=["user:hash"])
    table = qbeast.open_table(tmp_path / "t")
    for turn in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if how == "merge":
                few = pl.DataFrame({"row": range(1000 * (turn + 1), 1000 * (turn + 1) + 500), "user": 7})
                table.merge(few, on="row")
            else:
                table.update(pl.col("row") >= 250 * (1 - turn), {"user": 7})
        kinds = [warning.category for warning in caught]
        assert kinds == ([] if turn else [qbeast.DesignEffectWarning])
        assert all(warning.filename == __file__ for warning in caught)
    assert (table.design_effect or 0) > 2


@pytest.mark.filterwarnings(CLUSTERED)
def test_preview_predicts_the_design_effect(tmp_path: Path) -> None:
    rows = batch(5000, 3000, 1, 0)
    qbeast.write_table(rows, tmp_path, columns=KEYS, mode="append")
    report = qbeast.write_table(rows[:2000], tmp_path, mode="append", dry_run=True).design_effect
    written = qbeast.write_table(rows[:2000], tmp_path, mode="append")
    assert (
        report == written.design_effect == pytest.approx(exact(pl.concat([rows, rows[:2000]]), KEYS), rel=0.2)
    )
    assert qbeast.write_table(rows, tmp_path, mode="ignore").design_effect == written.design_effect


def _without_tag(text: str) -> str:
    action = json.loads(text)
    if "add" in action:
        del action["add"]["tags"]["qbeast.keys"]
    return json.dumps(action)


@pytest.mark.filterwarnings(CLUSTERED)
def test_files_without_design_effect_make_it_unknown(tmp_path: Path) -> None:
    rows = pl.DataFrame({"user": [n % 10 for n in range(100)]})
    qbeast.write_table(rows, tmp_path, columns=["user"])
    qbeast.write_table(rows, tmp_path, mode="append")
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    log.write_text("".join(f"{_without_tag(line)}\n" for line in log.read_text().splitlines()))
    table = qbeast.open_table(tmp_path)
    plan = table.rows(sample=0.5).explain()
    assert table.design_effect is None
    assert table.metrics().design_effect is None
    assert (plan.design_effect, plan.design_effect_scope) == (5.5, "at least")  # 20 is true
    assert "design effect at least 5.50" in repr(plan)
    assert qbeast.write_table(rows, tmp_path, mode="append").design_effect is None
    table = table.refresh()
    table.optimize(full=True)
    assert table.design_effect == 30.0


@pytest.mark.filterwarnings(CLUSTERED)
def test_filter_counts_only_files_it_opens(tmp_path: Path) -> None:
    rows = pl.DataFrame({"day": [0] * 450 + list(range(1, 3_001))})
    with small_files(file_rows=300, page_rows=64):
        qbeast.write_table(rows, tmp_path, columns=["day"], cube_size=80)
    table = qbeast.open_table(tmp_path)
    late = pl.col("day") >= 2_250
    plan = table.rows(late, sample=0.1).explain()
    opened = pl.concat(pl.read_parquet(path) for path in table.rows(late).files()["path"])
    assert opened.height < rows.height
    assert plan.design_effect == pytest.approx(exact(opened, ["day"]), rel=0.2)
    assert plan.design_effect_scope == "files"
    assert "in the files that the filter opens" in repr(plan)
    assert table.rows(sample=0.1).explain().design_effect == pytest.approx(exact(rows, ["day"]), rel=0.2)
    assert table.rows(sample=0.1).explain().design_effect_scope == "rows"


@pytest.mark.filterwarnings(CLUSTERED)
def test_empty_sample_of_few_keys_warns(tmp_path: Path) -> None:
    rows = pl.DataFrame({"carrier": ["AA", "HA", "UA"] * 1000, "month": [1, 2, 3] * 1000, "delay": 0.5})
    qbeast.write_table(rows, tmp_path / "few", columns=["carrier", "month"])
    table = qbeast.open_table(tmp_path / "few")
    late = pl.col("delay") > 0.1
    reads: dict[str, Callable[[], object]] = {
        "scan": lambda: table.rows(sample=0.05).lazy(),
        "scan_table": lambda: qbeast.scan_table(tmp_path / "few", sample=0.05),
        "read_table": lambda: qbeast.read_table(tmp_path / "few", sample=(0.0, 0.05), where=late),
        "explain": lambda: table.rows(late, sample=0.05).explain(),
    }
    for name, read in reads.items():
        with pytest.warns(qbeast.EmptySampleWarning, match="about 150 of 3,000 rows were expected") as caught:
            read()
        assert [warning.filename for warning in caught] == [__file__], name


@pytest.mark.filterwarnings(CLUSTERED)
def test_possibly_empty_samples_do_not_warn(tmp_path: Path) -> None:
    few = pl.DataFrame({"carrier": ["AA", "HA", "UA"] * 1000})
    qbeast.write_table(few, tmp_path / "few", columns=["carrier"])
    qbeast.write_table(pl.DataFrame({"id": range(3000)}), tmp_path / "many", columns=["id"])
    assert qbeast.read_table(tmp_path / "few", sample=0.005).height == 0  # 15 rows
    assert qbeast.read_table(tmp_path / "few", sample=0.0).height == 0
    assert qbeast.read_table(tmp_path / "few", sample=1.0).height == 3000
    assert qbeast.read_table(tmp_path / "many", sample=0.02, where=pl.col("id") < 0).height == 0
