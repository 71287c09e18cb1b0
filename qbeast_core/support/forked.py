"""Raise in a process forked after the library was used: it would wait forever for threads that fork does not copy."""

from __future__ import annotations

import os
from typing import Final

from qbeast_core.errors import StorageError

FORKED: Final = (
    "this process was forked from one that had used the library, whose threads are missing here. Start processes "
    "with the method 'spawn': multiprocessing.get_context('spawn'), or mp_context= of an executor"
)


class _Process:
    """State of this process."""

    used = False
    is_broken = False

    def forked(self) -> None:
        self.is_broken = self.used


_PROCESS: Final = _Process()

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_PROCESS.forked)


def is_forked() -> bool:
    """Return whether this process was forked from one that had called `refuse_forked`."""
    return _PROCESS.is_broken


def refuse_forked(uri: str) -> None:
    """Raise in a process that was forked from one that had called this function."""
    if is_forked():
        msg = f"{uri} cannot be used here: {FORKED}."
        raise StorageError(msg, path=uri)
    _PROCESS.used = True
