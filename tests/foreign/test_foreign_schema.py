"""Columns that another writer takes away, changes or adds under our name: every operation does the sensible thing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled, small_files

ROWS = pl.DataFrame({ROW: range(120)}).with_columns(
    a=pl.col(ROW) * 37 % 101, s=(pl.col(ROW) % 13).cast(pl.String)
)
LOST = {
    "both gone": pl.DataFrame({"u": range(50), "v": ["x", "y"] * 25}),
    "one gone": ROWS.drop("a"),
    "another case": ROWS.rename({"a": "A"}),
    "a type without order": ROWS.with_columns(pl.col("a") > 3),
    "lists": ROWS.with_columns(pl.concat_list("a")),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours")
    with small_files(file_rows=60, page_rows=8):
        qbeast.write_table(ROWS, path, columns=[ROW, "a"], cube_size=20)
    return path


@pytest.fixture
def table(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "t"))


def overwrite(table: Path, rows: pl.DataFrame) -> None:
    write_deltalake(str(table), rows.to_arrow(), mode="overwrite", schema_mode="overwrite")


def test_lost_sampling_key_is_named(tmp_path: Path) -> None:
    qbeast.write_table(ROWS, tmp_path, columns=[ROW], sample_by=["s"])
    overwrite(tmp_path, ROWS.drop("s"))
    opened = qbeast.open_table(tmp_path)
    assert_same_rows(opened.read(), ROWS.drop("s"), ROW)
    with pytest.raises(qbeast.InvalidColumnsError, match=r"sampling key \['s'\]") as caught:
        opened.rows(sample=0.1).lazy()
    assert caught.value.columns == ("s",)


@pytest.mark.parametrize("name", LOST)
def test_lost_indexed_columns_allow_reads_only(table: Path, name: str) -> None:
    rows = LOST[name]
    overwrite(table, rows)
    opened = qbeast.open_table(table)
    key = rows.columns[0]
    assert_same_rows(opened.read(), rows, key)
    assert_same_rows(opened.read(sample=1.0), rows, key)
    assert_same_rows(
        opened.rows().lazy().filter(pl.col(key) < 20).collect(), rows.filter(pl.col(key) < 20), key
    )
    request: list[Callable[[], Any]] = [
        lambda: opened.rows(sample=0.1).lazy(),
        lambda: opened.rows(sample=0.1).explain(),
        lambda: qbeast.write_table(rows, table, mode="append"),
        opened.optimize,
        lambda: opened.delete(f"{key} = 7"),
    ]
    for ask in request:
        with pytest.raises(
            qbeast.InvalidColumnsError, match=r"another writer changed its columns.*overwrite"
        ):
            ask()
    faults = opened.check().faults
    assert set(faults["code"]) == {"indexed-columns"}
    assert opened.repair().remaining["advice"].null_count() == 0
    assert opened.version == 1
    qbeast.write_table(
        qbeast.read_table(table), table, columns=[key], mode="overwrite", schema_mode="overwrite"
    )
    mended = qbeast.open_table(table)
    assert_same_rows(mended.read(sample=0.3), sampled(rows, [key], 0.3), key)
    assert mended.check().faults.is_empty()


def test_numbers_changed_to_text_get_new_revision(table: Path) -> None:
    texts = ROWS.with_columns(pl.col("a").cast(pl.String))
    overwrite(table, texts)
    qbeast.write_table(texts.with_columns(pl.col(ROW) + 120), table, mode="append")
    both = pl.concat([texts, texts.with_columns(pl.col(ROW) + 120)])
    for _ in range(2):
        opened = qbeast.open_table(table)
        assert_same_rows(opened.read(sample=0.2), sampled(both, [ROW, "a"], 0.2))
        assert_same_rows(
            opened.rows().lazy().filter(pl.col("a") == "7").collect(), both.filter(pl.col("a") == "7")
        )
        assert opened.check().faults.is_empty()
        opened.optimize()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("_qbeast_weight", pl.lit("x")),
        ("_QBEAST_Weight", pl.lit(5, pl.Int32)),
    ],
)
def test_foreign_column_with_hidden_name_is_hidden(table: Path, name: str, values: pl.Expr) -> None:
    more = ROWS.with_columns(pl.col(ROW) + 120)
    write_deltalake(
        str(table), more.with_columns(values.alias(name)).to_arrow(), mode="append", schema_mode="merge"
    )
    both = pl.concat([ROWS, more])
    opened = qbeast.open_table(table)
    assert opened.schema == ROWS.schema
    assert_same_rows(opened.read(), both)
    assert_same_rows(opened.read(sample=0.3), sampled(both, [ROW, "a"], 0.3))
    assert opened.check().faults.select("code", "path").rows() == [("reserved-column", None)]
    request: list[Callable[[], Any]] = [
        lambda: qbeast.write_table(ROWS, table, mode="append"),
        lambda: qbeast.write_table(ROWS, table, columns=[ROW], mode="overwrite"),
        lambda: opened.optimize(full=True),
        lambda: opened.delete("a = 7"),
    ]
    for ask in request:
        with pytest.raises(qbeast.InvalidInputError, match=f"another writer added a column '{name}'"):
            ask()
    assert qbeast.open_table(table).version == 1
    qbeast.write_table(
        qbeast.read_table(table), table, columns=[ROW], mode="overwrite", schema_mode="overwrite"
    )
    assert qbeast.open_table(table).check().faults.is_empty()
    assert_same_rows(qbeast.read_table(table), both)
