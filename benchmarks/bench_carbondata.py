"""What does it cost to read CarbonData without a JVM, and to import it?

    python -m benchmarks.bench_carbondata

One core decodes CarbonData to Polars frames, including the opening. Compared with pyarrow, which reads the same rows
from one Parquet file (snappy, the same number of row groups) to Arrow on one core:

* version 3: the largest test file (70,500 rows of four columns in pages of 32,000, gzip), its blocklets twelve times in
  one file, and twelve copies of the file in a folder;
* versions 1 and 2 with global dictionaries: tables of 130,000 rows of nine columns by CarbonData 1.1.

The folder is also imported, and compared with `write_table` of the same rows in memory. Kinds of columns are compared
one by one. Seconds are those of the process, the minimum of several in turns.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

import qbeast
from benchmarks.report import Figure, table
from qbeast_core.io.thrift import ThriftStruct, read_struct
from tests.foreign.carbondata.collection import table_path
from tests.foreign.carbondata.thrift_writer import written

COPIES = 12
ROUNDS = 9
SOURCE = "sdk230_multipage_70k"
OLD = {"version 1": "cd111_v1_130k", "version 2": "cd111_v2_130k"}
GOAL = "goal 3"


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        long, copies = _long_file(root / "long"), _copies(root / "copies")
        rows = qbeast.read_carbondata(copies)
        parquet = _parquet(root / "rows.parquet", rows, COPIES)
        seconds = _both(long, parquet)
        size = sum(path.stat().st_size for path in long.iterdir())
        figures = [
            Figure("decode version 3, a core", rows.height / seconds["carbondata"] / 1e6, "M rows/s"),
            Figure(
                "decode version 3, a core, of compressed bytes", size / seconds["carbondata"] / 1e6, "MB/s"
            ),
            _over("version 3, a file,", seconds),
            _over(f"version 3, {COPIES} files,", _both(copies, parquet)),
        ]
        for version, name in OLD.items():
            own = qbeast.read_carbondata(table_path(name))
            figures.append(
                _over(f"{version},", _both(table_path(name), _parquet(root / f"{name}.parquet", own, 2)))
            )
        figures += [_of_column(long, parquet, name, dtype) for name, dtype in rows.schema.items()]
        return [*figures, _import(copies, rows, root)]


def _over(what: str, seconds: dict[str, float]) -> Figure:
    return Figure(
        f"decode {what} over pyarrow and Parquet", seconds["carbondata"] / seconds["parquet"], "x", 6.0, GOAL
    )


def _both(carbon: Path, parquet: Path) -> dict[str, float]:
    return _interleaved(
        {
            "carbondata": lambda: _drain(carbon, None),
            "parquet": lambda: pq.ParquetFile(parquet).read(use_threads=False),
        }
    )


def _parquet(path: Path, rows: pl.DataFrame, groups: int) -> Path:
    pq.write_table(rows.to_arrow(), path, row_group_size=-(-rows.height // groups), compression="snappy")
    return path


def _copies(folder: Path) -> Path:
    """Create a folder with copies of the data file."""
    source = next(table_path(SOURCE).rglob("*.carbondata"))
    folder.mkdir()
    for copy in range(COPIES):
        shutil.copy(source, folder / f"part-0-{copy}_batchno0-0-null-1700000000000.gzip.carbondata")
    return folder


def _long_file(folder: Path) -> Path:
    """Create a folder with one data file that repeats the blocklets of another one."""
    source = next(table_path(SOURCE).rglob("*.carbondata"))
    data = source.read_bytes()
    start = int.from_bytes(data[-8:], "big")
    fields = read_struct(data, start).fields
    begin = min(info.fields[2][0] for info in fields[4])
    size = start - begin
    footer = {
        **fields,
        1: fields[1] * COPIES,
        3: fields[3] * COPIES,
        4: [_moved(info.fields, copy * size) for copy in range(COPIES) for info in fields[4]],
    }
    folder.mkdir()
    whole = data[:begin] + data[begin:start] * COPIES
    end = len(whole).to_bytes(8, "big")
    (folder / source.name).write_bytes(whole + written(footer) + end)
    return folder


def _moved(info: dict[int, Any], by: int) -> ThriftStruct:
    """Return the metadata of a blocklet, moved back by a number of bytes."""
    moved = {2: [offset + by for offset in info[2]], 4: info[4] + by, 5: info[5] + by}
    return ThriftStruct({**info, **moved}, 0, 0)


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
    """Return the minimum CPU time of each call, measured in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


if __name__ == "__main__":
    print(table(run()))
