"""An optimize that kills itself before the n-th step that changes the file system; run as a program.

Arguments: the table, n. For steps see `tests.helpers.killed_writer`.
"""

from __future__ import annotations

import sys

import qbeast
from tests.helpers.killed_writer import kill_before
from tests.helpers.small_files import small_files

if __name__ == "__main__":
    table, step = sys.argv[1:]
    kill_before(int(step), table)
    with small_files(file_rows=60):
        qbeast.open_table(table).optimize()
