"""Files of version 3 by two releases of the SDK: every column equals what CarbonData's readers returned."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from qbeast_core.carbondata.columns import Column
from qbeast_core.carbondata.files.data_file import DataFile
from qbeast_core.carbondata.files.open_file import open_data_file
from qbeast_core.carbondata.stored_file import StoredFile
from qbeast_core.io.stores.store import open_store
from tests.carbondata.collection import expected, more_names, names, table_path


class NoDictionaries:
    def members(self, column: Column) -> pa.Array:
        raise AssertionError(column)

    def direct_timestamp(self) -> tuple[int, int]:
        return 1000, 0


def files(name: str) -> list[DataFile]:
    store = open_store(table_path(name))
    paths = [path for path in store.list("") if path.endswith(".carbondata")]
    return [
        open_data_file(StoredFile(store, p, store.size(p)), "columnar_v3", NoDictionaries()) for p in paths
    ]


def rows(file: DataFile) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    for blocklet in file.blocklets:
        arrays = file.read(blocklet, file.columns, range(len(blocklet.page_rows)))
        named = {column.schema.name: array for column, array in zip(file.columns, arrays, strict=True)}
        parts.append(pl.DataFrame(pl.from_arrow(pa.table(named))))
    return pl.concat(parts)


def check(name: str) -> None:
    target = expected(name)
    actual = pl.concat([rows(file) for file in files(name)]).select(target.columns)
    assert_frame_equal(actual.cast(dict(target.schema)).sort("id"), target.sort("id"), check_exact=True)


@pytest.mark.parametrize("name", names("sdk"))
def test_rows_equal_carbondata(name: str) -> None:
    check(name)


@pytest.mark.sweep
@pytest.mark.parametrize("name", more_names("sdk"))
def test_rows_of_more_tables_equal_carbondata(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", names("sdk230_multi", "sdk230_sort"))
def test_single_pages_are_slices_of_the_whole(name: str) -> None:
    for file in files(name):
        whole = rows(file)
        begins = 0
        for blocklet in file.blocklets:
            for page, count in enumerate(blocklet.page_rows):
                arrays = file.read(blocklet, file.columns, [page])
                named = {c.schema.name: a for c, a in zip(file.columns, arrays, strict=True)}
                assert_frame_equal(
                    pl.DataFrame(pl.from_arrow(pa.table(named))), whole[begins : begins + count]
                )
                begins += count
