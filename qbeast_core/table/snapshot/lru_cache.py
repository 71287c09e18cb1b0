"""Least-recently-used cache with a maximum number and size of values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final, Generic, TypeVar

from qbeast_core.io.machine import memory_of_machine

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

# Maximum share of the memory of the machine, or of its cgroup.
CACHE_SHARE: Final = 1 / 16


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
        return int(memory_of_machine() * CACHE_SHARE) if self._max_bytes is None else self._max_bytes

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
