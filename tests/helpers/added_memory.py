"""Print the memory that an operation adds to its process, in bytes. No limit of the system applies.

Pages that an allocator has freed do not count: the system takes them back when it needs memory.

Arguments: the operation, the Parquet file of the rows, the table, the folder for temporary files, the budget in bytes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import Event, Thread

import deltalake
import polars as pl
import pyarrow.parquet

import qbeast

__all__ = ["main"]

MEMORY = Path("/proc/self/smaps_rollup")
INTERVAL_S = 0.01


class Peak(Thread):
    """Measures the memory of the process until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            self.peak_bytes = max(self.peak_bytes, held_bytes())

    def stop(self) -> int:
        self._stopped.set()
        self.join()
        return self.peak_bytes


def held_bytes() -> int:
    sizes = dict(re.findall(r"(\w+): +(\d+) kB", MEMORY.read_text()))
    return (int(sizes["Rss"]) - int(sizes["LazyFree"])) * 1024


def main(operation: str, source: str, table: str, spill: str, memory_bytes: str) -> None:
    """Run the operation."""
    limited = qbeast.Resources(memory_bytes=int(memory_bytes), spill_dir=spill)
    rows = pl.scan_parquet(source)
    pl.LazyFrame({"a": range(1000)}).select(pl.col("a").sum()).collect(engine="streaming")  # starts threads
    before, peak = held_bytes(), Peak()
    peak.start()
    if operation == "write":
        qbeast.write_table(rows, table, columns=["row", "c1", "c2"], resources=limited)
    elif operation == "append":
        qbeast.write_table(rows, table, mode="append", resources=limited)
    elif operation == "merge":
        qbeast.open_table(table, resources=limited).merge(rows, on="row")
    elif operation == "optimize":
        qbeast.open_table(table, resources=limited).optimize(full=True)
    else:
        qbeast.open_table(table, resources=limited).delete(pl.col("c1") < 0)
    sys.stdout.write(str(peak.stop() - before))


if __name__ == "__main__":
    assert deltalake.__version__  # the libraries are loaded before the measurement
    assert pyarrow.parquet.__name__
    main(*sys.argv[1:])
