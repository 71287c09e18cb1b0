"""Filters that Polars' reader of files cannot do: the rows come all the same, and no file is blamed for them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import qbeast

FILES = 4
ROWS = 3000
TEXTS = pl.DataFrame(
    {
        "id": range(ROWS),
        "unique": [f"text {i}" for i in range(ROWS)],
        "few": [f"v{i % 5}" for i in range(ROWS)],
        "many": [None if i % 7 == 0 else f"value {i}" for i in range(ROWS)],
        "number": [None if i % 3 == 0 else i for i in range(ROWS)],
    }
).with_columns(pl.col("many").cast(pl.Binary).alias("bytes"), pl.col("few").sort().alias("sorted"))
WITH_NULL = {
    "id": [1, 700, None],
    "unique": ["text 8", None],
    "few": ["v1", None],
    "many": [None, "value 8", None],
    "bytes": [b"value 8", None],
    "number": [1, None],
    "sorted": [None],
}
LETTERS = pl.Enum(["v0", "v1"])


@pytest.fixture(scope="module", params=["converted", "written"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a table of several files, of another writer or of ours."""
    path = tmp_path_factory.mktemp("tables") / request.param
    if request.param == "written":
        qbeast.write_table(TEXTS, path, columns=["id"], cube_size=1000)
        return path
    path.mkdir()
    for part in range(FILES):
        rows = TEXTS.slice(part * ROWS // FILES, ROWS // FILES)
        rows.write_parquet(path / f"{part}.parquet", row_group_size=200)
    qbeast.convert_table(path, columns=["id"])
    return path


@pytest.mark.parametrize("name", WITH_NULL)
@pytest.mark.parametrize("wish", ["kept", "left out"])
def test_null_in_list_is_found(name: str, wish: str, table: Path) -> None:
    inside = pl.col(name).is_in(WITH_NULL[name], nulls_equal=True)
    request = ~inside if wish == "left out" else inside & (pl.col("id") > 10)
    expected = TEXTS.filter(request)
    assert_frame_equal(qbeast.read_table(table, where=request).sort("id"), expected)
    assert_frame_equal(qbeast.scan_table(table).filter(request).collect().sort("id"), expected)
    assert qbeast.scan_table(table).filter(request).head(3).collect().height == min(3, expected.height)


@pytest.mark.parametrize("name", ["few", "sorted"])
def test_rows_come_once_when_reading_stops_early(name: str, table: Path) -> None:
    """Polars compares the bounds of a row group too, and these are no letters of the type in all files."""
    request = pl.col(name).cast(LETTERS, strict=False) == pl.lit("v0", LETTERS)
    expected = TEXTS.filter(request)
    assert_frame_equal(qbeast.read_table(table, where=request).sort("id"), expected)
    direct = pl.col(name) == pl.lit("v0", LETTERS)
    try:
        expected = TEXTS.filter(direct)
    except pl.exceptions.PolarsError as error:
        with pytest.raises(type(error)):
            qbeast.scan_table(table).filter(direct).collect()
    else:
        assert_frame_equal(qbeast.scan_table(table).filter(direct).collect().sort("id"), expected)


@pytest.mark.parametrize(
    "predicate",
    [
        pl.col("few").str.contains("("),
        pl.col("few").str.to_integer() > 1,
        pl.col("many").str.slice(6).str.to_date("%d") > pl.date(2020, 1, 1),
        pl.col("sorted") > 1,
    ],
)
def test_filter_errors_are_raised_unchanged(predicate: pl.Expr, table: Path) -> None:
    with pytest.raises(pl.exceptions.PolarsError) as expected:
        TEXTS.filter(predicate)
    with pytest.raises(type(expected.value)) as caught:
        qbeast.scan_table(table).filter(predicate).collect()
    assert "data file" not in str(caught.value)
    assert_frame_equal(qbeast.read_table(table).sort("id"), TEXTS)
