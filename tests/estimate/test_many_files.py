"""Estimates of a table with a plan file are those of its rows, and read only files that may match."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.examples import examples
from tests.helpers.planned import planned
from tests.helpers.small_files import resized
from tests.helpers.tables import estimated, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
ROWS = pl.DataFrame({"id": range(6000)}).with_columns(
    x=(pl.col("id") * 7919 % 1009).cast(pl.Float64), kind=pl.col("id") % 3
)
ASKED = {"n": pl.len(), "sum": pl.col("x").sum(), "mean": pl.col("x").mean()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("many") / "t"
    with small_files(file_rows=300, page_rows=20):
        qbeast.write_table(ROWS, folder, columns=["id"], cube_size=100)
    qbeast.open_table(folder).delete("id >= 2990 AND id < 3000")
    with planned(folder) as copy:
        yield copy


@examples(2, sweep=100)
@given(low=st.integers(-500, 6500), width=st.integers(0, 3000), pilot=st.sampled_from([50, 20_000]))
def test_estimates_by_plan_files_hold_the_truth(path: Path, low: int, width: int, pilot: int) -> None:
    where = pl.col("id").is_between(low, low + width)
    truth = ROWS.filter(where & ~pl.col("id").is_between(2990, 2999)).select(**ASKED)
    table = qbeast.open_table(path)
    with resized(pilot_rows=pilot):
        found = estimated(table, ASKED, where, error=0.1)
        exact = estimated(table, ASKED, where, by="kind", error=1e-9)
    for name in ASKED if truth["n"].item() else ["n", "sum"]:
        assert found.frame[f"{name}_low"].item() <= truth[name].item() <= found.frame[f"{name}_high"].item()
    groups = (
        ROWS.filter(where & ~pl.col("id").is_between(2990, 2999)).group_by("kind").agg(**ASKED).sort("kind")
    )
    assert_frame_equal(
        exact.frame.select("kind", *ASKED).sort("kind"), groups, check_dtypes=False, rel_tol=1e-9
    )
    assert exact.exact == tuple(ASKED)
    assert found.bytes_total == table.rows().explain().bytes_total


def test_joins_and_functions_read_files_that_match(path: Path) -> None:
    table = qbeast.open_table(path)
    kept = ROWS.filter(pl.col("id") < 700)
    other = qbeast.Join(table, on="id", how="semi", where="id < 700")
    joined = estimated(table, {"n": pl.len()}, "id < 900", join=[other], error=0.01)
    assert joined.frame["n"].item() == kept.height
    mean = estimated(table, lambda rows: rows["x"].mean(), "id < 700", columns=["x"], error=1e-6)
    assert mean.frame.to_series(0).item() == pytest.approx(kept["x"].mean())
    per = estimated(
        table,
        {"users": pl.len(), "most": pl.col("x").sum()},
        "id < 700",
        per={"x": pl.col("x").max()},
        error=1e-6,
    )
    assert per.frame["users"].item() == kept.height
    assert per.frame["most"].item() == pytest.approx(kept["x"].sum())
