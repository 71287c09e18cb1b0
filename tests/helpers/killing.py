"""Simulate the death of a process at a step that changes the file system.

Steps are audit events of Python (a file is opened for writing, renamed, linked or removed, a folder is created), and
checkpoints of `deltalake`. All later steps fail too, so no code cleans up.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from deltalake import DeltaTable

__all__ = ["Killed", "killed_before"]

_STEPS = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir"})


class Killed(BaseException):
    """Raised at the step; no code may catch it."""


class _Killer:
    """Counts steps below a folder, and raises from a step on."""

    def __init__(self, table: Path, step: int | None) -> None:
        self.table, self.left, self.steps = str(table), step, 0
        self.lock = threading.Lock()

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_WRONLY)
        if (event in _STEPS or writes) and str(args[0]).startswith(self.table):
            self.take()

    def take(self) -> None:
        with self.lock:
            if self.left is not None and self.steps >= self.left:
                raise Killed
            self.steps += 1


_ACTIVE: list[_Killer] = []
_HOOKED: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _ACTIVE:
        _ACTIVE[0].see(event, args)


@contextmanager
def killed_before(step: int | None, table: Path) -> Iterator[_Killer]:
    """Die before the n-th step below a folder, counted from 0; None only counts."""
    if not _HOOKED:
        _HOOKED.append(True)
        sys.addaudithook(_hook)  # audit hooks cannot be removed
    killer, checkpoint = _Killer(table, step), DeltaTable.create_checkpoint

    def watched(table: DeltaTable) -> None:
        killer.take()
        checkpoint(table)
        killer.take()

    with mock.patch.object(DeltaTable, "create_checkpoint", watched):
        _ACTIVE.append(killer)
        try:
            yield killer
        except Killed:
            pass
        finally:
            _ACTIVE.clear()
