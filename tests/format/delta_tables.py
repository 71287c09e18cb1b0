"""Delta tables of other writers, with the rows that they have."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

TABLES = Path(__file__).parent / "delta"
NAMES = sorted(str(log.parent.relative_to(TABLES)) for log in TABLES.glob("*/*/_delta_log"))
# Only Spark, or a catalog, reads these.
SPARK_ALONE = ("catalog-managed", "geospatial", "type-widening/type_widening_unsupported")


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(TABLES / name, folder / "old"))


def expected(name: str) -> pl.DataFrame:
    rows = TABLES / f"{name}.expected.parquet"
    if rows.exists():
        return pl.read_parquet(rows)
    # delta-rs refuses to read it: the files by pyarrow, each cast to the types of today.
    table = DeltaTable(TABLES / name)
    types = pa.schema(table.schema().to_arrow())
    return pl.DataFrame(pa.concat_tables(pq.read_table(path).cast(types) for path in table.file_uris()))
