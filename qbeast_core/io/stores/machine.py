"""Memory: the limit of the machine or of this process's cgroup, and a call that returns free memory to the system."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

_CACHE_SECONDS: Final = 60


def memory_of_machine() -> int:
    """Return `machine_bytes`, cached for a minute: the limit of a cgroup may change while the process runs."""
    return _machine_bytes(int(time.monotonic() // _CACHE_SECONDS))


def machine_bytes(root: Path = Path("/")) -> int:
    """Return the maximum memory of this process, by the machine and its cgroup (version 1 or 2).

    >>> machine_bytes() > 1 << 20
    True
    """
    limits = [int(text) for text in _limits(root) if text.isdecimal()]
    return min([_physical_bytes(), *limits])


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


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
