"""A local copy of the newest part of a remote log, to save requests.

To open a table, `deltalake` reads the footer of a checkpoint five times and each commit twice, one request after the
other. A copy needs three round trips: the hint, a listing, and all files at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final

from qbeast_core.errors import InvalidMetadataError, StorageError
from qbeast_core.io.stores.store import Entry, Store, map_files
from qbeast_core.io.stores.temporary_folder import TemporaryFolder
from qbeast_core.table.data.found_instead import LOG_DIRECTORY
from qbeast_core.table.snapshot.log_files import (
    COMMIT,
    LAST_CHECKPOINT,
    SIDECARS,
    CheckpointFiles,
    complete_checkpoints,
    hinted_checkpoint,
    newest_checkpoint,
    sidecar_paths,
)

if TYPE_CHECKING:
    from qbeast_core.table.snapshot.partition_texts import RewriteFile

_PREFIX: Final = "qbeast-log-"
_MAX_BYTES: Final = 256 << 20


class LogCopy:
    """A local copy of a log from a checkpoint on. Implements `LogFiles`; other files are read from the store.

    The folder is deleted with the last reference to the copy.
    """

    def __init__(self, store: Store, rewrite: RewriteFile | None = None) -> None:
        self._store = store
        self._rewrite = rewrite
        folder = TemporaryFolder(Path(gettempdir()), _PREFIX)
        weakref.finalize(self, folder.close)
        self._root = folder.path
        (self._root / LOG_DIRECTORY / SIDECARS).mkdir(parents=True)
        self._newest = -1
        self.local_root: Path | None = None

    @property
    def uri(self) -> str:
        """URI of the table."""
        return self._store.uri

    @property
    def newest(self) -> int:
        """The newest copied version, -1 without one."""
        return self._newest

    @property
    def path(self) -> str:
        """Folder that `deltalake` can open as a table. It has the log only."""
        return str(self._root)

    def update(self) -> None:
        """Copy newer commits."""
        entries = self._store.entries(LOG_DIRECTORY, after=f"{LOG_DIRECTORY}/{self._newest:020d}.json")
        self.add(None, entries)

    def add(
        self, checkpoint: CheckpointFiles | None, entries: Sequence[Entry], sidecars: Sequence[str] = ()
    ) -> None:
        """Copy a checkpoint and the commits of `entries` after it; without a checkpoint, newer commits."""
        before = self._newest if checkpoint is None else checkpoint.version
        commits = {int(m[1]): entry.path for entry in entries if (m := COMMIT.fullmatch(entry.path))}
        newer = sorted(number for number in commits if number > before)
        if newer != list(range(before + 1, before + 1 + len(newer))):
            raise FileNotFoundError(LOG_DIRECTORY)
        paths = [commits[number] for number in newer]
        if checkpoint is not None:  # and the commit of its version, for the commit info
            paths += [*checkpoint.paths, *(commits[number] for number in commits if number == before)]
            paths += sidecars
        bodies = map_files(self._store, self._store.get, paths)
        try:
            for path, body in zip(paths, bodies, strict=True):
                (self._root / path).write_bytes(body if self._rewrite is None else self._rewrite(path, body))
        except OSError as error:  # the disk is full, or the folder was deleted
            raise FileNotFoundError(self._root) from error
        self._newest = before + len(newer)

    def get(self, path: str) -> bytes:
        """Read a file of the log."""
        local = self._root / path
        # The hint is not needed: the copy has at most one checkpoint.
        return local.read_bytes() if local.exists() or path == LAST_CHECKPOINT else self._store.get(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part of a file of the log."""
        return self.get(path)[start : start + length]

    def size(self, path: str) -> int:
        """Return the size of a file of the log in bytes."""
        return len(self.get(path))

    def list(self, prefix: str) -> Sequence[str]:
        """List the copied files. They are complete from the checkpoint on."""
        return sorted(f"{prefix}/{path.name}" for path in (self._root / prefix).iterdir())


def copy_log(store: Store) -> LogCopy | None:
    """Copy the log files of the newest version. None: the log is local, too large, or cannot be copied."""
    if store.local_root is not None:
        return None
    hinted = hinted_checkpoint(store, None)
    after = "" if hinted is None else f"{LOG_DIRECTORY}/{hinted.version:020d}"
    entries = store.entries(LOG_DIRECTORY, after=after)
    checkpoint = newest_checkpoint([entry.path for entry in entries], version=None)
    names = () if checkpoint is None else checkpoint.paths
    if any(not name.endswith(".checkpoint.parquet") for name in names) or (hinted and not checkpoint):
        return None
    if not entries or sum(entry.size for entry in entries) > _MAX_BYTES:
        return None
    copy = LogCopy(store)
    with suppress(FileNotFoundError):
        copy.add(checkpoint, entries)
        return copy
    return None


def sound_copies(store: Store, version: int | None, rewrite: RewriteFile | None = None) -> Iterator[LogCopy]:
    """Yield copies of a log without its hint: with each of its checkpoints, the newest first, and with commits alone.

    Each copy ends at `version`, or at the newest version that any file of the log is about.
    """
    entries = store.entries(LOG_DIRECTORY)
    commits = [entry for entry in entries if (m := COMMIT.fullmatch(entry.path)) and _is_up_to(m[1], version)]
    checkpoints = complete_checkpoints([entry.path for entry in entries], version=version)
    numbers = [int(entry.path[-25:-5]) for entry in commits] + [each.version for each in checkpoints]
    end = max(numbers, default=-1) if version is None else version
    if end not in numbers:  # nothing to copy: a version that does not exist costs one listing
        return
    for checkpoint in (*checkpoints, None):
        copy = LogCopy(store, rewrite)
        with suppress(FileNotFoundError, InvalidMetadataError, StorageError, ValueError):
            copy.add(
                checkpoint, commits, () if checkpoint is None else sidecar_paths(store, checkpoint.paths)
            )
            if copy.newest == end:
                yield copy


def _is_up_to(number: str, version: int | None) -> bool:
    return version is None or int(number) <= version
