"""Print the memory that an operation adds to its process, in bytes. No limit of the system applies.

Arguments: the operation, the Parquet file of the rows, the table, the folder for temporary files, the budget in bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow.parquet

import qbeast

__all__ = ["main"]

STATUS = Path("/proc/self/status")


def status_bytes(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def main(operation: str, source: str, table: str, spill: str, memory_bytes: str) -> None:
    """Run the operation."""
    options: dict[str, Any] = {"memory_bytes": int(memory_bytes), "spill_dir": spill}
    rows = pl.scan_parquet(source)
    pl.LazyFrame({"a": range(1000)}).select(pl.col("a").sum()).collect(engine="streaming")  # starts threads
    STATUS.with_name("clear_refs").write_text("5")  # resets the peak
    before = status_bytes("VmHWM")
    if operation == "write":
        qbeast.write_table(rows, table, columns=["row", "c1", "c2"], **options)
    elif operation == "append":
        qbeast.write_table(rows, table, mode="append", **options)
    elif operation == "merge":
        qbeast.open_table(table).merge(rows, on="row", **options)
    elif operation == "optimize":
        qbeast.open_table(table).optimize(full=True, **options)
    else:
        qbeast.open_table(table).delete(pl.col("c1") < 0, **options)
    sys.stdout.write(str(status_bytes("VmHWM") - before))


if __name__ == "__main__":
    assert deltalake.__version__  # the libraries are loaded before the measurement
    assert pyarrow.parquet.__name__
    main(*sys.argv[1:])
