"""Folders for temporary files: ours alone, and gone with their process, also if it was killed."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

_LOCK: Final = "lock"
_YOUNG_SECONDS: Final = 600  # a folder without a lock may be about to get one


class TemporaryFolder:
    """A new folder, locked as long as this process lives or until it is closed.

    Folders of that prefix that killed processes of the same user left there are removed first.

    >>> folder = TemporaryFolder(Path("."), "rows-")
    >>> folder.path.is_dir()
    True
    >>> folder.close()
    >>> folder.path.exists()
    False
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        _remove_left(parent, prefix)
        self.path, self._lock = _made(parent, prefix)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


def _made(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder and lock it; another one where somebody took it for a dead one before the lock was on."""
    while True:
        path = parent / f"{prefix}{uuid.uuid4().hex}"
        path.mkdir(mode=0o700)
        try:
            lock = _locked(path / _LOCK, os.O_CREAT | os.O_EXCL)
            if path.is_dir():
                return path, lock
            os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            continue
        except BaseException:  # an interrupt too leaves no folder; raised again
            shutil.rmtree(path, ignore_errors=True)
            raise


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove folders of ours whose process is gone; whatever cannot be told or removed stays."""
    if sys.platform == "win32":  # no lock tells there who lives
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _remove_dead(Path(entry.path))


def _remove_dead(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    try:
        lock = _locked(path / _LOCK, 0)
    except FileNotFoundError:
        if time.time() - found.st_mtime > _YOUNG_SECONDS:
            shutil.rmtree(path)
        return
    try:
        shutil.rmtree(path)  # follows no link
    finally:
        os.close(lock)


def _locked(path: Path, flags: int) -> int:
    """Open a file and lock it; raise `OSError` if it is a link, or a living process holds it."""
    lock = os.open(path, os.O_RDWR | flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:  # an interrupt too leaves no file open; raised again
        os.close(lock)
        raise
    return lock
