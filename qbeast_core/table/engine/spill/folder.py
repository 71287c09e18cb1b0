"""A folder for rows that do not fit in memory: ours alone, and gone when the call is, or its process was killed."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from qbeast_core.errors import StorageError
from qbeast_core.io.stores.temporary_folder import TemporaryFolder

_PREFIX: Final = "qbeast-spill-"


class SpillFolder:
    """A new folder below `parent`, locked as long as this process lives or until it is closed.

    Folders that killed processes of the same user left there are removed first.
    """

    def __init__(self, parent: str | os.PathLike[str] | None) -> None:
        self.parent = Path(tempfile.gettempdir() if parent is None else parent)
        with self.writing():  # a folder of another user's may hide what is in it
            is_there = self.parent.is_dir()
        if not is_there:
            msg = (
                f"there is no folder {str(self.parent)!r} to spill rows to; nothing was written. Make it, or name "
                "another one with `spill_dir`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir")
        with self.writing():
            self._folder = TemporaryFolder(self.parent, _PREFIX)
        self.path = self._folder.path

    def new_path(self) -> str:
        """Return the path of a file that is not there yet."""
        return str(self.path / uuid.uuid4().hex)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        self._folder.close()

    @contextmanager
    def writing(self) -> Generator[None]:
        """Say of an error of the system what it is about: the folder, not the table."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            what = "has no room left" if full else f"cannot be used: {error.strerror or error}"
            msg = (
                f"the folder for rows that do not fit in memory, {str(self.parent)!r}, {what}. Nothing was committed, "
                "and what was written there is removed. Name another one with `spill_dir` (with room for the rows "
                "twice), or give more memory with `memory_bytes`."
            )
            raise StorageError(msg, path=str(self.parent), argument="spill_dir") from error
