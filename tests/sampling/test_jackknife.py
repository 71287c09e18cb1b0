"""Intervals of any function: coverage over user sizes, and which functions are reliable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from benchmarks.function_trials import SHAPES, trials
from qbeast_core.sampling.sums import WEIGHT
from qbeast_core.table.estimate.functions import (
    MIN_REPLICATES,
    Jackknifed,
    exact,
    groups_of,
    jackknife,
    replicates_of,
    student_factor,
)

LIGHT = [shape for shape in SHAPES if shape not in ("null", "giant")]
SMOOTH = ["correlation", "slope", "ratio", "weighted mean", "Gini of spend"]
GROWING = ["sum", "rows", "users", "largest user", "smallest user"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("shape", LIGHT)
def test_reliable_intervals_hold_the_true_value(shape: str, name: str) -> None:
    """95 % of the reliable answers of 1,000 trials, less two standard errors of such a share."""
    covered = trials(shape, name, fraction=0.05, count=1_000)
    reliable = covered.reliable * 1_000
    assert reliable >= 10
    assert covered.kept >= 0.95 - 2 * (0.95 * 0.05 / reliable) ** 0.5, covered


@pytest.mark.parametrize("name", SMOOTH)
def test_light_users_are_covered_in_few_trials(name: str) -> None:
    covered = trials("light", name, fraction=0.05, count=20)
    assert covered.reliable >= 0.4
    assert covered.kept >= 0.75


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("shape", ["null", "giant"])
def test_samples_without_the_giant_are_unreliable(shape: str, name: str) -> None:
    assert trials(shape, name, fraction=0.05, count=10).reliable <= 0.2


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_that_grow_are_unreliable(shape: str, name: str) -> None:
    assert trials(shape, name, fraction=0.05, count=5).reliable == 0


def rows_of(users: int = 2_000) -> pl.DataFrame:
    random = np.random.default_rng(3)
    weight = np.repeat(random.integers(-(2**31), 2**31, users, dtype=np.int32), 5)
    x = random.normal(10, 2, len(weight))
    return pl.DataFrame({"x": x, "kind": random.integers(0, 7, len(x)), WEIGHT: weight})


def answer(function: Callable[[pl.DataFrame], float], *, groups: int = 64) -> Jackknifed:
    found = replicates_of(lambda rows: np.array([function(rows)], np.float64), rows_of(), groups)
    value, without, parts = (numbers[..., 0] for numbers in found)
    factor = student_factor(0.95, groups - 1)
    return jackknife(
        value.item(), without, parts, factor=factor, probability=0.01, keys=2_000, deviates=False
    )


def mean_of(rows: pl.DataFrame) -> float:
    return rows["x"].to_numpy().mean().item()


@pytest.mark.parametrize("groups", [MIN_REPLICATES, 64, 200])
def test_mean_has_the_textbook_error(groups: int) -> None:
    """The rows of a user are independent here: the error is that of 10,000 rows, and wider by the safety margins."""
    rows = rows_of()
    plain = 1.96 * rows["x"].to_numpy().std() / rows.height**0.5
    found = answer(mean_of, groups=groups)
    assert found.reason is None
    assert found.interval.value.item() == pytest.approx(mean_of(rows))
    assert 0.8 * plain < found.interval.half_width.item() < 2.2 * plain


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda rows: rows["x"].sum(), "depends on the number of rows"),
        (lambda rows: np.log(rows["x"].sum()), "depends on the number of rows"),
        (lambda rows: rows["x"].n_unique(), "depends on the number of rows"),
        (lambda rows: mean_of(rows) / rows["x"].to_numpy().std() * rows.height**0.5, "depends on the number"),
        (lambda rows: rows["x"].max(), "depends on the number of rows"),
        (lambda rows: rows["x"].min(), "most groups of keys do not"),
        (lambda rows: rows["kind"].n_unique(), "most groups of keys do not"),
        (lambda rows: rows["kind"].median(), "most groups of keys do not"),
        (lambda _: 3.0, "most groups of keys do not"),
        (lambda rows: None if rows.height < 9_000 else mean_of(rows), "NaN or an infinity"),
    ],
    ids=["sum", "log", "distinct", "t", "max", "min", "few distinct", "few medians", "constant", "null"],
)
def test_reason_names_why_an_answer_is_unreliable(
    function: Callable[[pl.DataFrame], float], word: str
) -> None:
    found = answer(function)
    assert found.reason is not None
    assert word in found.reason


def test_replicates_are_the_function_of_other_groups() -> None:
    rows = rows_of()
    _, without, parts = replicates_of(lambda frame: np.array([mean_of(frame), frame.height]), rows, 32)
    group = pl.Series(groups_of(rows[WEIGHT].to_numpy(), 32))
    for number in range(32):
        others = rows.filter(group != number)
        assert without[number] == pytest.approx([mean_of(others), others.height])
    assert parts[:, 1].sum() == rows.height
    assert parts[0] == pytest.approx([mean_of(rows.filter(group < 4)), (group < 4).sum()])


def test_groups_do_not_follow_the_order_of_weights() -> None:
    """Of consecutive weights, each group gets about its share: chi-square of 63 degrees, one in a million."""
    for start in (-(2**31), 0, 2**31 - 64_000):
        counts = np.bincount(groups_of(np.arange(start, start + 64_000).astype(np.int32), 64), minlength=64)
        assert ((counts - 1_000) ** 2 / 1_000).sum() < 140


@pytest.mark.parametrize(
    ("confidence", "degrees", "tabulated"),
    [(0.95, 15, 2.1314), (0.95, 30, 2.0423), (0.99, 15, 2.9467), (0.99, 60, 2.6603), (0.999, 30, 3.6460)],
)
def test_student_factor_equals_printed_tables(confidence: float, degrees: int, tabulated: float) -> None:
    assert student_factor(confidence, degrees) == pytest.approx(tabulated, rel=1e-3)


def test_exact_answer_has_no_error() -> None:
    assert exact(2.0).interval.half_width.item() == 0.0
    assert exact(np.inf).reason is not None
