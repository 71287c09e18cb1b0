"""An estimate prints values with the digits that their errors support."""

from __future__ import annotations

import math
import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from qbeast_core.support.number_texts import estimate_text, exact_text
from qbeast_core.table.estimate.result import readable
from tests.cli.running import run, run_json
from tests.helpers.examples import examples

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
PART = re.compile(r"(<?-?[\d,.]+(?:e[+-]\d+)?)(?: ([kMGTP%]))?")


def number(text: str) -> float:
    """Return the number that a text means."""
    match = PART.fullmatch(text)
    assert match, text
    return float(match[1].replace(",", "").replace("<", "")) * (
        1.0 if match[2] == "%" else UNITS[match[2] or ""]
    )


@examples(300, sweep=5000)
@given(
    st.floats(-1e25, 1e25, allow_subnormal=False).filter(lambda value: not 0 < abs(value) < 1e-250),
    st.floats(1e-6, 1e3),
)
def test_printed_error_is_within_a_sixth_of_the_error(value: float, share: float) -> None:
    half = share * abs(value) or share
    text = estimate_text(value, value - half, value + half)
    assert len(text) < 30
    shown, error = text.split(" ± ")
    if error.startswith("<"):
        return
    assert abs(number(shown) - value) <= half / 6 + 1e-6 * abs(value)
    printed = number(error) / 100 * abs(value) if "%" in error else number(error)
    assert printed == pytest.approx(half, rel=0.06)
    assert ("%" in error) == (not value - half <= 0 <= value + half)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((8_012_345, 7_932_221, 8_092_469), "8.01 M ± 1.0 %"),
        ((336_123, 329_000, 343_200), "336 k ± 2.1 %"),
        ((1947, 1908, 1986), "1,950 ± 2.0 %"),
        ((49.976, 49.2, 50.7), "50.0 ± 1.6 %"),
        ((3.2e9, 3.1e9, 3.25e9), "3.20 G ± 3.1 %"),
        ((0.081234, 0.0775, 0.0849), "0.081 ± 4.6 %"),
        ((-2.5, -9.6, 4.6), "-2.5 ± 7.1"),
        ((1950, 1950, 1950), "1,950"),
        ((1 / 3, 1 / 3, 1 / 3), "0.333333"),
        ((12_345_678.9, None, None), "12.3 M, no bound"),
        ((5.0, 0.0, math.inf), "5.00, no bound"),
        ((math.nan, None, None), "NaN"),
        ((math.inf, None, None), "inf"),
        ((999_996.0, 999_896.0, 1_000_096.0), "1.00000 M ± 0.010 %"),
    ],
)
def test_estimates_print_as_people_read_them(interval: Any, text: str) -> None:
    assert estimate_text(*interval) == text


def test_exact_numbers_print_in_full() -> None:
    assert exact_text(336_776_000_001) == "336,776,000,001"
    assert [exact_text(item) for item in (0.0, -0.5, 1e20, 2.5e-9)] == ["0", "-0.5", "1e+20", "2.5e-09"]


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("printed") / "trips"
    n = pl.int_range(60_000)
    rows = pl.select(
        id=n, fare=n * 7919 % 10_007 / 100, city=pl.format("city {}", n * 31 % 3), rare=(n < 40).cast(pl.Int8)
    )
    qbeast.write_table(rows, path, columns=["fare", "id:hash"])
    return qbeast.open_table(path)


def test_answers_print_errors_and_frame_keeps_numbers(trips: qbeast.Table) -> None:
    answer = trips.estimate({"mean": pl.col("fare").mean(), "n": pl.len()}, by="city", sample=0.1)
    for shown in (repr(answer), str(answer), answer._repr_html_()):
        assert re.search(r"4\d\.\d ± \d\.\d %|5\d\.\d ± \d\.\d %", shown)
        assert re.search(r"[12]\d\.\d k ± \d\.\d %", shown)
        assert "mean_low" not in shown
        assert '"5' not in shown
        assert "&quot;" not in shown
    assert answer.frame.schema["mean"] == answer.frame.schema["n_high"] == pl.Float64
    exact = trips.estimate({"n": pl.len()}, by="city", error=1e-9)
    assert "20,000" in repr(exact)
    assert "±" not in repr(exact)


def test_unreliable_groups_are_named_in_words(trips: qbeast.Table) -> None:
    answer = trips.estimate({"mean": pl.col("fare").mean()}, by="rare", sample=0.2)
    assert "1 of 2 group(s) are not reliable" in repr(answer)
    assert "false" in repr(answer)


def test_other_columns_of_a_frame_stay() -> None:
    frame = pl.DataFrame(
        {
            "g": [1, None],
            "a": [8.0, None],
            "a_low": [8.0, None],
            "a_high": [8.0, None],
            "certain": [True, False],
        }
    )
    assert readable(frame, ["a"]).rows() == [(1, "8", True), (None, None, False)]


def test_command_prints_errors_and_json_numbers(trips: qbeast.Table) -> None:
    request = ("estimate", trips.uri, "mean=avg(fare)", "--by", "city", "--sample", "10%")
    shown = run(*request).stdout
    assert shown.count(" ± ") == 3
    assert shown.splitlines()[1].split() == ["string", "double", "long", "boolean"]
    assert {type(row[name]) for row in run_json(*request)["rows"] for name in ("mean", "mean_low")} == {float}
