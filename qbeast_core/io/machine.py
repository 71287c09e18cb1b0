"""The machine: its memory and cgroup, caches bounded by it, and private folders for temporary files."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

from qbeast_core.support.sizing import sizing

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

_CACHE_SECONDS: Final = 60


def memory_of_machine() -> int:
    """Return `machine_bytes`, cached for a minute: the limit of a cgroup may change while the process runs.

    Of a limited address space, only the part that is not in use counts: much of it is reserved and stays empty.
    """
    return min([_machine_bytes(int(time.monotonic() // _CACHE_SECONDS)), *_address_space()])


def machine_bytes(root: Path = Path("/")) -> int:
    """Return the maximum memory of this process, by the machine and its cgroup (version 1 or 2).

    >>> machine_bytes() > 1 << 20
    True
    """
    limits = [int(text) for text in _limits(root) if text.isdecimal()]
    return min([_physical_bytes(), *limits])


class LruCache(Generic[KeyT, ValueT]):
    """The values that were stored or read last. Safe to share between threads.

    >>> cache = LruCache[str, str](max_items=2, size_of=len, max_bytes=4)
    >>> for name in ("ab", "cd", "e", "too long"):
    ...     cache.put(name, name)
    >>> [cache.get(name) for name in ("ab", "cd", "e", "too long")]
    [None, 'cd', 'e', None]
    """

    def __init__(
        self, max_items: int, size_of: Callable[[ValueT], int], *, max_bytes: int | None = None
    ) -> None:
        self._max_items, self._size_of, self._max_bytes = max_items, size_of, max_bytes
        self._lock = Lock()
        self._items: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()

    @property
    def max_bytes(self) -> int:
        """Maximum size of all values together."""
        return int(memory_of_machine() * sizing().cache_share) if self._max_bytes is None else self._max_bytes

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of a key, or None. Measure its size again, because values may grow."""
        with self._lock:
            value, _ = self._items.get(key, (None, 0))
            if value is not None:
                self._store(key, value)
        return value

    def put(self, key: KeyT, value: ValueT) -> None:
        """Set the value of a key."""
        with self._lock:
            self._store(key, value)

    def _store(self, key: KeyT, value: ValueT) -> None:
        size, max_bytes = self._size_of(value), self.max_bytes
        self._items.pop(key, None)
        if size > max_bytes:
            return
        self._items[key] = value, size
        total = sum(size for _, size in self._items.values())
        while len(self._items) > self._max_items or total > max_bytes:
            _, (_, freed) = self._items.popitem(last=False)
            total -= freed


def give_back_memory() -> None:
    """Return freed memory that the C library still holds to the system, where supported.

    The library keeps much memory of freed arrays of some megabytes, in a heap per thread. The call takes milliseconds.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not the GNU C library
        return None


@lru_cache(maxsize=1)
def _machine_bytes(_now: int) -> int:
    return machine_bytes()


def _physical_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on this system
        return 8 << 30


def _limits(root: Path) -> Iterator[str]:
    """Yield the limits of the cgroups of this process and of their parents."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            base, file = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in name.split("/") if part not in ("", "..")]
        for length in range(len(parts) + 1):
            yield _text(base.joinpath(*parts[:length], file)).strip()


def _address_space() -> Iterator[int]:
    """Yield the bytes that this process may still map, if they are limited."""
    if sys.platform == "win32":
        return
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return
    pages = _text(Path("/proc/self/statm")).partition(" ")[0]
    if pages.isdecimal():
        yield max(most - int(pages) * os.sysconf("SC_PAGE_SIZE"), 1)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


if sys.platform != "win32":
    import fcntl
    import resource

_LOCK: Final = "lock"
_YOUNG_SECONDS: Final = 600  # a new folder may not have its lock yet


class TemporaryFolder:
    """A new folder, locked until it is closed or the process ends.

    Folders with the same prefix that killed processes of the same user left behind are removed first.

    >>> folder = TemporaryFolder(Path("."), "rows-")
    >>> folder.path.is_dir()
    True
    >>> folder.close()
    >>> folder.path.exists()
    False
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        _remove_stale(parent, prefix)
        self.path, self._lock = _create_locked(parent, prefix)

    def close(self) -> None:
        """Remove the folder and its content."""
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


def private_folder(parent: Path, name: str) -> Path:
    """Return a folder that only this user can read, and create it. Raise `OSError` if another user made it.

    >>> private_folder(Path("."), "plans").is_dir()
    True
    """
    user = "" if sys.platform == "win32" else f"-{os.getuid()}"
    path = parent / f"{name}{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if sys.platform != "win32" and (
        status.st_uid != os.getuid() or status.st_mode & 0o077 or not stat.S_ISDIR(status.st_mode)
    ):
        message = f"{path} belongs to another user"
        raise PermissionError(message)
    return path


def _create_locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a folder and lock it; retry if another process removed it before the lock was taken."""
    while True:
        path = parent / f"{prefix}{uuid.uuid4().hex}"
        path.mkdir(mode=0o700)
        try:
            lock = _lock_file(path / _LOCK, os.O_CREAT | os.O_EXCL)
            if path.is_dir():
                return path, lock
            os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            continue
        except BaseException:  # also on an interrupt; raised again
            shutil.rmtree(path, ignore_errors=True)
            raise


def _remove_stale(parent: Path, prefix: str) -> None:
    """Remove our folders whose process has ended; folders that cannot be checked or removed stay."""
    if sys.platform == "win32":  # file locks are not available
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):
                    _remove_dead(Path(entry.path))


def _remove_dead(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return
    try:
        lock = _lock_file(path / _LOCK, 0)
    except FileNotFoundError:
        if time.time() - status.st_mtime > _YOUNG_SECONDS:
            shutil.rmtree(path)
        return
    try:
        shutil.rmtree(path)  # follows no link
    finally:
        os.close(lock)


def _lock_file(path: Path, flags: int) -> int:
    """Open a file and lock it; raise `OSError` if it is a link or another process holds the lock."""
    lock = os.open(path, os.O_RDWR | flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:  # also on an interrupt; raised again
        os.close(lock)
        raise
    return lock
