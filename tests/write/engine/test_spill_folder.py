"""Folders for temporary files: locked while their process lives, removed afterwards; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import polars as pl
import pytest

import qbeast
from qbeast_core.io.machine import machine_bytes
from qbeast_core.table.engine.engine import Budget, bytes_of_text
from qbeast_core.table.engine.spill import SpillFolder
from tests.helpers.users import another_user

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from qbeast_core.io.machine import TemporaryFolder
    folder = TemporaryFolder(Path(sys.argv[1]), "qbeast-spill-")
    (folder.path / "1").write_bytes(b"rows")
    print(folder.path.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    living = SpillFolder(tmp_path)
    Path(living.new_path()).write_bytes(b"rows")
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path], capture_output=True, text=True, check=False
    )
    dead = tmp_path / made.stdout.strip()
    assert dead.is_dir()
    another = SpillFolder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([living.path, another.path])
    assert len(list(living.path.iterdir())) == 2
    assert living.path.stat().st_mode & 0o777 == 0o700
    for folder in (living, another):
        folder.close()
    assert not list(tmp_path.iterdir())


def test_foreign_files_are_kept(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").touch()
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / "qbeast-spill-link").symlink_to(outside)
    (parent / "qbeast-spill-file").touch()
    (parent / "another").mkdir()
    (parent / "another" / "lock").touch()
    young = parent / "qbeast-spill-young"
    young.mkdir()
    linked = parent / "qbeast-spill-linked"
    linked.mkdir()
    (linked / "lock").symlink_to(outside / "lock")
    before = sorted(parent.rglob("*"))
    SpillFolder(parent).close()
    assert sorted(parent.rglob("*")) == before
    assert (outside / "lock").exists()
    os.utime(young, (0, 0))
    SpillFolder(parent).close()
    assert not young.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_folders_of_other_users_stay(tmp_path: Path) -> None:
    theirs = tmp_path / "qbeast-spill-theirs"
    theirs.mkdir()
    (theirs / "lock").touch()
    os.chown(theirs, 12345, 12345)
    SpillFolder(tmp_path).close()
    assert (theirs / "lock").exists()


@pytest.mark.parametrize(("mode", "below"), [(0o555, ""), (0o500, "hidden")])
def test_folder_that_permissions_forbid_is_named(mode: int, below: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / below).mkdir(exist_ok=True)
        Path(name).chmod(mode if os.getuid() == 0 else mode & (0o555 if not below else 0))
        with another_user(), pytest.raises(qbeast.StorageError, match="cannot be used: Permission denied"):
            SpillFolder(Path(name) / below)
        Path(name).chmod(0o700)


def test_folder_on_read_only_disk_is_named() -> None:
    with pytest.raises(qbeast.StorageError, match="cannot be used"):
        SpillFolder("/proc/self")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "3000000\n"}, 3_000_000),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/memory.max": "2000000",
                "sys/fs/cgroup/a/memory.max": "max",
            },
            2_000_000,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/x\n1:name=systemd:/\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1000000",
            },
            1_000_000,
        ),
        ({"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "5000000"}, 5_000_000),
    ],
)
def test_cgroup_limits_the_memory(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert machine_bytes(tmp_path) > 1 << 27
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert machine_bytes(tmp_path) == expected


def test_sizes_parse_in_usual_forms() -> None:
    texts = ["1", "4KiB", "4 kb", "1.5M", "2gib", "1TB"]
    sizes = [1, 4096, 4096, 3 << 19, 2 << 30, 1 << 40]
    assert [bytes_of_text(text, argument="memory_bytes") for text in texts] == sizes
    for text in ("", "GiB", "-1", "1e9", "2 GiBs"):
        with pytest.raises(qbeast.InvalidInputError, match="is not a size"):
            bytes_of_text(text, argument="memory_bytes")


@pytest.mark.parametrize(
    ("memory_bytes", "cores", "writers"),
    [(64 << 30, 48, 48), (512 << 20, 2, 2), (512 << 20, 48, 2), (4 << 20, 48, 1)],
)
def test_writers_use_all_cores_memory_allows(memory_bytes, cores, writers) -> None:
    assert Budget(memory_bytes, cores).writers == writers


FULL = """
    import resource, sys
    import polars as pl
    import qbeast
    rows = pl.DataFrame({"a": range(100_000)})
    table, spill = sys.argv[1:]
    SPILL = qbeast.Resources(engine="spill", spill_dir=spill)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # a disk with less room than the rows need
    steps = {
        "write": lambda given: qbeast.write_table(given, table, mode="append", resources=SPILL),
        "merge": lambda given: qbeast.open_table(table, resources=SPILL).merge(given, "a"),
    }
    for name, step in steps.items():
        for given in (rows, rows.lazy(), rows.iter_slices(5000)):
            try:
                step(given)
            except qbeast.StorageError as error:
                print(name, "has no room left" in str(error), error.path == spill)
"""


@pytest.mark.sweep
def test_full_disk_ends_call_and_leaves_nothing(tmp_path: Path) -> None:
    spill, table = tmp_path / "spilling", tmp_path / "t"
    spill.mkdir()
    qbeast.write_table(pl.DataFrame({"a": [1]}), table, columns=["a"])
    before = sorted(table.rglob("*"))
    program = [sys.executable, "-c", textwrap.dedent(FULL), str(table), str(spill)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["write True True"] * 3 + ["merge True True"] * 3
    assert not list(spill.iterdir())
    assert sorted(table.rglob("*")) == before
