"""A scan with any filter returns what the same filter keeps of the rows in memory: nothing less, nothing else."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from tests.helpers.deletion_vectors import delete
from tests.helpers.examples import examples, is_sweep
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.small_files import resized
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
from tests.helpers.tables import assert_same_rows, each_sizes, folder, sampled, samples, small_files, write

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")


Reading = Literal[
    "whole", "streamed", "row numbers", "columns", "head", "slice", "count", "groups", "self join"
]


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
            actual = scan.head(count).collect()
            assert actual.height == min(count, wanted.height)
            assert_same_rows(actual, wanted.filter(pl.col(ROW).is_in(actual[ROW].implode())))
        case "slice":
            start, count = data.draw(st.integers(0, 5)), data.draw(st.integers(0, wanted.height + 1))
            actual = scan.slice(start, count).collect()
            assert actual.height == max(min(count, wanted.height - start), 0)
            assert_same_rows(actual, wanted.filter(pl.col(ROW).is_in(actual[ROW].implode())))
        case "self join":
            joined = scan.join(scan.select(ROW, twice=pl.col(ROW) * 2), on=ROW)
            assert_same_rows(joined.collect(), wanted.with_columns(twice=pl.col(ROW) * 2))
        case "count":
            assert scan.select(pl.len()).collect().item() == wanted.height
        case "groups":
            of, other = pl.col(ROW), pl.nth(-1).null_count().alias("nulls")
            actual, expected = (
                frame.group_by(key=of % 3).agg(of.sum(), pl.len(), other).collect().sort("key")
                for frame in (scan, wanted.lazy())
            )
            assert_frame_equal(actual, expected)


def check_filters(case: Case, path: Path, data: st.DataObject, times: int) -> None:
    for _ in range(times):
        sample = data.draw(samples())
        expr = data.draw(filters(case.rows))
        expected = kept_rows(sampled(case.rows, case.indexed, sample), expr)
        if expected is None:
            continue
        scan = qbeast.scan_table(path, sample=sample).filter(expr)
        check_reading(data.draw(st.sampled_from(get_args(Reading))), data, scan, expected)


CASES = st.builds(
    lambda case, unique: with_key_in_rows(case) if unique else case, cases(most_frames=3), st.booleans()
)


@each_sizes
@examples(2, sweep=35)
@given(
    case=CASES,
    file_rows=st.sampled_from([7, 25, 1 << 16]),
    page_rows=st.sampled_from([1, 4, 16]),
    data=st.data(),
)
def test_filtered_scan_returns_matching_rows(
    sizes: dict[str, Any], case: Case, file_rows: int, page_rows: int, data: st.DataObject
) -> None:
    with folder() as path, resized(**sizes):
        with small_files(file_rows=file_rows, page_rows=page_rows):
            write(path, case)
        check_filters(case, path, data, 15 if is_sweep() else 5)


def test_threads_share_a_table_and_a_scan(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(4000)}).with_columns(a=pl.col(ROW) * 7919 % 4001)
    with small_files(file_rows=500, page_rows=32):
        qbeast.write_table(rows, tmp_path / "t", columns=["a", ROW], cube_size=100)
    table = qbeast.open_table(tmp_path / "t")
    scan = table.rows().lazy()

    def read(low: int) -> None:
        expr = pl.col("a").is_between(low, low + 300)
        kept = rows.filter(expr)
        assert_same_rows((scan if low % 2 else table.rows().lazy()).filter(expr).collect(), kept)
        assert table.rows(expr).explain().rows_opened >= kept.height

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(0, 4000, 571)))


def test_escaped_bounds_in_log_lose_no_row(tmp_path: Path) -> None:
    """deltalake reads two escapes of a character from U+100000 on as a lower one."""
    rows = pl.DataFrame({ROW: range(40), "t": [f"z{chr(0x100000 + row)}" for row in range(40)]})
    qbeast.write_table(rows, tmp_path, columns=[ROW])
    commit = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = json.dumps(json.loads(action["add"]["stats"]))
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for expr in (pl.col("t") == rows["t"][39], pl.col("t") > rows["t"][0], pl.col("t").str.starts_with("z")):
        assert_same_rows(qbeast.read_table(tmp_path, where=expr), rows.filter(expr))
    assert qbeast.open_table(tmp_path).check().ok


OVERFLOWING = (
    pl.col("a") + 1 > 2,
    pl.col("a") * 2 > 2,
    1 - pl.col("b") < 0,
    (pl.col("a") + 1 > 2) & pl.col("c").is_null(),
    -pl.col("b") > 1,
    pl.col("b").abs() < 0,
)


@pytest.mark.parametrize("expr", OVERFLOWING, ids=str)
@pytest.mark.parametrize("kind", ["ours", "of deltalake", "rows deleted"])
def test_numbers_that_overflow_lose_no_row(expr: pl.Expr, kind: str, tmp_path: Path) -> None:
    """Polars computes with bounds of row groups in their own type: what overflows there rules out rows that match."""
    numbers = pl.Series(list(range(-128, 128)), dtype=pl.Int8)
    rows = pl.DataFrame({ROW: range(256), "a": numbers, "b": numbers.reverse(), "c": [None, 1] * 128})
    if kind == "of deltalake":
        write_deltalake(tmp_path, rows)
        qbeast.convert_table(tmp_path, columns=[ROW])
    else:
        qbeast.write_table(rows, tmp_path, columns=[ROW])
    if kind == "rows deleted":
        delete(tmp_path, [3, 200])  # by their places in the file
        rows = qbeast.read_table(tmp_path)
        assert rows.height == 254
    expected = rows.filter(expr)
    assert expected.height
    assert_same_rows(qbeast.read_table(tmp_path, where=expr), expected)
    assert_same_rows(qbeast.scan_table(tmp_path).filter(expr).collect(), expected)
