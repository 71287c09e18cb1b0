"""A sample is the same rows every time: nested, cut without gap or overlap, kept by what is written later."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.tree.grid import frame_weights
from tests.helpers.examples import examples
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, each_sizes, folder, sampled, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")

CASES = st.builds(with_key_in_rows, cases(most_frames=3)) | cases(most_frames=3)
BOUNDS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3, unique=True).map(sorted)


def read(path: Path, sample: float | tuple[float, float], *, version: int | None = None) -> pl.DataFrame:
    return qbeast.read_table(path, sample=sample, version=version)


def check_samples(case: Case, bounds: list[float]) -> None:
    with folder() as path:
        with small_files(file_rows=20, page_rows=2):
            write(path, case)
        rows, newest = case.rows, len(case.frames) - 1
        parts = [read(path, part) for part in pairwise([0.0, *bounds, 1.0])]
        assert_same_rows(pl.concat(parts), rows)
        smaller = rows.clear()
        for fraction in bounds:
            actual = read(path, fraction)
            assert_same_rows(actual, sampled(rows, case.indexed, fraction))
            assert set(smaller[ROW]) <= set(actual[ROW])
            for version in range(newest):
                before = pl.concat(case.frames[: version + 1])
                earlier = read(path, fraction, version=version)
                assert_same_rows(earlier, sampled(before, case.indexed, fraction))
                assert_same_rows(actual.filter(pl.col(ROW).is_in(before[ROW].implode())), earlier)
            smaller = actual
        assert_same_rows(read(path, 1.0), rows)
        assert read(path, (0.5, 0.5)).is_empty()


@each_sizes
@examples(2, sweep=75)
@given(case=CASES, bounds=BOUNDS)
def test_samples_are_nested_and_stable_after_appends(
    sizes: dict[str, Any], case: Case, bounds: list[float]
) -> None:
    with resized(**sizes):
        check_samples(case, bounds)


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("even") / "table"
    rows = pl.DataFrame({"a": range(40_000)}).with_columns(b=(pl.col("a") % 1000).cast(pl.Float64))
    qbeast.write_table(rows, path, columns=["a"])
    return path


@pytest.mark.parametrize("rows", [0, 1_000, 20_000, 40_000, 10**9])
def test_rows_option_returns_about_that_number(even: Path, rows: int) -> None:
    actual = qbeast.read_table(even, rows=rows)
    expected = min(rows, 40_000)
    assert abs(actual.height - expected) <= 4 * (expected * (1 - expected / 40_000)) ** 0.5
    assert qbeast.read_table(even, sample=expected / 40_000).sort("a").equals(actual.sort("a"))


def test_rows_option_accounts_for_deleted_rows(even: Path, tmp_path: Path) -> None:
    qbeast.write_table(qbeast.scan_table(even), tmp_path / "t", columns=["a"])
    table = qbeast.open_table(tmp_path / "t")
    table.delete("a < 30000")
    assert abs(table.read(rows=5_000).height - 5_000) < 250
    assert table.read(where="a < 30100", rows=500).height == 100


def check_rows_of_filter(case: Case, path: Path, rows: int, expr: pl.Expr) -> None:
    """The rows of the lowest weights come: all of each weight, and no weight more than it takes."""
    matching = kept_rows(case.rows, expr)
    if matching is None:
        return
    try:
        actual = qbeast.read_table(path, where=expr, rows=rows)
    except qbeast.InvalidInputError as error:
        assert "from that row alone" in str(error)  # noqa: PT017 -- of some filters only Polars knows
        return
    weights = frame_weights(matching, case.indexed)
    end = np.sort(weights)[min(rows, len(weights)) - 1] if rows and len(weights) else -(2**31) - 1
    assert_same_rows(actual, matching.filter(pl.Series(weights <= end)))


@examples(2, sweep=150)
@given(case=CASES, rows=st.integers(0, 70), data=st.data())
def test_rows_of_a_filter_have_requested_number(case: Case, rows: int, data: st.DataObject) -> None:
    with folder() as path:
        with small_files(file_rows=20, page_rows=2):
            write(path, case)
        for _ in range(4):
            check_rows_of_filter(case, path, rows, data.draw(filters(case.rows)))


@pytest.mark.parametrize(
    ("where", "matching"),
    [("b = 1", 40), ("b = 1 AND a < 20000", 20), ("a < 9000", 9_000), ("b < 500", 20_000), ("a < 0", 0)],
)
@pytest.mark.parametrize("rows", [0, 1, 100, 5_000])
def test_rows_option_counts_matches_of_filter(even: Path, where: str, matching: int, rows: int) -> None:
    actual = qbeast.read_table(even, where=where, rows=rows, expand=True)
    assert actual.height == min(rows, matching)
    if actual.height:
        assert (
            abs(actual["sampling_weight"].sum() / matching - 1) < 4 / rows**0.5 or actual.height == matching
        )
        assert actual["sampling_weight"].max() == 1.0 or actual.height == rows


def test_rows_option_needs_row_wise_filter(even: Path) -> None:
    with pytest.raises(qbeast.InvalidInputError, match="from that row alone"):
        qbeast.scan_table(even, where=pl.col("a") > pl.col("a").mean(), rows=10)


@pytest.mark.parametrize("sample", [None, 0.25, (0.5, 0.6), 1.0])
def test_expanded_samples_weigh_like_the_table(
    even: Path, sample: float | tuple[float, float] | None
) -> None:
    lazy = qbeast.scan_table(even, sample=sample, expand=True)
    assert lazy.collect_schema() == {"a": pl.Int64, "b": pl.Float64, "sampling_weight": pl.Float64}
    actual = lazy.filter(pl.col("a") < 20_000).select("sampling_weight").collect()
    assert actual["sampling_weight"].sum() == pytest.approx(20_000, rel=0.1)
    assert actual["sampling_weight"].n_unique() == 1
    assert qbeast.read_table(even, sample=sample, expand=True, columns=["b"]).columns == [
        "b",
        "sampling_weight",
    ]


def test_invalid_row_counts_and_weights_raise(even: Path, tmp_path: Path) -> None:
    for wrong in (-1, 2.5, True):
        with pytest.raises(qbeast.InvalidInputError, match="`rows` must be a whole number"):
            qbeast.scan_table(even, rows=wrong)  # type: ignore[arg-type]
    with pytest.raises(qbeast.InvalidInputError, match="cannot be combined"):
        qbeast.scan_table(even, rows=10, sample=0.1)
    qbeast.write_table(pl.DataFrame({"sampling_weight": [1.0]}), tmp_path / "t", columns=["sampling_weight"])
    with pytest.raises(qbeast.InvalidInputError, match="expand adds a column"):
        qbeast.scan_table(tmp_path / "t", expand=True)
    empty = qbeast.write_table(pl.DataFrame({"a": [1]}).clear(), tmp_path / "e", columns=["a"])
    assert empty.rows == 0
    assert qbeast.read_table(tmp_path / "e", rows=10, expand=True).is_empty()
