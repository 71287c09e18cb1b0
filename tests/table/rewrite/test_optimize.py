"""An optimize changes no row and no sample, keeps every invariant, and leaves a table in shape alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples
from tests.helpers.invariants import check_invariants, read_log
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, folder, sampled, samples, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def check_same(path: Path, case: Case, rows: pl.DataFrame, sample: qbeast.Table | object) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.scan().collect(), rows)
    expected = sampled(rows, case.indexed, sample)
    assert_same_rows(table.scan(sample=sample).collect(), expected)
    assert_same_rows(pl.scan_delta(path).collect(), rows)


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, object]]:
    """Options of some optimizes in a row."""
    item = st.fixed_dictionaries(
        {},
        optional={
            "full": st.booleans(),
            "fraction": st.sampled_from([0.0, 0.2, 0.5, 1.0]),
            "some": st.floats(0.1, 0.9),
            "revision": st.just("all"),
            "into": st.just("newest"),
        },
    )
    return draw(st.lists(item, min_size=1, max_size=3))


def take(path: Path, options: dict[str, object], seed: int) -> qbeast.OptimizeResult:
    table = qbeast.open_table(path)
    given = dict(options)
    if "some" in given:
        given.pop("revision", None)
        files = table.files()["path"]
        given["files"] = files.sample(fraction=given.pop("some"), seed=seed).to_list()
    return table.optimize(**given)


def check_case(case: Case, actions: list[dict[str, object]], sample: object, seed: int) -> None:
    with folder() as path, small_files():
        write(path, case)
        for number, options in enumerate(actions):
            live = set(read_log(path).adds)
            result = take(path, options, seed + number)
            now = set(read_log(path).adds)
            assert result.committed == (live != now)
            assert len(live - now) == (result.files_removed if result.committed else 0)
            assert len(now - live) == result.files
            check_invariants(path)
            check_same(path, case, case.rows, sample)
        more = case.frames[0].with_columns(pl.col(ROW) + 10_000)
        qbeast.write_table(more, path, mode="append")
        check_invariants(path)
        check_same(path, case, pl.concat([case.rows, more]), sample)


@pytest.mark.timeout(3000)
@examples(2, sweep=80, parent=RELAXED)
@given(
    case=cases().map(with_key_in_rows) | cases(),
    actions=steps(),
    sample=samples(),
    seed=st.integers(0, 999),
)
def test_optimize_keeps_rows_samples_and_invariants(
    case: Case, actions: list[dict[str, object]], sample: object, seed: int
) -> None:
    check_case(case, actions, sample, seed)


def test_plan_names_each_file_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = pl.DataFrame({"row": range(60), "a": [5] * 60, "b": rng.integers(0, 60, 60)})
    last = pl.DataFrame({"row": range(60), "a": rng.integers(-3, 7, 60), "b": rng.integers(-3, 7, 60)})
    with small_files():
        qbeast.write_table(first, tmp_path, columns=["a", "b"], cube_size=20)
        qbeast.write_table(first, tmp_path, mode="append")
        qbeast.write_table(last, tmp_path, mode="append")
        table = qbeast.open_table(tmp_path)
        live = set(read_log(tmp_path).adds)
        planned = table.optimize(revision="all", dry_run=True)
        done = table.optimize(revision="all")
    assert planned.plan["path"].is_unique().all()
    assert sorted(done.plan["path"]) == sorted(live - set(read_log(tmp_path).adds))
    assert set(done.plan["path"]) <= set(planned.plan["path"])
    assert set(planned.plan["revision_id"]) == set(done.plan["revision_id"]) == {1, 2}
