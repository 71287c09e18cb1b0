"""What `qbeast` offers for CarbonData tables: filters, plans, what is told of a table, what is refused."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import qbeast
from tests.foreign.carbondata.collection import IMPORTED, expected, folder, in_order, names, table_path
from tests.helpers.examples import examples

PAGED = names("sdk230_multi", "sdk230_sort", "tx230_delete_multiblocklet", "tx230_partitioned")
ORDERS = table_path("tx230_partitioned")


@st.composite
def filters(draw: st.DrawFn, candidates: list[str]) -> tuple[str, pl.Expr]:
    """Draw a table and a filter on one or two of its columns, by values that it has."""
    name = draw(st.sampled_from(candidates))
    rows = qbeast.read_carbondata(table_path(name))
    flat = [column for column, dtype in rows.schema.items() if not dtype.is_nested() and dtype != pl.Binary]
    parts: list[pl.Expr] = []
    for _ in range(draw(st.integers(1, 2))):
        column = pl.col(draw(st.sampled_from(flat)))
        value = rows[column.meta.output_name()][draw(st.integers(0, rows.height - 1))]
        if value is None:
            parts.append(draw(st.sampled_from([column.is_null(), column.is_not_null()])))
        else:
            literal = pl.lit(value, dtype=rows.schema[column.meta.output_name()])
            compare = draw(st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]))
            parts.append(getattr(column, compare)(literal))
    joined = draw(st.sampled_from([pl.all_horizontal, pl.any_horizontal]))(parts)
    return name, draw(st.sampled_from([joined, ~joined]))


@pytest.mark.filterwarnings("ignore::qbeast.LostValuesWarning")
@examples(4, sweep=500)
@given(filters([*PAGED, *IMPORTED]))
def test_filter_matches_polars(drawn: tuple[str, pl.Expr]) -> None:
    name, predicate = drawn
    rows = qbeast.read_carbondata(table_path(name))
    actual = qbeast.scan_carbondata(table_path(name)).filter(predicate).collect()
    assert_frame_equal(in_order(actual), in_order(rows.filter(predicate)))


@pytest.mark.parametrize(
    ("name", "predicate"),
    [
        ("sdk230_multipage_sorted_inv", pl.col("ki") == -50),
        ("sdk230_multiblocklet_forced", pl.col("id") < 10),
        ("tx230_delete_multiblocklet", pl.col("id").is_between(100, 120)),
        ("tx230_minor_compaction", pl.col("id") > 38),
    ],
)
def test_filter_opens_fewer_pages(name: str, predicate: pl.Expr) -> None:
    table = qbeast.open_carbondata(table_path(name))
    whole, plan = table.explain(), table.explain(predicate)
    assert whole.pages_opened == whole.pages_total
    assert 0 < plan.pages_opened < plan.pages_total == whole.pages_total
    assert plan.rows_opened >= table.scan().filter(predicate).collect().height > 0
    assert f"{plan.pages_opened:,} of {plan.pages_total:,}" in repr(plan)
    assert f"{plan.pages_opened:,} of {plan.pages_total:,}" in plan._repr_html_()


def test_empty_plan_opens_no_file() -> None:
    plan = qbeast.open_carbondata(ORDERS).explain(pl.col("id") > 10**6)
    assert not plan.files["opened"].any()
    assert plan.blocklets_total == plan.files.height


def test_columns_and_limits_reach_the_reader() -> None:
    rows = qbeast.scan_carbondata(table_path("sdk230_multipage_sorted_inv"))
    assert rows.select("id").head(7).collect().shape == (7, 1)
    assert rows.select(pl.len()).collect().item() == 1200
    assert rows.filter(pl.col("id") < 0).collect().height == 0
    assert pickle.loads(pickle.dumps(rows)).select("id").collect().height == 1200  # noqa: S301 -- our own


def test_table_describes_itself() -> None:
    table = qbeast.open_carbondata(ORDERS)
    assert table.versions == ("V3",)
    assert table.indexes["partition"] == ("country", "dt")
    assert table.segments["rows"].to_list() == [22, 15]
    assert table.segments["live"].all()
    assert table.files()["rows"].sum() == table.segments["rows"].sum() + table.segments["deleted_rows"].sum()
    assert table.unreadable.is_empty()
    assert table.properties
    assert "37" in repr(table)
    html = table._repr_html_()
    assert "37" in html
    assert all(f">{name}<" in html for name in table.schema)


def test_segments_are_chosen_by_id() -> None:
    parts = [qbeast.read_carbondata(ORDERS, segments=[name]) for name in ("0", "1")]
    assert_frame_equal(pl.concat(parts).sort("id"), qbeast.read_carbondata(ORDERS).sort("id"))
    with pytest.raises(qbeast.InvalidInputError, match="no live segment"):
        qbeast.read_carbondata(ORDERS, segments=["7"])


def test_text_filters_like_an_expression() -> None:
    assert qbeast.read_carbondata(ORDERS, columns=["id"], where="id < 3 OR country = 'de'").height == (
        qbeast.read_carbondata(ORDERS).filter((pl.col("id") < 3) | (pl.col("country") == "de")).height
    )


def test_allowed_outside_folders_are_opened() -> None:
    path = table_path("tx230_added_parquet_segment")
    with pytest.raises(qbeast.UnsupportedTableError, match="external_paths"):
        qbeast.read_carbondata(path)
    beside = folder("tx230_added_parquet_segment") / "ext_parquet"
    rows = qbeast.read_carbondata(path, external_paths={"/tmp/carbon_out/ext_parquet": beside})  # noqa: S108
    assert rows.height == expected("tx230_added_parquet_segment").height


def test_unreadable_segments_can_be_left_out(tmp_path: Path) -> None:
    own = shutil.copytree(ORDERS, tmp_path / "orders")
    victim = next(own.rglob("*-1-*.carbondata"))
    data = bytearray(victim.read_bytes())
    data[-40:] = b"\xff" * 40
    victim.write_bytes(data)
    with pytest.raises(qbeast.DamagedFileError) as caught:
        qbeast.read_carbondata(own)
    assert caught.value.path.endswith(victim.name)
    opened = qbeast.open_carbondata(own)
    assert victim.name in opened.unreadable["path"][0]
    left = qbeast.open_carbondata(own, on_unreadable="skip-segment")
    assert left.left_out["segment"].to_list() == ["1"]
    assert left.read().height == 22
    result = qbeast.import_carbondata(own, tmp_path / "new", ["id"], on_unreadable="skip-segment")
    assert result.rows == 22
    assert [item["segment"] for item in result.left_out] == ["1"]


def test_path_without_table_raises(tmp_path: Path) -> None:
    with pytest.raises(qbeast.TableNotFoundError, match="no CarbonData table"):
        qbeast.open_carbondata(tmp_path)
    with pytest.raises(qbeast.InvalidInputError, match="skip-segment"):
        qbeast.open_carbondata(ORDERS, on_unreadable="ignore")  # type: ignore[arg-type]


def test_lost_update_status_raises(tmp_path: Path) -> None:
    own = shutil.copytree(ORDERS, tmp_path / "orders")
    next((own / "Metadata").glob("tableupdatestatus*")).unlink()
    with pytest.raises(qbeast.StorageError, match="deleted rows would come back"):
        qbeast.open_carbondata(own)


def test_folder_of_data_files_is_a_table(tmp_path: Path) -> None:
    for path in table_path("sdk230_multifile").rglob("*.carbondata"):
        shutil.copy(path, tmp_path)
    assert qbeast.read_carbondata(tmp_path).height == expected("sdk230_multifile").height
    assert "folder of data files" in repr(qbeast.open_carbondata(tmp_path))


def test_folder_of_only_index_files_raises(tmp_path: Path) -> None:
    shutil.copytree(table_path("sdk230_prim_zstd"), tmp_path / "t")
    for file in (tmp_path / "t").rglob("*.carbondata"):
        file.unlink()
    with pytest.raises(qbeast.UnsupportedTableError, match="no data file") as caught:
        qbeast.open_carbondata(tmp_path / "t")
    assert caught.value.feature == "index files alone"
