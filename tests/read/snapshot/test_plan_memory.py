"""Under a limit of address space, the metadata of too many files ends in an error of ours, not in an abort."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.handmade_log import PROTOCOL, metadata, write_log
from tests.helpers.plan_files import checkpoint, priced

ROOT = Path(__file__).parents[3]
FILES = 20_000

LIMITED = """
import resource
limit = {limit}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from qbeast_core.io.machine import memory_of_machine
print(memory_of_machine())
"""

SCRIPT = """
import pathlib, resource, sys
import qbeast

path, spare = sys.argv[1], int(sys.argv[2])
qbeast.read_table(path, where="price < -5")  # loads what is slow, and starts threads, whose stacks take space
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + spare, used + spare))
table = qbeast.open_table(path)
print(table.snapshot.planned is not None, table.rows("price < 5").explain().rows_total)
try:
    len(table.snapshot.files)
except qbeast.MemoryBudgetError as error:
    print(error.files, error)
print(table.rows("price < 9").explain().rows_total)
"""

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count the address space"),
]


def output_of(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    ran = subprocess.run(command, capture_output=True, check=False, text=True, timeout=300, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_address_space_that_is_left_is_the_memory() -> None:
    limit = 4 << 30
    (left,) = output_of(LIMITED.format(limit=limit))
    assert 0 < int(left) < limit


@pytest.mark.timeout(600)
def test_too_many_files_for_the_address_space_are_refused(tmp_path: Path) -> None:
    blocks = [f"{number:06d}" * 700 for number in range(FILES)]
    adds = [priced(f"f{number}", number, tags={"blocks": text}) for number, text in enumerate(blocks)]
    write_log(tmp_path / "t", [PROTOCOL, metadata()], map(json.dumps, adds))
    checkpoint(tmp_path / "t")
    lines = output_of(SCRIPT, str(tmp_path / "t"), str(500 << 20))
    assert (lines[0], lines[2]) == (f"True {5 * FILES}", f"{5 * FILES}")
    assert lines[1].startswith(f"{FILES} the metadata of {FILES:,} files")
    assert "Table.optimize()" in lines[1]
