"""What docs/security.md promises of well-formed lies: whole reads are whole, no row is wrong, `check` reports them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers import damage as d
from tests.helpers.examples import examples
from tests.helpers.tables import assert_same_rows, folder, sampled, small_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.CorruptTagWarning"),
]
INDEXED = ["a", "s"]
ROWS = pl.DataFrame({"row": range(300)}).with_columns(
    a=pl.col("row") * 7919 % 301, s=pl.format("key {}", pl.col("row") % 90), f=(pl.col("row") % 17) / 4
)
FILTERS = [
    pl.col("a") < 50,
    pl.col("s") == "key 7",
    pl.col("s").is_in(["key 1", "key 80"]),
    pl.col("f") > 3.5,
    pl.col("row").is_between(100, 120),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lies") / "t"
    with small_files(file_rows=100, page_rows=16):
        qbeast.write_table(ROWS, path, columns=INDEXED, cube_size=30)
    return path


def swapped(name: str, one: int, other: int) -> d.Damage:
    def edit(actual: list[dict[str, Any]]) -> None:
        first, second = actual[one % len(actual)], actual[other % len(actual)]
        first[name], second[name] = second[name], first[name]

    return d.blocks(edit)


def of_statistics(side: str, column: str, value: Any) -> d.Damage:
    return d.stats(lambda actual: actual[side].update({column: value}))


PLACES = st.integers(0, 20)
LIES = st.one_of(
    st.builds(swapped, st.sampled_from(["elementCount", "cube", "minWeight", "maxWeight"]), PLACES, PLACES),
    st.builds(
        lambda at, cube: d.block(at, cube=cube), PLACES, st.sampled_from(["", "A", "g", "Q", "w", "AA", "ww"])
    ),
    st.builds(
        lambda at, step: d.shift_block(at, minWeight=step), PLACES, st.sampled_from([-(2**20), 2**20, 2**28])
    ),
    st.builds(
        lambda at, step: d.shift_block(at, maxWeight=step), PLACES, st.sampled_from([-(2**20), -(2**28)])
    ),
    st.builds(
        of_statistics, st.just("minValues"), st.sampled_from(["a", "row"]), st.sampled_from([0, 90, 200])
    ),
    st.builds(
        of_statistics, st.just("maxValues"), st.sampled_from(["a", "row"]), st.sampled_from([90, 200, 301])
    ),
    st.builds(of_statistics, st.just("minValues"), st.just("s"), st.sampled_from(["key 5", "key 9"])),
    st.builds(of_statistics, st.just("nullCount"), st.sampled_from(["a", "s"]), st.sampled_from([1, 500])),
    st.builds(d.shift_bound, st.integers(0, 200), st.sampled_from([-100, -1, 1, 100])),
    st.builds(
        lambda at, step: d.shift_band(at, weight=step), PLACES, st.sampled_from([-(2**20), -1, 1, 2**20])
    ),
    st.sampled_from([{"minNumber": -400}, {"minNumber": 90}, {"maxNumber": 200}, {"maxNumber": 5000}]),
)


@examples(1, sweep=80)
@given(lie=LIES, at=PLACES)
def test_check_reports_faults_that_lose_rows(sound: Path, lie: d.Damage | dict[str, int], at: int) -> None:
    with folder() as path:
        shutil.copytree(sound, path)
        if isinstance(lie, dict):
            d.other_range(path, "a", **lie)
        else:
            d.spoil(path, lie, indexed=INDEXED, at=at)
        assert_same_rows(qbeast.read_table(path), ROWS, "row")
        lacks = lacking(path)
        report = qbeast.open_table(path).check()
        assert not lacks or not report.ok, lacks
        if report.ok:
            return
        qbeast.open_table(path).repair()
        assert_same_rows(qbeast.read_table(path), ROWS, "row")
        assert not lacking(path)


def lacking(path: Path) -> list[str]:
    """Name the filters and samples that lack rows; none returns a row too many."""
    table, actual = qbeast.open_table(path), list[str]()
    request = [(f"sample {f}", {"sample": f}, sampled(ROWS, INDEXED, f)) for f in (0.1, 0.5)]
    request += [(str(item), {"where": item}, ROWS.filter(item)) for item in FILTERS]
    for name, options, expected in request:
        rows = table.read(**options)
        assert rows["row"].n_unique() == rows.height
        assert rows.join(expected, on=ROWS.columns, how="anti", nulls_equal=True).is_empty(), name
        if rows.height < expected.height:
            actual.append(f"{name}: {rows.height} of {expected.height}")
    return actual
