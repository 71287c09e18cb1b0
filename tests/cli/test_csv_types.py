"""Types of CSV from some rows are those that Polars infers from all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from qbeast_core.cli import csv_types
from qbeast_core.cli.csv_types import scan_typed
from tests.helpers.examples import examples
from tests.helpers.tables import folder

TEXTS = {
    "whole": ["0", "7", "-12", "007", "9223372036854775807", "9223372036854775808", "1e3"],
    "number": ["1.5", "-0.0", "NaN", "inf", "2", "1e400", ".5"],
    "flag": ["true", "false", "True"],
    "date": ["2024-01-31", "2024-02-30", "31/01/2024", "2024-01-31 10:00"],
    "time": ["2024-01-31T10:00:00", "2024-01-31 10:00:00.123", "2024-01-31T10:00:00Z", "10:00:00"],
    "text": ["a", "a,b", 'say "x"', "1 2", " ", "two\nlines"],
}


@st.composite
def columns(draw: st.DrawFn, rows: int) -> list[str | None]:
    """Return values of mostly one kind, with nulls and some of another kind."""
    kind, other = draw(st.sampled_from(sorted(TEXTS))), draw(st.sampled_from(sorted(TEXTS)))
    usual = draw(st.lists(st.sampled_from(TEXTS[kind][:2]), min_size=1, max_size=2))
    values: list[str | None] = [usual[at % len(usual)] for at in range(rows)]
    for at in draw(st.lists(st.integers(0, rows - 1), max_size=4)):
        values[at] = draw(st.sampled_from([None, *TEXTS[kind], *TEXTS[other]]))
    if draw(st.booleans()):
        values = [value if at in (3, rows // 2) else None for at, value in enumerate(values)]
    return values


NAMES = ["c0", "c1", "c2"]


@examples(8, sweep=600, parent=settings(deadline=None))
@given(st.data())
def test_types_are_those_of_all_values(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 90))
    values = {name: data.draw(columns(rows)) for name in NAMES}
    with folder() as path, mock.patch.object(csv_types, "_SAMPLED_ROWS", 5):
        file = path.with_name("rows.csv")
        pl.DataFrame(values, schema=dict.fromkeys(NAMES, pl.String)).write_csv(file)
        scan = partial(pl.scan_csv, file, try_parse_dates=True)
        try:
            expected = scan(infer_schema_length=None).collect()
        except pl.exceptions.PolarsError:
            with pytest.raises(pl.exceptions.PolarsError):
                scan_typed(scan, {}).collect()
            return
        assert_frame_equal(scan_typed(scan, {}).collect(), expected)


def test_known_types_are_kept(tmp_path: Path) -> None:
    pl.DataFrame({"zip": ["01", "02"] * 50, "n": range(100)}).write_csv(tmp_path / "rows.csv")
    steps: list[int] = []
    scan = partial(pl.scan_csv, tmp_path / "rows.csv")
    rows = scan_typed(scan, {"zip": pl.String()}, lambda: steps.append(1)).collect()
    assert rows.schema == {"zip": pl.String, "n": pl.Int64}
    assert rows["zip"].head(2).to_list() == ["01", "02"]
    assert len(steps) == 2


def test_lines_that_do_not_fit_are_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4,5\n")
    scan = partial(pl.scan_csv, tmp_path / "rows.csv")
    with pytest.raises(pl.exceptions.ComputeError):
        scan_typed(scan, {}).collect()
