"""Whole tables of every layout: rows, types and nulls are those that CarbonData returned; filters equal Polars."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from qbeast_carbondata.reader import TableReader
from qbeast_core.io.location import open_store
from tests.foreign.carbondata.collection import (
    expected,
    folder,
    more_names,
    names,
    reader_of,
    swept,
    table_path,
)
from tests.foreign.carbondata.old_tables import file_rows

# Where an empty and a null value of BINARY cannot be told apart in the file; Spark reads null here, the SDK b"".
EMPTY_IS_NULL = {"tx230_complex_tx": "bin"}


def reader(name: str) -> TableReader:
    outside = {"/tmp/carbon_out/ext_parquet": str(folder(name) / "ext_parquet")}  # noqa: S108 -- as stored
    return reader_of(open_store(table_path(name)), outside=outside)


def check(name: str) -> None:
    target, opened = expected(name), reader(name)
    actual = pl.concat(list(opened.rows(list(opened.schema))))
    assert actual.columns == target.columns
    actual = actual.cast(dict(target.schema))
    if name in EMPTY_IS_NULL:
        column = EMPTY_IS_NULL[name]
        actual = actual.with_columns(
            pl.when(pl.col(column).bin.size() > 0).then(pl.col(column)).alias(column)
        )
    assert_frame_equal(actual.sort("id"), target.sort("id"), check_exact=True)


@pytest.mark.parametrize("name", [*names("sdk", "tx230"), *swept(more_names("sdk", "tx230"))])
def test_rows_equal_carbondata(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", names("sdk230_multi", "sdk230_sort"))
def test_single_pages_are_slices_of_the_whole(name: str) -> None:
    opened = reader(name)
    for live in opened.files:
        file, begins = opened.open(live), 0
        whole = file_rows(file)
        for blocklet in file.blocklets:
            for page, count in enumerate(blocklet.page_rows):
                arrays = file.read(blocklet, file.columns, [page])
                named = {c.schema.name: a for c, a in zip(file.columns, arrays, strict=True)}
                rows = pl.DataFrame(pl.from_arrow(pa.table(named)))
                assert_frame_equal(rows, whole[begins : begins + count])
                begins += count


def test_decimals_before_1_2_have_one_width() -> None:
    rows = pl.concat(list(reader("v3_cd12/sales").rows(["sold_price"])))
    assert [str(item) for item in rows["sold_price"].to_list()] == ["140000.38", "140000.38"]
