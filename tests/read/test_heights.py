"""The number of rows is told by the log where the log knows it, and is that of the rows wherever it is asked for."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qbeast
from tests.helpers import deletion_vectors
from tests.helpers.examples import examples, is_sweep
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.requests import counted, read_bytes
from tests.helpers.strategies import Case, cases
from tests.helpers.tables import (
    assert_same_rows,
    first_plans_by_statistics,
    folder,
    sampled,
    samples,
    small_files,
    write,
)

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
COUNT = 4000
X, ID = pl.col("x"), pl.col("id")
ROWS = pl.select(id=pl.int_range(COUNT)).with_columns(
    x=ID * 7919 % 4001,
    f=pl.when(ID % 7 > 0).then(ID / 8),
    s=pl.format("key {}", ID % 10),
    day=pl.lit(date(1995, 1, 1)) + pl.duration(days=ID % 700),
    time=pl.lit(date(1995, 1, 1)).cast(pl.Datetime("us")) + pl.duration(hours=ID),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("heights") / "t"
    with small_files(file_rows=700, page_rows=32):
        qbeast.write_table(ROWS, made, columns=["id", "x"], cube_size=100)
    return made


@pytest.fixture(scope="module")
def unread(path: Path) -> qbeast.Table:
    """The same table without its data files: what is told of it is told by its log."""
    copy = path.parent / "unread"
    shutil.copytree(path / "_delta_log", copy / "_delta_log")
    return qbeast.open_table(copy)


KNOWN: dict[str, tuple[pl.Expr | None, float | None]] = {
    "all": (None, None),
    "true of every row": (ID >= 0, None),
    "true of none": (ID < 0, None),
    "and": ((ID > -1) & (X <= 4001) & pl.col("s").is_not_null(), None),
    "or": ((ID > 5000) | (X >= 0), None),
    "not": (~(ID > 5000) & ~X.is_null(), None),
    "of text": ((pl.col("s") >= "key 0") & (pl.col("s") < "kez"), None),
    "of days": (pl.col("day") >= date(1995, 1, 1), None),
    "of years": (pl.col("time").dt.year() == 1995, None),
    "of arithmetic": (X * 2 >= -1, None),
    "of a fraction": (X > -0.5, None),
    "everything": (None, 1.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_counts_known_from_log_read_no_bytes(unread: qbeast.Table, name: str) -> None:
    expr, sample = KNOWN[name]
    expected = COUNT if expr is None else ROWS.filter(expr).height
    scan = unread.rows(expr, sample=sample).lazy()
    assert scan.select(pl.len()).collect().item() == expected
    assert scan.select(n=pl.len() * 2, one=pl.lit(1)).collect().rows() == [(2 * expected, 1)]
    assert scan.sql("SELECT count(*) FROM self").collect().item() == expected
    assert unread.count(expr, sample=sample) == expected
    assert scan.select(pl.len()).collect(engine="streaming").item() == expected
    assert unread.rows().lazy().head(9).select(pl.len()).collect().item() == 9
    with pytest.raises(qbeast.StorageError):
        unread.read()


def test_only_undecided_pages_are_read(path: Path) -> None:
    table, expr = qbeast.open_table(path), ID.is_between(500, 3400)
    assert table.count(expr) == 2901  # and footers are read
    with counted() as by_count:
        assert table.count(expr) == 2901
    with counted() as by_read:
        assert table.read(where=expr, columns=["id"]).height == 2901
    assert 0 < read_bytes(by_count) < 0.7 * read_bytes(by_read)


NEEDS_ROWS: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "unique": lambda rows: rows.unique("x"),
    "sorted": lambda rows: rows.sort("x").head(7),
    "joined": lambda rows: rows.join(pl.LazyFrame({"x": [1, 1, 2000]}), on="x"),
    "semi": lambda rows: rows.join(pl.LazyFrame({"x": [1, 1, 2000]}), on="x", how="semi"),
    "grouped": lambda rows: rows.group_by(X % 7).agg(pl.len()),
    "filtered again": lambda rows: rows.filter(X.cast(pl.Int16) > 1000),  # may fail: Polars keeps it
    "filtered by all": lambda rows: rows.filter(X.mean() < X),
    "filtered in windows": lambda rows: rows.filter(X.rank() > 9),
    "by Python": lambda rows: rows.map_batches(lambda frame: frame.filter(X > 77)),
    "exploded": lambda rows: rows.with_columns(X.repeat_by(2)).explode("x"),
    "unpivoted": lambda rows: rows.select("id", "x").unpivot(),
    "cached": lambda rows: rows.cache(),
    "tail": lambda rows: rows.tail(5),
    "slice": lambda rows: rows.slice(3, 9),
    "numbered": lambda rows: rows.with_row_index(),
    "without nulls": lambda rows: rows.drop_nulls(),
    "without nulls in one": lambda rows: rows.drop_nulls("f"),
    "top": lambda rows: rows.top_k(3, by="x"),
}


@pytest.mark.parametrize("engine", ["in-memory", pytest.param("streaming", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", NEEDS_ROWS)
def test_operations_that_need_values_get_them(path: Path, name: str, engine: Any) -> None:
    """Polars asks for columns of the filter in the same way whether their values are looked at or not."""
    change = NEEDS_ROWS[name]
    for expr in (X > 1000, (X > 1000) & (ID >= 0), pl.lit(value=True)):
        scan, rows = qbeast.scan_table(path, where=expr), ROWS.lazy().filter(expr)
        actual = change(scan).select(pl.len()).collect(engine=engine).item()
        assert actual == change(rows).select(pl.len()).collect().item()
    both = [scan.filter(X > 9).select(pl.len().cast(pl.Int64)), scan.filter(X > 9).select(len=X.sum())]
    expected = [rows.filter(X > 9).select(pl.len().cast(pl.Int64)), rows.filter(X > 9).select(len=X.sum())]
    assert pl.concat(both).collect(engine=engine).equals(pl.concat(expected).collect())


@pytest.mark.parametrize("name", ["projection_pushdown", "predicate_pushdown", "comm_subplan_elim", "none"])
def test_disabled_polars_optimizations_change_nothing(path: Path, name: str) -> None:
    flags = pl.QueryOptFlags.none() if name == "none" else pl.QueryOptFlags().update(**{name: False})
    scan, rows = qbeast.scan_table(path), ROWS.lazy()
    for expr in (X > 1000, pl.all_horizontal(pl.col(name).is_not_null() for name in ROWS.columns)):
        actual = scan.filter(expr).collect(optimizations=flags)
        assert actual.sort("id").equals(rows.filter(expr).collect().sort("id"))
        counted = scan.filter(expr).select(pl.len()).collect(optimizations=flags).item()
        assert counted == actual.height


def test_internal_column_is_visible_only_to_polars(path: Path) -> None:
    scan = qbeast.scan_table(path)
    assert scan.collect_schema() == ROWS.schema
    assert scan.select(pl.all()).collect().columns == ROWS.columns
    again = pl.LazyFrame.deserialize(io.BytesIO(scan.filter(X > 9).serialize()))
    assert again.select(pl.len()).collect().item() == ROWS.filter(X > 9).height


def test_hidden_rows_are_not_counted(tmp_path: Path) -> None:
    qbeast.write_table(deletion_vectors.ROWS, tmp_path, columns=["id", "x"], cube_size=100)
    deletion_vectors.delete(tmp_path, deletion_vectors.GONE)
    table = qbeast.open_table(tmp_path)
    left = table.read()
    assert left.height == deletion_vectors.ROWS.height - len(deletion_vectors.GONE)
    for expr in (ID >= 0, ID < 1234, X.is_between(100, 3000)):
        assert table.count(expr) == left.filter(expr).height
        assert_same_rows(table.read(where=expr), left.filter(expr), "id")
    before = qbeast.read_table(tmp_path, sample=0.3, version=0)
    assert_same_rows(table.read(sample=0.3), before.join(left, on="id", how="semi"), "id")
    qbeast.write_table(deletion_vectors.ROWS.with_columns(ID + 10_000), tmp_path, mode="append")
    assert table.refresh().count() == left.height + deletion_vectors.ROWS.height
    qbeast.write_table(deletion_vectors.ROWS.head(10), tmp_path, mode="overwrite")
    assert pl.scan_delta(str(tmp_path)).select(pl.len()).collect().item() == 10


@examples(2, sweep=110)
@given(
    case=cases(most_frames=3),
    file_rows=st.sampled_from([7, 25, 1 << 16]),
    page_rows=st.sampled_from([1, 4, 16]),
    data=st.data(),
)
def test_counts_equal_polars(case: Case, file_rows: int, page_rows: int, data: st.DataObject) -> None:
    with folder() as path:
        with small_files(file_rows=file_rows, page_rows=page_rows):
            write(path, case)
        table = qbeast.open_table(path)
        for _ in range(6 if is_sweep() else 3):
            sample, expr = data.draw(samples()), data.draw(filters(case.rows) | st.none())
            rows = sampled(case.rows, case.indexed, sample)
            expected = rows if expr is None else kept_rows(rows, expr)
            if expected is not None:
                for opened in (table, qbeast.open_table(path)):
                    scan = opened.rows(sample=sample).lazy()
                    request = scan if expr is None else scan.filter(expr)
                    with first_plans_by_statistics():
                        assert request.select(pl.len()).collect().item() == expected.height
