"""What does a sample by the sample column cost in other engines, in bytes?

    python -m benchmarks.bench_sample_column

Bytes are counted as the operating system counts them, in a new process for each read, after a first query of no rows:
log and imports are not counted, footers and page indexes are. Shares are of the bytes of all data files. All columns
are read, of lineitem (scale 1, 16 columns, index on three). DuckDB reads the files of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
from deltalake import DeltaTable, QueryBuilder

import qbeast
from benchmarks import data, measure, rivals, tables
from benchmarks.report import Figure, table

FRACTIONS = (0.001, 0.01, 0.1, 0.3)
# Of the bytes, at 1 %.
MOST = {"DuckDB": 4.0, "Polars": 4.0, "DataFusion": 1.6}
_NO_ROWS = 0.0


def run() -> list[Figure]:
    folder = tables.indexed("lineitem-1-sample", data.lineitem, data.W1_COLUMNS, sample_column="sample")
    without = tables.lineitem_table()
    sizes = {path: measure.folder_bytes(rivals.data_files(path)) for path in (folder, without)}
    figures = [Figure("size of the table over one without", sizes[folder] / sizes[without], "x", 1.05)]
    for engine in ENGINES:
        for fraction in FRACTIONS:
            read, rows = measure.in_child(_bytes_read, folder, engine, fraction).result
            most = MOST.get(engine) if fraction == 0.01 else None
            share = 100 * read / sizes[folder]
            figures.append(Figure(f"{engine}, {fraction:.1%}", share, "% of bytes", most, f"{rows:,} rows"))
    return figures


def _bytes_read(folder: Path, engine: str, fraction: float) -> tuple[int, int]:
    """Return the bytes and the rows of a read."""
    ENGINES[engine](folder, _NO_ROWS)
    before = measure.bytes_read()
    rows = ENGINES[engine](folder, fraction)
    return measure.bytes_read() - before, rows


def _with_qbeast(folder: Path, fraction: float) -> int:
    return qbeast.read_table(folder, sample=fraction).height


def _with_duckdb(folder: Path, fraction: float) -> int:
    files = DeltaTable(folder).file_uris()
    return duckdb.read_parquet(files).filter(f"sample < {fraction}").to_arrow_table().num_rows


def _with_polars(folder: Path, fraction: float) -> int:
    return pl.scan_delta(folder).filter(pl.col("sample") < fraction).collect().height


def _with_datafusion(folder: Path, fraction: float) -> int:
    query = QueryBuilder().register("t", DeltaTable(folder))
    text = f"select * from t where sample < {fraction}"  # noqa: S608 -- our own number
    return pl.DataFrame(query.execute(text).read_all()).height


ENGINES: dict[str, Callable[[Path, float], int]] = {
    "qbeast": _with_qbeast,
    "DuckDB": _with_duckdb,
    "Polars": _with_polars,
    "DataFusion": _with_datafusion,
}


if __name__ == "__main__":
    print(table(run()))
