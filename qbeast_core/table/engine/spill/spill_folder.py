"""Temporary folder for rows that do not fit in memory. It is removed at the end of the call, or after a crash."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from qbeast_core.errors import StorageError
from qbeast_core.io.machine import TemporaryFolder

_PREFIX: Final = "qbeast-spill-"


class SpillFolder:
    """New folder in `parent`, locked until it is closed or the process ends.

    Folders of killed processes of the same user are removed first.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent)
        exists = False
        # Access to a folder of another user may fail. `Path.is_dir` hides that from Python 3.14 on.
        with self.writing(), suppress(FileNotFoundError, NotADirectoryError):
            exists = stat.S_ISDIR(self.parent.stat().st_mode)
        if not exists:
            msg = (
                f"there is no folder {str(self.parent)!r} to spill rows to. Make it, or name "
                "another one with `spill_dir`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir")
        with self.writing():
            self._folder = TemporaryFolder(self.parent, _PREFIX)
        self.path = self._folder.path

    def new_path(self) -> str:
        """Return the path of a new file."""
        return str(self.path / uuid.uuid4().hex)

    def close(self) -> None:
        """Remove the folder and its files."""
        self._folder.close()

    @contextmanager
    def writing(self) -> Generator[None]:
        """Convert errors of the system to a `StorageError` about the folder, not the table."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            problem = "has no room left" if full else f"cannot be used: {error.strerror or error}"
            msg = (
                f"the folder for rows that do not fit in memory, {str(self.parent)!r}, {problem}, "
                "and the temporary files are removed. Pass another folder with `spill_dir` (with room for "
                "the rows twice), or more memory with `memory_bytes`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir") from error
