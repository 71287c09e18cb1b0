"""An operation with temporary files that kills itself before the n-th step; run as a program.

Arguments: the table, the folder for temporary files, the operation, n. A step is a write to a temporary file, or a
change of the table's files; the program kills itself before the n-th.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import qbeast
from qbeast_core.table.engine import spill as files
from tests.helpers.small_files import small_files

__all__ = ["OPERATIONS", "more", "rows", "run"]

COLUMNS = ["row", "a"]


def rows() -> pl.DataFrame:
    return pl.DataFrame({"row": range(120)}).with_columns(a=pl.col("row") % 7)


def more() -> pl.DataFrame:
    """Return rows of which half are in the table."""
    return pl.DataFrame({"row": range(100, 140)}).with_columns(a=-pl.col("row"))


def run(operation: str, table: Path, spill: Path) -> Any:
    """Run the operation with the minimum memory."""
    resources = qbeast.Resources(engine="spill", spill_dir=spill, memory_bytes=4 << 20)
    with small_files(file_rows=20):
        return OPERATIONS[operation](table, resources)


OPERATIONS: dict[str, Callable[[Path, qbeast.Resources], Any]] = {
    "write": lambda table, how: qbeast.write_table(
        rows().iter_slices(9), table, columns=COLUMNS, cube_size=10, mode="overwrite", resources=how
    ),
    "append": lambda table, how: qbeast.write_table(more().lazy(), table, mode="append", resources=how),
    "optimize": lambda table, how: qbeast.open_table(table, resources=how).optimize(full=True),
    "merge": lambda table, how: qbeast.open_table(table, resources=how).merge(more().iter_slices(9), "row"),
}


def kill_before(step: int, table: str) -> None:
    left = [step]

    def take() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_WRONLY)
        if (event in {"os.rename", "os.link"} or writes) and str(args[0]).startswith(table):
            take()

    write = files.SpillWriter.write  # every write to a temporary file

    def counted(writer: Any, part: Any) -> None:
        take()
        write(writer, part)

    files.SpillWriter.write = counted  # type: ignore[method-assign]
    sys.addaudithook(hook)


if __name__ == "__main__":
    where, spill_dir, name, number = sys.argv[1:]
    kill_before(int(number), where)
    run(name, Path(where), Path(spill_dir))
