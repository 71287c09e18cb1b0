"""Tables of a few files that are opened by a plan file, in parts of two files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable

from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.small_files import PLANNED, resized

__all__ = ["planned"]


@contextmanager
def planned(path: Path, **sizes: int) -> Iterator[Path]:
    """Copy a table, which is in no cache of the process then, and open the copy by a plan file within the block."""
    copy = path.with_name(f"{path.name} planned")
    shutil.copytree(path, copy)
    DeltaTable(copy).create_checkpoint()
    with resized(**{**PLANNED, **sizes}):
        assert load_snapshot(copy).planned is not None
        yield copy
