"""A table in a local folder; written files are durable, also after a power cut."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from qbeast_core.errors import StorageError
from qbeast_core.io.stores.resolve import locate_file, refuse_link_out
from qbeast_core.io.stores.store import Entry, Range, merge_ranges, split_blocks

_MAX_READ_BYTES: Final = 1 << 30  # systems refuse 2 GiB, or read less


class LocalStore:
    """A `Store` in a local folder. Writes create missing folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = LocalStore(folder)
    ...     store.put("a/b.bin", b"0123456789")
    ...     store.list("a"), [bytes(part) for part in store.get_ranges("a/b.bin", [(2, 3), (9, 1)])]
    (['a/b.bin'], [b'234', b'9'])
    """

    def __init__(self, root: str | os.PathLike[str], *, allow_absolute_paths: bool = False) -> None:
        self.uri = os.fspath(root)
        self.local_root = Path(self.uri)
        self.allow_absolute_paths = allow_absolute_paths

    def locate(self, path: str) -> str:
        """Return the path of a file for other libraries; raise if a symbolic link leads out of the table."""
        location = locate_file(self.uri, path, allow_absolute=self.allow_absolute_paths)
        if not self.allow_absolute_paths:
            refuse_link_out(self.uri, path)
        return location

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        with _errors("read", path):
            return self._at(path).read_bytes()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read one range."""
        return bytes(self.get_ranges(path, [(start, length)])[0])

    def get_ranges(self, path: str, ranges: Sequence[Range]) -> list[memoryview]:
        """Read several ranges; the buffers share memory where ranges touch."""
        merged = merge_ranges(ranges)
        with _errors("read", path), _opened(self._at(path), os.O_RDONLY) as file:
            _refuse_short(file, path, max(map(sum, merged), default=0))
            _request(file, merged)
            blocks = [_read(file, path, start, length) for start, length in merged]
        return split_blocks(merged, blocks, ranges)

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Write a file, and replace an existing one."""
        target = self._entry(path)
        with _errors("write", path), _temporary_file(target, data) as file:
            file.replace(target)

    def put_if_absent(self, path: str, data: bytes | memoryview) -> None:
        """Write a file unless it exists.

        A hard link decides which writer wins, as in deltalake and obstore, so all three exclude each other.
        """
        target = self._entry(path)
        with _errors("write", path), _temporary_file(target, data) as file:
            os.link(file, target)
            file.unlink()

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder."""
        with _errors("list", prefix):
            files = (p for p in (self.local_root / prefix).rglob("*") if p.is_file())
            return sorted(p.relative_to(self.local_root).as_posix() for p in files)

    def entries(self, prefix: str, *, after: str = "") -> Sequence[Entry]:
        """List the files below a folder, with their sizes and ages."""
        entries: list[Entry] = []
        for path in self.list(prefix):
            if path <= after:
                continue
            with suppress(FileNotFoundError), _errors("list", path):  # another process cleans up too
                about = (self.local_root / path).stat()
                entries.append(Entry(path, about.st_size, about.st_mtime_ns // 1_000_000))
        return entries

    def size(self, path: str) -> int:
        """Return a file's length in bytes."""
        with _errors("read", path):
            return self._at(path).stat().st_size

    def delete(self, path: str) -> None:
        """Remove a file if it exists."""
        with _errors("delete", path):
            self._entry(path).unlink(missing_ok=True)

    def _entry(self, path: str) -> Path:
        """Return the path to replace or remove: for a symbolic link, the link itself."""
        location = locate_file(self.uri, path, allow_absolute=self.allow_absolute_paths)
        if not self.allow_absolute_paths and "/" in path:
            refuse_link_out(self.uri, path.rpartition("/")[0])
        return Path(location)

    def _at(self, path: str) -> Path:
        return Path(self.locate(path))


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of a file or folder, None if nothing is there; raise StorageError if it cannot be seen.

    `Path.exists` and its like return False from Python 3.14 on where permissions forbid to look.
    """
    # ValueError: a name with a null character.
    with _errors("read", str(path)), suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return path.stat()
    return None


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; raise StorageError if it cannot be seen."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Return whether a path is a file; raise StorageError if it cannot be seen."""
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; raise StorageError if it cannot be listed."""
    with _errors("list", str(folder)), os.scandir(folder) as entries:
        yield from entries


@contextmanager
def _errors(action: str, path: str) -> Generator[None]:
    try:
        yield
    except (FileExistsError, StorageError):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and action != "write":
            raise
        # The path that cannot be created, or is not a folder.
        where = f" ({error.filename})" if action == "write" and error.filename else ""
        message = (
            f"cannot {action} {path!r}: {error.strerror or error}{where}. Remove the cause and try again."
        )
        raise StorageError(message, path=path) from error


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    # Windows changes the ends of lines without O_BINARY. Other systems have no such flag.
    file = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _temporary_file(target: Path, data: bytes | memoryview) -> Generator[Path]:
    """Write a durable temporary file beside the target; sync the folder after the caller renamed it."""
    _make_folders(target.parent)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        yield temporary
        _sync_folder(target.parent)
    except BaseException:  # also on an interrupt; raised again
        temporary.unlink(missing_ok=True)
        raise


def _make_folders(folder: Path) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for created in reversed(missing):
        _sync_folder(created.parent)


def _sync_folder(folder: Path) -> None:
    with suppress(PermissionError), _opened(folder, os.O_RDONLY) as file:  # Windows opens no folder
        os.fsync(file)


def _request(file: int, ranges: Sequence[Range]) -> None:
    """Request all ranges from the disk at once. Without this, Linux waits for each, and reads up to 128 KiB ahead."""
    if sys.platform == "linux":
        with suppress(OSError):  # some kernels do not support it
            for start, length in ranges:
                os.posix_fadvise(file, start, length, os.POSIX_FADV_WILLNEED)


def _refuse_short(file: int, path: str, end: int) -> None:
    """Raise if a file ends before a byte, before memory is allocated: the log may name any number."""
    if end > os.fstat(file).st_size:
        raise _ended(path, end)


def _read(file: int, path: str, start: int, length: int) -> memoryview:
    os.lseek(file, start, os.SEEK_SET)  # the descriptor is not shared; Windows has no `pread`
    block = os.read(file, min(length, _MAX_READ_BYTES))
    while len(block) < length:
        more = os.read(file, min(length - len(block), _MAX_READ_BYTES))
        if not more:
            raise _ended(path, start + length)
        block += more
    return memoryview(block)


def _ended(path: str, end: int) -> StorageError:
    message = f"{path!r} ends before byte {end}: it was cut or replaced. Restore it and try again."
    return StorageError(message, path=path)
