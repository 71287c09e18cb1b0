"""A scan with any filter returns what the same filter keeps of the rows in memory: nothing less, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from tests.integration.expressions import filters, kept_rows
from tests.integration.tables import assert_same_rows, folder, sampled, samples, small_files, write
from tests.strategies import ROW, Case, cases, with_key_in_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


Reading = Literal["whole", "streamed", "row numbers", "columns", "head", "count", "groups"]


def check_reading(kind: Reading, data: st.DataObject, scan: pl.LazyFrame, wanted: pl.DataFrame) -> None:
    """Read the rows in one of the ways that reach the source differently."""
    match kind:
        case "whole":
            assert_same_rows(scan.collect(), wanted)
        case "streamed":
            assert_same_rows(scan.collect(engine="streaming"), wanted)
        case "row numbers":
            assert_same_rows(scan.select(ROW).collect(), wanted.select(ROW))
        case "columns":
            names = [ROW, *data.draw(st.permutations(wanted.columns[1:]))][: data.draw(st.integers(1, 3))]
            assert_same_rows(scan.select(names).collect(), wanted.select(names))
        case "head":
            count = data.draw(st.integers(0, wanted.height + 1))
            found = scan.head(count).collect()
            assert found.height == min(count, wanted.height)
            assert_same_rows(found, wanted.filter(pl.col(ROW).is_in(found[ROW].implode())))
        case "count":
            assert scan.select(pl.len()).collect().item() == wanted.height
        case "groups":
            of, other = pl.col(ROW), pl.nth(-1).null_count().alias("nulls")
            found, expected = (
                frame.group_by(key=of % 3).agg(of.sum(), pl.len(), other).collect().sort("key")
                for frame in (scan, wanted.lazy())
            )
            assert_frame_equal(found, expected)


def check_filters(case: Case, path: Path, data: st.DataObject, times: int) -> None:
    for _ in range(times):
        sample = data.draw(samples())
        expr = data.draw(filters(case.rows))
        wanted = kept_rows(sampled(case.rows, case.indexed, sample), expr)
        if wanted is None:
            continue
        scan = qbeast.scan_table(path, sample=sample).filter(expr)
        check_reading(data.draw(st.sampled_from(get_args(Reading))), data, scan, wanted)


CASES = st.builds(
    lambda case, unique: with_key_in_rows(case) if unique else case, cases(most_frames=3), st.booleans()
)


@settings(max_examples=40)
@given(
    case=CASES,
    file_rows=st.sampled_from([7, 25, 1 << 16]),
    page_rows=st.sampled_from([1, 4, 16]),
    data=st.data(),
)
def test_a_filtered_scan_returns_what_the_filter_keeps(
    case: Case, file_rows: int, page_rows: int, data: st.DataObject
) -> None:
    with folder() as path:
        with small_files(file_rows=file_rows, page_rows=page_rows):
            write(path, case)
        check_filters(case, path, data, 5)


@pytest.mark.slow
@settings(max_examples=300)
@given(case=CASES, file_rows=st.sampled_from([7, 25]), page_rows=st.sampled_from([1, 4]), data=st.data())
def test_many_filtered_scans_return_what_the_filters_keep(
    case: Case, file_rows: int, page_rows: int, data: st.DataObject
) -> None:
    with folder() as path:
        with small_files(file_rows=file_rows, page_rows=page_rows):
            write(path, case)
        check_filters(case, path, data, 15)
