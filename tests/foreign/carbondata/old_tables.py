"""Tables of CarbonData 1.x, opened as tables are, and their data files in the order of loads."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from qbeast_carbondata.files.data_file import DataFile
from qbeast_carbondata.reader import TableReader
from qbeast_core.io.location import open_store
from tests.foreign.carbondata.collection import expected, reader_of, table_path

OLD = ("cd1", "store161", "stream161")


MINUTES_OF_2000 = {"carbon.timegranularity": "MINUTE", "carbon.cutOffTimestamp": "2000-01-01 00:00:00"}


def old_reader(name: str) -> TableReader:
    """Return a reader of one of the tables, which may be told what it counts timestamps by."""
    settings = MINUTES_OF_2000 if name == "cd111_v2_timegran" else None
    return reader_of(open_store(table_path(name)), settings=settings)


def old_files(name: str) -> list[DataFile]:
    """Return the data files of the live segments of a table."""
    reader = old_reader(name)
    return [reader.open(live) for live in reader.files]


def file_rows(file: DataFile) -> pl.DataFrame:
    """Return all rows of a data file, under its own names."""
    parts: list[pl.DataFrame] = []
    for blocklet in file.blocklets:
        arrays = file.read(blocklet, file.columns, range(len(blocklet.page_rows)))
        for column, array in zip(file.columns, arrays, strict=True):
            assert array.type == column.arrow_type
            array.validate(full=True)
        named = {column.schema.name: array for column, array in zip(file.columns, arrays, strict=True)}
        parts.append(pl.DataFrame(pl.from_arrow(pa.table(named))))
    return pl.concat(parts)


def rows_and_expected(name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of a table and what they are to be, in the order of the files."""
    reader, target = old_reader(name), expected(name)
    actual = pl.concat(list(reader.rows(list(reader.schema))))
    assert actual.columns == target.columns
    return actual.cast(target.schema), target
