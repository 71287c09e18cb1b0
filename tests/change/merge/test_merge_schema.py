"""A merge may bring columns: rows keep what the source does not have, and new columns come in the same commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

import qbeast
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows, small_files

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
ROWS = pl.DataFrame(
    {"id": range(240), "x": [i * 0.5 for i in range(240)], "s": [f"s{i}" for i in range(240)]}
)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "t"
    with small_files(file_rows=60, page_rows=32):
        qbeast.write_table(ROWS, path, columns=["id"], cube_size=20)
    return path


@pytest.fixture
def table(master: Path, tmp_path: Path) -> qbeast.Table:
    return qbeast.open_table(copytree(master, tmp_path / "t"))


def source(low: int, high: int, **columns: pl.Expr) -> pl.DataFrame:
    return pl.select(id=pl.int_range(low, high)).with_columns(**columns)


def merged(rows: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """What a merge by `id` with schema evolution makes of rows, in memory."""
    new = [name for name in given.columns if name not in rows.columns]
    rows = rows.with_columns(pl.lit(None, given.schema[name]).alias(name) for name in new)
    kept = rows.join(given, on="id", how="anti")
    matched = rows.drop([name for name in given.columns if name != "id"]).join(given, on="id")
    came = given.join(rows, on="id", how="anti")
    return pl.concat([kept, matched.select(rows.columns), came], how="diagonal").select(rows.columns)


SOURCES = {
    "a new column": source(220, 260, x=pl.lit(7.0), s=pl.lit("new"), note=pl.lit("here")),
    "columns that are missing": source(220, 260, x=pl.lit(7.0)),
    "both": source(100, 130, note=pl.format("note {}", "id"), more=pl.col("id") % 3 == 0),
    "new rows alone": source(2000, 2010, note=pl.lit(None, pl.String)),
    "the key alone": source(230, 250),
    "no new type": source(230, 250, s=pl.lit("t"), unknown=pl.lit(None)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows_equal_a_merge_in_memory(table: qbeast.Table, tmp_path: Path, name: str) -> None:
    options = SOURCES[name]
    existing = options.drop([column for column in options.columns if options.schema[column] == pl.Null])
    expected = merged(ROWS, existing)
    with small_files(file_rows=60, page_rows=32):
        result = table.merge(options, on="id", schema_mode="merge")
    assert (result.version, table.version) == (1, 1)
    assert result.rows_updated == options.filter(pl.col("id") < 240).height
    assert table.schema == expected.schema
    actual = table.read()
    assert_same_rows(actual, expected, "id")
    assert_same_rows(pl.DataFrame(DeltaTable(tmp_path / "t").to_pyarrow_dataset().to_table()), expected, "id")
    assert qbeast.open_table(tmp_path / "t", version=0).schema == ROWS.schema
    again = table.merge(options, on="id", schema_mode="merge")
    assert again.rows_inserted == 0
    assert_same_rows(table.read(), expected, "id")


def test_only_assigned_columns_are_added(table: qbeast.Table) -> None:
    options = source(230, 250, note=pl.lit("n"), rest=pl.lit(1))
    table.merge(
        options,
        on="id",
        update={"note": "source.note"},
        insert={"id": "source.id", "note": "source.note"},
        schema_mode="merge",
    )
    assert table.columns == ["id", "x", "s", "note"]
    assert table.count("note = 'n'") == 20
    assert table.count("note IS NULL AND s IS NOT NULL") == 230


def test_mismatched_columns_raise(table: qbeast.Table) -> None:
    with pytest.raises(qbeast.SchemaMismatchError, match='schema_mode="merge"'):
        table.merge(source(0, 3, note=pl.lit("n")), on="id")
    with pytest.raises(qbeast.SchemaMismatchError, match="case alone"):
        table.merge(source(0, 3, S=pl.lit("n")), on="id", schema_mode="merge")
    with pytest.raises(qbeast.SchemaMismatchError, match="'x' is String"):
        table.merge(source(0, 3, x=pl.lit("n")), on="id", schema_mode="merge")
    with pytest.raises(qbeast.InvalidInputError, match="schema_mode"):
        table.merge(source(0, 3), on="id", schema_mode="overwrite")  # type: ignore[arg-type]
    dry = table.merge(source(0, 3, note=pl.lit("n")), on="id", schema_mode="merge", dry_run=True)
    assert (dry.rows_updated, table.version, table.columns) == (3, 0, ROWS.columns)


@pytest.mark.parametrize("theirs", ["rows", "columns"])
def test_concurrent_schema_changes_are_merged(table: qbeast.Table, theirs: str) -> None:
    """Another writer is faster: its rows and columns are there as well afterwards."""
    more = source(245, 255, x=pl.lit(1.0), s=pl.lit("theirs"))
    others: dict[str, Callable[[], Any]] = {
        "rows": lambda: qbeast.write_table(more, table.uri, mode="append"),
        "columns": lambda: qbeast.open_table(table.uri).add_columns({"theirs": pl.Int64}),
    }
    with landing_first(others[theirs]):
        table.merge(source(230, 250, note=pl.lit("n")), on="id", schema_mode="merge")
    assert table.count("note = 'n'") == 20
    assert {"note", *(["theirs"] if theirs == "columns" else [])} <= set(table.columns)
    assert table.count() == (255 if theirs == "rows" else 250)
    assert table.check().ok
