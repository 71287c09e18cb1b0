# ruff: noqa: S301 -- what is unpickled was pickled here
"""A plan names every byte that a read needs: all others can be zero and the answer stays."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import assume, given
from hypothesis import strategies as st

import qbeast
from tests.helpers.examples import examples, is_sweep
from tests.helpers.expressions import filters, kept_rows
from tests.helpers.invariants import read_log
from tests.helpers.planned import planned
from tests.helpers.strategies import ROW, Case, cases, with_key_in_rows
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

MAGIC = 4


def zero_what_is_not_named(table: Path, plan: qbeast.Plan) -> None:
    """Overwrite the data files but for the ranges of a plan, the page directories of opened files and magic bytes."""
    directories = {path: directory_place(add) for path, add in read_log(table).adds.items()}
    for file in plan.files.iter_rows(named=True):
        path = table / file["path"]
        data = path.read_bytes()
        kept = [(0, MAGIC), (len(data) - MAGIC, MAGIC)]
        if file["opened"]:
            ranges = file["ranges"]
            kept += [(0, len(data))] if ranges is None else [(r["start"], r["length"]) for r in ranges]
            tail, length = directories[file["path"]]
            by_page = file["pages_opened"] < file["pages_total"]
            kept.append((len(data) - tail, length if by_page else tail))
        zeroed = bytearray(len(data))
        for start, length in kept:
            zeroed[start : start + length] = data[start : start + length]
        path.write_bytes(zeroed)


def directory_place(add: dict[str, object]) -> tuple[int, int]:
    """Return how far before the end of a file its page directory begins, and its length."""
    tags = add["tags"]
    assert isinstance(tags, dict)
    layout = orjson.loads(tags["qbeast.layout"])
    return layout["tail"], layout["directory"]


def check_plan(plan: qbeast.Plan, rows: int) -> None:
    files = plan.files
    assert plan.bytes_opened == files["bytes_opened"].sum() <= plan.bytes_total
    assert 0 <= plan.share <= 1
    assert rows <= plan.rows_opened <= plan.rows_total
    assert (files["pages_opened"] <= files["pages_total"]).all()
    closed = files.filter(~pl.col("opened"))
    assert (closed["bytes_opened"] == 0).all()
    assert (closed["pages_opened"] == 0).all()
    assert not (closed["reason"] == "matches").any()
    assert (files.filter("opened")["bytes_opened"] > 0).all()
    assert (files.filter("opened")["reason"] == "matches").all()
    assert str(files.height) in repr(plan)


CASES = st.builds(
    lambda case, unique: with_key_in_rows(case) if unique else case,
    cases(most_frames=3, most_rows=90),
    st.booleans(),
)


def check_named_bytes(case: Case, data: st.DataObject, times: int) -> None:
    with folder() as path:
        with small_files(file_rows=45, page_rows=data.draw(st.sampled_from([1, 4]))):
            write(path, case)
        for number in range(times):
            sample, expr = data.draw(samples()), data.draw(filters(case.rows))
            expected = kept_rows(sampled(case.rows, case.indexed, sample), expr)
            assume(expected is not None)
            columns = data.draw(st.sampled_from([None, [ROW], case.rows.columns[:2]]))
            with first_plans_by_statistics():
                table = qbeast.open_table(path)
                plan, again = (table.rows(expr, sample=sample, columns=columns).explain() for _ in range(2))
            # The first one decodes the tags of files alone that may match.
            assert plan.rows_opened == again.rows_opened
            assert plan.files.drop("reason").equals(again.files.drop("reason"))
            check_plan(plan, expected.height)
            copy = path.with_name(f"copy {number}")
            shutil.copytree(path, copy)
            zero_what_is_not_named(copy, plan)
            actual = qbeast.read_table(copy, columns=columns, where=expr, sample=sample)
            assert_same_rows(actual, expected if columns is None else expected.select(columns))


@examples(2, sweep=50)
@given(case=CASES, data=st.data())
def test_bytes_outside_plan_do_not_matter(case: Case, data: st.DataObject) -> None:
    check_named_bytes(case, data, 6 if is_sweep() else 2)


def test_selective_read_of_large_table_is_small(tmp_path: Path) -> None:
    rows = pl.DataFrame({ROW: range(100_000)}).with_columns(
        a=(pl.col(ROW) * 7919) % 100_000, b=pl.col(ROW) % 97
    )
    qbeast.write_table(rows, tmp_path / "t", columns=["a", "b"], cube_size=2000)
    table = qbeast.open_table(tmp_path / "t")
    plan = table.rows(pl.col("a") < 1000).explain()
    assert plan.share < 0.25
    assert table.rows(pl.col("a") < 1000, columns=["a"]).explain().bytes_opened < plan.bytes_opened
    assert table.rows(sample=0.01).explain().share < 0.06
    assert table.rows().explain().share == 1.0
    assert table.rows(pl.col("a") < -1).explain().bytes_opened == 0
    before = plan.files
    zero_what_is_not_named(tmp_path / "t", plan)
    assert_same_rows(
        table.rows().lazy().filter(pl.col("a") < 1000).collect(), rows.filter(pl.col("a") < 1000)
    )
    assert before.equals(plan.files)


def test_plan_names_filter_parts_that_close_nothing(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": range(3000), "s": [f"key {i}" for i in range(3000)]})
    qbeast.write_table(rows, tmp_path, columns=["x"])
    table, x, s = qbeast.open_table(tmp_path), pl.col("x"), pl.col("s")
    ends, narrow = s.str.ends_with("7"), x.cast(pl.Int8) > 3
    by_python = x.map_batches(lambda item: item > 5, return_dtype=pl.Boolean)
    for filtered, unused in (
        (x < 100, []),
        ((x < 100) & ends, [ends]),
        ((x < 100) & narrow & (x > 7) & ends, [narrow, ends]),
        ((x < 100) | ends, [(x < 100) | ends]),
        (ends, [ends]),
        ((x < 100) & pl.lit(value=True), []),
        ((x < 100) & by_python, [by_python]),
    ):
        plan = table.rows(filtered).explain()
        assert list(plan.unused_conditions) == list(map(str, unused))
        for shown in (repr(plan), plan._repr_html_()):
            assert ("skips no file" in shown) == bool(unused)
    assert table.rows().explain().unused_conditions == table.rows("x < 100").explain().unused_conditions == {}
    assert len(table.rows("x < 100 AND s LIKE '%7'").explain().unused_conditions) == 1


@pytest.mark.parametrize(
    ("where", "reasons"),
    [
        ("store = 1", ["'store' is not indexed", "Table.reindex"]),
        ("user < 42", ["'user' is indexed by hash, which has no order", "(= or IN)", "'user:quantiles'"]),
        ("user = 42", []),
        ("user BETWEEN 1 AND 9 AND price < 5", ["no order"]),
        ("price < 5 OR store = 1", ["[(col(\"store\")) == (dyn int: 1)]: 'store' is not indexed"]),
        ("price < 5 OR user > 7", ["no order"]),
        ("brand LIKE '%7'", ["does not support it", "compare a column with constants"]),
        ("price <> 5", ["excludes only one value"]),
        ("price IS NOT NULL", ["excludes only one value"]),
        ("price < 1000", []),
        ("day < DATE '2020-03-01'", []),
        ("day = DATE '2020-03-01' OR brand LIKE '%7'", ["does not support it"]),
    ],
)
def test_unused_condition_has_reason_and_advice(where: str, reasons: list[str], sales: qbeast.Table) -> None:
    plan = sales.rows(where).explain()
    assert bool(plan.unused_conditions) == bool(reasons)
    message = "".join(plan.unused_conditions.values())
    assert all(reason in message for reason in reasons)
    assert all(reason in repr(plan) for reason in reasons)
    if "AND" not in where and reasons:
        assert plan.rows_opened == plan.rows_total


def test_filters_of_fields_are_unused_with_advice(tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(9), "user": [{"country": "DE"}] * 9})
    qbeast.write_table(rows, tmp_path, columns=["id"])
    reasons = qbeast.open_table(tmp_path).rows("user.country = 'DE'").explain().unused_conditions.values()
    assert list(reasons) == [
        "'user' is nested, and its fields have no index; write the field as a column, and index that"
    ]


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    n, path = pl.int_range(20_000), tmp_path_factory.mktemp("sales")
    rows = pl.select(
        price=n * 7919 % 10_007 / 100,
        brand=pl.format("brand {}", n * 31 % 40),
        day=pl.date(2020, 1, 1) + pl.duration(days=n * 13 % 1461),
        user=n * 101 % 5003,
        store=n % 5,
    )
    qbeast.write_table(rows, path, columns=["price", "brand", "day", "user:hash"], cube_size=500)
    return qbeast.open_table(path)


def test_column_separated_by_files_is_used(tmp_path: Path) -> None:
    """Statistics of files close what the index does not know."""
    for start in (0, 1000):
        rows = pl.DataFrame({"x": range(1000), "at": range(start, start + 1000)})
        qbeast.write_table(rows, tmp_path, columns=["x"], mode="append")
    table = qbeast.open_table(tmp_path)
    assert table.rows("at < 500").explain().unused_conditions == {}
    assert list(table.rows("at % 2 = 0").explain().unused_conditions.values())


def test_files_without_index_are_a_reason(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pl.DataFrame({"x": range(1000)}).to_arrow())
    qbeast.convert_table(tmp_path, columns=["x"])
    report = qbeast.open_table(tmp_path).rows("x < 500").explain().unused_conditions
    assert "optimize the table" in "".join(report.values())
    qbeast.open_table(tmp_path).optimize()
    assert qbeast.open_table(tmp_path).rows("x < 500").explain().unused_conditions == {}


def test_rows_of_files_without_statistics_are_counted(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"x": range(1000)}), tmp_path, columns=["x"])
    write_deltalake(tmp_path, pl.DataFrame({"x": range(7)}).to_arrow(), mode="append")
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        actions = [orjson.loads(line) for line in commit.read_bytes().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        commit.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    plan = qbeast.open_table(tmp_path).rows().explain()
    assert (plan.rows_opened, plan.rows_total) == (1007, 1007)
    assert "1,007 of 1,007" in repr(plan)


SUMS = (
    *("bytes_opened", "bytes_total", "rows_opened", "rows_total", "rows_in_files", "bytes_in_files"),
    *("unused_conditions", "design_effect", "design_effect_scope"),
)


def check_planned(path: Path, request: dict[str, Any], part_files: int) -> None:
    """Compare a plan with the one of the same table by a plan file."""
    plan = qbeast.open_table(path).rows(**request).explain()
    opened = qbeast.open_table(path).rows(**request).files()
    with planned(path, plan_part_files=part_files) as copy:
        rows = qbeast.open_table(copy).rows(**request)
        actual, actual_opened = rows.explain(), rows.files()
        again = pickle.loads(pickle.dumps(actual))
        for name in SUMS:
            assert getattr(actual, name) == getattr(again, name) == getattr(plan, name), name
        for frame in (actual.files, again.files):
            files, expected = frame.sort("path"), plan.files.sort("path")
            assert files.drop("reason").equals(expected.drop("reason"))
            assert files.filter(files["reason"] != expected["reason"])["reason"].is_in(["statistics"]).all()
        shown, expected_lines = (
            [line for line in repr(item).splitlines() if line[2:7].strip() in {"pages", "rows", "bytes"}]
            for item in (actual, plan)
        )
        assert shown == expected_lines
    by_name = pl.col("path").str.split("/").list.last()
    assert actual_opened.with_columns(by_name).sort("path").equals(opened.with_columns(by_name).sort("path"))
    shutil.rmtree(copy)


def test_plan_in_parts_is_the_plan_of_the_log(tmp_path: Path) -> None:
    with small_files(file_rows=20, page_rows=4):
        rows = pl.DataFrame({"x": range(60), "y": [number * 7 % 60 for number in range(60)]})
        qbeast.write_table(rows, tmp_path / "t", columns=["x", "y"], cube_size=10)
    check_planned(tmp_path / "t", {"where": "x < 30"}, 1)


@pytest.mark.sweep
@examples(2, sweep=50)
@given(case=CASES, data=st.data())
def test_plan_by_a_plan_file_is_the_plan_of_the_log(case: Case, data: st.DataObject) -> None:
    assume(case.rows.height)
    with folder() as path, small_files(file_rows=30, page_rows=4):
        write(path, case)
        if data.draw(st.booleans()):
            write_deltalake(path, pl.read_delta(str(path)), mode="append")
        request = {
            "where": data.draw(st.none() | filters(case.rows)),
            "sample": data.draw(samples()),
            "columns": data.draw(st.sampled_from([None, [ROW]])),
        }
        check_planned(path, request, data.draw(st.sampled_from([2, 1000])))
