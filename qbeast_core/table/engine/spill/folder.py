"""A folder for rows that do not fit in memory: ours alone, and gone when the call is, or its process was killed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from qbeast_core.errors import StorageError

if sys.platform != "win32":
    import fcntl

__all__ = ["SpillFolder"]

_PREFIX: Final = "qbeast-spill-"
_LOCK: Final = "lock"
_YOUNG_SECONDS: Final = 600  # a folder without a lock may be about to get one


class SpillFolder:
    """A new folder below `parent`, locked as long as this process lives or until it is closed.

    Folders that killed processes of the same user left there are removed first.

    Parameters
    ----------
    parent : path-like or None
        A folder that is there; None: the system's place for temporary files.

    Raises
    ------
    StorageError
        If there is no such folder, or nothing can be written to it.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent)
        if not self.parent.is_dir():
            msg = (
                f"there is no folder {str(self.parent)!r} to spill rows to; nothing was written. Make it, or name "
                "another one with spill_dir."
            )
            raise StorageError(msg, path=str(self.parent))
        with self.writing():
            _remove_left(self.parent)
            self.path, self._lock = _made(self.parent)

    def new_path(self) -> str:
        """Return the path of a file that is not there yet."""
        return str(self.path / uuid.uuid4().hex)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def writing(self) -> Generator[None]:
        """Say of an error of the system what it is about: the folder, not the table.

        Raises
        ------
        StorageError
            The disk is full, or files cannot be written or read there.
        """
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            what = "has no room left" if full else f"cannot be used: {error.strerror or error}"
            msg = (
                f"the folder for rows that do not fit in memory, {str(self.parent)!r}, {what}. Nothing was committed, "
                "and what was written there is removed. Name another one with spill_dir (with room for "
                "the rows twice), or give more memory with memory_bytes."
            )
            raise StorageError(msg, path=str(self.parent)) from error


def _made(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it; another one where somebody took it for a dead one before the lock was on."""
    while True:
        path = parent / f"{_PREFIX}{uuid.uuid4().hex}"
        path.mkdir(mode=0o700)
        try:
            lock = _locked(path / _LOCK, os.O_CREAT | os.O_EXCL)
            if path.is_dir():
                return path, lock
            os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            continue
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise


def _remove_left(parent: Path) -> None:
    """Remove folders of ours whose process is gone; whatever cannot be told or removed stays."""
    if sys.platform == "win32":  # no lock tells there who lives
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
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
    except BaseException:
        os.close(lock)
        raise
    return lock
