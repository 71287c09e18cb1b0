"""A writer that kills itself before the n-th step that changes the file system; run as a program.

Arguments: the table, the mode, n. Steps are audit events of Python: a file is opened for writing, renamed, linked or
removed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import polars as pl

import qbeast
from tests.helpers.small_files import small_files

STEPS = ("os.rename", "os.link", "os.remove")


def rows(start: int) -> pl.DataFrame:
    """Return forty rows, enough for two small files."""
    return pl.DataFrame({"row": range(start, start + 40)}).with_columns(a=pl.col("row") % 7)


def kill_before(step: int, table: str) -> None:
    left = [step]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_WRONLY)
        if (event in STEPS or writes) and table in str(args[0]):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    table, mode, step = sys.argv[1:]
    kill_before(int(step), table)
    with small_files(file_rows=20):
        qbeast.write_table(rows(100), table, columns=["row", "a"], mode=mode, cube_size=10)  # type: ignore[arg-type] # tested elsewhere
