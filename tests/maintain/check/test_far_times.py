"""Dates and times outside the years that Python can hold: check and repair, and what the command line prints."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import qbeast
from qbeast_core.cli.program import program
from qbeast_core.support.frames import shown_times
from tests.helpers import damage as d

TIME = pl.Datetime("us", "UTC")
FAR = {
    "year 10000": pl.Series([2_932_897, 3], dtype=pl.Int32).cast(pl.Date),
    "infinity": pl.Series([2**31 - 1, 3], dtype=pl.Int32).cast(pl.Date),
    "year 0": pl.Series([-719_163, 3], dtype=pl.Int32).cast(pl.Date),
    "minus infinity": pl.Series([-(2**31) + 1, 3], dtype=pl.Int32).cast(pl.Date),
    "time of the year 10000": pl.Series([2_932_897 * 86_400_000_000, 3], dtype=pl.Int64).cast(TIME),
    "last time": pl.Series([2**63 - 1, 3], dtype=pl.Int64).cast(TIME),
}
CASES = [
    name if number < 1 else pytest.param(name, marks=pytest.mark.sweep) for number, name in enumerate(FAR)
]


@pytest.mark.parametrize("name", CASES)
def test_sound_table_of_far_times_has_no_fault(tmp_path: Path, name: str) -> None:
    rows = pl.DataFrame({"id": [0, 1], "day": FAR[name]})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    table = qbeast.open_table(tmp_path)
    assert table.check().ok, table.check()
    assert not table.repair().committed
    assert table.read().sort("id").equals(rows)


def test_wrong_bound_of_an_infinite_date_is_named(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": [0, 1], "day": FAR["infinity"]})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    d.spoil(tmp_path, d.stats(lambda actual: actual["maxValues"].update(day="1970-01-01")), indexed=["id"])
    faults = qbeast.open_table(tmp_path).check().faults
    assert "holds 2147483647 days since 1970, above the max" in faults["message"][0]


@pytest.mark.parametrize("name", CASES)
def test_command_line_shows_far_times(tmp_path: Path, name: str) -> None:
    rows = pl.DataFrame({"id": [0, 1], "day": FAR[name]})
    qbeast.write_table(rows.with_columns(days=pl.concat_list("day")), tmp_path, columns=["id"])
    text = shown_times(rows)["day"][0]
    for options in ([], ["--json"]):
        done = CliRunner().invoke(program, [*options, "show", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert text in done.output


def test_near_times_are_left_alone() -> None:
    rows = pl.DataFrame(
        {
            "day": [date.min, date.max, None],
            "time": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None],
        }
    )
    assert shown_times(rows).equals(rows)
