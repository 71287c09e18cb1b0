"""What does it cost to read CarbonData without a JVM, and to import it?

    python -m benchmarks.bench_carbondata

A folder of data files of version 3 (the largest beside the tests: 70,500 rows of four columns in pages of 32,000,
copied) is decoded by one core, against pyarrow reading the same rows from Parquet by one core; and imported, against
`write_table` of the same rows in memory. Kinds of columns are compared one by one as well. Seconds are of the process.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

import qbeast
from benchmarks.report import Figure, table
from tests.carbondata.collection import table_path

COPIES = 12
ROUNDS = 7
SOURCE = "sdk230_multipage_70k"


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        carbon, parquet = _copies(root)
        opened = qbeast.open_carbondata(carbon)
        rows = opened.read()
        seconds = _interleaved(
            {
                "carbondata": lambda: _drain(carbon, None),
                "parquet": lambda: pq.ParquetFile(parquet).read(use_threads=False),
            }
        )
        size = sum(path.stat().st_size for path in carbon.iterdir())
        figures = [
            Figure("decode, a core", rows.height / seconds["carbondata"] / 1e6, "M rows/s"),
            Figure("decode, a core, of compressed files", size / seconds["carbondata"] / 1e6, "MB/s"),
            Figure(
                "decode over pyarrow and Parquet",
                seconds["carbondata"] / seconds["parquet"],
                "x",
                6.0,
                "goal 3",
            ),
        ]
        figures += [_of_column(carbon, parquet, name, dtype) for name, dtype in opened.schema.items()]
        return [*figures, _import(carbon, rows, root)]


def _copies(root: Path) -> tuple[Path, Path]:
    """Make the folder, and a Parquet file of its rows in as many row groups."""
    source = next(table_path(SOURCE).rglob("*.carbondata"))
    carbon = root / "carbon"
    carbon.mkdir()
    for copy in range(COPIES):
        shutil.copy(source, carbon / f"part-0-{copy}_batchno0-0-null-1700000000000.gzip.carbondata")
    rows = qbeast.read_carbondata(carbon)
    parquet = root / "rows.parquet"
    pq.write_table(rows.to_arrow(), parquet, row_group_size=rows.height // COPIES, compression="snappy")
    return carbon, parquet


def _of_column(carbon: Path, parquet: Path, name: str, dtype: pl.DataType) -> Figure:
    seconds = _interleaved(
        {
            "carbondata": lambda: _drain(carbon, [name]),
            "parquet": lambda: pq.ParquetFile(parquet).read([name], use_threads=False),
        }
    )
    return Figure(f"column {name} ({dtype}) over Parquet", seconds["carbondata"] / seconds["parquet"], "x")


def _drain(carbon: Path, columns: list[str] | None) -> int:
    table = qbeast.open_carbondata(carbon)
    return sum(frame.height for frame in table.reader.rows(columns or list(table.schema)))


def _import(carbon: Path, rows: pl.DataFrame, root: Path) -> Figure:
    def fresh(call: Callable[[str], object]) -> None:
        target = root / "target"
        shutil.rmtree(target, ignore_errors=True)
        call(str(target))

    warnings.simplefilter("ignore", qbeast.DesignEffectWarning)  # copies repeat every key
    seconds = _interleaved(
        {
            "import": lambda: fresh(lambda path: qbeast.import_carbondata(carbon, path, ["id"])),
            "write": lambda: fresh(lambda path: qbeast.write_table(rows, path, columns=["id"])),
        }
    )
    return Figure("import over write_table", seconds["import"] / seconds["write"], "x", 1.5)


def _interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least time of the process that each call took, in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


if __name__ == "__main__":
    print(table(run()))
