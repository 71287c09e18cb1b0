"""The death of a process at a step that changes the file system, acted out within the process.

What Python's audit events see as a step: a file opened for writing, renamed, linked or removed, a folder made; and
the checkpoints that `deltalake` writes. From the step on which it dies, a process does nothing more: cleaning up
included.
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
    """Nobody may catch it."""


class _Killer:
    """Counts steps below a folder and stops the one that is due, and all after it."""

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
    """Die before the n-th step below a folder, counted from 0; None: live, and count."""
    if not _HOOKED:
        _HOOKED.append(True)
        sys.addaudithook(_hook)  # it cannot be taken away again
    killer, checkpoint = _Killer(table, step), DeltaTable.create_checkpoint

    def watched(known: DeltaTable) -> None:
        killer.take()
        checkpoint(known)
        killer.take()

    with mock.patch.object(DeltaTable, "create_checkpoint", watched):
        _ACTIVE.append(killer)
        try:
            yield killer
        except Killed:
            pass
        finally:
            _ACTIVE.clear()
