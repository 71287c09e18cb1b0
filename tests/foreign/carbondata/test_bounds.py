"""Bounds of real files hold for the values of their pages; what is not to be trusted is never given."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from qbeast_carbondata.columns import Column
from qbeast_carbondata.files.data_file import Blocklet, DataFile
from qbeast_carbondata.pages.page import decode_bounds
from qbeast_carbondata.structs import DataType
from qbeast_core.io.location import open_store
from tests.foreign.carbondata import page_encoder
from tests.foreign.carbondata.collection import more_names, names, reader_of, swept, table_path


def check(name: str) -> int:
    """Compare all bounds of a table's pages and blocklets with the values; return how many there are."""
    reader, actual = reader_of(open_store(table_path(name))), 0
    for file in map(reader.open, reader.files):
        for blocklet in file.blocklets:
            for column in file.columns:
                if not column.is_nested:
                    actual += check_column(file, blocklet, column)
    return actual


def check_column(file: DataFile, blocklet: Blocklet, column: Column) -> int:
    of_pages = file.page_bounds(blocklet, column)
    pages = [*range(len(blocklet.page_rows))]
    units = [(of_pages[page], [page]) for page in pages]
    units.append((file.bounds(blocklet, column), pages))
    actual = 0
    for stored, some in units:
        bounds = decode_bounds(column, stored)
        values = pl.Series(pl.from_arrow(pa.chunked_array(file.read(blocklet, [column], some)))).drop_nulls()
        if bounds is None or not len(values):
            continue
        least, most = pl.Series(bounds, dtype=values.dtype, strict=False)
        assert least <= values.min(), (file.path, column.schema.name)
        assert most >= values.max(), (file.path, column.schema.name)
        actual += 1
    return actual


NAMES = names("sdk230_prim", "sdk161_prim", "sdk230_sort", "sdk230_multipage_sorted", "tx230_basic")
NAMES += ["sdk230_adaptive_nulls", "sdk161_adaptive_nonull"]
# 1.1 takes the first and last value of a page for its bounds, whether or not the page is sorted: few are trusted.
OLD_NAMES = ["cd111_v2_types", "cd111_v3_types", "store161_global_dictionary"]
OUTSIDE = "tx230_added_parquet_segment"  # has rows in another folder, of a machine that wrote it


@pytest.mark.parametrize(
    "name",
    [
        *NAMES,
        *OLD_NAMES,
        *swept([name for name in [*names("sdk", "tx"), *more_names("sdk", "tx")] if name != OUTSIDE]),
    ],
)
def test_bounds_hold(name: str) -> None:
    assert check(name) > (5 if name in NAMES else 0 if name in OLD_NAMES else -1)


def test_nested_columns_have_no_bounds() -> None:
    reader = reader_of(open_store(table_path("sdk230_complex_map")))
    file = reader.open(reader.files[0])
    nested = [column for column in file.columns if column.is_nested]
    assert nested
    assert all(decode_bounds(column, (b"\0" * 8, b"\xff" * 8)) is None for column in nested)


def test_bounds_of_decimals_keep_all_digits() -> None:
    most = 10**37 + 1
    stored = bytes([2]) + most.to_bytes(16, "big", signed=True)
    bounds = decode_bounds(page_encoder.column(DataType.DECIMAL, 38, 2), (stored, stored))
    assert bounds == (Decimal(f"{most}E-2"),) * 2
