"""Tables of CarbonData 1.x whose segments are folders: their data files, opened, in the order of loads."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from qbeast_core.carbondata.data_file import DataFile
from qbeast_core.carbondata.dictionaries import open_dictionaries
from qbeast_core.carbondata.inside import StoredFile
from qbeast_core.carbondata.json_files import read_table_status
from qbeast_core.carbondata.open_file import open_data_file
from qbeast_core.io.store import open_store
from tests.carbondata.collection import expected, table_path

MINUTES_OF_2000 = {"granularity_ms": 60_000, "cutoff_ms": 946_684_800_000}


def old_files(name: str) -> list[DataFile]:
    """Return the data files of the live segments of a table."""
    store = open_store(table_path(name))
    options = MINUTES_OF_2000 if name == "cd111_v2_timegran" else {}
    dictionaries = open_dictionaries(store, **options)
    found: list[DataFile] = []
    for load in read_table_status(store.get("Metadata/tablestatus")):
        paths = store.list(f"Fact/Part0/Segment_{load.name}") if load.is_visible else []
        data = [path for path in paths if path.endswith(".carbondata")]
        found += [open_data_file(StoredFile(store, p, store.size(p)), load.kind, dictionaries) for p in data]
    return found


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
    wanted = expected(name)
    found = pl.concat([file_rows(file).select(wanted.columns) for file in old_files(name)])
    return found.cast(wanted.schema), wanted
