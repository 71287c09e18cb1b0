"""What a table gives to people and to other libraries: counts, rows, SQL, Arrow streams, HTML."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

import qbeast
import qbeast_spark_bridge as bridge
from tests.foreign.carbondata.collection import table_path

ROWS = pl.DataFrame({"id": range(30_000)}).with_columns(
    price=pl.col("id") * 7919 % 1000, brand=pl.format("<b{}>", pl.col("id") % 7)
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("tables") / "sales"
    qbeast.write_table(ROWS, path, columns=["id", "price"], cube_size=1000)
    return qbeast.open_table(path)


def test_rows_are_counted_by_log_and_filters(table: qbeast.Table) -> None:
    assert len(table) == table.count() == ROWS.height
    assert table.count(pl.col("price") < 10) == table.count("price < 10") == 300
    assert table.count(sample=0.1) == table.read(sample=0.1).height
    assert table.columns == ROWS.columns


def test_empty_table_is_a_table(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.clear(), tmp_path / "t", columns=["id"])
    opened = qbeast.open_table(tmp_path / "t")
    assert len(opened) == 0
    assert opened
    assert opened.rows().arrow().schema.names == ROWS.columns


def test_rows_convert_to_other_libraries(table: qbeast.Table) -> None:
    assert_frame_equal(pl.DataFrame(table), ROWS, check_row_order=False)
    assert table.rows(columns=["id"], where="id < 5").arrow().sort_by("id").to_pydict() == {
        "id": list(range(5))
    }
    assert sorted(table.rows(pl.col("id") < 5).pandas()["brand"]) == [
        "<b0>",
        "<b1>",
        "<b2>",
        "<b3>",
        "<b4>",
    ]
    assert duckdb.from_arrow(table).aggregate("count(*), sum(id)").fetchall() == [(30_000, ROWS["id"].sum())]


def test_stream_has_the_schema_of_to_arrow(table: qbeast.Table, tmp_path: Path) -> None:
    whole = table.rows().arrow()
    assert pa.table(table).schema == pa.RecordBatchReader.from_stream(table).schema == whole.schema
    types = pa.schema(
        [field.with_type(pa.string()) if field.type == pa.large_string() else field for field in whole.schema]
    )
    assert pa.table(table, schema=types).schema == types
    assert qbeast.write_table(table, tmp_path / "copy", columns=["id"]).rows == ROWS.height
    assert_frame_equal(qbeast.read_table(tmp_path / "copy"), ROWS, check_row_order=False)


def test_abandoned_stream_ends(tmp_path: Path) -> None:
    qbeast.write_table(pl.select(id=pl.int_range(300_000)), tmp_path / "t", columns=["id"])
    batch = pa.RecordBatchReader.from_stream(qbeast.open_table(tmp_path / "t")).read_next_batch()
    assert 0 < batch.num_rows < 300_000


def test_some_rows_are_shown(table: qbeast.Table) -> None:
    assert table.rows().head().height == 10
    assert table.rows(where="id = 7", columns=["price"]).head(3).to_dict(as_series=False) == {
        "price": [7 * 7919 % 1000]
    }
    assert table.rows(sample=0.1).head(40_000).height == table.count(sample=0.1)


def test_sql_is_pushed_down(table: qbeast.Table) -> None:
    cheap = table.sql(
        "SELECT brand, count(*) AS n FROM self WHERE price < 10 GROUP BY brand ORDER BY brand"
    ).collect()
    expected = ROWS.filter(pl.col("price") < 10).group_by("brand").agg(n=pl.len()).sort("brand")
    assert_frame_equal(cheap, expected, check_dtypes=False)
    assert table.rows(sample=0.1).sql("SELECT id FROM self").collect().height == table.count(sample=0.1)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nowhere FROM self", r"no such column\(s\): \['nowhere'\]"),
        ("SELEC 1", "Polars cannot run the query"),
        ("SELECT * FROM other", "Polars cannot run the query"),
        ("", "Polars cannot run the query"),
    ],
)
def test_invalid_sql_raises(table: qbeast.Table, query: str, words: str) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=words) as caught:
        table.sql(query)
    assert caught.value.argument == "query"


def test_notebooks_show_the_same_as_text(table: qbeast.Table) -> None:
    for thing in (table, table.rows("price < 10", sample=0.1).explain(), table.metrics(), table.check()):
        html = thing._repr_html_()
        assert html.startswith("<div><b>")
        words = re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
        assert "30,000" in words or "30000" in words
        assert html.count("<table") == html.count("</table>") > 0


def test_names_of_columns_are_escaped(tmp_path: Path) -> None:
    qbeast.write_table(pl.DataFrame({"<script>": [1, 2]}), tmp_path / "t", columns=["<script>"])
    opened = qbeast.open_table(tmp_path / "t")
    assert "<script>" not in opened._repr_html_()
    assert "<script>" not in opened.rows(pl.col("<script>") < 2).explain()._repr_html_()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("filter", "read(where=...)"),
        ("to_df", "Use read()."),
        ("price", "It is a column: use read(columns=['price'])."),
        ("to_dicts", "Use read().to_dicts(...)."),
        ("write_parquet", "Use rows().lazy().sink_parquet(path)."),
        ("shape", "Use count() and columns."),
        ("with_columns", "rows().lazy().with_columns(...)"),
        ("optimise", "Did you mean 'optimize'?"),
        ("__iter__", "no attribute"),
    ],
)
def test_usual_names_of_others_have_hints(table: qbeast.Table, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(table, name)
    assert not hasattr(table, name)
    assert copy.copy(table).version == table.version


def test_column_by_subscript_has_a_hint(table: qbeast.Table) -> None:
    item: Any = table
    hints = {
        "price": "read(columns=['price']) or",
        "prise": "Did you mean 'price'?",
        "a": "read(columns=[...]) or",
    }
    for name, hint in hints.items():
        with pytest.raises(TypeError, match=re.escape(hint)):
            item[name]
    keys = {
        "['id', 'price']": ("id", "price"),
        "read(rows=...)": 3,
        "read(where=...)": pl.col("id") > 3,
        "rows().lazy().slice(...)": slice(3),
    }
    for hint, key in keys.items():
        with pytest.raises(TypeError, match=re.escape(hint)):
            item[key]
    with pytest.raises(TypeError):
        iter(item).__next__()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("read_delta", "Did you mean 'read_table'?"),
        ("scan_tabel", "Did you mean 'scan_table'?"),
        ("optimize", "Use qbeast.open_table(path).optimize(...)."),
        ("_private", "no attribute '_private'."),
    ],
)
def test_usual_functions_of_others_have_hints(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(qbeast, name)


def test_names_of_spark_and_carbondata_have_hints() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'read_table'"):
        _ = bridge.read_tabel
    table = qbeast.open_carbondata(table_path("tx230_basic_3segments"))
    for name, hint in {"filter": "Use scan().filter(...).", "scann": "Did you mean 'scan'?"}.items():
        with pytest.raises(AttributeError, match=re.escape(hint)):
            getattr(table, name)
    assert copy.copy(table).uri == table.uri


def test_failing_condition_is_described(table: qbeast.Table) -> None:
    for ask in (
        table.count,
        lambda where: table.rows(where).head(),
        lambda where: table.rows(where).arrow(),
    ):
        with pytest.raises(qbeast.InvalidInputError, match="cannot be evaluated") as caught:
            ask("CAST(brand AS INT) = 1")
        assert caught.value.argument == "where"


CHANGES: dict[str, Callable[[qbeast.Table], object]] = {
    "refresh": lambda table: table.refresh(),
    "delete": lambda table: table.delete("id < 5"),
    "update": lambda table: table.update("id < 5", {"price": 0}),
    "merge": lambda table: table.merge(ROWS.head(3), on="id"),
    "optimize": lambda table: table.optimize(full=True),
    "restore": lambda table: table.restore(0),
    "set_properties": lambda table: table.set_properties({"a": "b"}),
    "add_columns": lambda table: table.add_columns({"note": pl.String}),
    "switch_dialect": lambda table: table.switch_dialect("qbeast-spark", jvm="0.8"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_move_table_to_newer_version(tmp_path: Path, name: str) -> None:
    rows = ROWS.head(100).drop("brand")
    qbeast.write_table(rows, tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    before, other = table.rows().lazy(), copy.copy(table)
    qbeast.write_table(rows, tmp_path / "t", mode="append")
    delta = DeltaTable(tmp_path / "t", version=0)
    assert table.version == delta.version() == 0
    result = CHANGES[name](table)
    delta.update_incremental()  # in place, as ours
    assert table.version == delta.version()
    assert table.count() == len(delta.to_pyarrow_table())
    assert (result is table) is (name == "refresh")
    assert (other.version, other.count(), before.collect().height) == (0, 100, 100)


def test_failed_refresh_keeps_the_object(tmp_path: Path) -> None:
    qbeast.write_table(ROWS.head(100), tmp_path / "t", columns=["id"])
    table = qbeast.open_table(tmp_path / "t")
    assert table.refresh() is table
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "log")
    with pytest.raises(qbeast.QbeastError):
        table.refresh()
    assert (table.version, table.count()) == (0, 100)
